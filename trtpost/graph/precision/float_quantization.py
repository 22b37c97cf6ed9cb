"""Does in float arithmetic what TensorRT does not take of networks that are quantised already."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray


def is_asymmetric(model: onnx.ModelProto) -> bool:
    """True where the graph is quantised as TFLite does it (uint8, or a zero point that is not 0).

    TensorRT takes only symmetric int8.
    """
    constants = {initializer.name: initializer for initializer in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3:
            continue
        zero = constants.get(node.input[2])
        if zero is not None and (zero.data_type == onnx.TensorProto.UINT8 or onnx.numpy_helper.to_array(zero).any()):
            return True
    return False


def with_float_quantization(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with quantisation done in float arithmetic, for TensorRT.

    Quantised constants become float constants. `QuantizeLinear` becomes what the ONNX standard defines it to be,
    `clip(round(x / scale) + zero_point)`, with the integers held as float32, which holds them exactly; so every value
    stays the one that the quantised network computes.
    """
    graph = gs.import_onnx(model)
    outputs = {id(value) for value in graph.outputs}
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
    return onnx.shape_inference.infer_shapes(gs.export_onnx(graph, do_type_check=False))


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
    quantized, scale, zero, _ = _operands(node)
    result = node.outputs[0]
    node.outputs.clear()
    if isinstance(quantized, gs.Constant):
        values = (quantized.values.astype(np.float32) - zero) * scale
        constant = gs.Constant(f"{result.name}/float", values.astype(np.float32))
        for consumer in list(result.outputs):
            consumer.inputs = [constant if value is result else value for value in consumer.inputs]
        return
    centred = _node(graph, "Sub", [quantized, _constant(result, "zero", zero)])
    _node(graph, "Mul", [centred, _constant(result, "scale", scale)], result)


def _quantize(graph: gs.Graph, node: gs.Node) -> None:
    """Replace a node by `clip(round(x / scale) + zero_point)`, to the range of the zero point's type."""
    value, scale, zero, dtype = _operands(node)
    result = node.outputs[0]
    node.outputs.clear()
    result.dtype = np.dtype(np.float32)
    limits = np.iinfo(dtype)
    steps = _node(graph, "Round", [_node(graph, "Div", [value, _constant(result, "scale", scale)])])
    shifted = _node(graph, "Add", [steps, _constant(result, "zero", zero)])
    bounds = [_constant(result, name, np.float32(bound)) for name, bound in (("low", limits.min), ("high", limits.max))]
    _node(graph, "Clip", [shifted, *bounds], result)


def _operands(node: gs.Node) -> tuple[gs.Tensor, NDArray[np.float32], NDArray[np.float32], np.dtype]:
    """A node's input, scale and zero point (both shaped to broadcast along its axis), and its quantised type."""
    value, scale = node.inputs[0], node.inputs[1].values.astype(np.float32)
    zero = node.inputs[2].values if len(node.inputs) > 2 else np.zeros((), np.uint8)
    shape = [1] * len(value.shape)
    if scale.ndim:
        shape[node.attrs.get("axis", 1)] = -1
        scale, zero_float = scale.reshape(shape), zero.astype(np.float32).reshape(shape)
    else:
        zero_float = zero.astype(np.float32)
    return value, scale, zero_float, zero.dtype


def _constant(result: gs.Tensor, name: str, values: NDArray[np.float32] | np.float32) -> gs.Constant:
    return gs.Constant(f"{result.name}/{name}", np.asarray(values, np.float32))


def _node(graph: gs.Graph, op: str, inputs: list[gs.Tensor], output: gs.Variable | None = None) -> gs.Variable:
    name = f"float_quantization/{op}_{len(graph.nodes)}"
    if output is None:
        output = gs.Variable(name, np.float32)
    graph.nodes.append(gs.Node(op, name, inputs=inputs, outputs=[output]))
    return output
