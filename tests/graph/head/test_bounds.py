"""Rules of the interval arithmetic: operators in, the least and the greatest value of what they make out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import ending

from trtpost.graph import ops
from trtpost.graph.head.bounds import UNBOUNDED, bounds_of, range_of

INF = math.inf
E = math.e

GIVEN = """
    p = Sigmoid (y)
    x = Clip (y, m3, two)
    w = Clip (y, one, four)
    r = Relu (y)
    b = Greater (y, zero)
    i = ArgMax <axis = 1> (y)
"""
"""Tensors of known bounds beside `y`, of which nothing is known, all [1, 4, 8, 12] but the ids `i`."""

NUMBERS = {"m3": -3, "m1": -1, "zero": 0, "tenth": 0.1, "half": 0.5, "one": 1, "two": 2, "three": 3, "four": 4}


def bounds(text: str, out: str = "float", *, opset: int = 17, **weights: np.ndarray) -> tuple[float, float]:
    """Bounds of the tensor `out`, to six digits."""
    numbers = {name: np.float32(value) for name, value in NUMBERS.items()}
    text = text if "out =" in text or "out, o =" in text else f"out = {text}"
    tensor = ending(GIVEN + text, f"{out}[] out", opset=opset, **numbers, **weights)
    low, high = bounds_of(tensor)
    return round(low, 6), round(high, 6)


def indices(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p", (0, 1)),
        ("x", (-3, 2)),
        ("w", (1, 4)),
        ("r", (0, INF)),
        ("b", (0, 1)),
        ("i", (0, 3)),
        ("y", UNBOUNDED),
    ],
)
def test_what_the_tables_are_made_of(text, expected):
    assert bounds(f"Identity ({text})", {"b": "bool", "i": "int64"}.get(text, "float")) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        *((op, (0, 1)) for op in ("Sigmoid", "HardSigmoid", "Softmax", "Hardmax")),
        *((op, (-1, 1)) for op in ("Tanh", "Softsign", "Erf", "Sign", "Sin", "Cos")),
        *((op, (0, INF)) for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare")),
        ("LogSoftmax", (-INF, 0)),
    ],
)
def test_what_lies_between_limits_whatever_is_given(op, expected):
    assert bounds(f"{op} (y)") == expected


@pytest.mark.parametrize("op", ["NonZero", "Shape", "Size"])
def test_counts_are_not_negative(op):
    assert bounds(f"{op} (y)", "int64") == (0, INF)


@pytest.mark.parametrize("op", sorted(ops.COMPARING))
def test_comparisons_are_0_or_1(op):
    given = {"Not": "b", "And": "b, b", "Or": "b, b", "Xor": "b, b", "IsNaN": "y", "IsInf": "y"}.get(op, "y, y")
    assert bounds(f"{op} ({given})", "bool") == (0, 1)


MOVED = [
    *("Identity (w)", "CastLike (w, y)", "Dropout (w)", "Reshape (w, n)", "Flatten (w)", "Squeeze (w)"),
    *("Unsqueeze (w, n)", "Transpose (w)", "Tile (w, ones)", "Expand (w, ones)", "Slice (w, from, to)"),
    *("out, o = Split <axis = 1> (w, halves)", "o, out = Split <axis = 1> (w, halves)", "Gather (w, from)"),
    *("GatherND (w, from)", "GatherElements (w, at)", "Compress (w, which)", "ReverseSequence (w, n)"),
    *("Trilu (w)", "DepthToSpace <blocksize = 2> (w)", "SpaceToDepth <blocksize = 2> (w)"),
    *("MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (w)", "GlobalMaxPool (w)", "GlobalAveragePool (w)"),
    *("out, o = TopK <axis = 1> (w, n)", "ReduceMax (w)", "ReduceMin (w)", "ReduceMean (w)"),
    *('Resize <mode = "nearest"> (w, , larger)', 'Resize <mode = "linear"> (w, , larger)'),
    'Resize <mode = "cubic"> (w, , larger)',
]
"""Operators that give nothing beyond what they are given."""

SHAPES = {
    "n": indices(1),
    "ones": indices(1, 1, 1, 1),
    "from": indices(0),
    "to": indices(1),
    "halves": indices(2, 2),
    "at": np.zeros((1, 4, 8, 12), np.int64),
    "which": np.ones(1, bool),
    "larger": np.array([1, 1, 2, 2], np.float32),
}


@pytest.mark.parametrize("text", MOVED)
def test_what_is_moved_or_lies_between(text):
    shapes = SHAPES | ({"n": indices(1, 4, 96)} if text.startswith("Reshape") else {})
    assert bounds(text, **shapes) == (1, 4)


def test_every_operator_that_keeps_bounds_has_a_line():
    texts = " ".join(MOVED)
    assert {op for op in ops.WITHIN_INPUT if op not in texts} == ops.QUANTIZING | {"Upsample"}  # gone since opset 10


@pytest.mark.parametrize(
    "text",
    [
        "AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (w)",
        "GridSample (w, grid)",
        "RoiAlign (w, boxes, n)",
        "m, o = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (w)\n out = MaxUnpool <kernel_shape = [2, 2]> (m, o)",
        "CenterCropPad (w, big)",
    ],
)
def test_zeros_around(text):
    shapes = {
        "grid": np.zeros((1, 8, 12, 2), np.float32),
        "boxes": np.zeros((1, 4), np.float32),
        "n": indices(0),
        "big": indices(1, 4, 16, 24),
    }
    assert bounds(text, opset=18, **shapes) == (0, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Concat <axis = 1> (x, w)", (-3, 4)),
        ("Concat <axis = 1> (w, y)", UNBOUNDED),
        ("Where (b, x, w)", (-3, 4)),
        ("Where (b, w, w)", (1, 4)),  # the condition is 0 or 1
        ("ScatterND (w, at, two1)", (1, 4)),
        ("ScatterND (w, at, nine1)", (1, 9)),
        ('ScatterND <reduction = "max"> (w, at, nine1)', (1, 9)),
        ('ScatterND <reduction = "add"> (w, at, nine1)', UNBOUNDED),
        ("ScatterElements (x, there, w)", (-3, 4)),
        ('ScatterElements <reduction = "min"> (x, there, w)', (-3, 4)),
        ('ScatterElements <reduction = "mul"> (x, there, w)', UNBOUNDED),
        ("OneHot (i, at, values)", (-1, 5)),
        ("Pad (w, pads)", (0, 4)),
        ("Pad (w, pads, four)", (1, 4)),
        ("Pad (w, pads, m3)", (-3, 4)),
        ('Pad <mode = "edge"> (w, pads)', (1, 4)),
        ('Pad <mode = "reflect"> (w, pads, m3)', (1, 4)),
        ('Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (w, roi, scales)', (0, 4)),
        (
            'Resize <coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 9.0> '
            "(w, roi, scales)",
            (1, 9),
        ),
    ],
)
def test_joining(text, expected):
    shapes = {
        "at": np.array([0, 0, 0, 0], np.int64) if "ScatterND" in text else indices(9),
        "two1": np.float32(2),
        "nine1": np.float32(9),
        "there": np.zeros((1, 4, 8, 12), np.int64),
        "values": np.array([-1, 5], np.float32),
        "pads": indices(0, 0, 1, 1, 0, 0, 1, 1),
        "roi": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    assert bounds(text, opset=18, **shapes) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Relu (x)", (0, 2)),
        ("Relu (w)", (1, 4)),
        ("Exp (x)", (E**-3, E**2)),
        ("Exp (y)", (0, INF)),
        ("c = Clip (y, zero, big)\n out = Exp (c)", (1, INF)),
        ("Softplus (x)", (math.log1p(E**-3), math.log1p(E**2))),
        ("Softplus (y)", (0, INF)),
        ("c = Clip (y, zero, big)\n out = Softplus (c)", (math.log(2), 800)),
        ("Softplus (w)", (math.log1p(E), math.log1p(E**4))),
        ("Sqrt (w)", (1, 2)),
        ("Sqrt (x)", (0, math.sqrt(2))),
        ("Log (w)", (0, math.log(4))),
        ("Log (x)", (-INF, math.log(2))),
        ("Elu (x)", (E**-3 - 1, 2)),
        ("Elu (y)", (-1, INF)),
        ("c = Clip (y, low, high)\n out = Round (c)", (-2, 2)),
        ("c = Clip (y, low, high)\n out = Floor (c)", (-3, 1)),
        ("c = Clip (y, low, high)\n out = Ceil (c)", (-2, 2)),
        ("Round (r)", (0, INF)),
    ],
)
def test_growing(text, expected):
    given = {"low": np.float32(-2.5), "high": np.float32(1.5), "big": np.float32(800)}
    assert bounds(text, **given) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add (x, w)", (-2, 6)),
        ("Add (x, one)", (-2, 3)),
        ("Add (x, y)", UNBOUNDED),
        ("Sub (x, w)", (-7, 1)),
        ("Sub (r, r)", UNBOUNDED),
        ("Mul (x, w)", (-12, 8)),
        ("Mul (x, x)", (-6, 9)),
        ("Mul (x, m1)", (-2, 3)),
        ("Mul (r, zero)", (0, 0)),
        ("Div (x, w)", (-3, 2)),
        ("Div (w, x)", UNBOUNDED),
        ("Div (w, r)", (0, INF)),
        ("Div (x, r)", UNBOUNDED),
        ("Neg (x)", (-2, 3)),
        ("Reciprocal (w)", (0.25, 1)),
        ("Reciprocal (r)", (0, INF)),
        ("Reciprocal (x)", UNBOUNDED),
        ("Abs (x)", (0, 3)),
        ("Abs (w)", (1, 4)),
        ("n = Neg (w)\n out = Abs (n)", (1, 4)),
        ("Max (x, w)", (1, 4)),
        ("Min (x, w)", (-3, 2)),
        ("Max (x, y)", (-3, INF)),
        ("Sum (x, w, w)", (-1, 10)),
        ("Mean (x, w)", (-1, 3)),
    ],
)
def test_arithmetic(text, expected):
    assert bounds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Clip (y, m3)", (-3, INF)),
        ("Clip (y, , two)", (-INF, 2)),
        ("Clip (p, m3, two)", (0, 1)),
        ("Clip (p, half, two)", (0.5, 1)),
        ("Clip (p, two, four)", (2, 2)),
        ("Clip (p, m3, m1)", (-1, -1)),
        ("Clip (p)", (0, 1)),
    ],
)
def test_clip(text, expected):
    assert bounds(text) == expected


@pytest.mark.parametrize(
    ("low", "high", "dtype", "expected"),
    [
        (0, 255, "uint8", (0, 255)),
        (1, 254, "uint8", (1, 254)),
        (1, 256, "uint8", (0, 255)),
        (-1, 254, "uint8", (0, 255)),
        (0, 127, "int8", (0, 127)),
        (0, 128, "int8", (-128, 127)),
        (-3, 2, "int64", (-3, 2)),
        (1, 4, "bool", (0, 1)),
        (0.25, 0.75, "bool", (0, 1)),
        (-3, 2, "double", (-3, 2)),
    ],
)
def test_cast_to_what_may_not_hold_it(low, high, dtype, expected):
    to = {"uint8": 2, "int8": 3, "int64": 7, "bool": 9, "double": 11}[dtype]
    text = f"c = Clip (y, low, high)\n out = Cast <to = {to}> (c)"
    assert bounds(text, dtype, low=np.float32(low), high=np.float32(high)) == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.bool_, (0, 1)),
        (np.uint8, (0, 255)),
        (np.int8, (-128, 127)),
        (np.int32, (-(2**31), 2**31 - 1)),
        (np.float32, UNBOUNDED),
        (None, UNBOUNDED),
    ],
)
def test_what_a_type_holds(dtype, expected):
    assert range_of(gs.Variable("x", dtype)) == expected


@pytest.mark.parametrize(
    ("text", "renamed", "expected"),
    [
        ("QuantizeLinear (w, scale, point)", "", (1, 4)),
        ("Sigmoid (y)", "QLinearSigmoid", (0, 1)),
        ("GlobalAveragePool (w)", "QLinearGlobalAveragePool", (1, 4)),
        ("AveragePool <kernel_shape = [1, 1]> (w)", "QLinearAveragePool", (1, 4)),
        ("Relu (w)", "QLinearLeakyRelu", UNBOUNDED),
        ("Add (w, w)", "QLinearAdd", UNBOUNDED),
    ],
)
def test_quantised_operators_stand_for_what_they_quantise(text, renamed, expected):
    quantised = {"scale": np.float32(0.1), "point": np.uint8(0)} if "Quantize" in text else {}
    numbers = {name: np.float32(value) for name, value in NUMBERS.items()}
    out = f"{'uint8' if quantised else 'float'}[] out"
    tensor = ending(f"{GIVEN} out = {text}", out, **numbers, **quantised)
    tensor.inputs[0].op = renamed or tensor.inputs[0].op
    assert bounds_of(tensor) == expected


def test_dequantised_numbers_are_those_that_were_quantised():
    text = "q = QuantizeLinear (w, tenth, point)\n out = DequantizeLinear (q, tenth, point)"
    assert bounds(text, point=np.uint8(0)) == (1, 4)


SHIFTED = "least = ReduceMin (y)\n most = ReduceMax (y)\n n = Sub (y, least)\n d = Sub (most, least)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{SHIFTED} out = Div (n, d)", (0, 1)),
        (f"{SHIFTED} e = Add (d, small)\n out = Div (n, e)", (0, 1)),
        (f"{SHIFTED} e = Max (d, small)\n f = Identity (e)\n out = Div (n, f)", (0, 1)),
        (f"{SHIFTED} e = Add (d, tenth)\n out = Div (n, e)", UNBOUNDED),  # that is no little
        (f"{SHIFTED} e = Add (d, m1)\n out = Div (n, e)", UNBOUNDED),
        (f"{SHIFTED} e = Mul (d, small)\n out = Div (n, e)", UNBOUNDED),
        (f"{SHIFTED} o = Sub (x, least)\n out = Div (o, d)", UNBOUNDED),  # of another tensor
        (f"{SHIFTED} o = Sub (least, most)\n out = Div (n, o)", UNBOUNDED),
        (f"{SHIFTED} l = ReduceMin <axes = [1]> (y)\n o = Sub (y, l)\n out = Div (o, d)", UNBOUNDED),
        (f"{SHIFTED} out = Div (y, d)", UNBOUNDED),
        ("m = ReduceMax (r)\n out = Div (r, m)", (0, 1)),
        ("m = ReduceMax (r)\n e = Add (m, small)\n out = Div (r, e)", (0, 1)),
        ("m = ReduceMax (r)\n out = Div (w, m)", (0, INF)),
        ("m = ReduceMax (y)\n out = Div (y, m)", UNBOUNDED),
    ],
)
def test_normalised_by_its_own_range(text, expected):
    assert bounds(text, small=np.float32(0.01)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pow (x, two)", (0, 9)),
        ("Pow (w, two)", (1, 16)),
        ("n = Neg (w)\n out = Pow (n, two)", (1, 16)),
        ("Pow (w, half)", (1, 2)),
        ("Pow (x, half)", UNBOUNDED),
        ("Pow (x, three)", UNBOUNDED),
        ("Pow (w, three)", (1, 64)),
        ("Pow (w, m1)", (0, INF)),
        ("Pow (p, r)", (0, 1)),
        ("Pow (w, r)", UNBOUNDED),
        ("Pow (p, x)", UNBOUNDED),
    ],
)
def test_power(text, expected):
    assert bounds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LeakyRelu (x)", (-0.03, 2)),
        ("LeakyRelu <alpha = 0.5> (x)", (-1.5, 2)),
        ("LeakyRelu (w)", (1, 4)),
        ("LeakyRelu (y)", UNBOUNDED),
        ("PRelu (x, half)", (-1.5, 2)),
        ("PRelu (x, m1)", (0, 3)),
    ],
)
def test_slopes(text, expected):
    assert bounds(text) == expected


@pytest.mark.parametrize(
    ("given", "scale", "expected"),
    [
        ("x", [1, 1, 1, 1], (-2, 3)),
        ("x", [1, 2, 1, 1], (-5, 5)),
        ("x", [1, -1, 1, 1], (-2, 4)),
        ("y", [1, 1, 1, 1], UNBOUNDED),
    ],
)
def test_batch_normalisation(given, scale, expected):
    text = f"BatchNormalization <epsilon = 3.0> ({given}, scale, one4, zeros, one4)"
    each = np.ones(4, np.float32)
    scale = 2 * np.array(scale, np.float32)  # the deviation is the square root of 1 + 3
    assert bounds(text, scale=scale, one4=each, zeros=0 * each) == expected


AVERAGE = np.full((4, 1, 3, 3), 1 / 9, np.float32)
BLUR = "Conv <group = 4, pads = [1, 1, 1, 1]>"


@pytest.mark.parametrize(
    ("text", "weights", "expected"),
    [
        (f"{BLUR} (p, f)", AVERAGE, (0, 1)),
        (f"{BLUR} (w, f)", 2 * AVERAGE, (0, 8)),
        (f"{BLUR} (r, f)", AVERAGE, (0, INF)),
        (f"{BLUR} (x, f)", AVERAGE, UNBOUNDED),
        (f"{BLUR} (p, f)", -AVERAGE, UNBOUNDED),
        (f"{BLUR} (p, f, bias0)", AVERAGE, (0, 1)),
        (f"{BLUR} (p, f, bias1)", AVERAGE, UNBOUNDED),
        ("Conv (p, f)", np.ones((2, 4, 1, 1), np.float32), (0, 4)),
        # of a stride of 2, each pixel meets a quarter of the weights
        ("ConvTranspose <strides = [2, 2]> (p, f)", np.ones((4, 1, 2, 2), np.float32), (0, 4)),
        ("ConvTranspose <strides = [2, 2]> (p, f)", np.ones((4, 1, 3, 3), np.float32), (0, 16)),
        ("ConvTranspose (p, f)", np.ones((4, 1, 2, 2), np.float32), (0, 16)),
        ("ConvTranspose <dilations = [2, 2]> (p, f)", np.ones((4, 1, 2, 2), np.float32), (0, INF)),
    ],
)
def test_convolutions_that_only_average_or_enlarge(text, weights, expected):
    assert bounds(text, f=weights, bias0=np.zeros(4, np.float32), bias1=np.ones(4, np.float32)) == expected


def test_averages_are_1_but_for_their_rounding():
    average = np.full((4, 1, 7, 7), 1 / 49, np.float32)
    assert float(np.max(np.sum(average, (1, 2, 3)))) != 1
    assert bounds_of(ending("p = Sigmoid (y)\n out = Conv <group = 4> (p, f)", "float[] out", f=average)) == (0, 1)


SOFTMAX = "q = Softmax <axis = 1> (y)\n"


@pytest.mark.parametrize(
    ("text", "axes", "expected"),
    [
        (f"{SOFTMAX} out = ReduceSum (q, axes)", [1], (0, 1)),
        (f"{SOFTMAX} out = ReduceSum (q, axes)", [-3], (0, 1)),
        (f"{SOFTMAX} s = Slice (q, from, to, axes)\n out = ReduceSum (s, axes)", [1], (0, 1)),
        (f"{SOFTMAX} out = ReduceSum (q, axes)", [2], (0, INF)),
        (f"{SOFTMAX} out = ReduceSum (q, axes)", [1, 2], (0, INF)),
        ("q = Softmax (y)\n out = ReduceSum (q, axes)", [1], (0, INF)),  # the last axis
        ("ReduceSum (p, axes)", [1], (0, INF)),
        ("ReduceSum (x, axes)", [1], UNBOUNDED),
        ("CumSum (p, axis)", [1], (0, INF)),
        ("CumSum (x, axis)", [1], UNBOUNDED),
        ("t = Transpose <perm = [0, 1, 3, 2]> (r)\n out = MatMul (p, t)", [1], (0, INF)),
        ("t = Transpose <perm = [0, 1, 3, 2]> (x)\n out = MatMul (p, t)", [1], UNBOUNDED),
        ('Einsum <equation = "nchw,nchw->nc"> (p, r)', [1], (0, INF)),
        ('Einsum <equation = "nchw,nchw->nc"> (p, x)', [1], UNBOUNDED),
    ],
)
def test_sums(text, axes, expected):
    shapes = {"axes": indices(*axes), "axis": np.array(1), "from": indices(1), "to": indices(3)}
    assert bounds(text, **shapes) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ArgMax <axis = 1> (y)", (0, 3)),
        ("ArgMin <axis = -1> (y)", (0, 11)),
        ("ArgMax (y)", (0, 0)),
        ("o, out = TopK <axis = 1> (y, n)", (0, 3)),
        ("o, out = TopK (y, n)", (0, 11)),
        ("z = NonZero (y)\n out = ArgMax <axis = 1> (z)", (0, INF)),  # nobody knows of how many
        ("o, out = MaxPool <kernel_shape = [2, 2]> (w)", UNBOUNDED),  # indices
    ],
)
def test_indices(text, expected):
    assert bounds(text, "int64", n=indices(1)) == expected


def test_either_branch():
    one, other = "a () => (float t) { t = Identity (x) }", "e () => (float u) { u = Identity (w) }"
    text = f"out = If (o) <then_branch = {one}, else_branch = {other}>"
    assert bounds(f"m = ReduceMax <keepdims = 0> (i)\n o = Cast <to = 9> (m)\n {text}") == (-3, 4)


def test_operators_without_a_rule():
    assert bounds("LRN <size = 3> (p)") == UNBOUNDED


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([-1.5, 2], np.float32), (-1.5, 2)),
        (np.array([3], np.uint8), (3, 3)),
        (np.array([True]), (1, 1)),
        (np.array([], np.float32), UNBOUNDED),
        (np.array(["a"], object), UNBOUNDED),
    ],
)
def test_constants(values, expected):
    assert bounds_of(gs.Constant("c", values)) == expected


@pytest.mark.parametrize(("between", "expected"), [(63, (0, 1)), (64, UNBOUNDED)])
def test_operators_far_away_are_not_looked_at(between, expected):
    names = ["p", *(f"c{at}" for at in range(between - 1)), "out"]
    chain = "\n".join(f"{two} = Identity ({one})" for one, two in itertools.pairwise(names))
    assert bounds(chain) == expected


def test_what_several_operators_use_is_looked_at_once():
    names = ["p", *(f"c{at}" for at in range(39)), "out"]
    chain = "\n".join(f"{two} = Add ({one}, {one})" for one, two in itertools.pairwise(names))
    assert bounds(chain) == (0, 2**40)
