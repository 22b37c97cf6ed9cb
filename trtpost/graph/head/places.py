"""Where the rows and columns of each tensor lie on the image: a walk through strides, pads, crops and scales.

A row has a `step`, the pixels of the image from one to the next, and the first begins at a `start`. What keeps the size
that its stride gives, however it pads, leaves the start where it is, as everybody means it; what loses or gains rows
moves it. Resizing keeps the ends, whatever convention it interpolates by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtpost.graph import ops
from trtpost.graph.head.probe import values_on_zeros
from trtpost.graph.proto import depending_on
from trtpost.graph.walks import constant_values, dims, number
from trtpost.spec import Located


@dataclass(frozen=True)
class Axis:
    """The rows of a tensor, or its columns.

    Attributes:
        size: how many.
        start: pixel of the image at which the first begins.
        step: pixels of the image that each has.
        before, after: how many at either end are padding, which a convolution may consume.
        coarse: the largest step on the way here, within which branches may lie beside each other.
        is_free: each is the same, as an average over all is.
    """

    size: int
    start: Fraction = Fraction(0)
    step: Fraction = Fraction(1)
    before: int = 0
    after: int = 0
    coarse: Fraction = Fraction(1)
    is_free: bool = False

    @property
    def end(self) -> Fraction:
        """Pixel of the image at which the last ends."""
        return self.start + self.size * self.step

    def covers(self, side: int) -> bool:
        """True where they lie on all of an image's side, to half a row.

        Where a stride does not divide the side, the last reaches beyond it, and everybody takes them to end with it.
        """
        begin, count = self.start + self.before * self.step, self.size - self.before - self.after
        return self.is_free or (abs(begin) < self.step / 2 and count == math.ceil(side / self.step))


@dataclass(frozen=True)
class Place:
    """Which of a tensor's axes are the image's, and where they lie; one axis may be both, as of tokens.

    Attributes:
        rows, columns: number of the axis.
        axes: both.
    """

    rows: int
    columns: int
    axes: tuple[Axis, Axis]


@dataclass(frozen=True)
class _Folded:
    """What a Reshape made unreadable, and what gives it back: the same shape again."""

    shape: tuple[int | str, ...]
    place: Place


class _Lost:
    """A tensor of which nothing is known but that it comes from the image."""


LOST = _Lost()
State = Place | _Folded | _Lost | None
"""None: has no place, as a constant has none, or an average over all of the image."""


def places_of(model: onnx.ModelProto, located: Located) -> tuple[Axis, Axis] | None:
    """Where the rows and columns of the logits lie; None where it cannot be followed."""
    graph = gs.import_onnx(model)
    tensors = graph.tensors()
    logits = tensors[located.logits]
    first = 1 if located.input_layout == "NHWC" else 2
    height, width = located.input_size
    found: dict[str, State] = {located.input: Place(first, first + 1, (Axis(height), Axis(width)))}
    walk = _Walk(model, (height, width))
    walk.learn(graph)
    for node in graph.toposort().nodes:
        sources = [found.get(one.name) for one in node.inputs]
        inner = any(isinstance(one, gs.Graph) for one in node.attrs.values())
        if inner or any(source is not None for source in sources):
            state = walk.after(node, sources)
            if state is not None:
                found |= {output.name: state for output in node.outputs}
    place = found.get(logits.name)
    if not isinstance(place, Place) or tuple(one.size for one in place.axes) != located.own_size:
        return None
    return None if any(one.is_free for one in place.axes) else place.axes


class _Walk:
    """What is known beside the tensors' places: the image's size, and parameters that the network computes."""

    def __init__(self, model: onnx.ModelProto, side: tuple[int, int]) -> None:
        self.model, self.side = model, side
        self.computed: dict[str, NDArray[Any]] = {}

    def learn(self, graph: gs.Graph) -> None:
        """Run the network for what its crops and pads are computed to."""
        wanted = [
            value.name
            for node in graph.nodes
            if node.op in ("Slice", "Pad", "CenterCropPad", "Squeeze", "Unsqueeze", *ops.REDUCING)
            for value in node.inputs[1:]
            if isinstance(value, gs.Variable) and value.name and constant_values(value) is None
        ]
        from_pixels = depending_on(self.model.graph, {value.name for value in self.model.graph.input})
        wanted = [name for name in wanted if name not in from_pixels]
        if wanted:
            self.computed = values_on_zeros(self.model, wanted)

    def values(self, node: gs.Node, index: int, name: str = "") -> list[int] | None:
        """An input, or an older version's attribute, as whole numbers; None where it is not given or not known."""
        if name and name in node.attrs:
            return [int(one) for one in np.ravel(node.attrs[name])]
        if index >= len(node.inputs) or node.inputs[index].is_empty():
            return None
        value = constant_values(node.inputs[index])
        value = self.computed.get(node.inputs[index].name) if value is None else value
        return None if value is None else [int(one) for one in np.ravel(value)]

    def after(self, node: gs.Node, sources: list[State]) -> State:
        """The place of what a node gives; a Split's results all lie where they would together."""
        handler = _HANDLERS.get(node.op, _alike)
        return handler(_Call(self, node, sources))


@dataclass(frozen=True)
class _Call:
    """A node, the places of what it takes, and the walk that asks."""

    walk: _Walk
    node: gs.Node
    sources: list[State]

    @property
    def place(self) -> State:
        """That of the first input."""
        return self.sources[0]


Handler = Callable[[_Call], State]


def _same(value: tuple[int | str, ...], other: tuple[int | str, ...]) -> bool:
    return len(value) == len(other) and all(a == b for a, b in zip(value[1:], other[1:], strict=True))


def _alike(call: _Call) -> State:
    """Of an operator that works on each value, or among channels: what has the shape of its input is where that is."""
    placed = [(one, value) for one, value in zip(call.sources, call.node.inputs, strict=True) if one is not None]
    if call.node.op in ops.SCRAMBLING or not placed:
        return LOST
    state, value = placed[0]
    return state if dims(value) and _same(dims(value), dims(call.node.outputs[0])) else LOST


def _window(call: _Call) -> State:
    place = call.place
    shape = dims(call.node.outputs[0])
    if not isinstance(place, Place) or (place.rows, place.columns) != (2, 3) or len(dims(call.node.inputs[0])) != 4:
        return LOST
    kernel = call.node.attrs.get("kernel_shape")
    if kernel is None:
        weight = call.node.inputs[3 if call.node.op == "QLinearConv" else 1]
        kernel = [number(side) for side in dims(weight)[2:]]
    strides, dilations = call.node.attrs.get("strides") or [1, 1], call.node.attrs.get("dilations") or [1, 1]
    pads = call.node.attrs.get("pads") or [0, 0, 0, 0]
    axes = []
    for at, axis in enumerate(place.axes):
        extent, stride = (kernel[at] - 1) * dilations[at] + 1, strides[at]
        size = number(shape[2 + at]) if len(shape) == 4 else 0
        begin = pads[at]
        if call.node.attrs.get("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
            size = size or math.ceil(axis.size / stride)
        elif not size:
            room = axis.size + pads[at] + pads[at + 2] - extent
            size = (math.ceil if call.node.attrs.get("ceil_mode") else math.floor)(Fraction(room, stride)) + 1
        axes.append(_windowed(axis, extent, stride, begin, size))
    return replace(place, axes=(axes[0], axes[1]))


def _windowed(axis: Axis, extent: int, stride: int, pad: int, size: int) -> Axis:
    """What a window of an extent makes of an axis, at every `stride` rows from `pad` rows before the first."""
    if size == 1 and axis.size > 1 and extent >= axis.size:
        return Axis(1, is_free=True)
    real, step = axis.size - axis.before - axis.after, axis.step * stride
    if size == math.ceil(real / stride):
        start = axis.start + axis.before * axis.step
    else:  # the middle of the first window is the middle of the first of its rows
        start = axis.start + axis.step * (Fraction(extent - stride, 2) - pad)
    return replace(axis, size=size, start=start, step=step, before=0, after=0, coarse=max(axis.coarse, step))


def _transposed_convolution(call: _Call) -> State:
    place, shape = call.place, dims(call.node.outputs[0])
    if not isinstance(place, Place) or (place.rows, place.columns) != (2, 3) or len(shape) != 4:
        return LOST
    kernel = call.node.attrs.get("kernel_shape") or [number(side) for side in dims(call.node.inputs[1])[2:]]
    strides, dilations = call.node.attrs.get("strides") or [1, 1], call.node.attrs.get("dilations") or [1, 1]
    pads, more = call.node.attrs.get("pads"), call.node.attrs.get("output_padding") or [0, 0]
    axes = []
    for at, axis in enumerate(place.axes):
        extent, stride, size = (kernel[at] - 1) * dilations[at] + 1, strides[at], number(shape[2 + at])
        whole = (axis.size - 1) * stride + extent
        if not size:
            size = whole + more[at] - (pads[at] + pads[at + 2] if pads else 0)
        pad = pads[at] if pads else max(0, whole + more[at] - size) // 2
        start = axis.start
        if size != axis.size * stride:
            start += axis.step * (pad - Fraction(extent - stride, 2)) / stride
        before, after = axis.before * stride, axis.after * stride
        step = axis.step / stride
        axes.append(replace(axis, size=size, start=start, step=step, before=before, after=after))
    return replace(place, axes=(axes[0], axes[1]))


def _resized(call: _Call) -> State:
    place, shape = call.place, dims(call.node.outputs[0])
    if place is None:
        return None
    if not isinstance(place, Place) or not shape or place.rows == place.columns:
        return LOST
    if call.node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return LOST
    scales = None
    if len(call.node.inputs) <= 3:  # else sizes, which say more
        given = (
            constant_values(call.node.inputs[-1])
            if len(call.node.inputs) > 1
            else np.asarray(call.node.attrs.get("scales"))
        )
        if given is not None and np.size(given) == len(shape):
            scales = [Fraction(float(one)).limit_denominator(1 << 12) for one in np.ravel(given)]
    axes = []
    for number_of, axis, side in zip((place.rows, place.columns), place.axes, call.walk.side, strict=True):
        size = number(shape[number_of])
        if not size:
            return LOST
        scale = scales[number_of] if scales else Fraction(size, axis.size)
        axes.append(_scaled(axis, size, scale, side))
    return replace(place, axes=(axes[0], axes[1]))


def _scaled(axis: Axis, size: int, scale: Fraction, side: int) -> Axis:
    if axis.is_free or (scale == 1 and size == axis.size):
        return replace(axis, size=size)
    if 1 not in (scale.numerator, scale.denominator) and axis.covers(side):
        step = Fraction(side, size)  # to a size that somebody chose: all of it again
        return Axis(size, step=step, coarse=max(axis.coarse, step))
    step = axis.step / scale
    return Axis(size, axis.start, step, coarse=max(axis.coarse, step))


def _padded(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.inputs[0]))
    pads = call.walk.values(call.node, 1, "pads")
    if not isinstance(place, Place) or pads is None or place.rows == place.columns:
        return LOST
    axes = call.walk.values(call.node, 3) or list(range(rank))
    amounts = {axis % rank: (pads[at], pads[at + len(axes)]) for at, axis in enumerate(axes)}
    changed = [
        _shifted(axis, *amounts.get(number_of, (0, 0)))
        for number_of, axis in zip((place.rows, place.columns), place.axes, strict=True)
    ]
    return replace(place, axes=(changed[0], changed[1]))


def _shifted(axis: Axis, before: int, after: int) -> Axis:
    """With so many rows more at either end, or fewer."""
    if axis.is_free and not before and not after:
        return axis
    return replace(
        axis,
        size=axis.size + before + after,
        start=axis.start - before * axis.step,
        before=max(0, axis.before + before),
        after=max(0, axis.after + after),
        is_free=False,
    )


def _sliced(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.inputs[0]))
    starts, ends = call.walk.values(call.node, 1, "starts"), call.walk.values(call.node, 2, "ends")
    if not isinstance(place, Place) or not rank or starts is None or ends is None:
        return _alike(call)
    given = call.walk.values(call.node, 3, "axes") or list(range(len(starts)))
    steps = call.walk.values(call.node, 4) or [1] * len(starts)
    cuts = {axis % rank: cut for axis, cut in zip(given, zip(starts, ends, steps, strict=True), strict=True)}
    axes = list(place.axes)
    for at, number_of in enumerate((place.rows, place.columns)):
        start, end, step = cuts.get(number_of, (0, axes[at].size, 1))
        picked = range(axes[at].size)[slice(start, end, step)]
        if step < 1 or not picked or (place.rows == place.columns and number_of in cuts):
            return LOST
        axis = axes[at]
        if step == 1:
            axes[at] = _shifted(axis, -picked.start, picked.stop - axis.size)
        else:
            wide = axis.step * step
            axes[at] = Axis(len(picked), axis.start + picked.start // step * wide, wide, coarse=max(axis.coarse, wide))
    return replace(place, axes=(axes[0], axes[1]))


def _cropped(call: _Call) -> State:
    """CenterCropPad."""
    place, shape = call.place, dims(call.node.outputs[0])
    if not isinstance(place, Place) or not shape:
        return LOST
    axes = []
    for number_of, axis in zip((place.rows, place.columns), place.axes, strict=True):
        more = number(shape[number_of]) - axis.size
        before = more // 2 if more >= 0 else -(-more // 2)
        axes.append(_shifted(axis, before, more - before))
    return replace(place, axes=(axes[0], axes[1]))


def _transposed(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.inputs[0]))
    if not isinstance(place, Place):
        return place if place is None else LOST
    order = list(call.node.attrs.get("perm") or range(rank - 1, -1, -1))
    return replace(place, rows=order.index(place.rows), columns=order.index(place.columns))


def _reduced(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.inputs[0]))
    if not isinstance(place, Place):
        return place if place is None else LOST
    if call.node.op in ops.INDEXING:
        axes = [call.node.attrs.get("axis", 0)]
    else:
        axes = call.walk.values(call.node, 1, "axes") or list(range(rank))
    gone = sorted({axis % rank for axis in axes})
    keeps = call.node.attrs.get("keepdims", 1)
    if {place.rows, place.columns} <= set(gone):
        return None
    changed = tuple(
        Axis(1, is_free=True) if number_of in gone else axis
        for number_of, axis in zip((place.rows, place.columns), place.axes, strict=True)
    )
    if keeps:
        return replace(place, axes=(changed[0], changed[1]))
    if place.rows in gone or place.columns in gone:
        return LOST
    return _moved(place, lambda axis: axis - sum(one < axis for one in gone))


def _moved(place: Place, to: Callable[[int], int]) -> Place:
    return replace(place, rows=to(place.rows), columns=to(place.columns))


def _later(place: Place, axes: int) -> Place:
    """With so many axes in front."""
    return replace(place, rows=place.rows + axes, columns=place.columns + axes)


def _squeezed(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.inputs[0]))
    axes = call.walk.values(call.node, 1, "axes")
    if not isinstance(place, Place) or axes is None:
        return place if place is None else LOST
    gone = {axis % rank for axis in axes}
    if gone & {place.rows, place.columns}:
        return None if all(one.is_free for one in place.axes) else LOST
    return _moved(place, lambda axis: axis - sum(one < axis for one in gone))


def _unsqueezed(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.outputs[0]))
    axes = call.walk.values(call.node, 1, "axes")
    if not isinstance(place, Place) or axes is None or not rank:
        return place if place is None else LOST
    new = {axis % rank for axis in axes}
    kept = [axis for axis in range(rank) if axis not in new]
    return _moved(place, lambda axis: kept[axis])


def _reshaped(call: _Call) -> State:
    """Rows and columns that stay axes, become one of tokens, or two again."""
    state, shape, new = call.place, _sides(call.node.inputs[0]), _sides(call.node.outputs[0])
    if isinstance(state, _Folded):
        return state.place if _same(state.shape, dims(call.node.outputs[0])) else LOST
    if not isinstance(state, Place):
        return state
    if not shape or not new:
        return LOST
    height, width = (one.size for one in state.axes)
    place = state
    ahead = [math.prod(new[:at]) for at in range(len(new))]
    if place.rows == place.columns:
        before = math.prod(shape[: place.rows])
        for at, side in enumerate(new):
            if ahead[at] == before and side == height and new[at + 1 : at + 2] == [width]:
                return replace(place, rows=at, columns=at + 1)
    tokens = math.prod(shape[: place.rows])
    if place.columns == place.rows + 1:
        for at, side in enumerate(new):
            if ahead[at] == tokens and side == height * width and 1 not in (height, width):
                return replace(place, rows=at, columns=at)
    found = []
    for axis in (place.rows, place.columns):
        before = math.prod(shape[:axis])
        found += [at for at, side in enumerate(new) if ahead[at] == before and side == shape[axis]][:1]
    if len(found) == 2:
        return replace(place, rows=found[0], columns=found[1])
    return _Folded(dims(call.node.inputs[0]), place)


def _sides(value: gs.Tensor) -> list[int]:
    """A shape with 1 for the batch that is open; empty where another side is."""
    shape = [number(dim) for dim in dims(value)]
    return [shape[0] or 1, *shape[1:]] if shape and all(shape[1:]) else []


def _joined(call: _Call) -> State:
    """Where the inputs agree, axes counted from the last as they are broadcast."""
    rank = len(dims(call.node.outputs[0]))
    places: list[Place] = []
    for state, value in zip(call.sources, call.node.inputs, strict=True):
        if isinstance(state, _Folded) and _same(dims(value), dims(call.node.outputs[0])):
            return state
        if isinstance(state, Place):
            places.append(_later(state, rank - len(dims(value))))
    return _agreed(places) if places else LOST


def _concatenated(call: _Call) -> State:
    axis = call.node.attrs.get("axis", 1) % max(len(dims(call.node.outputs[0])), 1)
    places = [one for one in call.sources if isinstance(one, Place)]
    if any(axis in (one.rows, one.columns) for one in places) or not places:
        return LOST
    return _agreed(places)


def _agreed(places: Sequence[Place]) -> State:
    """The place of what is made of several: of the finest of them, where they lie within a row of the coarsest."""
    first = places[0]
    if any((one.rows, one.columns) != (first.rows, first.columns) for one in places):
        return LOST
    axes = []
    for at in range(2):
        candidates = [one.axes[at] for one in places if not one.axes[at].is_free]
        if not candidates:
            axes.append(max((one.axes[at] for one in places), key=lambda one: one.size))
            continue
        size = max(one.size for one in candidates)
        candidates = [one for one in candidates if one.size == size]
        best = min(candidates, key=lambda one: (one.coarse, abs(one.start)))
        slack = max(one.coarse for one in candidates)
        for one in candidates:
            apart = max(abs(one.start - best.start), abs(one.end - best.end))
            if apart and apart >= slack:
                return LOST
        before, after = (min(getattr(one, name) for one in candidates) for name in ("before", "after"))
        axes.append(replace(best, before=before, after=after))
    return replace(first, axes=(axes[0], axes[1]))


def _multiplied(call: _Call) -> State:
    """MatMul: rows of the first input, columns of the second."""
    rank = len(dims(call.node.outputs[0]))
    for state, value, summed in zip(call.sources[:2], call.node.inputs[:2], (1, 2), strict=True):
        length = len(dims(value))
        if isinstance(state, Place) and length - summed not in (state.rows, state.columns):
            return _later(state, rank - length)
    return LOST


def _split_up(call: _Call) -> State:
    place, rank = call.place, len(dims(call.node.inputs[0]))
    if not isinstance(place, Place) or call.node.attrs.get("axis", 0) % max(rank, 1) in (place.rows, place.columns):
        return LOST if place is not None else None
    return place


def _gathered(call: _Call) -> State:
    """One or some of the channels."""
    place, value = call.sources[0], call.node.inputs[0]
    rank, new = len(dims(value)), len(dims(call.node.outputs[0]))
    if not isinstance(place, Place) or not rank or not new:
        return place if place is None and call.sources[1] is None else LOST
    axis = call.node.attrs.get("axis", 0) % rank
    if axis in (place.rows, place.columns):
        return LOST
    return _moved(place, lambda one: one if one < axis else one + new - rank)


def _blocks(call: _Call) -> State:
    place, block = call.place, call.node.attrs["blocksize"]
    if not isinstance(place, Place) or (place.rows, place.columns) != (2, 3):
        return LOST
    deep = call.node.op == "SpaceToDepth"
    axes = []
    for one in place.axes:
        size, step = (one.size // block, one.step * block) if deep else (one.size * block, one.step / block)
        axes.append(Axis(size, one.start, step, coarse=max(one.coarse, step)))
    return replace(place, axes=(axes[0], axes[1]))


def _nowhere(_: _Call) -> State:
    return None


_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ops.WINDOWS, _window),
    **dict.fromkeys(ops.GLOBAL_POOLS, _nowhere),
    **dict.fromkeys(ops.REDUCING, _reduced),
    **dict.fromkeys(ops.ELEMENTWISE, _joined),
    "ConvTranspose": _transposed_convolution,
    "Resize": _resized,
    "Upsample": _resized,
    "Pad": _padded,
    "Slice": _sliced,
    "CenterCropPad": _cropped,
    "Transpose": _transposed,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Reshape": _reshaped,
    "Flatten": _reshaped,
    "Concat": _concatenated,
    "MatMul": _multiplied,
    "Split": _split_up,
    "Gather": _gathered,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
}
