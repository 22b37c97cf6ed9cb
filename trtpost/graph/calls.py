"""Calls of model-local functions: which functions nodes need, and how many nodes they are when all are expanded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from trtpost.errors import ModelError

MAX_NODES = 1 << 15
"""Libraries expand functions, and thirty that call the one before twice are a file of some kilobytes."""


MAX_DEPTH = 100
"""Of functions that call each other: onnx itself goes no deeper."""


def check_calls(model: onnx.ModelProto, name: str) -> None:
    """Refuse functions that call each other in a circle, and those that never end for any practical purpose.

    Raises:
        ModelError: `name` says of which model.
    """
    functions = {(one.domain, one.name): one for one in model.functions}
    calls = {key: [(node.domain, node.op_type) for node in _nodes(one.node)] for key, one in functions.items()}
    waiting = {key: len({call for call in called if call in functions}) for key, called in calls.items()}
    callers: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, called in calls.items():
        for call in set(called):
            callers.setdefault(call, []).append(key)
    counts: dict[tuple[str, str], int] = {}
    depths: dict[tuple[str, str], int] = {}
    ready = [key for key, count in waiting.items() if not count]
    while ready:
        key = ready.pop()
        counts[key] = sum(counts.get(call, 1) for call in calls[key])
        depths[key] = 1 + max((depths.get(call, 0) for call in calls[key]), default=0)
        for caller in callers.get(key, ()):
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    if left := [key for key in functions if key not in counts]:
        raise ModelError(f"{name}: function '{left[0][1]}' calls itself, so it has no end")
    if (depth := max(depths.values(), default=0)) > MAX_DEPTH:
        raise ModelError(f"{name}: its functions call each other {depth} deep; more than {MAX_DEPTH} are not taken")
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
