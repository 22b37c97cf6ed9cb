"""Whether class ids still are ids, after what a network did to them."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import ending

from trtpost.errors import ModelError
from trtpost.graph.head import class_ids

GIVEN = """
    i = ArgMax <axis = 1> (y)
    v, j = TopK <axis = 1> (y, n1)
    f = Cast <to = 1> (i)
    b = Greater (y, half)
    q = QuantizeLinear (y, half, point)
"""
"""Ids `i` and `j`, the same `f` as real numbers, booleans `b`, and quantised scores `q`."""


def made(text: str, out: str = "int64", **weights: np.ndarray) -> gs.Variable:
    """The tensor `out` of a network with these lines, where real numbers are of one value each."""
    weights |= {"half": np.float32(0.5), "two": np.float32(2), "one": np.array(1), "n1": np.array([1])}
    weights |= {"big": np.array(1000), "point": np.uint8(0), "shape": np.array([1, 96]), "at": np.array([0])}
    text = text if "out =" in text else f"out = {text}"
    return ending(GIVEN + text, f"{out}[] out", **weights)


@pytest.mark.parametrize(
    ("text", "out", "names"),
    [
        ("Where (b, v, y)", "float", "v y"),
        ("ScatterElements (i, i, j)", "int64", "i j"),
        ("ScatterND (i, s, j)", "int64", "i j"),
        ("Gather (s, i)", "int64", "s i"),  # a table
        ("Gather (i, s)", "int64", "i"),
        ("Pad (i, pads)", "int64", "i"),
        ("Pad (i, pads, one)", "int64", "i one"),
        ("Reshape (i, shape)", "int64", "i"),
        ("Clip (i, one, big)", "int64", "i"),
        ("Pow (f, two)", "float", "f"),
        ("Div (i, one)", "int64", "i one"),
        ("Mean (f, v)", "float", "f v"),
        ("Add (i, j)", "int64", "i j"),
        ("Max (i, j)", "int64", "i j"),
        ("Concat <axis = 1> (i, j)", "int64", "i j"),
    ],
)
def test_inputs_whose_values_come_out(text, out, names):
    weights = {"s": np.zeros(4, np.int64), "pads": np.zeros(8, np.int64)}
    (node,) = made(text, out, **weights).inputs
    assert [value.name for value in class_ids.values_of(node)] == names.split()


@pytest.mark.parametrize(
    ("text", "out", "name"),
    [
        ("Identity (i)", "int64", "i"),
        ("Identity (j)", "int64", "j"),
        ("Identity (v)", "float", None),  # the scores beside ids
        ("Reshape (i, shape)", "int64", "i"),
        ("Mul (f, half)", "float", "i"),
        ("Div (f, two)", "float", "i"),
        ("Where (b, y, y)", "float", None),
        ("Gather (s, i)", "int64", "i"),
        ("Gather (i, at)", "int64", "i"),
        ("Exp (f)", "float", None),
        ("Relu (y)", "float", None),
        ("Add (i, j)", "int64", "j"),  # the last that is found
    ],
)
def test_the_ids_behind_a_tensor(text, out, name):
    found = class_ids.ids_behind(made(text, out, s=np.zeros(4, np.int64)))
    assert (None if found is None else found.name) == name


def test_the_ids_behind_either_branch():
    one, other = "a () => (int64 t) { t = Identity (i) }", "e () => (int64 u) { u = Identity (one) }"
    text = f"out = If (c) <then_branch = {one}, else_branch = {other}>"
    tensor = made(f"m = ReduceMax <keepdims = 0> (i)\n c = Cast <to = 9> (m)\n {text}")
    assert class_ids.ids_behind(tensor) is not None
    assert class_ids.holds_whole_numbers(tensor, rounded=False)


@pytest.mark.parametrize(
    ("text", "out", "whole", "from_the_start"),
    [
        ("Identity (i)", "int64", True, True),
        ("Identity (f)", "float", True, True),
        ("Greater (y, half)", "bool", True, True),
        ("Add (f, two)", "float", True, True),
        ("Add (f, half)", "float", False, False),
        ("Add (f, y)", "float", False, False),
        ("Add (f, endless)", "float", False, False),
        ("Mul (f, f)", "float", True, True),
        ("Div (f, two)", "float", False, False),
        ("Relu (f)", "float", False, False),
        ("Round (y)", "float", True, False),
        ("Cast <to = 7> (y)", "int64", True, False),
        ("r = Round (y)\n out = Add (r, two)", "float", True, False),
        ("Clip (f, two)", "float", True, True),
        ("Clip (f, half)", "float", False, False),
        ("Clip (f, , half)", "float", False, False),
        ("Where (b, f, two)", "float", True, True),
        ("Where (b, f, half)", "float", False, False),
        ("Where (b, f, y)", "float", False, False),
        ("Resize (f, , larger)", "float", True, True),
        ('Resize <mode = "linear"> (f, , larger)', "float", False, False),
        ("Identity (q)", "uint8", True, False),
        (
            'c = Cast <to = 2> (i)\n out = BitShift <direction = "LEFT"> (c, c)',
            "uint8",
            True,
            True,
        ),  # of integers, without a rule
        ("Add (y, y)", "float", False, False),
    ],
)
def test_whole_numbers(text, out, whole, from_the_start):
    tensor = made(text, out, larger=np.array([1, 1, 2, 2], np.float32), endless=np.float32(np.inf))
    assert class_ids.holds_whole_numbers(tensor) is whole
    assert class_ids.holds_whole_numbers(tensor, rounded=False) is from_the_start


def test_what_is_used_twice_is_looked_at_once():
    lines = "\n".join(f"f{at + 1} = Add (f{at}, f{at})" for at in range(50))
    assert class_ids.holds_whole_numbers(made(f"f0 = Identity (f)\n {lines}\n out = Identity (f50)", "float"))


@pytest.mark.parametrize(
    ("text", "out", "levels"),
    [
        ("Cast <to = 2> (y)", "uint8", True),
        ("Identity (q)", "uint8", True),
        ("c = Cast <to = 2> (y)\n out = Transpose (c)", "uint8", True),
        ("Cast <to = 2> (f)", "uint8", False),
        ("Greater (y, half)", "bool", False),
        ("Identity (y)", "float", False),
    ],
)
def test_levels(text, out, levels):
    assert class_ids.are_levels(made(text, out)) is levels


@pytest.mark.parametrize(
    ("text", "to", "kept"),
    [
        ("i", 2, True),
        ("i", 1, True),
        ("i", 9, False),
        ("Add (i, c252)", 2, True),
        ("Add (i, c253)", 2, False),  # up to 256
        ("Add (i, c124)", 3, True),
        ("Add (i, c125)", 3, False),
        ("Sub (i, one)", 2, False),
        ("y", 2, False),
        ('BitShift <direction = "LEFT"> (u, u)', 5, True),  # what its own type holds
        ("y", 1, True),
    ],
)
def test_types_that_hold_what_is_cast(text, to, kept):
    out = {1: "float", 2: "uint8", 3: "int8", 5: "int16", 9: "bool"}[to]
    numbers = {f"c{number}": np.array(number) for number in (124, 125, 252, 253)}
    text = text if "(" in text else f"Identity ({text})"
    (cast,) = made(f"u = Cast <to = 2> (i)\n g = {text}\n out = Cast <to = {to}> (g)", out, **numbers).inputs
    assert class_ids.keeps_values(cast) is kept


@pytest.mark.parametrize(
    ("text", "out", "told"),
    [
        ("g = Add (i, big)\n out = Cast <to = 2> (g)", "uint8", "up to 1003, to uint8"),
        ("g = Add (i, big)\n c = Cast <to = 2> (g)\n out = Cast <to = 7> (c)", "int64", "--logits 'g'"),
        ("g = Add (i, big)\n out = Cast <to = 5> (g)", "int16", None),
        ("g = Add (i, big)\n out = Cast <to = 9> (g)", "bool", None),
        ("g = Sub (i, one)\n out = Cast <to = 2> (g)", "uint8", None),  # what is below wraps round on purpose
        ("out = Cast <to = 2> (y)", "uint8", None),  # no ids
    ],
)
def test_ids_cast_to_what_does_not_hold_them(text, out, told):
    warning = class_ids.narrowed(made(text, out))
    assert warning is None if told is None else told in warning


PICTURE = "no mask but a picture of the class ids"


@pytest.mark.parametrize(
    ("text", "out", "head", "refused"),
    [
        ("Identity (i)", "int64", None, None),
        ("Add (i, one)", "int64", None, None),
        ("Gather (palette, i)", "int64", None, PICTURE),
        ("Gather (palette, i)", "int64", "labels", PICTURE),
        ("Gather (table, i)", "int64", None, None),
        ("Gather (column, i)", "int64", None, None),
        ("Gather (onehot, i)", "int64", None, None),
        ("Concat <axis = 1> (i, j)", "int64", None, PICTURE),
        ("Concat <axis = 2> (i, j)", "int64", None, None),
        ("Expand (i, three)", "int64", None, PICTURE),
        ("Tile (i, three)", "int64", None, PICTURE),
        ("Tile (i, ones)", "int64", None, None),
        ("Tile (y, three)", "float", None, None),  # of no ids
        ("g = ReduceMax (y)\n c = Cast <to = 7> (g)\n e = Tile (c, three)\n out = Add (i, e)", "int64", None, None),
        ("Div (f, two)", "float", None, "may hold what is no whole number"),
        ("Div (f, two)", "float", "argmax", None),
    ],
)
def test_what_ids_became(text, out, head, refused):
    tables = {
        "palette": np.arange(12).reshape(4, 3),
        "table": np.arange(4),
        "column": np.arange(4).reshape(4, 1),
        "onehot": np.eye(4, dtype=np.int64),
        "three": np.array([1, 3, 1, 1]),
        "ones": np.array([1, 1, 1, 1]),
    }
    tensor = made(text, out, **tables)
    if refused is None:
        class_ids.refuse_what_ids_became(tensor, head=head)
    else:
        with pytest.raises(ModelError, match=refused):
            class_ids.refuse_what_ids_became(tensor, head=head)


@pytest.mark.parametrize(
    ("text", "out", "refused"),
    [
        ("m = ReduceMean <axes = [1]> (y)\n out = Cast <to = 6> (m)", "int32", True),
        ("m = ReduceMean <axes = [1]> (y)\n out = Cast <to = 4> (m)", "uint16", False),  # up to 65535
        ("m = ReduceMean <axes = [1]> (y)\n s = Sigmoid (m)\n out = Cast <to = 6> (s)", "int32", False),
        ("out = Cast <to = 6> (y)", "int32", False),  # of several channels
        ("out = Cast <to = 6> (i)", "int32", False),
    ],
)
def test_integers_that_may_be_anything(text, out, refused):
    tensor = made(text, out)
    if refused:
        with pytest.raises(ModelError, match="nothing tells what the integers"):
            class_ids.refuse_unknown_integers(tensor)
    else:
        class_ids.refuse_unknown_integers(tensor)
