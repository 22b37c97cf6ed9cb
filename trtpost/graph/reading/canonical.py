"""Functions, sparse tensors and optionals become plain nodes and tensors; what computes nothing, or for ever, goes."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.inliner

from trtpost.errors import ModelError
from trtpost.graph.proto import attributes_of, behind, constants_of, graphs_inside, graphs_of, replace, used_by

MAX_SPARSE = 1 << 28
"""Values that a sparse tensor may have when it is written out: a few bytes can promise any number."""

MAX_STEPS = 10_000_000
"""Steps of a Loop that nothing else ends; a network that takes its steps for pixels has fewer."""


_STANDARD = "ai.onnx"
"""The other name of the domain of the standard operators, which is the empty one."""


def name_standard(model: onnx.ModelProto) -> None:
    """In place: the standard operators, and the version of them that is imported, have the empty domain alone."""
    for holder in (model, *model.functions):
        imports: dict[str, int] = {}
        for entry in holder.opset_import:
            domain = "" if entry.domain == _STANDARD else entry.domain
            imports[domain] = max(imports.get(domain, 0), entry.version)
        replace(holder.opset_import, [onnx.helper.make_opsetid(*entry) for entry in imports.items()])
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    bodies += [graph.node for nodes in bodies for graph in graphs_inside(nodes)]
    for nodes in bodies:
        for node in nodes:
            if node.domain == _STANDARD:
                node.domain = ""


def without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of its functions in place of their calls, so that everybody sees what they do."""
    if not model.functions:
        return model
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    # bodies of another operator set are converted, for which every type that they are given has to be known
    constants = model.graph.initializer
    typed.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in constants
    )
    return onnx.inliner.inline_local_functions(onnx.shape_inference.infer_shapes(typed), convert_version=True)


def write_out_sparse(model: onnx.ModelProto, name: str) -> None:
    """In place: sparse initializers and constants become dense ones, which is all that runtimes take everywhere.

    Raises:
        ModelError: `name` says of which model; a tensor is too large to be written out.
    """
    for graph in graphs_of(model):
        graph.initializer.extend(_dense(one, name) for one in graph.sparse_initializer)
        del graph.sparse_initializer[:]
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
                    value = _dense(attribute.sparse_tensor, name)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", value))


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    shape, label = tuple(sparse.dims), sparse.values.name
    if any(side < 0 for side in shape) or math.prod(shape) > MAX_SPARSE:
        raise ModelError(f"{name}: the sparse tensor '{label}' {list(shape)} is too large to be written out")
    values, places = onnx.numpy_helper.to_array(sparse.values), onnx.numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, values.dtype)
    if places.ndim == 1:
        dense.reshape(-1)[places] = values
    else:
        dense[tuple(places.T)] = values
    return onnx.numpy_helper.from_array(dense, label)


def without_optionals(model: onnx.ModelProto) -> None:
    """In place: an optional that holds a tensor for certain becomes that tensor."""
    for graph in graphs_of(model):
        for node in graph.node:
            if node.domain == "" and node.op_type in ("Optional", "OptionalGetElement") and node.input:
                node.op_type = "Identity"
                del node.attribute[:]
        replace(graph.value_info, [one for one in graph.value_info if not one.type.HasField("optional_type")])


def keep_computed(model: onnx.ModelProto, name: str) -> None:
    """In place: take away outputs that no operator computes from an input, and inputs that nothing uses.

    Raises:
        ModelError: no output is left; `name` says of which model.
    """
    graph = model.graph
    given = {value.name for value in graph.input}
    computed: set[str] = set()
    for node in graph.node:
        used = used_by(node)
        if node.op_type == "Identity" and used <= given:
            given.update(node.output)
        elif not (used.isdisjoint(given) and used.isdisjoint(computed)):  # a union would be made for every node
            computed.update(node.output)
    outputs = {value.name: value for value in graph.output if value.name in computed}  # some are named twice
    if not outputs:
        raise ModelError(f"{name} computes nothing: its outputs are its inputs themselves, or constants")
    replace(graph.output, outputs.values())
    used = set[str]().union(*map(used_by, graph.node))
    if inputs := [value for value in graph.input if value.name in used]:
        replace(graph.input, inputs)


def refuse_endless_loops(model: onnx.ModelProto, name: str) -> None:
    """Refuse a Loop that nothing but its number of steps ends, where this number is absurd, or there is none.

    Raises:
        ModelError: naming the node; `name` says of which model.
    """
    graphs = list(graphs_of(model))
    made = {output: node for graph in graphs for node in graph.node for output in node.output}
    loops = [
        (behind(made, node.input[0], ("Identity", "Cast")), node)
        for graph in graphs
        for node in graph.node
        if node.op_type == "Loop" and node.input and _stays_true(attributes_of(node).get("body"))
    ]
    counts = {count for count, _ in loops}
    steps = {name: values for graph in graphs for name, values in constants_of(graph, counts).items()}
    steps[""] = np.array(math.inf)  # no number of them is given
    for count, node in loops:
        if count in steps and steps[count].size and steps[count].max() > MAX_STEPS:
            raise ModelError(
                f"{name}: node '{node.name or node.output[0]}' (Loop) goes on for {steps[count].max():.3g} steps: "
                "export the network with a number of steps that ends"
            )


def _stays_true(body: onnx.GraphProto | None) -> bool:
    """True for a Loop that hands its condition on, or a constant: the first is true, or there is no step."""
    if not body or len(body.input) < 2 or not body.output:
        return False
    made = {output: node for node in body.node for output in node.output}
    name = behind(made, body.output[0].name, ("Identity",))
    return name == body.input[1].name or (name in made and made[name].op_type == "Constant")
