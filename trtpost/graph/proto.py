"""Everything asked of ONNX protobufs: attributes and constants, nodes inside nodes, names, order, calls, and parts."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.errors import ModelError
from trtpost.graph import baked


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Values of a node's attributes by name; texts as bytes."""
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


def constants_of(graph: onnx.GraphProto, names: Collection[str]) -> dict[str, NDArray[np.generic]]:
    """Values of those of the named tensors that are initializers, or outputs of Constant nodes."""
    found = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer if one.name in names}
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            for name, value in attributes_of(node).items():
                if name.startswith("value"):
                    is_tensor = isinstance(value, onnx.TensorProto)
                    found[node.output[0]] = onnx.numpy_helper.to_array(value) if is_tensor else np.array(value)
    return found


def element_types(graph: onnx.GraphProto) -> dict[str, int]:
    """Types of those tensors of a graph, by name, whose type it states, as in `TensorProto.DataType`."""
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {one.name: one.data_type for one in graph.initializer}


def replace(field: Any, values: Iterable[Any]) -> None:
    """In place: a repeated field gets other messages, which may be some of its own."""
    kept = list(values)
    del field[:]
    field.extend(kept)


def subgraphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs of an If, Loop or Scan, without those inside them."""
    return [graph for one in node.attribute for graph in ([one.g] if one.HasField("g") else one.graphs)]


def graphs_inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs inside nodes at any depth, each before those inside it, so that it may be changed when it comes."""
    for node in nodes:
        for graph in subgraphs_of(node):
            yield graph
            yield from graphs_inside(graph.node)


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph, and those inside its nodes, in the order of `graphs_inside`."""
    yield model.graph
    yield from graphs_inside(model.graph.node)


def used_by(node: onnx.NodeProto) -> set[str]:
    """Names that a node uses, those inside its subgraphs among them: which are their own does not matter here."""
    return (set(node.input) | used_inside(node)) - {""}


def used_inside(node: onnx.NodeProto) -> set[str]:
    """Names that the subgraphs of a node use, without those of their own inputs and weights."""
    used: set[str] = set()
    for graph in subgraphs_of(node):
        inner = {value.name for value in graph.output}.union(*map(used_by, graph.node))
        used |= inner - {one.name for one in (*graph.initializer, *graph.input)}
    return used


def depending_on(graph: onnx.GraphProto, names: Iterable[str]) -> set[str]:
    """The named tensors of a sorted graph, and those whose values depend on theirs, not on their shapes alone."""
    found = set(names)
    for node in graph.node:
        if node.op_type not in ("Shape", "Size") and not used_by(node).isdisjoint(found):
            found.update(node.output)
    return found


def behind(made: Mapping[str, onnx.NodeProto], name: str, ops: Collection[str]) -> str:
    """The tensor that a chain of such operators begins with, each of which hands on its first input.

    Args:
        made: node by the name of its output.
        name: the tensor that the chain ends with; given back where none of them makes it.
        ops: operators that are passed.
    """
    seen = set()
    while name in made and made[name].op_type in ops and name not in seen:  # nothing forbids a circle yet
        seen.add(name)
        name = made[name].input[0]
    return name


def rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """In place: the tensors that nodes take and give, and that their subgraphs take, get other names."""
    for node in nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        rename_inside(node, names)


def rename_inside(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """In place: the tensors that the subgraphs of a node take get other names."""
    for graph in graphs_inside([node]):
        for one in graph.node:
            one.input[:] = [names.get(name, name) for name in one.input]
        for value in graph.output:
            value.name = names.get(value.name, value.name)


def name_apart(model: onnx.ModelProto) -> None:
    """In place: nodes that share a name get others: ONNX allows it, but ONNX Runtime does not beside functions."""
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


def sort_nodes(model: onnx.ModelProto) -> None:
    """In place: each node comes after those whose results it takes, as ONNX demands and people who edit graphs forget.

    Otherwise nodes stay in their order. A circle is left to ONNX's own check.
    """
    for graph in graphs_of(model):
        made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
        needs = {
            index: {made[name] for name in used_by(node) if name in made} - {index}
            for index, node in enumerate(graph.node)
        }
        if all(max(before, default=-1) < index for index, before in needs.items()):
            continue
        try:
            TopologicalSorter(needs).prepare()
        except CycleError:
            continue
        order: dict[int, onnx.NodeProto] = {}
        for root in needs:
            pending = [root]
            while pending:
                if waiting := sorted((index for index in needs[pending[-1]] if index not in order), reverse=True):
                    pending += waiting
                else:
                    index = pending.pop()
                    order[index] = graph.node[index]
        replace(graph.node, order.values())


def check_calls(model: onnx.ModelProto, name: str) -> None:
    """Refuse a model in memory whose functions `baked.check_calls` refuses.

    Raises:
        ModelError: `name` says of which model.
    """
    functions = {(one.domain, one.name): _calls(one.node) for one in model.functions}
    baked.check_calls(functions, _calls(model.graph.node), name)


def called_functions(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """The model's functions that the nodes call, and those that these call."""
    left = {(one.domain, one.name): one for one in model.functions}
    found, pending = [], _calls(nodes)
    while pending:
        if (function := left.pop(pending.pop(), None)) is not None:
            found.append(function)
            pending += _calls(function.node)
    return found


def _calls(nodes: Sequence[onnx.NodeProto]) -> list[baked.Call]:
    inner = (node for graph in graphs_inside(nodes) for node in graph.node)
    return [(node.domain, node.op_type) for node in itertools.chain(nodes, inner)]


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
