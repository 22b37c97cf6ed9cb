"""NHWC or NCHW of a tensor, read from the graph, not guessed from the shape, wherever that is possible.

ONNX convolutions are always NCHW, so the way from a tensor to the nearest of them, through the Transposes between,
decides it.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.walks import dims, nodes_before, number, reached
from trtpost.spec import Layout

TO_NHWC, TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
_LAYOUT_OF_AXES: dict[tuple[int, ...], Layout] = {(0, 1, 2, 3): "NCHW", (0, 2, 3, 1): "NHWC"}


def channel_axis(layout: Layout) -> int:
    """Where the classes or colours stand in four dimensions."""
    return 1 if layout == "NCHW" else 3


def input_layout(source: gs.Variable) -> Layout:
    """Layout of an image input, from the operators that take it, or from where the 1 or 3 channels stand.

    Raises:
        ModelError: neither tells.
    """
    for node in reached(source.outputs, _nodes_of_same_axes):
        if node.op in ops.NCHW:
            return "NCHW"
        if node.op == "Transpose" and list(node.attrs.get("perm", [])) in (TO_NCHW, TO_NHWC):
            return "NHWC" if list(node.attrs["perm"]) == TO_NCHW else "NCHW"
    shape = dims(source)
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first != last:
        return "NCHW" if first else "NHWC"
    raise ModelError(
        f"input '{source.name}' {list(shape)}: cannot tell where the channels are; "
        "it needs 1 or 3 of them, in front or last"
    )


def _nodes_of_same_axes(node: gs.Node) -> list[gs.Node]:
    """The nodes that take what a node gives, where its axes are those of what it was given."""
    if node.op in ops.LOSING_AXES or node.op == "Transpose":
        return []
    return [consumer for output in node.outputs for consumer in output.outputs]


def layout_of(tensor: gs.Variable, input_size: tuple[int, int]) -> Layout | None:
    """Layout of logits with four dimensions; None where neither graph nor shape tells."""
    return _layout_from_graph(tensor) or _layout_from_shape(dims(tensor), input_size)


def layout_or_ask(tensor: gs.Variable, known: Layout | None, input_size: tuple[int, int]) -> Layout:
    """The layout that is known already, or else found.

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
    """Layout that the nearest convolution before a tensor tells; every Transpose on the way swaps the answer."""
    axes = [0, 1, 2, 3]  # where each axis of `tensor` stands in the tensor we are at
    for node in nodes_before(tensor, _first_of_four_axes):
        if node.op in ops.NCHW:
            return _LAYOUT_OF_AXES.get(tuple(axes))
        if node.op in ops.LOSING_AXES:
            return None
        if node.op == "Transpose":
            permutation = list(node.attrs.get("perm", [3, 2, 1, 0]))
            if len(permutation) != 4:
                return None
            axes = [permutation[axis] for axis in axes]
    return None


def _first_of_four_axes(node: gs.Node) -> list[gs.Variable]:
    return [value for value in node.inputs if isinstance(value, gs.Variable) and len(dims(value)) == 4][:1]


def _layout_from_shape(shape: tuple[int | str, ...], input_size: tuple[int, int]) -> Layout | None:
    """Layout that follows from which two axes are in proportion to the network's input."""
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
