"""What the rewriting modules ask of ONNX nodes and graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Values of a node's attributes by name; texts as bytes."""
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


def constants_of(graph: onnx.GraphProto, names: set[str]) -> dict[str, NDArray[np.generic]]:
    """Values of those of the named tensors that are initializers, or outputs of Constant nodes."""
    found = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer if one.name in names}
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            for name, value in attributes_of(node).items():
                if name.startswith("value"):
                    is_tensor = isinstance(value, onnx.TensorProto)
                    found[node.output[0]] = onnx.numpy_helper.to_array(value) if is_tensor else np.array(value)
    return found


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph, and those inside its nodes."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.HasField("g") else attribute.graphs


def rename_inside(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """In place: other names for the tensors that the subgraphs of a node take."""
    pending = list(node.attribute)
    while pending:
        attribute = pending.pop()
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for one in graph.node:
                one.input[:] = [names.get(name, name) for name in one.input]
                pending += one.attribute
            for value in graph.output:
                value.name = names.get(value.name, value.name)


def name_apart(model: onnx.ModelProto) -> None:
    """Give nodes that share a name others: ONNX does not forbid it, but ONNX Runtime does beside functions."""
    for graph in graphs_of(model):
        taken = {node.name for node in graph.node}
        seen = {""}
        counts: dict[str, int] = {}  # where counting goes on: from 1 each time, many nodes of one name take for ever
        for node in graph.node:
            if node.name in seen and node.name:
                first = counts.get(node.name, 0) + 1
                count = next(count for count in itertools.count(first) if f"{node.name}_{count}" not in taken)
                counts[node.name] = count
                node.name = f"{node.name}_{count}"
                taken.add(node.name)
            seen.add(node.name)
