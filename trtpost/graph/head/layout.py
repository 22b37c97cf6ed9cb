"""NHWC or NCHW: read from the graph, not guessed from the shape, wherever that is possible.

ONNX convolutions are always NCHW, so the way from a tensor to the nearest of them, through the Transposes between,
decides it.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph.walks import dims, number
from trtpost.spec import Layout

_NCHW_OPS = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "QLinearConv",
        "ConvInteger",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LpPool",
        "BatchNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "LRN",
        "DepthToSpace",
        "SpaceToDepth",
    }
)
_RESHAPING_OPS = frozenset(
    {
        "Reshape",
        "Flatten",
        "MatMul",
        "Gemm",
        "Einsum",
        "Squeeze",
        "Unsqueeze",
        "ArgMax",
        "ArgMin",
        "ReduceMax",
        "ReduceMean",
        "Gather",
        "GatherND",
        "Shape",
        "Constant",
        "Expand",
        "Tile",
        "ConstantOfShape",
    }
)
TO_NHWC, TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
_LAYOUT_OF_AXES: dict[tuple[int, ...], Layout] = {(0, 1, 2, 3): "NCHW", (0, 2, 3, 1): "NHWC"}


def channel_axis(layout: Layout) -> int:
    """Where the classes or colours stand in four dimensions."""
    return 1 if layout == "NCHW" else 3


def input_layout(source: gs.Variable) -> Layout:
    """Of an image input: from the ops that consume it, or where the 1 or 3 channels stand.

    Raises:
        ModelError: neither tells.
    """
    pending, seen = list(source.outputs), set()
    while pending:
        node = pending.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op in _NCHW_OPS:
            return "NCHW"
        if node.op == "Transpose" and list(node.attrs.get("perm", [])) in (TO_NCHW, TO_NHWC):
            return "NHWC" if list(node.attrs["perm"]) == TO_NCHW else "NCHW"
        # after any other Transpose, what consumes it tells nothing of the input's own axes
        if node.op not in _RESHAPING_OPS and node.op != "Transpose":
            pending.extend(consumer for output in node.outputs for consumer in output.outputs)
    shape = dims(source)
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first != last:
        return "NCHW" if first else "NHWC"
    raise ModelError(
        f"input '{source.name}' {list(shape)}: cannot tell where the channels are; "
        "it needs 1 or 3 of them, in front or last"
    )


def layout_of(tensor: gs.Variable, input_size: tuple[int, int]) -> Layout | None:
    """Of logits with four dimensions; None where neither graph nor shape tells."""
    return _layout_from_graph(tensor) or _layout_from_shape(dims(tensor), input_size)


def layout_or_ask(tensor: gs.Variable, known: Layout | None, input_size: tuple[int, int]) -> Layout:
    """As `known`, or found.

    Raises:
        ModelError: it cannot be told; the message names the flag.
    """
    found = known or layout_of(tensor, input_size)
    if found is None:
        raise ModelError(
            f"cannot tell the layout of tensor '{tensor.name}' {list(dims(tensor))}: say --layout NHWC or --layout NCHW"
        )
    return found


def _layout_from_graph(tensor: gs.Variable) -> Layout | None:
    """Back to the first convolution; every Transpose on the way swaps the answer."""
    axes = [0, 1, 2, 3]  # where each axis of `tensor` stands in the tensor we are at
    for _ in range(10_000):
        if not tensor.inputs:
            return None
        node = tensor.inputs[0]
        if node.op in _NCHW_OPS:
            return _LAYOUT_OF_AXES.get(tuple(axes))
        if node.op in _RESHAPING_OPS:
            return None
        if node.op == "Transpose":
            permutation = list(node.attrs.get("perm", [3, 2, 1, 0]))
            if len(permutation) != 4:
                return None
            axes = [permutation[axis] for axis in axes]
        variables = [value for value in node.inputs if isinstance(value, gs.Variable) and len(dims(value)) == 4]
        if not variables:
            return None
        tensor = variables[0]
    return None


def _layout_from_shape(shape: tuple[int | str, ...], input_size: tuple[int, int]) -> Layout | None:
    """By which two axes are in proportion to the network's input."""
    sizes = [number(dim) for dim in shape]
    if len(sizes) != 4 or not all(input_size):
        return None

    def proportional(height: int, width: int) -> bool:
        # strided networks round sizes up, so allow one pixel
        return height > 1 and width > 1 and abs(height * input_size[1] / input_size[0] - width) <= 1

    last, first = proportional(sizes[1], sizes[2]), proportional(sizes[2], sizes[3])
    if last == first:
        return None
    return "NHWC" if last else "NCHW"
