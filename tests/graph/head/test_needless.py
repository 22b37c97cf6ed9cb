"""From which tensor the post-processing starts, and what it leaves out by that."""

from __future__ import annotations

import numpy as np
import pytest
from nets import ending

from trtpost.errors import ModelError
from trtpost.graph.head import needless

SIZE = (8, 12)
SCORES, LAST = "float[1,4,8,12] out", "float[1,8,12,4] out"
NHWC = "t = Transpose <perm = [0, 2, 3, 1]> (y)\n"
AWAY, BACK = "a = Transpose <perm = [0, 3, 2, 1]> (y)\n", "out = Transpose <perm = [0, 3, 2, 1]> (s)"
ARGMAX = "i = ArgMax <axis = 1> (y)\n"


def started(out, **asked):
    """Name of the tensor, its layout, and what is dropped."""
    start = needless.start_before(out, SIZE, **asked)
    return start.tensor.name, start.layout, start.dropped


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        ("out = Relu (y)", SCORES, ("out", ())),
        ("out = Identity (y)", SCORES, ("y", ())),  # not worth a word
        ("out = Softmax <axis = 1> (y)", SCORES, ("y", ("Softmax",))),
        ("out = LogSoftmax <axis = -3> (y)", SCORES, ("y", ("LogSoftmax",))),
        ("out = Softmax <axis = 2> (y)", SCORES, ("out", ())),  # over rows
        ("out = Softmax (y)", SCORES, ("out", ())),  # over columns, where no axis is said
        (f"{NHWC} out = Softmax (t)", LAST, ("y", ("Softmax", "Transpose"))),
        ("out = Sigmoid (y)", SCORES, ("y", ("Sigmoid",))),
        ("s = Sigmoid (y)\n out = Softmax <axis = 1> (s)", SCORES, ("y", ("Softmax", "Sigmoid"))),
        ("out = Transpose <perm = [0, 3, 2, 1]> (y)", "float[1,12,8,4] out", ("out", ())),  # the image on its side
        ("out = Transpose (y)", "float[12,8,4,1] out", ("out", ())),  # all axes turned round
        (f"{NHWC} out = Reshape (t, flat)", "float[1,96,4] out", ("y", ("Reshape", "Transpose"))),
        (
            "f = Reshape (y, rows)\n out = Transpose <perm = [0, 2, 1]> (f)",
            "float[1,96,4] out",
            ("y", ("Transpose", "Reshape")),
        ),
        ("out = QuantizeLinear (y, scale)", "uint8[1,4,8,12] out", ("y", ("QuantizeLinear",))),
        (f"{AWAY} s = Softmax (a)\n {BACK}", SCORES, ("y", ("Transpose", "Softmax", "Transpose"))),
        (f"{AWAY} s = Sigmoid (a)\n {BACK}", SCORES, ("y", ("Transpose", "Sigmoid", "Transpose"))),
        (f"{AWAY} s = Softmax <axis = 1> (a)\n {BACK}", SCORES, ("out", ())),  # over columns
        (f"{AWAY} out = Softmax (a)", "float[1,12,8,4] out", ("out", ())),  # on its side: nothing tells classes
        (
            f"{AWAY} s = LogSoftmax (a)\n out = Transpose <perm = [0, 2, 1, 3]> (s)",
            LAST,
            ("y", ("LogSoftmax", "Transpose")),
        ),
        (
            "a = Transpose <perm = [3, 0, 2, 1]> (y)\n s = Softmax (a)\n"
            "b = Transpose <perm = [1, 2, 0, 3]> (s)\n out = Identity (b)",
            LAST,
            ("y", ("Softmax", "Transpose")),
        ),
    ],
)
def test_what_argmax_makes_needless(body, out, expected):
    tensor = ending(body, out, flat=np.array([1, 96, 4]), rows=np.array([1, 4, 96]), scale=np.float32(1))
    assert started(tensor, head="argmax") == (expected[0], None, expected[1])


@pytest.mark.parametrize(
    ("body", "out", "layout", "logits"),
    [
        (
            f"{NHWC} out = Identity (t)",
            LAST,
            "NHWC",
            "t",
        ),  # it is that of the output, and of nothing before a Transpose
        ("out = Softmax <axis = 1> (y)", SCORES, "NCHW", "y"),
        ("out = Softmax <axis = 1> (y)", SCORES, "NHWC", "out"),
    ],
)
def test_a_layout_that_is_said_stays_true(body, out, layout, logits):
    assert started(ending(body, out), layout=layout)[:2] == (logits, layout)


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        ("out = Sigmoid (y)", "float[1,1,8,12] out", ("out", ())),  # a threshold may be meant of it
        ("out = QuantizeLinear (y, scale)", "uint8[1,1,8,12] out", ("y", ("QuantizeLinear",))),
        ("q = QuantizeLinear (y, scale)\n out = Identity (q)", "uint8[1,1,8,12] out", ("y", ("QuantizeLinear",))),
        (
            "q = QuantizeLinear (y, scale)\n out = Transpose <perm = [0, 2, 3, 1]> (q)",
            "uint8[1,8,12,1] out",
            ("y", ("Transpose", "QuantizeLinear")),
        ),
        (  # on its side
            "q = QuantizeLinear (y, scale)\n out = Transpose <perm = [0, 3, 2, 1]> (q)",
            "uint8[1,12,8,1] out",
            ("out", ()),
        ),
    ],
)
def test_scores_of_one_channel_are_kept(body, out, expected):
    tensor = ending(body, out, classes=1, scale=np.float32(1))
    assert started(tensor, head="threshold") == (expected[0], None, expected[1])


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        ("out = Cast <to = 6> (i)", "int32[1,1,8,12] out", ("i", ("Cast",))),
        ("out = Cast <to = 2> (i)", "uint8[1,1,8,12] out", ("i", ("Cast",))),
        ("out = Cast <to = 9> (i)", "bool[1,1,8,12] out", ("out", ())),  # ids would be others
        ("s = Squeeze (i, axis)\n out = Cast <to = 1> (s)", "float[1,8,12] out", ("i", ("Cast", "Squeeze"))),
        ("out = Transpose <perm = [0, 2, 3, 1]> (i)", "int64[1,8,12,1] out", ("out", ())),
        ("f = Cast <to = 1> (i)\n m = Mul (f, two)\n out = Cast <to = 6> (m)", "int32[1,1,8,12] out", ("out", ())),
    ],
)
def test_class_ids_before_their_last_type(body, out, expected):
    tensor = ending(ARGMAX + body, out, axis=np.array([1]), two=np.float32(2))
    assert started(tensor) == (expected[0], None, expected[1])


@pytest.mark.parametrize(("classes", "logits"), [(256, "i"), (257, "out")])
def test_uint8_holds_256_class_ids(classes, logits):
    out = ending(f"{ARGMAX} out = Cast <to = 2> (i)", "uint8[1,1,8,12] out", classes=classes)
    assert started(out)[0] == logits


ENLARGED = "float[1,1,16,24] out"
FLOATS = f"{ARGMAX} f = Cast <to = 1> (i)\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f'{FLOATS} out = Resize <mode = "linear"> (f, , twice)', ("i", ("Resize", "Cast"))),
        (f'{FLOATS} r = Resize <mode = "linear"> (f, , twice)\n out = Round (r)', ("i", ("Round", "Resize", "Cast"))),
        (
            f'{FLOATS} r = Resize <mode = "linear"> (f, , twice)\n out = Resize (r, , once)',
            ("i", ("Resize", "Resize", "Cast")),
        ),
        (f"{FLOATS} out = Resize (f, , twice)", ("out", ())),  # nearest, where no mode is said
        (
            f'{FLOATS} r = Resize <mode = "linear"> (f, , twice)\n out = Resize <mode = "cubic"> (r, , once)',
            ("i", ("Resize", "Resize", "Cast")),
        ),
    ],
)
def test_class_ids_before_they_are_interpolated(body, expected):
    twice = np.array([1, 1, 2, 2], np.float32)
    out = ending(body, ENLARGED, twice=twice, once=np.ones(4, np.float32))
    assert started(out, head="labels") == (expected[0], None, expected[1])


def test_interpolated_class_ids_that_are_moved_are_refused():
    body = f'{FLOATS} r = Resize <mode = "linear"> (f, , twice)\n out = Transpose <perm = [0, 2, 3, 1]> (r)'
    out = ending(body, "float[1,16,24,1] out", twice=np.array([1, 1, 2, 2], np.float32))
    with pytest.raises(ModelError, match=r"\('r', a linear Resize\) and so invents classes: .* --logits 'f'"):
        started(out, head="labels")


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        ("out = ArgMax <axis = 1> (y)", "int64[1,1,8,12] out", ("y", "NCHW", ("ArgMax",))),
        ("out = ArgMax <axis = -3, keepdims = 0> (y)", "int64[1,8,12] out", ("y", "NCHW", ("ArgMax",))),
        (f"{NHWC} out = ArgMax <axis = 3> (t)", "int64[1,8,12,1] out", ("y", None, ("ArgMax", "Transpose"))),
        (f"{ARGMAX} out = Reshape (i, pixels)", "int64[1,96] out", ("y", "NCHW", ("ArgMax",))),
        (f"{ARGMAX} out = Reshape (i, turned)", "int64[1,12,8] out", ("out", None, ())),  # rows are no rows any more
        ("out = ArgMax <axis = 1, select_last_index = 1> (y)", "int64[1,1,8,12] out", ("out", None, ())),
        ("out = ArgMax (y)", "int64[1,4,8,12] out", ("out", None, ())),  # over the batch, where no axis is said
        ("out = ArgMax <axis = 2> (y)", "int64[1,4,1,12] out", ("out", None, ())),
        (f"{ARGMAX} out = Cast <to = 9> (i)", "bool[1,1,8,12] out", ("out", None, ())),
        (f"{AWAY} s = ArgMax <axis = 3> (a)\n {BACK}", "int64[1,1,8,12] out", ("y", "NCHW", ("ArgMax", "Transpose"))),
        (
            f"{AWAY} p = Softmax (a)\n s = ArgMax <axis = 3, keepdims = 0> (p)\nout = Transpose <perm = [0, 2, 1]> (s)",
            "int64[1,8,12] out",
            ("y", "NCHW", ("ArgMax", "Softmax", "Transpose")),
        ),
        (
            f"{AWAY} p = Softmax <axis = 2> (a)\n s = ArgMax <axis = 3> (p)\n {BACK}",
            "int64[1,1,8,12] out",
            ("out", None, ()),
        ),
        (
            f"{ARGMAX} out = Transpose <perm = [0, 1, 3, 2]> (i)",
            "int64[1,1,12,8] out",
            ("out", None, ()),
        ),  # on its side
        (f"{ARGMAX} out = Transpose <perm = [0, 2, 3, 1]> (i)", "int64[1,8,12,1] out", ("y", "NCHW", ("ArgMax",))),
    ],
)
def test_logits_before_argmax(body, out, expected):
    tensor = ending(body, out, pixels=np.array([1, 96]), turned=np.array([1, 12, 8]))
    assert started(tensor, before_argmax=True) == expected


def test_a_sigmoid_of_one_channel_is_not_needless():
    assert started(ending("out = Sigmoid (y)", "float[1,1,8,12] out", classes=1), head="argmax") == ("out", None, ())


def test_multilabel_keeps_the_sigmoid():
    out = ending("s = Sigmoid (y)\n out = ArgMax <axis = 1> (s)", "int64[1,1,8,12] out")
    assert started(out, head="multilabel") == ("s", "NCHW", ("ArgMax",))
    assert started(out, before_argmax=True) == ("y", None, ("ArgMax", "Sigmoid"))


@pytest.mark.parametrize("axis", [3, 1])
def test_a_turned_softmax_of_before_opset_13(axis):
    out = ending(f"{AWAY} s = Softmax <axis = {axis}> (a)\n {BACK}", SCORES, opset=11)
    assert started(out)[0] == "y"


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("axis", "expected"), [(" <axis = 1>", "y"), ("", "y"), (" <axis = 2>", "out")])
def test_a_softmax_of_before_opset_13(op, axis, expected):
    """It normalises all axes from its own on as one: the largest class stays that where classes are among them."""
    out = ending(f"out = {op}{axis} (y)", SCORES, opset=11)
    assert started(out)[0] == expected
