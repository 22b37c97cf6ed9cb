"""Integers that the runtimes do not take, as those that they do: the same numbers, and so the same mask."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.graph import ops
from trtpost.graph.walks import constant_values, dims, dtype_name, is_whole, nodes_before, number

_RESIZABLE = ("int32", "int8", "uint8")
"""Integers that ONNX Runtime resizes."""

_SMALL = ("uint8", "int8", "uint16", "int16", "uint32")
"""Integers that TensorRT does not have inside of a network."""


def with_known_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with labels and their nearest `Resize` in int32, and with a uint8 image input.

    Only class ids that an ArgMax makes inside of the network are widened, and only on their way: outputs keep their
    types.

    An int8 image is the quantised form of pixels less 128. Scale and zero point say what a number stands for, so with
    the zero point raised by 128 the pixels themselves stand for the same values.

    Returns:
        The same model where there is nothing to do.
    """
    operators = {node.op_type for node in model.graph.node}
    types = {one.type.tensor_type.elem_type for one in model.graph.input}
    if "Resize" not in operators and not {"ArgMax", "Cast"} <= operators and onnx.TensorProto.INT8 not in types:
        return model
    graph = gs.import_onnx(model)
    changed = [_widened(graph, node) for node in list(graph.nodes) if node.op == "Cast"]
    changed += [_resized_in_int32(graph, node) for node in list(graph.nodes) if node.op == "Resize"]
    changed += [_unsigned(value) for value in graph.inputs if dtype_name(value) == "int8" and len(dims(value)) == 4]
    if not any(changed):
        return model
    graph.cleanup().toposort()
    return onnx.shape_inference.infer_shapes(gs.export_onnx(graph, do_type_check=False), data_prop=True)


def _widened(graph: gs.Graph, node: gs.Node) -> bool:
    """Leave class ids that are cast to a small type in int32 until something computes with them; True where done."""
    labels = node.outputs[0]
    small = dtype_name(labels)
    if small not in _SMALL or _is_output(graph, labels) or not 0 < _classes(node) <= np.iinfo(small).max + 1:
        return False
    node.attrs["to"] = onnx.TensorProto.INT32
    pending = [labels]
    while pending:
        tensor = pending.pop()
        original = tensor.dtype
        tensor.dtype = np.dtype(np.int32)
        for consumer in list(tensor.outputs):
            if not _moves(consumer) or consumer.inputs[0] is not tensor:
                back = gs.Variable(f"{tensor.name}/{small}", original, tensor.shape)
                consumer.inputs = [back if one is tensor else one for one in consumer.inputs]
                _cast(graph, tensor, back)
            elif _is_output(graph, consumer.outputs[0]):
                _cast_output(graph, consumer)
            else:
                pending.append(consumer.outputs[0])
    return True


def _resized_in_int32(graph: gs.Graph, node: gs.Node) -> bool:
    """Put a Cast before and after a nearest `Resize` of integers that ONNX Runtime does not resize; True where done."""
    source, result = node.inputs[0], node.outputs[0]
    if not is_whole(source) or dtype_name(source) in _RESIZABLE or node.attrs.get("mode", "nearest") != "nearest":
        return False
    wide = gs.Variable(f"{source.name}/as_int32", np.int32, source.shape)
    node.inputs[0] = wide
    _cast(graph, source, wide)
    result.dtype = source.dtype
    _cast_output(graph, node)
    return True


def _unsigned(image: gs.Variable) -> bool:
    """Make an int8 image uint8, where all that is done with it ends in DequantizeLinear; True where it does."""
    carried, ends, pending = [image], [], [image]
    while pending:
        for node in pending.pop().outputs:
            if node.op == "DequantizeLinear":
                ends.append(node)
            elif _moves(node):
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


def _cast_output(graph: gs.Graph, node: gs.Node) -> None:
    """Make a node's output int32, and put a Cast behind it to the type that it had."""
    result = node.outputs[0]
    wide = gs.Variable(f"{result.name}/in_int32", np.int32, result.shape)
    node.outputs = [wide]
    _cast(graph, wide, result)


def _cast(graph: gs.Graph, source: gs.Variable, target: gs.Variable) -> None:
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target.dtype))
    graph.nodes.append(gs.Node("Cast", target.name, attrs={"to": to}, inputs=[source], outputs=[target]))


def _classes(node: gs.Node) -> int:
    """How many classes the ArgMax has whose ids come to this node; 0 where there is none, or it is not known."""
    moved = nodes_before(node.outputs[0], lambda one: one.inputs[:1] if one.op == "Cast" or _moves(one) else [])
    for one in moved:
        if one.op == "ArgMax":
            shape = dims(one.inputs[0])
            return number(shape[one.attrs.get("axis", 0) % len(shape)]) if shape else 0
    return 0


def _moves(node: gs.Node) -> bool:
    return node.op in ops.MOVING_INTEGERS and (node.op != "Resize" or node.attrs.get("mode", "nearest") == "nearest")


def _is_output(graph: gs.Graph, tensor: gs.Variable) -> bool:
    return any(one is tensor for one in graph.outputs)
