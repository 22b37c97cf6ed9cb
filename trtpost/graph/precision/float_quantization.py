"""Does in float arithmetic what TensorRT does not take of networks that are quantised already."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.baked import source_name
from trtpost.graph.proto import attributes_of, constants_of, element_types
from trtpost.graph.walks import constant_values

_NOT_TAKEN = (onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.INT16)
"""Types of quantised numbers that TensorRT does not have."""

_IN_INTEGERS = ("QLinear", "QGemm", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")
"""How the names of operators begin that compute with quantised numbers themselves."""


def is_asymmetric(model: onnx.ModelProto) -> bool:
    """True where the graph is quantised as TFLite does it (uint8, int16, or a zero point that is not 0).

    TensorRT takes only symmetric int8. A `QuantizeLinear` that says no type gives uint8.
    """
    nodes = [node for node in model.graph.node if node.op_type in ops.QUANTIZING]
    zeros = constants_of(model.graph, {name for node in nodes for name in node.input[2:]})
    types = element_types(model.graph)
    for node in nodes:
        zero = zeros.get(node.input[2]) if len(node.input) > 2 else None
        if zero is not None:
            kind = int(onnx.helper.np_dtype_to_tensor_dtype(zero.dtype))
        elif node.op_type == "DequantizeLinear":
            kind = types.get(node.input[0], onnx.TensorProto.UNDEFINED)
        else:
            kind = attributes_of(node).get("output_dtype") or onnx.TensorProto.UINT8
        if kind in _NOT_TAKEN or (zero is not None and zero.astype(np.float32).any()):
            return True
    return False


def dequantized_for_tensorrt(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network as TensorRT takes it: asymmetric quantisation in float arithmetic, symmetric int8 as it is.

    Of that, biases of int32 and single numbers become float constants: TensorRT does not take them as quantised ones
    (measured with TensorRT for RTX 1.7).

    Raises:
        ModelError: as of `with_float_quantization`.
    """
    if not any(node.op_type in ops.QUANTIZING or node.op_type.startswith(_IN_INTEGERS) for node in model.graph.node):
        return model
    if is_asymmetric(model):
        return with_float_quantization(model)
    graph = gs.import_onnx(model)
    _refuse_integers(graph)
    for node in list(graph.nodes):
        values = constant_values(node.inputs[0]) if node.op == "DequantizeLinear" else None
        if values is not None and (values.ndim < 2 or values.dtype == np.int32):
            _dequantize(graph, node)
    return onnx.shape_inference.infer_shapes(gs.export_onnx(graph.cleanup().toposort(), do_type_check=False))


def with_float_quantization(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with quantisation done in float arithmetic, for TensorRT.

    Quantised constants become float constants. `QuantizeLinear` becomes what the ONNX standard defines it to be,
    `clip(round(x / scale) + zero_point)`, with the integers held as float32, which holds them exactly; so every value
    stays the one that the quantised network computes.

    Raises:
        ModelError: the network computes with quantised numbers themselves, or quantises in a way that is not known
            here; the message names the node.
    """
    graph = gs.import_onnx(model)
    outputs = {id(value) for value in graph.outputs}
    _refuse_integers(graph)
    for value in graph.inputs:
        if value.dtype in (np.uint8, np.int8):
            _cast_input(graph, value)
    for node in list(graph.nodes):
        if node.op == "DequantizeLinear":
            _dequantize(graph, node)
        elif node.op == "QuantizeLinear":
            _quantize(graph, node)
        elif node.op == "Cast" and node.attrs["to"] == onnx.TensorProto.UINT8 and id(node.outputs[0]) not in outputs:
            node.attrs["to"] = onnx.TensorProto.FLOAT  # whole numbers from 0 to 255 already
            node.outputs[0].dtype = np.dtype(np.float32)
    graph.cleanup().toposort()
    result = gs.export_onnx(graph, do_type_check=False)
    del result.graph.value_info[:]  # what only moves quantised numbers moves floats now
    return onnx.shape_inference.infer_shapes(result)


def _refuse_integers(graph: gs.Graph) -> None:
    for node in graph.nodes:
        if node.op.startswith(_IN_INTEGERS):
            raise ModelError(
                f"operator {node.op} (node '{source_name(node.outputs[0].name)}') computes with quantised numbers "
                "themselves, which TensorRT does not: quantise the network with QuantizeLinear and DequantizeLinear "
                "around its operators (QuantFormat.QDQ), or give the float model it was made from"
            )


def _cast_input(graph: gs.Graph, pixels: gs.Variable) -> None:
    """Append a Cast to float32 for whatever takes quantised pixels as they are."""
    consumers = [node for node in pixels.outputs if node.op not in ("Cast", "Shape")]
    floats = gs.Variable(f"{pixels.name}/float", np.float32, pixels.shape)
    for node in consumers:
        node.inputs = [floats if value is pixels else value for value in node.inputs]
    if consumers:
        attrs = {"to": onnx.TensorProto.FLOAT}
        graph.nodes.append(gs.Node("Cast", floats.name, attrs=attrs, inputs=[pixels], outputs=[floats]))


def _dequantize(graph: gs.Graph, node: gs.Node) -> None:
    """Replace a node by `(x - zero_point) * scale`, which is computed at once for a constant."""
    quantized, result = node.inputs[0], node.outputs[0]
    scale, zero = _steps(node)
    values = constant_values(quantized)
    node.outputs.clear()
    if values is not None:
        floats = (values.astype(np.float32) - zero) * scale
        constant = gs.Constant(f"{result.name}/float", np.asarray(floats, np.float32))
        for consumer in list(result.outputs):
            consumer.inputs = [constant if value is result else value for value in consumer.inputs]
        return
    centred = _node(graph, "Sub", [quantized, _constant(result, "zero", zero)])
    _node(graph, "Mul", [centred, _constant(result, "scale", scale)], result)


def _quantize(graph: gs.Graph, node: gs.Node) -> None:
    """Replace a node by `clip(round(x / scale) + zero_point)`, to the range of the quantised type."""
    value, result = node.inputs[0], node.outputs[0]
    scale, zero = _steps(node)
    low, high = _limits(node)
    node.outputs.clear()
    result.dtype = np.dtype(np.float32)
    steps = _node(graph, "Round", [_node(graph, "Div", [value, _constant(result, "scale", scale)])])
    shifted = _node(graph, "Add", [steps, _constant(result, "zero", zero)])
    bounds = [_constant(result, name, np.float32(bound)) for name, bound in (("low", low), ("high", high))]
    _node(graph, "Clip", [shifted, *bounds], result)


def _steps(node: gs.Node) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and zero point of a node, both shaped to broadcast along its axis.

    Raises:
        ModelError: they are not constants, or a scale holds for a block of values.
    """
    scale = constant_values(node.inputs[1])
    zero = constant_values(node.inputs[2]) if _has_zero(node) else np.zeros((), np.float32)
    shape = _along(node, scale) if scale is not None else None
    if scale is None or zero is None or shape is None or zero.size not in (1, scale.size):
        raise _unknown(node, "by a scale that is computed, or that holds for a block of values")
    zeros = np.broadcast_to(zero.astype(np.float32).reshape(-1), scale.size)
    return scale.astype(np.float32).reshape(shape), zeros.reshape(shape)


def _along(node: gs.Node, scale: NDArray[np.generic]) -> list[int] | None:
    """The shape in which a scale broadcasts along the axis of a node; None where it cannot be told, or is none."""
    if scale.size == 1:
        return []
    value, axis = node.inputs[0], int(node.attrs.get("axis", 1))
    if scale.ndim != 1 or (axis >= 0 and value.shape is None):
        return None
    after = len(value.shape) - axis - 1 if axis >= 0 else -axis - 1
    return [-1, *[1] * after] if after >= 0 else None


def _limits(node: gs.Node) -> tuple[int, int]:
    """The range of the type that a node quantises to: that of its zero point, or that it says, else uint8.

    Raises:
        ModelError: it has other steps than whole numbers of 8 or 16 bits.
    """
    dtype = np.dtype(np.uint8)
    if _has_zero(node):
        dtype = np.asarray(constant_values(node.inputs[2])).dtype
    elif kind := node.attrs.get("output_dtype", onnx.TensorProto.UNDEFINED):
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    if dtype not in (np.uint8, np.int8, np.uint16, np.int16):
        raise _unknown(node, f"to {dtype.name}")
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _has_zero(node: gs.Node) -> bool:
    return len(node.inputs) > 2 and bool(node.inputs[2].name)


def _unknown(node: gs.Node, how: str) -> ModelError:
    return ModelError(
        f"node '{source_name(node.outputs[0].name)}' ({node.op}) quantises {how}, which TensorRT does not take: "
        "quantise the network anew, with constant scales and int8, or give the float model it was made from"
    )


def _constant(result: gs.Tensor, name: str, values: NDArray[np.float32] | np.float32) -> gs.Constant:
    return gs.Constant(f"{result.name}/{name}", np.asarray(values, np.float32))


def _node(graph: gs.Graph, op: str, inputs: list[gs.Tensor], output: gs.Variable | None = None) -> gs.Variable:
    name = f"float_quantization/{op}_{len(graph.nodes)}"
    if output is None:
        output = gs.Variable(name, np.float32)
    graph.nodes.append(gs.Node(op, name, inputs=inputs, outputs=[output]))
    return output
