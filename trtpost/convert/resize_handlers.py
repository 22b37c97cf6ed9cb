"""TensorFlow's resizes in ONNX, to the pixel: handlers for tf2onnx, in place of its own.

tf2onnx writes the ratio of the sizes as a float32 `scales`, from which ONNX computes the output's size: 24 -> 53 pixels
become 52. It leaves the element type to ONNX, while TensorFlow's bilinear always gives float32 and ONNX Runtime has no
`Resize` of most integers; nearest in ONNX selects other pixels than TensorFlow for some ratios; cubic has other
weights, and areas are taken for nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.kernels.reference import nearest_index

_TO_NCHW, _TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def bilinear(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """`ResizeBilinear(images [N, h, w, C], size [2]) -> float32 [N, H, W, C]`."""
    source = node.input[0]
    mode = "half_pixel" if _flag(node, "half_pixel_centers") else "asymmetric"
    if _flag(node, "align_corners"):
        mode = "align_corners"
    if ctx.get_dtype(source) != onnx.TensorProto.FLOAT:
        source = _cast(ctx, source, onnx.TensorProto.FLOAT)
    channels_first = ctx.make_node("Transpose", [source], attr={"perm": _TO_NCHW}).output[0]
    attributes = {"mode": "linear", "coordinate_transformation_mode": mode}
    _replace(ctx, node, "Transpose", [_resize(ctx, node, channels_first, attributes)], {"perm": _TO_NHWC})


def nearest(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """`ResizeNearestNeighbor(images [N, h, w, C], size [2]) -> [N, H, W, C]` of the same type.

    Rows and columns are gathered by the indices that TensorFlow computes in float32, except where floats become whole
    times as large: that is `Resize` as every runtime does it best.
    """
    source = node.input[0]
    align, half = _flag(node, "align_corners"), _flag(node, "half_pixel_centers")
    known = ctx.get_shape(source)
    spatial = list(known[1:3]) if known else [-1, -1]
    target = [int(side) for side in node.inputs[1].get_tensor_value()] if node.inputs[1].is_const() else None
    is_float = ctx.get_dtype(source) in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    channels_first = ctx.make_node("Transpose", [source], attr={"perm": _TO_NCHW}).output[0]
    if target is not None and min(spatial) > 0:
        tables = [_index(w, W, align=align, half=half) for w, W in zip(spatial, target, strict=True)]
        if is_float and all(_repeats(table, w) for table, w in zip(tables, spatial, strict=True)):
            attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            result = _resize(ctx, node, channels_first, attributes)
            _replace(ctx, node, "Transpose", [result], {"perm": _TO_NHWC})
            return
        indices = [ctx.make_const(f"{node.name}/index_{axis}", table).output[0] for axis, table in enumerate(tables)]
    else:
        indices = [_index_node(ctx, node, axis, align=align, half=half) for axis in (0, 1)]
    result = channels_first
    for axis, index in enumerate(indices, start=2):
        result = ctx.make_node("Gather", [result, index], attr={"axis": axis}).output[0]
    _replace(ctx, node, "Transpose", [result], {"perm": _TO_NHWC})


def linear(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """`ResizeBicubic`, `ResizeArea` or `ScaleAndTranslate(images [N, h, w, C], size [2], ...) -> float32 [N, H, W, C]`.

    Sums of pixels, rows and columns apart, with weights that ONNX has no mode for: its own are other cubics, and it
    knows no areas. So they are products with a matrix for each axis, whose rows TensorFlow gives itself. Where sizes
    are computed when the network runs, the node stays, and is reported as one without an ONNX form.
    """
    known = ctx.get_shape(node.input[0])
    constants = [value.get_tensor_value(as_list=False) if value.is_const() else None for value in node.inputs[1:]]
    if known is None or min(known[1:3]) < 1 or any(value is None for value in constants):
        return
    source = node.input[0]
    if ctx.get_dtype(source) != onnx.TensorProto.FLOAT:
        source = _cast(ctx, source, onnx.TensorProto.FLOAT)
    result = ctx.make_node("Transpose", [source], attr={"perm": _TO_NCHW}).output[0]
    down, across = (_matrix(node, axis, known[1 + axis], constants) for axis in (0, 1))
    columns = ctx.make_const(f"{node.name}/columns", np.ascontiguousarray(across.T)).output[0]
    rows = ctx.make_const(f"{node.name}/rows", down).output[0]
    result = ctx.make_node("MatMul", [result, columns]).output[0]
    result = ctx.make_node("MatMul", [rows, result]).output[0]
    _replace(ctx, node, "Transpose", [result], {"perm": _TO_NHWC})


HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    "ResizeBilinear": (bilinear, []),
    "ResizeNearestNeighbor": (nearest, []),
    "ResizeBicubic": (linear, []),
    "ResizeArea": (linear, []),
    "ScaleAndTranslate": (linear, []),
}
"""The handlers, in the form that tf2onnx takes."""


def _matrix(node: Any, axis: int, source: int, constants: list[Any]) -> NDArray[np.float32]:
    """The matrix of one axis, float32 [target, source]: what the node makes of an image of each unit vector."""
    import tensorflow as tf

    shape = [source, 1, 1, 1]
    shape[1 + axis] = source
    size, *rest = constants
    arguments: dict[str, Any] = {"images": np.eye(source, dtype=np.float32).reshape(shape)}
    arguments["size"] = np.where(np.arange(2) == axis, size, 1).astype(np.int32)  # the other axis is one pixel
    if node.type == "ScaleAndTranslate":
        for name, neutral, values in zip(("scale", "translation"), (1, 0), rest, strict=True):
            arguments[name] = np.where(np.arange(2) == axis, values, neutral).astype(np.float32)
        arguments["kernel_type"] = node.get_attr_str("kernel_type")
        arguments["antialias"] = _flag(node, "antialias")
    else:
        arguments["align_corners"] = _flag(node, "align_corners")
        if node.type == "ResizeBicubic":
            arguments["half_pixel_centers"] = _flag(node, "half_pixel_centers")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # tf2onnx works inside a graph of its own
        weights = session.run(getattr(tf.raw_ops, node.type)(**arguments))
    matrix: NDArray[np.float32] = np.ascontiguousarray(weights.reshape(source, -1).T)
    return matrix


def _index(source: int, target: int, *, align: bool, half: bool) -> NDArray[np.int64]:
    """The source index of each output index, int64 [target]."""
    if not align or target == 1:
        return nearest_index(source, target, "tf" if half else "tf1")
    position = np.arange(target, dtype=np.float32) * (np.float32(source - 1) / np.float32(target - 1))
    away = np.floor(position.astype(np.float64) + 0.5)  # roundf: halves go up, and positions are not negative
    index: NDArray[np.int64] = np.minimum(away.astype(np.int64), source - 1)
    return index


def _repeats(table: NDArray[np.int64], source: int) -> bool:
    """Is every source pixel repeated as often as every other?"""
    return len(table) % source == 0 and bool((table == np.arange(len(table)) // (len(table) // source)).all())


def _index_node(ctx: Any, node: Any, axis: int, *, align: bool, half: bool) -> str:
    """Compute `_index` in the graph, for sizes that are known when it runs; int64 [target]."""

    def make(op: str, *inputs: str, **attributes: Any) -> str:
        return str(ctx.make_node(op, list(inputs), attr=attributes).output[0])

    def const(value: Any, dtype: type) -> str:
        return str(ctx.make_const(f"{node.name}/{axis}/{len(ctx.get_nodes())}", np.array(value, dtype)).output[0])

    shape = _cast(ctx, make("Shape", node.input[0]), onnx.TensorProto.FLOAT)
    source = make("Gather", shape, const(axis + 1, np.int64), axis=0)
    sides = _cast(ctx, node.input[1], onnx.TensorProto.FLOAT)
    target = make("Gather", sides, const(axis, np.int64), axis=0)
    zero, one, middle = const(0, np.float32), const(1, np.float32), const(0.5, np.float32)
    last = make("Sub", source, one)
    j = make("Range", zero, target, one)
    if align:  # to one pixel, TensorFlow does not align
        exact = make("Mul", j, make("Div", last, make("Max", make("Sub", target, one), one)))
        whole = make("Floor", exact)
        rounded_up = make("GreaterOrEqual", make("Sub", exact, whole), middle)  # adding a half would round once more
        position = make("Add", whole, _cast(ctx, rounded_up, onnx.TensorProto.FLOAT))
    else:
        step = make("Div", source, target)
        position = make("Floor", make("Mul", make("Add", j, middle) if half else j, step))
    return _cast(ctx, make("Min", position, last), onnx.TensorProto.INT64)


def _resize(ctx: Any, node: Any, images: str, attributes: dict[str, str]) -> str:
    """`Resize` of [N, C, h, w] to the size of a TensorFlow node, which is exact where a ratio is not."""
    known, size = ctx.get_shape(node.input[0]), node.inputs[1]
    if known is not None and min(known[0], known[3]) > 0 and size.is_const():
        values = np.array([known[0], known[3], *size.get_tensor_value()], np.int64)
        sizes = ctx.make_const(f"{node.name}/sizes", values).output[0]
    else:
        kept = ctx.make_node(
            "Slice",
            [
                ctx.make_node("Shape", [images]).output[0],
                ctx.make_const(f"{images}/from", np.array([0], np.int64)).output[0],
                ctx.make_const(f"{images}/to", np.array([2], np.int64)).output[0],
            ],
        ).output[0]
        target = _cast(ctx, node.input[1], onnx.TensorProto.INT64)
        sizes = ctx.make_node("Concat", [kept, target], attr={"axis": 0}).output[0]
    result: str = ctx.make_node("Resize", [images, "", "", sizes], attr=attributes).output[0]
    return result


def _cast(ctx: Any, tensor: str, to: int) -> str:
    result: str = ctx.make_node("Cast", [tensor], attr={"to": to}).output[0]
    return result


def _replace(ctx: Any, node: Any, op: str, inputs: list[str], attributes: dict[str, Any]) -> None:
    """Put another operator in the place of a node, under its name and with its output."""
    shapes, dtypes, outputs = node.output_shapes, node.output_dtypes, node.output
    ctx.remove_node(node.name)
    ctx.make_node(op, inputs, attr=attributes, name=node.name, outputs=outputs, shapes=shapes, dtypes=dtypes)


def _flag(node: Any, name: str) -> bool:
    return bool(node.get_attr_value(name, 0))
