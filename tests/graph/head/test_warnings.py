"""Which conclusions are doubted, and by which words."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import ending, kernel

from trtpost.graph.head import warnings

GIVEN = "m = Conv (y, k1)\n p = Sigmoid (m)\n"
NUMBERS = {"two": 2, "half": 0.5, "zero": 0, "top": 255, "seven": 7}


def scores(text: str, out: str = "float", **weights: np.ndarray) -> gs.Variable:
    """The tensor `out` of a network with these lines, where `m` are logits of one channel and `p` probabilities."""
    numbers = {name: np.float32(value) for name, value in NUMBERS.items()}
    return ending(GIVEN + text, f"{out}[] out", k1=kernel(1, 4), **numbers, **weights)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("out = Identity (p)", None),
        ("out = Tanh (m)", None),
        ("out = Mul (p, top)", None),
        ("out = Mul (p, two)", "lie between 0 and 2"),
        ("out = Mul (p, two)", "threshold 1, the middle, is ASSUMED"),
        ("c = Clip (m, zero, two)\n out = Round (c)", "settle it with --threshold, or say --head labels"),
        ("out = Relu (m)", "never below 0 and have no limit"),
        # logits as they are
        ("out = Identity (m)", None),
        ("out = Transpose (m)", None),
        ("out = Mul (m, two)", None),
        ("out = Div (m, two)", None),
        ("out = Add (m, half)", None),
        ("out = Concat <axis = 0> (m, m)", None),
        ("out = Mul (m, m)", "nor that they are logits"),
        ("e = Elu (m)\n out = Add (m, e)", "nor that they are logits"),
        ("out = Erf (m)", None),
        ("out = Log (m)", "nor that they are logits"),
        ("out = Conv (m, blur)", None),
    ],
)
def test_a_threshold_that_nobody_says(text, told):
    warning = warnings.threshold_doubt(scores(text, blur=np.full((1, 1, 1, 1), -1, np.float32)))
    assert warning is None if told is None else told in warning


def test_what_was_blurred_must_be_logits_too():
    blur = np.full((1, 1, 1, 1), -1, np.float32)
    assert "nor that they are logits" in warnings.threshold_doubt(
        scores("e = Elu (m)\n out = Conv (e, blur)", blur=blur)
    )
    assert warnings.threshold_doubt(scores("e = Elu (y)\n out = Conv (e, k1)")) is None  # of several channels


@pytest.mark.parametrize(
    ("text", "doubted"),
    [
        ("out = Cast <to = 2> (m)", True),  # 0 to 255 by the type alone
        ("c = Cast <to = 2> (m)\n out = Transpose (c)", True),
        ("s = Mul (p, top)\n out = Cast <to = 2> (s)", False),
    ],
)
def test_limits_that_only_the_type_sets(text, doubted):
    assert (warnings.threshold_doubt(scores(text, "uint8")) is not None) is doubted


@pytest.mark.parametrize(
    ("text", "classes", "channels", "size", "told"),
    [
        ("out = Add (y, y)", 3, 3, (8, 12), None),
        ("out = Add (y, image)", 3, 3, (8, 12), "to which the image was added"),
        ("a = Sub (image, y)\n b = Clip (a, zero, two)\n out = Transpose (b)", 3, 3, (8, 12), "was added"),
        ("t = Transpose (image)\n u = Transpose (t)\n a = Add (y, u)\n out = Sigmoid (a)", 3, 3, (8, 12), "was added"),
        ("r = Relu (image)\n out = Add (y, r)", 3, 3, (8, 12), None),
        ("out = Mul (y, image)", 3, 3, (8, 12), None),
        ("out = Relu (y)", 3, 3, (16, 24), "is larger than the image"),
        ("out = Relu (y)", 3, 3, (16, 12), None),
        ("out = Relu (y)", 3, 3, (0, 0), None),
        ("out = Relu (y)", 4, 3, (16, 24), None),
        ("out = Relu (y)", 3, 1, (16, 24), None),
    ],
)
def test_pictures(text, classes, channels, size, told):
    tensor = ending(text, "float[] out", classes=3, zero=np.float32(0), two=np.float32(2))
    warning = warnings.picture_doubt(tensor, classes, channels, size, (8, 12))
    assert warning is None if told is None else told in warning


def heads(*shapes: tuple[int, ...]) -> list[gs.Variable]:
    return [gs.Variable(f"head{at}", np.float32, shape) for at, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (((1, 4, 8, 12), (1, 4, 4, 6), (1, 4, 2, 3)), "the finest of 3 outputs"),
        (((1, 8, 12, 4), (1, 4, 6, 4), (1, 2, 3, 4)), "the finest of 3 outputs"),
        (((1, 4, 8, 12), (1, 4, 4, 6)), None),
        (((1, 4, 8, 12), (1, 4, 4, 6), (1, 5, 2, 3)), None),
        (((1, 4, 8, 12), (1, 4, 8, 12), (1, 4, 4, 6)), None),
        (((1, 4, 96), (1, 4, 24), (1, 4, 6)), None),
    ],
)
def test_heads_at_several_resolutions(shapes, told):
    outputs = heads(*shapes)
    warning = warnings.resolutions_doubt(outputs[0], outputs)
    assert warning is None if told is None else told in warning


@pytest.mark.parametrize(
    ("text", "out", "doubted"),
    [
        ("out = Identity (y)", "float", False),
        ("out = Cast <to = 11> (y)", "double", False),  # was float32
        ("c = Cast <to = 11> (y)\n out = Transpose (c)", "double", False),
        ("c = Cast <to = 11> (y)\n out = Exp (c)", "double", True),
        ("c = Cast <to = 11> (y)\n out = Add (c, c)", "double", True),
        ("s = Cast <to = 6> (y)\n d = Cast <to = 11> (s)\n out = Exp (d)", "double", True),
        ("i = ArgMax <axis = 1> (y)\n out = Mul (i, i)", "int64", False),  # up to 9
        ("i = ArgMax <axis = 1> (y)\n out = Add (i, most)", "int64", True),
        ("i = ArgMax <axis = 1> (y)\n out = Sub (i, whole)", "int64", False),
        ("i = ArgMax <axis = 1> (y)\n out = Sub (i, beyond)", "int64", True),
    ],
)
def test_more_numbers_than_float32_tells_apart(text, out, doubted):
    numbers = {"most": np.array((1 << 24) - 2), "whole": np.array(1 << 24), "beyond": np.array((1 << 24) + 1)}
    tensor = ending(text, f"{out}[] out", **numbers)
    assert (warnings.precision_doubt(tensor) is not None) is doubted
