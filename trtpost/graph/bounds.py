"""Between which values a tensor lies, where operators bound it: that tells probabilities from logits.

Interval arithmetic back from the tensor, so that it does not matter whether a Sigmoid is one node or four, or whether
its result was scaled to 0..255 or -1..1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from trtpost.graph.tensors import constant_values

Bounds = tuple[float, float]
"""The least and the greatest value."""

UNBOUNDED: Bounds = (-math.inf, math.inf)

_FIXED: dict[str, Bounds] = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Softsign"), (-1.0, 1.0)),
}
_KEEPING = frozenset(
    {
        *("Identity", "Cast", "QuantizeLinear", "DequantizeLinear", "Dropout"),
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Resize", "Slice", "Gather", "Split"),
        *("DepthToSpace", "MaxPool", "AveragePool", "ReduceMax", "ReduceMin", "ReduceMean"),
    }
)
"""Move values about, or give some between the least and the greatest."""

_GROWING: dict[str, Callable[[float], float]] = {
    "Relu": lambda value: max(value, 0.0),
    "Exp": lambda value: math.exp(value) if value < 700 else math.inf,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.truediv,
}
_DEPTH = 16
"""Operators that are looked at, one before the other."""


def bounds_of(tensor: gs.Tensor, depth: int = _DEPTH) -> Bounds:
    """What the operators that make a tensor say of its values; `UNBOUNDED` where they say nothing."""
    values = constant_values(tensor)
    if values is not None and values.size and values.dtype.kind in "fiu":
        return float(np.min(values)), float(np.max(values))
    if not tensor.inputs or not depth:
        return UNBOUNDED
    node = tensor.inputs[0]
    if node.op in _FIXED:
        return _FIXED[node.op]
    if node.op in _KEEPING and node.attrs.get("mode") != "cubic":
        return bounds_of(node.inputs[0], depth - 1)
    if node.op in _GROWING:
        low, high = bounds_of(node.inputs[0], depth - 1)
        return _GROWING[node.op](low), _GROWING[node.op](high)
    if node.op == "Clip":
        low, high = bounds_of(node.inputs[0], depth - 1)
        floor, ceiling = UNBOUNDED
        for at, value in enumerate(node.inputs[1:3]):
            limit = constant_values(value)
            if limit is not None:
                floor, ceiling = (float(limit), ceiling) if at == 0 else (floor, float(limit))
        return min(max(low, floor), ceiling), max(min(high, ceiling), floor)
    if node.op in _ARITHMETIC:
        one, two = (bounds_of(value, depth - 1) for value in node.inputs)
        return _combined(node.op, one, two)
    if node.op in ("Neg", "Reciprocal"):
        given = bounds_of(node.inputs[0], depth - 1)
        return _combined("Sub", (0.0, 0.0), given) if node.op == "Neg" else _combined("Div", (1.0, 1.0), given)
    return UNBOUNDED


def _combined(op: str, one: Bounds, two: Bounds) -> Bounds:
    if op == "Div" and two[0] <= 0 <= two[1]:
        return UNBOUNDED
    ends = [_ARITHMETIC[op](first, second) for first in one for second in two]
    return UNBOUNDED if any(map(math.isnan, ends)) else (min(ends), max(ends))
