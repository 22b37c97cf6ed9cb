"""Rules of tf2onnx that change what a network computes, put right: they are replaced where it keeps them."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


def repair() -> None:
    """Replace the rules, in this process."""
    from tf2onnx.optimizer import back_to_back_optimizer as rules

    rules._func_map[("Reshape",)] = _merge_reshapes
    rules._func_map[("Cast",)] = _merge_casts


def _merge_reshapes(graph: Any, first: Any, consumers: list[Any]) -> list[str]:
    """Let the second of two Reshapes take what the first takes, unless it copies sides of the shape in between.

    A Transpose that moves an axis of length 1 becomes a Reshape by `0`, which is "as long as that axis of the input":
    of another input it would be another length.
    """
    from tf2onnx.optimizer.back_to_back_optimizer import BackToBackOptimizer

    shapes = [one.inputs[1] for one in consumers]
    if any(shape.is_const() and 0 in shape.get_tensor_value() for shape in shapes):
        return []
    merged: list[str] = BackToBackOptimizer._optimize_reshape_reshape(graph, first, consumers)
    return merged


def _merge_casts(graph: Any, first: Any, consumers: list[Any]) -> list[str]:
    """Leave out the first of two Casts, unless it cuts off the fraction of what is then compared with zero."""
    from tf2onnx.optimizer.back_to_back_optimizer import BackToBackOptimizer

    cuts = graph.get_dtype(first.input[0]) in (*_FLOATS, None) and first.get_attr("to").i not in _FLOATS
    if cuts and any(one.get_attr("to").i == TensorProto.BOOL for one in consumers):
        return [one.output[0] for one in consumers]
    merged: list[str] = BackToBackOptimizer._optimize_cast(graph, first, consumers)
    return merged
