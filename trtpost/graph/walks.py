"""What the searching modules ask of a graphsurgeon tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

G_LOGGER.severity = G_LOGGER.CRITICAL  # its remarks on models are for its own developers


def dims(value: gs.Tensor) -> tuple[int | str, ...]:
    """Shape, with names for dynamic dimensions; empty where it is not known."""
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape or ())


def number(dim: int | str) -> int:
    """A dimension, or 0 where it is dynamic."""
    return dim if isinstance(dim, int) and dim > 0 else 0


def dtype_name(value: gs.Tensor) -> str:
    """Element type as numpy names it; `unknown` where it is not known or numpy has none."""
    try:
        return np.dtype(value.dtype).name if value.dtype is not None else "unknown"
    except TypeError:
        return "unknown"


def is_whole(value: gs.Tensor) -> bool:
    """True for integers and booleans: what labels are made of."""
    return dtype_name(value).startswith(("int", "uint", "bool"))


def is_constant(value: gs.Tensor) -> bool:
    """True for initializers and outputs of Constant nodes."""
    return isinstance(value, gs.Constant) or bool(value.inputs and value.inputs[0].op == "Constant")


def constant_values(value: gs.Tensor) -> np.ndarray | None:
    """Values of a constant, or None."""
    if isinstance(value, gs.Constant):
        return np.asarray(value.values)
    if is_constant(value):
        (inner,) = value.inputs[0].attrs.values() or (None,)
        if isinstance(inner, gs.Constant):
            return np.asarray(inner.values)
        return np.asarray(inner) if isinstance(inner, int | float | list) else None
    return None


def branches_of(tensor: gs.Tensor) -> list[gs.Tensor]:
    """What either branch of the If gives that makes a tensor; empty where no If does."""
    node = tensor.inputs[0] if tensor.inputs else None
    if node is None or node.op != "If":
        return []
    at = next(index for index, output in enumerate(node.outputs) if output is tensor)
    return [graph.outputs[at] for graph in node.attrs.values() if isinstance(graph, gs.Graph)]


def listing(values: Iterable[gs.Tensor]) -> str:
    """Names, types and shapes, for messages."""
    return ", ".join(f"'{one.name}' {dtype_name(one)} [{', '.join(map(str, dims(one)))}]" for one in values) or "none"


def nodes_before(tensor: gs.Variable, follow: Callable[[gs.Node], Iterable[gs.Variable]]) -> Iterator[gs.Node]:
    """The nodes that a tensor comes from; `follow` gives the inputs of one by which to go on."""
    pending, seen = [tensor], set()
    while pending:
        one = pending.pop()
        if id(one) in seen or not one.inputs:
            continue
        seen.add(id(one))
        node = one.inputs[0]
        yield node
        pending += follow(node)
