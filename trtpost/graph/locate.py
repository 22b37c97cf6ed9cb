"""Find the image input and the logits of a segmentation network without being told."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import head as heads
from trtpost.graph.flat import Unfolded, unfolded
from trtpost.graph.layout import channel_axis, input_layout, layout_or_ask
from trtpost.graph.tensors import constant_values, dims, dtype_name, is_constant, listing, number
from trtpost.spec import Ending, Head, Layout

_IMAGE_DTYPES = ("float16", "float32", "uint8")


@dataclass(frozen=True)
class Located:
    """Where a network takes its pixels and gives its logits.

    Attributes:
        input, input_layout, input_dtype: name, layout and element type of the image input.
        input_size: (height, width) of the network; 0 where dynamic.
        input_channels: 1 or 3.
        batch: fixed batch size, or 0 where dynamic.
        expects: what the network's first arithmetic is made for, where that is by constants (a Rescaling or
            Normalization layer): `pixels` 0..255 or `unit` 0..1; else empty.
        output: the network's output that was chosen.
        logits: the tensor that the post-processing takes: `output`, or one before it.
        layout, head, classes: as in `Post`; `classes` of labels is 0 where the graph does not tell.
        shape: of `logits`; names for dynamic dimensions. Where `is_flat`, the shape that they are meant to have.
        dtype: of `logits`.
        dropped: operators between `logits` and `output` that the post-processing makes needless.
        others: outputs that were not chosen.
        is_flat: `logits` have other axes than `shape`, with the values in the same order.
        limits: the least and the greatest value of scores that shall exceed a threshold, where the graph bounds them:
            (0, 1) behind a Sigmoid.
        independent: several classes have a Sigmoid each, so that none, or more than one, may be large.
        background: the value that one of the classes must exceed, else the pixel is class 0, which counts among
            `classes`, but has no channel in `shape` (`multilabel`); None: the largest wins, whatever it is.
    """

    input: str
    input_layout: Layout
    input_dtype: str
    input_size: tuple[int, int]
    input_channels: int
    batch: int
    expects: str
    output: str
    logits: str
    layout: Layout
    head: Head
    classes: int
    shape: tuple[int | str, ...]
    dtype: str
    dropped: tuple[str, ...]
    others: tuple[str, ...] = ()
    is_flat: bool = False
    limits: tuple[float, float] | None = None
    independent: bool = False
    background: float | None = None

    @property
    def is_choice(self) -> bool:
        """True where ArgMax over the classes may or may not be meant."""
        return self.independent and self.background is None

    @property
    def threshold(self) -> float:
        """What scores shall exceed where the user does not say: the middle of their limits; 0, where logits turn."""
        return sum(self.limits) / 2 if self.limits is not None else 0.0

    @property
    def logits_size(self) -> tuple[int, int]:
        """(height, width) of the logits or labels; 0 where dynamic."""
        sizes = [number(dim) for dim in self.shape]
        if len(sizes) == 4:
            channels_first = self.layout == "NCHW" if self.head != "labels" else sizes[1] == 1
            sizes = sizes[2:] if channels_first else sizes[1:3]
        return sizes[-2], sizes[-1]


def locate(
    model: onnx.ModelProto,
    *,
    logits: str | None = None,
    layout: Layout | None = None,
    head: Ending | None = None,
    threshold: float | None = None,
    before_argmax: bool = False,
) -> Located:
    """Find input and logits.

    Args:
        model: as `load_model` returns it.
        logits: name of the tensor to take instead of searching the outputs; nothing after or before it is skipped.
        layout: of the logits, where the graph does not tell or tells wrong.
        head: `argmax`, `threshold`, `labels` or `multilabel` instead of what type and channels say.
        threshold: of `multilabel`, in the unit of the network's output; None: `Located.threshold`.
        before_argmax: of a model that ends in ArgMax take the logits before it, which can be interpolated.

    Raises:
        ModelError: nothing fits, or several outputs do; the message lists them and names the flag.
    """
    graph = gs.import_onnx(model)
    source = _image_input(graph)
    source_layout = input_layout(source)
    shape = dims(source)
    height, width, channels = shape[1:] if source_layout == "NHWC" else (shape[2], shape[3], shape[1])
    size = (number(height), number(width))
    if channels not in (1, 3):
        raise ModelError(
            f"input '{source.name}' {list(shape)} has {channels} channels in layout {source_layout}: "
            "trtpost takes networks of 1 or 3, fixed in the model"
        )

    if logits is not None:
        output = tensor = _tensor(graph, logits)
        dropped: tuple[str, ...] = ()
    else:
        output = heads.segmentation_output(graph, size)
        tensor, layout, dropped = _start(output, head, layout, size, before_argmax=before_argmax)
    view = _unfolded(tensor, head, layout, size, guess=logits is not None)
    tensor_shape = view.shape if view is not None else dims(tensor)
    found_head = _head(tensor, layout, size) if head is None else "argmax" if head == "multilabel" else head
    found_layout, classes = _channels(tensor, tensor_shape, found_head, view.layout if view else layout, size)
    multilabel = head == "multilabel" and classes > 1
    if head == "multilabel" and not multilabel:
        found_head, classes = "threshold", 2
    if found_head == "threshold":
        heads.refuse_lone_softmax(tensor)
    located = Located(
        input=source.name,
        input_layout=source_layout,
        input_dtype=dtype_name(source),
        input_size=size,
        input_channels=number(channels),
        batch=number(shape[0]) or (1 if len(tensor_shape) == 2 else number(tensor_shape[0])),
        expects=_expected_range(source),
        output=output.name,
        logits=tensor.name,
        layout=found_layout,
        head=found_head,
        classes=classes,
        shape=tensor_shape,
        dtype=dtype_name(tensor),
        dropped=dropped,
        others=tuple(value.name for value in graph.outputs if value.name != output.name),
        is_flat=view is not None,
        limits=heads.limits_of(tensor) if multilabel or found_head == "threshold" else None,
        independent=found_head == "argmax" and "ArgMax" not in dropped and heads.are_independent(output),
    )
    if not multilabel:
        return located
    background = located.threshold if threshold is None else threshold
    return replace(located, classes=classes + 1, background=background)


def input_of(model: onnx.ModelProto) -> tuple[str, Layout]:
    """Name and layout of the image input.

    Raises:
        ModelError: there is none, or more than one.
    """
    source = _image_input(gs.import_onnx(model))
    return source.name, input_layout(source)


def _image_input(graph: gs.Graph) -> gs.Variable:
    fitting = [value for value in graph.inputs if len(dims(value)) == 4 and dtype_name(value) in _IMAGE_DTYPES]
    if len(fitting) == 1 and len(graph.inputs) == 1:
        return fitting[0]
    if not fitting:
        raise ModelError(
            f"the model has no image input: it needs one of four dimensions and type {', '.join(_IMAGE_DTYPES)}, "
            f"but has {listing(graph.inputs)}"
        )
    raise ModelError(
        f"the model has {len(graph.inputs)} inputs, {listing(graph.inputs)}: "
        "trtpost takes networks with one image input; make the others constants before the export"
    )


def _expected_range(source: gs.Variable) -> str:
    """`pixels`, `unit` or nothing: which input the constants of the first arithmetic turn into about -3..3.

    The input that becomes 0, and how far 255 is from it, tell means and deviations of pixels from those of 0..1.
    """
    tensor, gain, offset, found = source, 1.0, 0.0, False
    for _ in range(16):
        node = tensor.outputs[0] if len(tensor.outputs) == 1 else None
        if node is None or not node.outputs:
            break
        if node.op in ("Sub", "Mul", "Div", "Add"):
            constant = next((constant_values(value) for value in node.inputs if is_constant(value)), None)
            if constant is None or constant.dtype.kind not in "fiu" or is_constant(node.inputs[0]):
                break
            value, found = float(np.mean(constant)), True
            if node.op in ("Sub", "Add"):
                offset += value if node.op == "Add" else -value
            else:
                factor = value if node.op == "Mul" else 1 / value if value else 0.0
                gain, offset = gain * factor, offset * factor
        elif node.op not in ("Cast", "Transpose", "Identity", "Gather", "Resize", "Slice"):
            break
        tensor = node.outputs[0]
    if not found or not gain:
        return ""
    centre = -offset / gain
    return "pixels" if abs(255 * gain) <= 20 or abs(centre) > 2 else "unit"


def _start(
    output: gs.Variable,
    head: Ending | None,
    layout: Layout | None,
    input_size: tuple[int, int],
    *,
    before_argmax: bool,
) -> tuple[gs.Variable, Layout | None, tuple[str, ...]]:
    """What the post-processing takes, its layout where that is known, and the ops between it and `output`."""
    if before_argmax or head == "multilabel":
        before = heads.logits_before_argmax(output, input_size)
        if before is not None:
            tensor, axis_layout = before
            more: tuple[str, ...] = ()
            if head != "multilabel":
                tensor, more = heads.before_needless(tensor, layout, input_size)
            return tensor, layout or (axis_layout if not more else None), ("ArgMax", *more)
    found = head or _head(output, layout, input_size)
    if found == "labels":
        tensor, dropped = heads.before_interpolation(output)
        tensor, more = heads.before_retyping(tensor)
        return tensor, layout, dropped + more
    if found == "argmax":
        tensor, dropped = heads.before_needless(output, layout, input_size)
    else:
        tensor, dropped = heads.before_quantization(output)
    return tensor, layout, dropped


def _unfolded(
    tensor: gs.Variable, head: Ending | None, layout: Layout | None, input_size: tuple[int, int], *, guess: bool
) -> Unfolded | None:
    labels = head == "labels" or (head is None and heads.are_labels(tensor))
    return unfolded(tensor, input_size, labels=labels, layout=layout, guess=guess)


def _head(tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]) -> Head:
    shape = dims(tensor)
    if heads.are_labels(tensor) and (len(shape) < 4 or 1 in (shape[1], shape[3]) or heads.argmax_before(tensor)):
        return "labels"
    view = unfolded(tensor, input_size, layout=layout, guess=True)
    channels: int | str = 0
    if view is not None:
        channels = view.classes
    elif len(shape) == 4:
        channels = shape[channel_axis(layout_or_ask(tensor, layout, input_size))]
    return "threshold" if channels == 1 else "argmax"


def _channels(
    tensor: gs.Variable, shape: tuple[int | str, ...], head: Head, layout: Layout | None, input_size: tuple[int, int]
) -> tuple[Layout, int]:
    """Layout and number of classes, where the shape that a tensor has or is meant to have and the head fit together.

    Raises:
        ModelError: they do not.
    """
    shown = f"tensor '{tensor.name}' {list(dims(tensor))}"
    if head == "labels":
        if len(shape) not in (2, 3, 4) or (len(shape) == 4 and 1 not in (shape[1], shape[3])):
            raise ModelError(f"{shown} cannot be labels: they have a row and a column axis, and no classes")
        return "NCHW", heads.label_count(tensor)
    if len(shape) != 4:
        raise ModelError(
            f"{shown} has {len(shape)} dimensions: logits need four (batch, height, width and classes, in either "
            "layout), or must be flattened from them; name another tensor with --logits"
        )
    found = layout or layout_or_ask(tensor, layout, input_size)
    channels = shape[channel_axis(found)]
    if not isinstance(channels, int):
        raise ModelError(f"the number of classes of {shown} is not fixed in the model")
    if head == "threshold" and channels != 1:
        raise ModelError(f"a threshold needs one channel, but {shown} has {channels} in layout {found}")
    return found, 2 if head == "threshold" else channels


def _tensor(graph: gs.Graph, name: str) -> gs.Variable:
    tensors = {key: value for key, value in graph.tensors().items() if isinstance(value, gs.Variable) and value.inputs}
    tensor = tensors.get(name) or tensors.get(name + ":0") or tensors.get(name.removesuffix(":0"))
    if tensor is None:
        close = difflib.get_close_matches(name, tensors, 3) or [value.name for value in graph.outputs]
        raise ModelError(
            f"the model has no tensor '{name}' (--logits); did you mean {' or '.join(repr(one) for one in close)}?"
        )
    if tensor.dtype is None or tensor.shape is None:
        raise ModelError(f"type and shape of tensor '{name}' cannot be inferred: name another with --logits")
    return tensor
