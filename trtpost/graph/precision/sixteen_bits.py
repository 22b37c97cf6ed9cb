"""The network in 16 bits, float16 or bfloat16.

What stays float32 in both: arithmetic on shapes and coordinates, the scales of a Resize, and what sums up or takes
powers, where float16 overflows (`ops.FLOAT32`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import onnx.version_converter
from numpy.typing import NDArray

from trtpost.errors import ModelError, reason
from trtpost.graph import ops
from trtpost.graph.baked import source_name
from trtpost.graph.emulate import BFLOAT16, FLOAT, FLOAT16
from trtpost.graph.proto import (
    attributes_of,
    depending_on,
    graphs_of,
    rename,
    rename_inside,
    replace,
    subgraphs_of,
    used_by,
    used_inside,
)
from trtpost.graph.reading.model import opset_of
from trtpost.spec import Precision

BFLOAT16_OPSET, BFLOAT16_IR_VERSION = 22, 10
"""The first opset and IR version in which convolutions take bfloat16."""


def in_16_bits(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """The network in float16 by ONNX Runtime's converter, which knows no bfloat16: that replaces float16 afterwards.

    Probabilities of a Sigmoid that ends the network stay float32: near 1 there are too few numbers of 16 bits to tell
    which class has the largest. Logits are of 16 bits: with everything from the last convolution on in float32, 0.01 %
    more of the pixels keep their class in fp16 and 0.13 % in bf16 (DeepLab; of three other networks less), for twice
    the bytes.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    if precision == "fp16":
        _refuse_large_weights(model)
    else:
        model = _raised(model)
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer if one.data_type == FLOAT}
    ending = _nodes_from_sigmoid(model)
    model = onnx.shape_inference.infer_shapes(model)
    wide = [*sorted(ops.FLOAT32), *_ops_without(precision, model)]
    captured = _capture(model, wide)
    try:
        result: onnx.ModelProto = convert_float_to_float16(
            model,
            keep_io_types=[value.name for value in model.graph.input],
            disable_shape_infer=True,  # a Loop of more inputs than it has values is not valid
            op_block_list=wide,
            node_block_list=[*_without_pixels(model.graph), *ending, *captured],
        )
    except Exception as error:  # it asserts, and its assertions have no message
        raise ModelError(f"the network cannot be converted to {precision}: {reason(error)}") from None
    _remove_detours(result.graph)
    _release(result, captured)
    if ending:
        _leave_in_float32(result)
    if precision == "bf16":
        _replace_float16(result, weights)
    return result


def _ops_without(precision: Precision, model: onnx.ModelProto) -> list[str]:
    """Operators of the model that take float32, and not the type of this precision."""
    kind, found = ("tensor(float16)", []) if precision == "fp16" else ("tensor(bfloat16)", sorted(ops.NO_BFLOAT16))
    for op, domain in {(node.op_type, node.domain) for graph in graphs_of(model) for node in graph.node}:
        try:
            schema = onnx.defs.get_schema(op, opset_of(model), domain)
        except onnx.defs.SchemaError:  # of a runtime alone
            allowed = {"tensor(float16)"}
        else:
            names = {one.type_str for one in (*schema.inputs[:1], *schema.outputs[:1])}
            kinds = [set(one.allowed_type_strs) for one in schema.type_constraints if one.type_param_str in names]
            # a float32 that is not the first input, such as the scales of a Resize, is the converter's to know
            wide = [one for one in kinds if "tensor(float)" in one]
            allowed = set.intersection(*wide) if wide else {kind}
        if kind not in allowed:
            found.append(op)
    return found


def _capture(model: onnx.ModelProto, wide: Iterable[str]) -> dict[str, list[str]]:
    """In place: what the inside of a node takes from outside becomes its inputs, which are returned by the node's name.

    Such nodes are Loop and Scan, whose values go round, and an If with operators inside that stay float32, `wide`. All
    that is inside stays float32 then; the converter, which looks at inputs alone, casts for it what comes from outside.
    """
    tensors = {name for node in model.graph.node for name in node.output} | {value.name for value in model.graph.input}
    tensors |= {one.name for one in model.graph.initializer}
    captured = {}
    for node in model.graph.node:
        inner = {one.op_type for graph in subgraphs_of(node) for one in graph.node}
        if node.op_type in ("Loop", "Scan") or (inner and not inner.isdisjoint((*wide, "If", "Loop", "Scan"))):
            captured[node.name] = sorted(used_inside(node) & tensors)
            node.input.extend(captured[node.name])
    return captured


def _release(model: onnx.ModelProto, captured: dict[str, list[str]]) -> None:
    """In place: the inputs that `_capture` gave go, and the inside takes what the converter made of them."""
    for node in model.graph.node:
        if names := captured.get(node.name):
            given = list(node.input)[-len(names) :]
            del node.input[-len(names) :]
            rename_inside(node, dict(zip(names, given, strict=True)))
        for graph in subgraphs_of(node):
            del graph.value_info[:]  # it repeats the types that what is outside had


def _raised(model: onnx.ModelProto) -> onnx.ModelProto:
    if opset_of(model) >= BFLOAT16_OPSET:
        return model
    try:
        raised = onnx.version_converter.convert_version(model, BFLOAT16_OPSET)
    except Exception as error:  # the converter has errors of several libraries
        raise ModelError(
            f"bfloat16 needs opset {BFLOAT16_OPSET}, and the network cannot be raised to it ({reason(error)}): use "
            f"--precision fp16, or export the network with opset {BFLOAT16_OPSET}"
        ) from None
    raised.ir_version = max(model.ir_version, BFLOAT16_IR_VERSION)
    return raised


def _refuse_large_weights(model: onnx.ModelProto) -> None:
    large = {}
    for one in model.graph.initializer:
        if one.data_type == FLOAT:
            magnitudes = np.abs(onnx.numpy_helper.to_array(one))
            largest = magnitudes.max(initial=0, where=np.isfinite(magnitudes))
            if largest > np.finfo(np.float16).max:
                large[one.name] = largest
    for node in model.graph.node:
        name = next((name for name in node.input if name in large), None)
        if name is not None and node.op_type not in ops.BOUNDING | ops.FLOAT32:
            raise ModelError(
                f"weight {large[name]:g} in '{source_name(name)}', an input of {node.op_type}, is beyond the range of "
                "float16 (65504): use --precision bf16, which has the range of float32"
            )


def _nodes_from_sigmoid(model: onnx.ModelProto) -> list[str]:
    """Names of the Sigmoid that ends a network and of the nodes that move its values about; empty where none does."""
    made = {name: node for node in model.graph.node for name in node.output}
    names, name = [], model.graph.output[0].name
    while name in made and made[name].op_type in ops.MOVING_PROBABILITIES | {"Sigmoid"}:
        names.append(made[name].name)
        if made[name].op_type == "Sigmoid":
            return names
        name = made[name].input[0]
    return []


def _leave_in_float32(model: onnx.ModelProto) -> None:
    """In place: the converter's Cast to float16 goes that ends a network whose last nodes compute in float32."""
    (output,) = model.graph.output
    *nodes, cast = sorted(model.graph.node, key=lambda node: output.name in node.output)
    rename(nodes, {cast.input[0]: output.name})
    replace(model.graph.node, nodes)
    output.type.tensor_type.elem_type = FLOAT


def _without_pixels(graph: onnx.GraphProto) -> list[str]:
    """Names of nodes that depend on no pixel, but on constants and shapes: coordinates and scales are made by them."""
    pixels = [value.name for value in graph.input]
    pixels += [name for node in graph.node if subgraphs_of(node) for name in node.output]
    from_pixels = depending_on(graph, pixels)
    return [node.name for node in graph.node if node.output[0] not in from_pixels]


def _remove_detours(graph: onnx.GraphProto) -> None:
    """In place: no float16 stays between two nodes of float32, where the converter puts it: the value may not fit."""
    made = {name: node for node in graph.node for name in node.output}
    wide: dict[str, str] = {}  # what a Cast to float16 and back again gives, to what it was given
    for node in graph.node:
        before = made.get(node.input[0]) if node.op_type == "Cast" and attributes_of(node).get("to") == FLOAT else None
        if before is not None and before.name.endswith("_cast_to_fp16_node"):
            wide[node.output[0]] = before.input[0]
    nodes = [node for node in graph.node if node.output[0] not in wide]
    rename(nodes, wide)
    taken = {value.name for value in graph.output}.union(*map(used_by, nodes))
    # where nobody takes the float16, the float32 gets its name back
    casts = [node for node in nodes if node.name.endswith("_cast_to_fp16_node") and node.output[0] not in taken]
    names = {cast.output[0]: cast.input[0] for cast in casts}
    replace(graph.node, [node for node in nodes if node.output[0] not in names])
    rename(graph.node, {wide: narrow for narrow, wide in names.items()})


def _replace_float16(model: onnx.ModelProto, weights: dict[str, NDArray[np.float32]]) -> None:
    """In place: float16 becomes bfloat16; `weights` are the values from before they were clipped to float16's range."""
    for graph in graphs_of(model):
        for one in graph.initializer:
            if one.data_type == FLOAT16:
                values = weights.get(one.name, onnx.numpy_helper.to_array(one).astype(np.float32))
                one.CopyFrom(_bfloat16(values, one.name))
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == FLOAT16:
                value.type.tensor_type.elem_type = BFLOAT16
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            if attribute.name in ("to", "dtype") and attribute.i == FLOAT16:
                attribute.i = BFLOAT16
            if attribute.HasField("t") and attribute.t.data_type == FLOAT16:
                values = onnx.numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(_bfloat16(values, attribute.t.name))


def _bfloat16(values: NDArray[np.float32], name: str) -> onnx.TensorProto:
    """A bfloat16 tensor: the upper half of each float32, rounded to even."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return onnx.helper.make_tensor(name, BFLOAT16, values.shape, halves.tobytes(), raw=True)
