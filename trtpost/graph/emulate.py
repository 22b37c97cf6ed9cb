"""Reduced precision on a CPU: graphs that compute there, in float32, what their types promise of a GPU.

ONNX Runtime's CPU provider does not do that by itself (measured with 1.32). It has no bfloat16 arithmetic. It computes
float16 graphs in float32 without rounding in between, so that an overflow goes unseen. And where the CPU has no VNNI,
its int8 kernels saturate: 4 % of DeepLab's pixels changed class by that alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from trtpost import onnx_runtime
from trtpost.graph import ops
from trtpost.graph.proto import element_types, graphs_of, rename, replace

FLOAT, FLOAT16, BFLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16


def runnable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as ONNX Runtime's CPU provider can run it: one with bfloat16 as `rounded`, every other as it is.

    Types are those that the graph states, as baked graphs do: inferring them takes longer than the rest of loading.
    """
    return rounded(model) if BFLOAT16 in _types(model).values() else model


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in float32 arithmetic, with the result of each float16 or bfloat16 node rounded to its type.

    That is how a tensor core computes: products of 16 bits, sums in float32, one rounding at the end. Every tensor
    keeps its name and becomes float32, outputs too; inputs keep their type.
    """
    types = _types(onnx.shape_inference.infer_shapes(model))
    if not {FLOAT16, BFLOAT16} & set(types.values()):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in reversed(list(graphs_of(copy))):  # inner ones first, which then move with their nodes
        _round_graph(graph, types)
    inputs = {value.name: f"{value.name}/float32" for value in copy.graph.input if types[value.name] == FLOAT16}
    rename(copy.graph.node, inputs)
    for name, wide in reversed(inputs.items()):
        copy.graph.node.insert(0, onnx.helper.make_node("Cast", [name], [wide], to=FLOAT))
    return copy


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """A copy of the model that also gives the named tensors, after its own outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    own = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in own)
    return copy


def session(model: onnx.ModelProto) -> Any:
    """An ONNX Runtime session on the CPU that computes what the types promise.

    Raises:
        Exception: ONNX Runtime does not take the model; its errors have no common base.
    """
    return onnx_runtime.session(rounded(model).SerializeToString(), int8_kernels=False)


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of every tensor whose type the graph or a subgraph states."""
    return {name: kind for graph in graphs_of(model) for name, kind in element_types(graph).items()}


def _round_graph(graph: onnx.GraphProto, types: dict[str, int]) -> None:
    """Replace 16-bit types in a graph; Casts stay, and are followed by one to float32."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen(attribute.t)
        after = []
        for index, name in enumerate(node.output):
            kind = types.get(name)
            if kind not in (FLOAT16, BFLOAT16) or node.op_type in ops.EXACT:
                continue
            exact, narrow = f"{name}/float32", f"{name}/rounded"
            node.output[index] = narrow if node.op_type == "Cast" else exact
            if node.op_type != "Cast":
                after.append(onnx.helper.make_node("Cast", [exact], [narrow], to=kind))
            after.append(onnx.helper.make_node("Cast", [narrow], [name], to=FLOAT))
        nodes += [node, *after]
    replace(graph.node, nodes)
    for initializer in graph.initializer:
        _widen(initializer)
    for value in (*graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type in (FLOAT16, BFLOAT16):
            value.type.tensor_type.elem_type = FLOAT


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in (FLOAT16, BFLOAT16):
        values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
