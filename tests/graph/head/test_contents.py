"""What the values of a tensor are."""

from __future__ import annotations

import numpy as np
import pytest
from nets import ending

from trtpost.errors import ModelError
from trtpost.graph.head import contents

SCORES, IDS, FLAGS = "float[1,4,8,12] out", "int64[1,1,8,12] out", "bool[1,4,8,12] out"
ARGMAX = "i = ArgMax <axis = 1> (y)\n"
ONE = {"one": np.array([1])}


@pytest.mark.parametrize(
    ("body", "out", "op"),
    [
        ("out = ArgMax <axis = 1> (y)", IDS, "ArgMax"),
        ("i = ArgMin <axis = 1, keepdims = 0> (y)\n out = Cast <to = 1> (i)", "float[1,8,12] out", "ArgMin"),
        ("v, out = TopK <axis = 1> (y, one)", IDS, "TopK"),
        ("out, i = TopK <axis = 1> (y, one)", "float[1,1,8,12] out", None),  # scores
        (f"{ARGMAX} out = Add (i, i)", IDS, None),
        (f"{ARGMAX} out = Gather <axis = 0> (i, zero)", "int64[1,8,12] out", "ArgMax"),
        (f"{ARGMAX} out = Gather (zero, i)", IDS, None),  # a table
        ("out = Identity (y)", SCORES, None),
    ],
)
def test_the_argmax_that_labels_come_from(body, out, op):
    node = contents.argmax_before(
        ending(body, out, zero=np.array(0) if "(i, zero)" in body else np.zeros(4, int), **ONE)
    )
    assert (None if node is None else node.op) == op


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        ("out = ArgMax <axis = 1> (y)", IDS, True),
        (f"{ARGMAX} out = Add (i, one)", IDS, True),
        (f"{ARGMAX} f = Cast <to = 1> (i)\n out = Mul (f, two)", "float[1,1,8,12] out", True),
        (f"{ARGMAX} f = Cast <to = 1> (i)\n out = Div (f, two)", "float[1,1,8,12] out", False),
        ("out = Greater (y, two)", FLAGS, True),
        ("out = Cast <to = 2> (y)", "uint8[1,4,8,12] out", False),  # levels
        ("out = QuantizeLinear (y, two, zero)", "uint8[1,4,8,12] out", False),
        ("q = QuantizeLinear (y, two, zero)\n out = Reshape (q, shape)", "uint8[1,4,96] out", False),
        ("q = QuantizeLinear (y, two, zero)\n out = MaxPool <kernel_shape = [1, 1]> (q)", "uint8[1,4,8,12] out", False),
        ("out = Round (y)", SCORES, False),
    ],
)
def test_class_ids(body, out, expected):
    weights = {"two": np.float32(2), "zero": np.uint8(0), "shape": np.array([1, 4, 96])}
    assert contents.are_labels(ending(body, out, **weights, **ONE)) is expected


@pytest.mark.parametrize(
    ("body", "out", "classes", "expected"),
    [
        ("out = Greater (y, zero)", FLAGS, 4, False),
        ("out = Greater (y, zero)", "bool[1,1,8,12] out", 1, True),
        ("b = Greater (y, zero)\n out = Transpose <perm = [0, 2, 3, 1]> (b)", "bool[1,8,12,1] out", 1, True),
        ("b = Greater (y, zero)\n out = Squeeze (b, axis)", "bool[1,8,12] out", 1, True),
        ("out = ArgMax <axis = 2> (y)", "int64[1,4,1,12] out", 4, True),
        ("out = Identity (y)", "float[1,1,8,12] out", 1, False),
    ],
)
def test_one_label_a_pixel(body, out, classes, expected):
    tensor = ending(body, out, classes=classes, zero=np.float32(0), axis=np.array([1]))
    assert contents.are_one_label_a_pixel(tensor) is expected


@pytest.mark.parametrize(
    ("body", "fractions", "limits", "independent"),
    [
        ("out = Identity (y)", False, None, False),
        ("out = Sigmoid (y)", True, (0, 1), True),
        ("out = Softmax <axis = 1> (y)", True, (0, 1), False),
        ("s = Sigmoid (y)\n out = Mul (s, two)", False, (0, 2), True),
        ("s = Sigmoid (y)\n out = Sub (two, s)", False, (1, 2), True),  # by the second input
        ("s = Sigmoid (y)\n out = Mul (s, y)", False, None, False),  # a gate
        ("s = Sigmoid (y)\n t = Softmax <axis = 1> (s)\n out = Identity (t)", True, (0, 1), False),
        ("out = Tanh (y)", False, (-1, 1), False),
        ("out = Relu (y)", False, None, False),
        ("out = Clip (y, zero, one)", True, (0, 1), False),
        ("out = Clip (y, zero, zero)", True, None, False),  # nothing between them
    ],
)
def test_scores(body, fractions, limits, independent):
    out = ending(body, SCORES, two=np.float32(2), zero=np.float32(0), one=np.float32(1))
    assert contents.are_fractions(out) is fractions
    assert contents.limits_of(out) == limits
    assert contents.are_independent(out) is independent


@pytest.mark.parametrize(
    ("body", "out", "classes", "layout", "head"),
    [
        ("out = Identity (y)", SCORES, 4, None, "argmax"),
        ("out = Identity (y)", "float[1,2,8,12] out", 2, None, "argmax"),
        ("out = Identity (y)", "float[1,1,8,12] out", 1, None, "threshold"),
        ("out = Identity (y)", "float[1,1,8,12] out", 1, "NHWC", "argmax"),  # of twelve
        ("out = Transpose <perm = [0, 2, 3, 1]> (y)", "float[1,8,12,1] out", 1, None, "threshold"),
        ("out = Reshape (y, flat)", "float[1,96] out", 1, None, "threshold"),
        ("t = Transpose <perm = [0, 2, 3, 1]> (y)\n out = Reshape (t, flat)", "float[1,96,4] out", 4, None, "argmax"),
        ("out = ArgMax <axis = 1, keepdims = 0> (y)", "int64[1,8,12] out", 4, None, "labels"),
        ("out = Greater (y, zero)", FLAGS, 4, None, "argmax"),
    ],
)
def test_what_makes_a_mask_of_it(body, out, classes, layout, head):
    flat = np.array([1, 96] if "[1,96]" in out else [1, 96, classes])
    tensor = ending(body, out, classes=classes, flat=flat, zero=np.float32(0))
    assert contents.head_of(tensor, layout, (8, 12)) == head


@pytest.mark.parametrize(
    ("body", "out", "count"),
    [
        ("out = ArgMax <axis = 1> (y)", IDS, 4),
        ("out = ArgMax <axis = -1> (y)", "int64[1,4,8,1] out", 12),
        ("out = ArgMax (y)", "int64[1,4,8,12] out", 1),  # over the batch, where no axis is said
        ("v, out = TopK <axis = 1> (y, one)", IDS, 4),
        ("v, out = TopK (y, one)", "int64[1,4,8,1] out", 12),  # over the last axis, where none is said
        ("out = Greater (y, zero)", FLAGS, 2),
        ("b = Greater (y, zero)\n out = Cast <to = 2> (b)", "uint8[1,4,8,12] out", 256),
        ("b = Greater (y, zero)\n out = Cast <to = 6> (b)", "int32[1,4,8,12] out", 0),
    ],
)
def test_how_many_classes_labels_name(body, out, count):
    assert contents.label_count(ending(body, out, zero=np.float32(0), **ONE)) == count


@pytest.mark.parametrize(
    ("added", "fits"), [((1 << 31) - 4, True), ((1 << 31) - 3, False), (-(1 << 31), True), (-(1 << 31) - 1, False)]
)
def test_class_ids_have_32_bits(added, fits):
    tensor = ending(f"{ARGMAX} out = Add (i, more)", IDS, more=np.array(added))
    if fits:
        assert contents.label_count(tensor) == 0
    else:
        with pytest.raises(ModelError, match="masks hold 32 bits: name those before with --logits 'i'"):
            contents.label_count(tensor)
