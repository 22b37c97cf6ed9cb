"""Calls of model-local functions: which functions nodes need, and how many nodes they are when all are expanded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from trtpost.errors import ModelError

MAX_NODES = 1 << 17
"""Libraries expand functions, and thirty that call the one before twice are a file of some kilobytes."""


def check_calls(model: onnx.ModelProto, name: str) -> None:
    """Refuse functions that call each other in a circle, and those that never end for any practical purpose.

    Raises:
        ModelError: `name` says of which model.
    """
    counts: dict[tuple[str, str], int] = {}
    left = {(one.domain, one.name): one for one in model.functions}
    while left:
        ready = [
            key
            for key, one in left.items()
            if not any((node.domain, node.op_type) in left for node in _nodes(one.node))
        ]
        if not ready:
            raise ModelError(f"{name}: function '{next(iter(left))[1]}' calls itself, so it has no end")
        for key in ready:
            counts[key] = _expanded(left.pop(key).node, counts)
    if (total := _expanded(model.graph.node, counts)) > MAX_NODES:
        raise ModelError(f"{name}: its functions expand to {total:.2g} nodes; more than {MAX_NODES} are not taken")


def called_functions(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """The model's functions that the nodes call, and those that these call."""
    left = {(one.domain, one.name): one for one in model.functions}
    found, pending = [], list(nodes)
    while pending:
        for node in _nodes([pending.pop()]):
            if (function := left.pop((node.domain, node.op_type), None)) is not None:
                found.append(function)
                pending += function.node
    return found


def subgraphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs inside an If, Loop or Scan."""
    return [graph for one in node.attribute for graph in ([one.g] if one.HasField("g") else one.graphs)]


def _expanded(nodes: Iterable[onnx.NodeProto], counts: dict[tuple[str, str], int]) -> int:
    return sum(counts.get((node.domain, node.op_type), 1) for node in _nodes(nodes))


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those inside them."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        pending += [inner for graph in subgraphs_of(node) for inner in graph.node]
