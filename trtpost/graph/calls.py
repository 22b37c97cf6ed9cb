"""Calls of model-local functions: which functions nodes need, and how many nodes they are when all are expanded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from trtpost import baked


def check_calls(model: onnx.ModelProto, name: str) -> None:
    """As `baked.check_calls`, of a model in memory.

    Raises:
        ModelError: `name` says of which model.
    """
    functions = {(one.domain, one.name): _calls(one.node) for one in model.functions}
    baked.check_calls(functions, _calls(model.graph.node), name)


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


def _calls(nodes: Iterable[onnx.NodeProto]) -> list[baked.Call]:
    return [(node.domain, node.op_type) for node in _nodes(nodes)]


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those inside them."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        pending += [inner for graph in subgraphs_of(node) for inner in graph.node]
