"""Everything asked of graphsurgeon's tensors: shape, type and values, and the one way to walk from them to others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import numpy as np
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

G_LOGGER.severity = G_LOGGER.CRITICAL  # its remarks on models are for its own developers

T = TypeVar("T")


def dims(value: gs.Tensor) -> tuple[int | str, ...]:
    """Shape of a tensor, with names for dynamic dimensions; empty where it is not known."""
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
    node = maker_of(tensor)
    if node is None or node.op != "If":
        return []
    at = next(index for index, output in enumerate(node.outputs) if output is tensor)
    return [graph.outputs[at] for graph in node.attrs.values() if isinstance(graph, gs.Graph)]


def listing(values: Iterable[gs.Tensor]) -> str:
    """Names, types and shapes, for messages."""
    return ", ".join(f"'{one.name}' {dtype_name(one)} [{', '.join(map(str, dims(one)))}]" for one in values) or "none"


def maker_of(tensor: gs.Tensor) -> gs.Node | None:
    """The node that makes a tensor; None for inputs and weights."""
    return tensor.inputs[0] if tensor.inputs else None


def reached(
    starts: Iterable[T],
    onward: Callable[[T], Iterable[T]],
    key: Callable[[T], object] = id,
    *,
    last_first: bool = False,
) -> Iterator[T]:
    """The starts and all that is reached from them, each once, the nearest first.

    Args:
        starts: tensors, nodes, or names of them.
        onward: gives the places next to one; asked only when the one after it is wanted.
        key: tells places apart; `str` for names.
        last_first: go the last way that `onward` gives to its end, then the one before it.
    """
    pending, seen = deque(starts), set[object]()
    while pending:
        place = pending.pop() if last_first else pending.popleft()
        if key(place) not in seen:
            seen.add(key(place))
            yield place
            pending.extend(onward(place))


def nodes_before(tensor: gs.Tensor, follow: Callable[[gs.Node], Iterable[gs.Tensor]]) -> Iterator[gs.Node]:
    """The nodes that a tensor comes from; `follow` gives the inputs of one by which to go on."""
    tensors = reached([tensor], lambda one: follow(one.inputs[0]) if one.inputs else [])
    return (one.inputs[0] for one in tensors if one.inputs)


def chain_before(tensor: gs.Tensor, ops: Collection[str]) -> list[gs.Node]:
    """The nodes that a tensor comes from by their first inputs, back to one of another operator; the nearest first."""
    nodes = nodes_before(tensor, lambda node: node.inputs[:1] if node.op in ops else [])
    return [node for node in nodes if node.op in ops]


def behind(tensor: gs.Variable, ops: Collection[str]) -> gs.Variable:
    """The tensor that `chain_before` leads back to; the tensor itself where no operator of these makes it."""
    chain = chain_before(tensor, ops)
    return chain[-1].inputs[0] if chain else tensor


def proven(tensor: gs.Tensor, premises: Callable[[gs.Tensor], Iterable[gs.Tensor] | None]) -> bool:
    """True where something holds of a tensor.

    Args:
        tensor: of which it is asked.
        premises: gives the tensors of which it must hold too, so that it holds of one; None where it does not anyway.
    """
    return all(premises(one) is not None for one in reached([tensor], lambda one: premises(one) or []))


def depends_on(value: gs.Tensor, source: gs.Tensor) -> bool:
    """True where the values of a tensor may be others for another image."""
    if value is source:
        return True
    return any(
        # what is used inside of a subgraph is not listed
        any(one is source for one in node.inputs) or any(isinstance(one, gs.Graph) for one in node.attrs.values())
        for node in nodes_before(value, lambda node: node.inputs)
    )
