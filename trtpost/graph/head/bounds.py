"""Between which values a tensor lies, where operators bound it: that tells probabilities from logits.

Interval arithmetic back from the tensor, so that it does not matter whether a Sigmoid is one node or four, or whether
its result was scaled to 0..255 or -1..1. One rule for each kind of operator; where there is none, nothing is bounded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from trtpost.graph import ops
from trtpost.graph.walks import behind, branches_of, constant_values, dims, is_constant, maker_of

Bounds = tuple[float, float]
"""The least and the greatest value; infinite where there is none."""

UNBOUNDED: Bounds = (-math.inf, math.inf)

_FIXED: dict[str, Bounds] = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax", "Hardmax", *ops.COMPARING), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Softsign", "Erf", "Sign", "Sin", "Cos"), (-1.0, 1.0)),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "NonZero", "Shape", "Size"), (0.0, math.inf)),
    "LogSoftmax": (-math.inf, 0.0),
}


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _softplus(value: float) -> float:
    return value if value > 30 else math.log1p(_exp(value))


def _rounded(how: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: float(how(value)) if math.isfinite(value) else value


_GROWING: dict[str, Callable[[float], float]] = {
    "Relu": lambda value: max(value, 0.0),
    "Exp": _exp,
    "Softplus": _softplus,
    "Sqrt": lambda value: math.sqrt(max(value, 0.0)),
    "Log": lambda value: math.log(value) if value > 0 else -math.inf,
    "Elu": lambda value: value if value > 0 else _exp(value) - 1,
    "Round": _rounded(round),
    "Floor": _rounded(math.floor),
    "Ceil": _rounded(math.ceil),
}
"""The greater what they are given, the greater what they give."""

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": lambda one, two: one * two if one and two else 0.0,  # infinity stands for some large number
    "Div": operator.truediv,
}
_OF_SEVERAL: dict[str, Callable[[Sequence[float]], float]] = {
    "Max": max,
    "Min": min,
    "Sum": sum,
    "Mean": lambda values: sum(values) / len(values),
}
_DEPTH = 64
"""Number of operators that are looked at, one before the other."""

_Known = dict[int, Bounds]
"""Bounds of tensors by their `id`: what several operators use is looked at once."""


def bounds_of(tensor: gs.Tensor) -> Bounds:
    """What the operators that make a tensor say of its values; `UNBOUNDED` where they say nothing."""
    return _bounds(tensor, _DEPTH, {})


def _bounds(tensor: gs.Tensor, depth: int, known: _Known) -> Bounds:
    values = constant_values(tensor)
    if values is not None and values.size and values.dtype.kind in "fiub":
        return float(np.min(values)), float(np.max(values))
    if not tensor.inputs or not depth:
        return UNBOUNDED
    if id(tensor) not in known:
        node = tensor.inputs[0]
        if node.op == "TopK" and tensor is node.outputs[1]:
            found = 0.0, _last_index(node, -1)
        elif branches := branches_of(tensor):
            found = _union([_bounds(one, depth - 1, known) for one in branches])
        elif tensor is node.outputs[0] or node.op == "Split":
            found = _made_by(node, depth - 1, known)
        else:
            found = UNBOUNDED
        known[id(tensor)] = found if not any(map(math.isnan, found)) else UNBOUNDED
    return known[id(tensor)]


def _made_by(node: gs.Node, depth: int, known: _Known) -> Bounds:
    """Bounds of the first output of `node`, or of all alike."""

    def of(value: gs.Tensor) -> Bounds:
        return _bounds(value, depth, known)

    op = node.op
    if op in _FIXED:
        return _FIXED[op]
    if op in ops.INDEXING:
        return 0.0, _last_index(node, 0)
    if op == "Cast":
        return _cast(node, of(node.inputs[0]))
    if op.startswith(("QLinear", "Quantize", "Dequantize")):
        return _quantized(node, of)
    if op == "Resize" and node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return _union([of(node.inputs[0]), (float(node.attrs.get("extrapolation_value", 0.0)),) * 2])
    if op in ops.WITHIN_INPUT:
        return of(node.inputs[0])
    if op in ops.WITHIN_INPUT_OR_ZERO:
        return _union([of(node.inputs[0]), (0.0, 0.0)])
    if op in ops.WITHIN_ONE_INPUT:
        return _joined(node, of)
    if op in _GROWING:
        low, high = of(node.inputs[0])
        return _GROWING[op](low), _GROWING[op](high)
    if op == "Clip":
        return _clipped(node, of)
    if op in _ARITHMETIC:
        if op == "Div" and _is_normalized(node, of):
            return 0.0, 1.0
        return _combined(op, *(of(value) for value in node.inputs))
    if op in _OF_SEVERAL:
        lows, highs = zip(*(of(value) for value in node.inputs), strict=True)
        return _OF_SEVERAL[op](lows), _OF_SEVERAL[op](highs)
    if op in ("Neg", "Reciprocal"):
        given = of(node.inputs[0])
        return _combined("Sub", (0.0, 0.0), given) if op == "Neg" else _combined("Div", (1.0, 1.0), given)
    if op == "Abs":
        low, high = of(node.inputs[0])
        return max(low, -high, 0.0), max(abs(low), abs(high))
    return _weighted(node, of)


_Of = Callable[[gs.Tensor], Bounds]


def _weighted(node: gs.Node, of: _Of) -> Bounds:
    """The bounds of a product with constants, and of a sum."""
    if node.op == "Pow":
        return _power(of(node.inputs[0]), of(node.inputs[1]))
    if node.op in ("LeakyRelu", "PRelu"):
        given = of(node.inputs[0])
        slope = of(node.inputs[1]) if node.op == "PRelu" else (float(node.attrs.get("alpha", 0.01)),) * 2
        negative = _combined("Mul", (min(given[0], 0.0), min(given[1], 0.0)), slope)
        return _union([negative, (max(given[0], 0.0), max(given[1], 0.0))]) if given[0] < 0 else given
    if node.op == "BatchNormalization":
        return _batch_normalized(node, of)
    if node.op in ("Conv", "ConvTranspose"):
        return _blurred(node, of)
    if node.op == "ReduceSum" and _sums_classes(node):
        return 0.0, 1.0
    if node.op in ("ReduceSum", "CumSum", "Einsum", "MatMul"):
        low = min(of(value)[0] for value in node.inputs[: 1 if node.op in ("ReduceSum", "CumSum") else None])
        return (0.0, math.inf) if low >= 0 else UNBOUNDED
    return UNBOUNDED


def _combined(op: str, one: Bounds, two: Bounds) -> Bounds:
    if op == "Div" and two[0] <= 0 <= two[1]:
        return (0.0, math.inf) if one[0] >= 0 and two[0] == 0 else UNBOUNDED
    ends = [_ARITHMETIC[op](first, second) for first in one for second in two]
    return UNBOUNDED if any(map(math.isnan, ends)) else (min(ends), max(ends))


def _union(several: Sequence[Bounds]) -> Bounds:
    return min(low for low, _ in several), max(high for _, high in several)


def _joined(node: gs.Node, of: _Of) -> Bounds:
    values = list(node.inputs)
    if node.op == "Where":
        values = values[1:]
    elif node.op == "OneHot":
        values = values[2:]
    elif node.op.startswith("Scatter"):
        if node.attrs.get("reduction", "none") not in ("none", "max", "min"):
            return UNBOUNDED
        values = [values[0], values[2]]
    elif node.op == "Pad":
        constant = node.attrs.get("mode", "constant") == "constant"
        given = len(values) > 2 and values[2].name
        return _union([of(values[0]), *([of(values[2])] if constant and given else [(0.0, 0.0)] if constant else [])])
    return _union([of(value) for value in values])


def _clipped(node: gs.Node, of: _Of) -> Bounds:
    low, high = of(node.inputs[0])
    floor, ceiling = UNBOUNDED
    for at, value in enumerate(node.inputs[1:3]):
        limit = constant_values(value)
        if limit is not None:
            floor, ceiling = (float(limit), ceiling) if at == 0 else (floor, float(limit))
    return min(max(low, floor), ceiling), max(min(high, ceiling), floor)


def _cast(node: gs.Node, given: Bounds) -> Bounds:
    """Bounds after a Cast: what an integer type cannot hold wraps round, or saturates, and may be anything it holds."""
    low, high = range_of(node.outputs[0])
    if (low, high) == (0.0, 1.0):  # whatever is not 0 becomes true
        return low, high
    return given if low <= given[0] and given[1] <= high else (low, high)


def range_of(tensor: gs.Tensor) -> Bounds:
    """Bounds of what the type of a tensor holds; `UNBOUNDED` for real numbers and unknown types."""
    kind = np.dtype(tensor.dtype).kind if isinstance(tensor.dtype, type | np.dtype) else "f"
    if kind == "b":
        return 0.0, 1.0
    if kind not in "iu":
        return UNBOUNDED
    limits = np.iinfo(np.dtype(tensor.dtype))
    return float(limits.min), float(limits.max)


def _last_index(node: gs.Node, axis: int) -> float:
    shape = dims(node.inputs[0])
    count = shape[node.attrs.get("axis", axis)] if shape else 0
    return float(count - 1) if isinstance(count, int) and count > 0 else math.inf


def _power(base: Bounds, exponent: Bounds) -> Bounds:
    if exponent[0] != exponent[1] or not math.isfinite(exponent[0]):
        return (0.0, 1.0) if base[0] >= 0 and base[1] <= 1 and exponent[0] >= 0 else UNBOUNDED
    power = exponent[0]
    if base[0] < 0:
        if power % 2:
            return UNBOUNDED
        base = (0.0 if base[1] >= 0 else -base[1], max(-base[0], base[1]))
    if power < 0:
        return 0.0, math.inf
    return base[0] ** power, base[1] ** power


def _quantized(node: gs.Node, of: _Of) -> Bounds:
    """Bounds of what is quantised, which stands for the same numbers, also where it is made by a `QLinearSigmoid`."""
    op = node.op.removeprefix("QLinear")
    if op in _FIXED:
        return _FIXED[op]
    return of(node.inputs[0]) if op in ops.WITHIN_INPUT | ops.WITHIN_INPUT_OR_ZERO else UNBOUNDED


def _is_normalized(node: gs.Node, of: _Of) -> bool:
    """True for (x - min x) / (max x - min x), and for x / max x of what is not negative, with a little to divide by."""
    above, below = node.inputs
    while (maker := maker_of(below)) is not None and maker.op in ("Add", "Max", "Identity") and len(maker.inputs) <= 2:
        rest = [value for value in maker.inputs if not is_constant(value)]
        small = [constant_values(value) for value in maker.inputs if is_constant(value)]
        if len(rest) != 1 or any(one is None or np.min(one) < 0 or np.max(one) > 0.01 for one in small):
            break
        below = rest[0]
    if maker is None:
        return False
    if maker.op == "ReduceMax":
        return maker.inputs[0] is above and of(above)[0] >= 0
    shifted = maker_of(above)
    if maker.op != "Sub" or shifted is None or shifted.op != "Sub":
        return False
    value = shifted.inputs[0]
    reductions = [maker_of(one) for one in (maker.inputs[0], maker.inputs[1], shifted.inputs[1])]
    greatest, least, subtracted = reductions
    if greatest is None or least is None or subtracted is None:
        return False
    return (
        [one.op for one in (greatest, least, subtracted)] == ["ReduceMax", "ReduceMin", "ReduceMin"]
        and all(one.inputs[0] is value for one in (greatest, least, subtracted))
        and _axes(least) == _axes(subtracted) == _axes(greatest)
    )


def _axes(node: gs.Node) -> tuple[int, ...] | None:
    """The axes of a reduction; empty where it is over all; None where they are not known."""
    if len(node.inputs) > 1 and node.inputs[1].name:
        values = constant_values(node.inputs[1])
        return None if values is None else tuple(int(one) for one in np.ravel(values))
    return tuple(node.attrs.get("axes", ()))


def _batch_normalized(node: gs.Node, of: _Of) -> Bounds:
    given = of(node.inputs[0])
    scale, shift, mean, variance = (constant_values(value) for value in node.inputs[1:5])
    if scale is None or shift is None or mean is None or variance is None:
        return UNBOUNDED
    gain = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
    offset = shift - mean * gain
    each = [
        _combined("Add", _combined("Mul", given, (float(one),) * 2), (float(two),) * 2)
        for one, two in zip(gain, offset, strict=True)
    ]
    return _union(each)


def _blurred(node: gs.Node, of: _Of) -> Bounds:
    """The bounds of a convolution that only averages or enlarges: no weight is negative, and nothing is added.

    For others the limits would be far beyond what the values are, and their middle nowhere.
    """
    weights = constant_values(node.inputs[1])
    if weights is None or np.min(weights) < 0 or (len(node.inputs) > 2 and np.any(constant_values(node.inputs[2]))):
        return UNBOUNDED
    low, high = _union([of(node.inputs[0]), (0.0, 0.0)])
    if not math.isfinite(high) or low < 0:
        return (0.0, math.inf) if low == 0 else UNBOUNDED
    if node.op == "Conv":
        most = float(np.max(np.sum(weights, axis=tuple(range(1, weights.ndim)))))
    else:
        most = _largest_overlap(weights, node)
    return 0.0, round(high * most, 5)  # averages of nine ninths are 1


def _largest_overlap(weights: np.ndarray, node: gs.Node) -> float:
    """The largest sum of weights that meet in one pixel of a ConvTranspose."""
    strides = node.attrs.get("strides", [1] * (weights.ndim - 2))
    if any(one != 1 for one in node.attrs.get("dilations", [1])):
        return math.inf
    return max(
        float(np.max(np.sum(weights[:, :, row :: strides[0], col :: strides[1]], axis=(0, 2, 3))))
        for row in range(strides[0])
        for col in range(strides[1])
    )


def _sums_classes(node: gs.Node) -> bool:
    """True for the sum over some classes of a Softmax."""
    axes, maker = _axes(node), maker_of(behind(node.inputs[0], ("Slice", "Identity", "Cast", "Split")))
    if maker is None or maker.op != "Softmax" or axes is None or len(axes) != 1:
        return False
    rank = len(dims(maker.outputs[0]))
    return bool(rank) and axes[0] % rank == maker.attrs.get("axis", -1) % rank
