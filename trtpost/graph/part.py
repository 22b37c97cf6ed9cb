"""A part of a model, as a model of its own."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from trtpost.errors import ModelError
from trtpost.graph.calls import called_functions, subgraphs_of


def part_of(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """What makes `outputs` out of `inputs`, and whatever else it uses: weights, functions, the values around subgraphs.

    `onnx.utils.Extractor` leaves out what only the inside of an If, Loop or Scan uses, and takes no sparse weights.

    Args:
        model: with shapes inferred; its nodes in the order in which they can run.
        inputs, outputs: tensors of its main graph.

    Raises:
        ModelError: a tensor's type is not known.
    """
    graph = model.graph
    known = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    if missing := [name for name in (*inputs, *outputs) if name not in known]:
        raise ModelError(f"the type of tensor '{missing[0]}' is not known")
    needed: set[str] = set(outputs).difference(inputs)
    nodes: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed |= used_by(node).difference(inputs)
    part = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    part.opset_import.extend(model.opset_import)
    part.functions.extend(called_functions(model, nodes))
    part.graph.name = graph.name
    part.graph.node.extend(reversed(nodes))
    part.graph.input.extend(known[name] for name in inputs)
    part.graph.output.extend(known[name] for name in outputs)
    part.graph.initializer.extend(one for one in graph.initializer if one.name in needed)
    part.graph.sparse_initializer.extend(one for one in graph.sparse_initializer if one.values.name in needed)
    part.graph.value_info.extend(value for value in graph.value_info if value.name in needed.difference(outputs))
    return part


def used_by(node: onnx.NodeProto) -> set[str]:
    """Names that a node uses, those inside its subgraphs among them: which are their own does not matter here."""
    return (set(node.input) | used_inside(node)) - {""}


def used_inside(node: onnx.NodeProto) -> set[str]:
    """Names that the subgraphs of a node use, without those of their own inputs and weights."""
    used: set[str] = set()
    for graph in subgraphs_of(node):
        inner = {value.name for value in graph.output}
        for one in graph.node:
            inner |= used_by(one)
        used |= inner - {one.name for one in (*graph.initializer, *graph.input)}
    return used
