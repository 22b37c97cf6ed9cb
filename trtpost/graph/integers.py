"""Integers that the runtimes do not take, as those that they do: the same numbers, and so the same mask."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.graph.tensors import constant_values, dtype_name, is_whole

_RESIZABLE = ("int32", "int8", "uint8")
"""Integers that ONNX Runtime resizes."""

_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Slice", "Flatten")
"""Ops that take any type, and give the values that they are given."""


def with_known_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every nearest `Resize` in int32 where its labels are wider, and with a uint8 image input.

    An int8 image is the quantised form of pixels less 128. Scale and zero point say what a number stands for, so with
    the zero point raised by 128 the pixels themselves stand for the same values.

    Returns:
        The same model where there is nothing to do.
    """
    types = {one.name: one.type.tensor_type.elem_type for one in (*model.graph.value_info, *model.graph.input)}
    if all(node.op_type != "Resize" for node in model.graph.node) and onnx.TensorProto.INT8 not in types.values():
        return model
    graph = gs.import_onnx(model)
    resizes = [node for node in graph.nodes if node.op == "Resize" and _is_wide(node)]
    images = [value for value in graph.inputs if dtype_name(value) == "int8" and len(value.shape or ()) == 4]
    for node in resizes:
        _resize_in_int32(graph, node)
    changed = [_unsigned(value) for value in images]
    if not resizes and not any(changed):
        return model
    graph.cleanup().toposort()
    return onnx.shape_inference.infer_shapes(gs.export_onnx(graph, do_type_check=False), data_prop=True)


def _is_wide(node: gs.Node) -> bool:
    source = node.inputs[0]
    return is_whole(source) and dtype_name(source) not in _RESIZABLE and node.attrs.get("mode", "nearest") == "nearest"


def _resize_in_int32(graph: gs.Graph, node: gs.Node) -> None:
    source, result = node.inputs[0], node.outputs[0]
    before = gs.Variable(f"{source.name}/as_int32", np.int32, source.shape)
    after = gs.Variable(f"{result.name}/in_int32", np.int32, result.shape)
    original = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(source.dtype))
    node.inputs[0], node.outputs = before, [after]
    for name, to, value, target in (
        (before.name, onnx.TensorProto.INT32, source, before),
        (after.name, original, after, result),
    ):
        graph.nodes.append(gs.Node("Cast", name, attrs={"to": to}, inputs=[value], outputs=[target]))


def _unsigned(image: gs.Variable) -> bool:
    """An int8 image as uint8, where all that is done with it ends in DequantizeLinear; whether that was so."""
    carried, ends, pending = [image], [], [image]
    while pending:
        for node in pending.pop().outputs:
            if node.op == "DequantizeLinear":
                ends.append(node)
            elif node.op in _MOVING:
                carried.append(node.outputs[0])
                pending.append(node.outputs[0])
            elif node.op != "Shape":
                return False
    zeros = [constant_values(node.inputs[2]) if len(node.inputs) > 2 else np.int8(0) for node in ends]
    if not ends or any(zero is None for zero in zeros):
        return False
    for node, zero in zip(ends, zeros, strict=True):
        raised = np.asarray(np.asarray(zero, np.int16) + 128, np.uint8)
        constant = gs.Constant(f"{node.outputs[0].name}/zero_point", raised)
        node.inputs = [*node.inputs[:2], constant]
    for value in carried:
        value.dtype = np.dtype(np.uint8)
    return True
