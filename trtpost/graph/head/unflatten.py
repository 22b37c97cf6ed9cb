"""Outputs that are not four axes of batch, rows, columns and classes: which of theirs hold which.

Keras networks like to end in `Reshape((height * width, classes))`, others in `squeeze`. The size of the plane is read
from the tensor of four dimensions that was flattened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.layout import channel_axis, layout_of
from trtpost.graph.walks import dims, is_constant, listing, reached
from trtpost.spec import Layout


@dataclass(frozen=True)
class Unfolded:
    """A flat tensor as it is meant.

    Attributes:
        shape: [N, C, h, w] or [N, h, w, C]; of labels [N, h, w].
        layout: order of these axes.
        class_axis: axis of the flat tensor where its classes stand; the last where everything is flat; None where there
            is one.
    """

    shape: tuple[int | str, ...]
    layout: Layout
    class_axis: int | None

    @property
    def classes(self) -> int | str:
        """Number of channels; 1 for labels."""
        return self.shape[channel_axis(self.layout)] if len(self.shape) == 4 else 1


def unfolded(
    tensor: gs.Variable,
    input_size: tuple[int, int],
    *,
    labels: bool = False,
    layout: Layout | None = None,
    guess: bool = False,
) -> Unfolded | None:
    """Rows, columns and classes of a tensor that has other axes; None where they cannot be told, or it has not.

    Args:
        tensor: logits or labels: [N, h * w, C], [N, C, h * w], [N, h * w * C], and of one channel or labels
            [N, h * w], [N, h, w]; each also without its batch axis, or with more axes of one.
        input_size: (height, width) of the network.
        labels: class ids; these are told only where rows and columns are one axis.
        layout: the logits' own, where the shape fits both.
        guess: take it for granted that the tensor is a mask: what was not flattened in the graph is then as many
            pixels as fit the proportions of the input.

    Raises:
        ModelError: both layouts fit; the message names the flag.
    """
    shape = dims(tensor)
    if not shape or (len(shape) == 4 and 1 not in shape[1:]):
        return None
    plane = _plane_behind(tensor, input_size)
    if len(shape) == 4 and (plane is None or plane[1] * plane[2] not in shape[1:]):
        return None  # rows and columns are axes of their own
    for batch, rest in _without_batch(shape, plane[0] if plane else 1):
        if plane is not None:
            found = list(_readings(tensor, rest, plane[1:], labels, input_size))
        else:
            found = list(_readings_by_proportion(rest, input_size)) if guess and not labels else []
        fitting = [one for one in found if layout is None or one[0] == layout]
        if len(fitting) > 1:
            raise ModelError(
                f"cannot tell which axis of tensor {listing([tensor])} holds the classes: say --layout NHWC (the last) "
                "or --layout NCHW"
            )
        for its_layout, axes, axis in fitting:
            return Unfolded((batch, *axes), its_layout, None if axis is None else axis + len(shape) - len(rest))
    return None


def _without_batch(shape: tuple[int | str, ...], batch: int | str) -> Iterator[tuple[int | str, tuple[int, ...]]]:
    """The batch and the other axes, where these are fixed; then, of a batch of one, the tensor as if without that."""
    options = [(shape[0], shape[1:])] if isinstance(shape[0], str) or shape[0] in (1, batch) else []
    for first, rest in [*options, *([(1, shape)] if batch == 1 else [])]:
        numbers = tuple(dim for dim in rest if isinstance(dim, int) and dim > 0)
        if rest and len(numbers) == len(rest):
            yield first, numbers


Reading = tuple[Layout, tuple[int, ...], int | None]
"""Layout, the axes after the batch, and which of the tensor's own axes after the batch holds the classes."""


def _readings(
    tensor: gs.Variable, rest: tuple[int, ...], plane: tuple[int, int, int], labels: bool, input_size: tuple[int, int]
) -> Iterator[Reading]:
    height, width, classes = plane
    pixels = height * width
    axes = [axis for axis, dim in enumerate(rest) if dim > 1]
    long = tuple(rest[axis] for axis in axes)
    if labels:
        if long == (pixels,):
            yield "NCHW", (height, width), None
    elif long in ((height, width), (pixels,)):
        yield "NCHW", (1, height, width), None
    elif long == (pixels * classes,):
        order = _order(tensor, input_size)
        yield order, (classes, height, width) if order == "NCHW" else (height, width, classes), axes[0]
    else:
        if long in ((pixels, classes), (height, width, classes)):
            yield "NHWC", (height, width, classes), axes[-1]
        if long in ((classes, pixels), (classes, height, width)):
            yield "NCHW", (classes, height, width), axes[0]


def _readings_by_proportion(rest: tuple[int, ...], input_size: tuple[int, int]) -> Iterator[Reading]:
    if len(rest) != 2 or not all(input_size):
        return
    for axis in (0, 1):
        pixels, classes = rest[axis], rest[1 - axis]
        height = math.isqrt(pixels * input_size[0] // input_size[1])
        if height > 1 and height * height * input_size[1] == pixels * input_size[0]:
            width = pixels // height
            yield ("NHWC", (height, width, classes), 1) if axis == 0 else ("NCHW", (classes, height, width), 0)


def _plane_behind(tensor: gs.Variable, input_size: tuple[int, int]) -> tuple[int | str, int, int, int] | None:
    """(batch, height, width, channels) of the nearest tensor of four dimensions that `tensor` comes from pixelwise."""
    for before in _pixelwise_before(tensor):
        shape = dims(before)
        layout = layout_of(before, input_size) if len(shape) == 4 else None
        if layout is not None:
            height, width, channels = shape[1:] if layout == "NHWC" else (*shape[2:], shape[1])
            if isinstance(height, int) and isinstance(width, int) and isinstance(channels, int):
                return (shape[0], height, width, channels) if min(height, width) > 1 else None
    return None


def _order(tensor: gs.Variable, input_size: tuple[int, int]) -> Layout:
    """Layout of a tensor whose classes are in one axis with the pixels: that of the one before it that has several."""
    for before in _pixelwise_before(tensor):
        if len(dims(before)) == 4 and (found := layout_of(before, input_size)) is not None:
            return found
        view = unfolded(before, input_size) if len(dims(before)) == 3 else None
        if view is not None:
            return view.layout
    return "NCHW"


def _pixelwise_before(tensor: gs.Variable) -> Iterator[gs.Variable]:
    """The tensors that a tensor was made from pixel by pixel, the nearest first."""

    def before(one: gs.Variable) -> list[gs.Variable]:
        if not one.inputs or one.inputs[0].op not in ops.PIXELWISE:
            return []
        return [value for value in one.inputs[0].inputs if not is_constant(value) and dims(value)][:1]

    return reached(before(tensor), before)
