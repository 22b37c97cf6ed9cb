"""Find the image input and the logits of a segmentation network without being told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph.head import class_ids, warnings
from trtpost.graph.head.contents import are_independent, are_labels, head_of, label_count, limits_of
from trtpost.graph.head.image_input import ImageInput, expected_range, image_input, image_tensor
from trtpost.graph.head.layout import channel_axis, input_layout, layout_or_ask
from trtpost.graph.head.needless import Start, start_before
from trtpost.graph.head.outputs import converted_names, segmentation_output, tensor_named
from trtpost.graph.head.refusals import refuse_lone_softmax, refuse_no_mask, refuse_other_batch
from trtpost.graph.head.unflatten import unfolded
from trtpost.graph.walks import dims, dtype_name, number
from trtpost.spec import Ending, Head, Layout, Located


def locate(
    model: onnx.ModelProto,
    *,
    logits: str | None = None,
    layout: Layout | None = None,
    head: Ending | None = None,
    threshold: float | None = None,
    before_argmax: bool = False,
) -> Located:
    """Find the image input and the logits of a network, and say what the logits mean.

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
    named = tensor_named(graph, logits, converted_names(model)) if logits is not None else None
    image = image_input(graph, named)
    if named is not None:
        output, start = named, Start(named, layout)
    else:
        output = segmentation_output(graph, image.tensor, image.size)
        start = start_before(output, image.size, head=head, layout=layout, before_argmax=before_argmax)
        image_tensor(graph, start.tensor)  # refuses another input, of which only the tensor tells whether it matters
    refuse_no_mask(start.tensor, image.tensor, head)
    meaning = _meaning(start, image, head, guess=named is not None)
    located = _located(image, start, meaning, output, graph.outputs, threshold)
    located = replace(located, is_named=named is not None)
    if meaning.head == "argmax" and not meaning.is_multilabel and not before_argmax:
        located = replace(located, is_compared_inside=warnings.precision_doubt(start.tensor) is not None)
    doubts = (
        _doubt_of_values(located, start.tensor),
        warnings.threshold_doubt(start.tensor) if meaning.has_threshold and threshold is None else None,
        warnings.resolutions_doubt(output, graph.outputs) if named is None else None,
        _doubt_of_classes(located, start.tensor) if head is None else None,
    )
    return replace(located, doubts=tuple(one for one in doubts if one is not None))


def input_of(model: onnx.ModelProto, logits: str | None = None) -> tuple[str, Layout]:
    """Name and layout of the image input; of that which the tensor `logits` needs, where one is named.

    Raises:
        ModelError: there is none, or more than one.
    """
    graph = gs.import_onnx(model)
    source = image_tensor(graph, tensor_named(graph, logits, converted_names(model)) if logits is not None else None)
    return source.name, input_layout(source)


@dataclass(frozen=True)
class _Meaning:
    """What a tensor holds, and what makes a mask of it.

    Attributes:
        shape: that the tensor has, or, where `is_flat`, is meant to have.
        layout, head, classes: as in `Post`.
        is_flat: the tensor has other axes than `shape`.
        is_multilabel: one of the classes must exceed a threshold, else the pixel is background.
    """

    shape: tuple[int | str, ...]
    layout: Layout
    head: Head
    classes: int
    is_flat: bool
    is_multilabel: bool

    @property
    def has_threshold(self) -> bool:
        """True where scores have to exceed a value."""
        return self.head == "threshold" or self.is_multilabel


def _meaning(start: Start, image: ImageInput, head: Ending | None, *, guess: bool) -> _Meaning:
    """What a tensor means by its shape and values, and by what the user says of its head.

    Raises:
        ModelError: shape and head do not fit together.
    """
    tensor, size = start.tensor, image.size
    labels = head == "labels" or (head is None and are_labels(tensor))
    view = unfolded(tensor, size, labels=labels, layout=start.layout, guess=guess)
    shape, known = (view.shape, view.layout) if view is not None else (dims(tensor), start.layout)
    found: Head = "argmax" if head == "multilabel" else head or head_of(tensor, start.layout, size)
    column = view is None and found == "labels" and _ends_in_one(shape, image.batch)
    if column:
        shape = (1, *shape[:2])
    refuse_other_batch(tensor, shape, image.batch)
    layout, classes = _channels(tensor, shape, found, known, size)
    if head == "multilabel" and classes < 2:
        found, classes = "threshold", 2
    if found == "argmax" and classes == 1:
        raise ModelError(
            f"tensor '{tensor.name}' has one channel, and the ArgMax of one is 0 everywhere: leave out --head argmax"
        )
    if found == "threshold":
        refuse_lone_softmax(tensor)
    is_multilabel = head == "multilabel" and found == "argmax"
    return _Meaning(shape, layout, found, classes, view is not None or column, is_multilabel)


def _ends_in_one(shape: tuple[int | str, ...], batch: int | str) -> bool:
    """True for labels [h, w, 1]: of one photo, with a last axis for the class id."""
    return len(shape) == 3 and shape[2] == 1 and 1 not in shape[:2] and shape[0] != batch and number(batch) in (0, 1)


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
        return "NCHW", label_count(tensor)
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


def _located(
    image: ImageInput,
    start: Start,
    meaning: _Meaning,
    output: gs.Variable,
    outputs: Sequence[gs.Variable],
    threshold: float | None,
) -> Located:
    """What was found, as one record without doubts."""
    tensor, shape = start.tensor, meaning.shape
    located = Located(
        input=image.tensor.name,
        input_layout=image.layout,
        input_dtype=dtype_name(image.tensor),
        input_size=image.size,
        input_channels=image.channels,
        batch=number(image.batch) or (1 if len(shape) == 2 else number(shape[0])),
        expects=expected_range(image.tensor),
        output=output.name,
        logits=tensor.name,
        layout=meaning.layout,
        head=meaning.head,
        classes=meaning.classes,
        shape=shape,
        dtype=dtype_name(tensor),
        dropped=start.dropped,
        others=tuple(value.name for value in outputs if value.name != output.name),
        is_flat=meaning.is_flat,
        limits=limits_of(tensor) if meaning.head != "labels" else None,
        independent=meaning.head == "argmax" and are_independent(output),
    )
    if not meaning.is_multilabel:
        return located
    background = located.threshold if threshold is None else threshold
    return replace(located, classes=meaning.classes + 1, background=background)


def _doubt_of_values(located: Located, tensor: gs.Variable) -> str | None:
    """A sentence where class ids have become others, or scores need more than float32 tells apart."""
    if located.head == "labels":
        return class_ids.narrowed(tensor)
    return None if located.is_compared_inside else warnings.precision_doubt(tensor)


def _doubt_of_classes(located: Located, tensor: gs.Variable) -> str | None:
    """A sentence where classes may be the colours of a picture."""
    if located.head != "argmax":
        return None
    sizes = located.logits_size, located.input_size
    return warnings.picture_doubt(tensor, located.classes, located.input_channels, *sizes)
