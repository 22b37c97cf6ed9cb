"""Find the image input and the logits of a segmentation network without being told."""

from __future__ import annotations

import difflib
from dataclasses import replace

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph.head import class_ids, warnings
from trtpost.graph.head import ending as heads
from trtpost.graph.head.layout import channel_axis, input_layout, layout_or_ask
from trtpost.graph.head.outputs import depends_on, segmentation_output
from trtpost.graph.head.unflatten import Unfolded, unfolded
from trtpost.graph.walks import constant_values, dims, dtype_name, is_constant, listing, number
from trtpost.spec import Ending, Head, Layout, Located

_IMAGE_DTYPES = ("float16", "float32", "uint8")


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
    named = _tensor(graph, logits) if logits is not None else None
    source = _image_input(graph, named)
    source_layout = input_layout(source)
    shape = dims(source)
    height, width, channels = shape[1:] if source_layout == "NHWC" else (shape[2], shape[3], shape[1])
    size = (number(height), number(width))
    if channels not in (1, 3):
        raise ModelError(
            f"input '{source.name}' {list(shape)} has {channels} channels in layout {source_layout}: "
            "trtpost takes networks of 1 or 3, fixed in the model"
        )

    if named is not None:
        output = tensor = named
        dropped: tuple[str, ...] = ()
    else:
        output = segmentation_output(graph, source, size)
        tensor, layout, dropped = _start(output, head, layout, size, before_argmax=before_argmax)
        _image_input(graph, tensor)
    _check_meaning(tensor, source, head)
    view = _unfolded(tensor, head, layout, size, guess=logits is not None)
    tensor_shape = view.shape if view is not None else dims(tensor)
    found_head = _head(tensor, layout, size) if head is None else "argmax" if head == "multilabel" else head
    column = view is None and found_head == "labels" and _ends_in_one(tensor_shape, shape[0])
    if column:
        tensor_shape = (1, *tensor_shape[:2])
    _refuse_other_batch(tensor, tensor_shape, shape[0])
    found_layout, classes = _channels(tensor, tensor_shape, found_head, view.layout if view else layout, size)
    multilabel = head == "multilabel" and classes > 1
    if head == "multilabel" and not multilabel:
        found_head, classes = "threshold", 2
    if found_head == "argmax" and classes == 1:
        raise ModelError(
            f"tensor '{tensor.name}' has one channel, and the ArgMax of one is 0 everywhere: leave out --head argmax"
        )
    if found_head == "threshold":
        heads.refuse_lone_softmax(tensor)
    is_threshold = multilabel or found_head == "threshold"
    unlike_float32 = warnings.precision_doubt(tensor) if found_head != "labels" else None
    inside = unlike_float32 is not None and found_head == "argmax" and not multilabel and not before_argmax
    questions = [
        class_ids.narrowed(tensor) if found_head == "labels" else None if inside else unlike_float32,
        warnings.threshold_doubt(tensor) if is_threshold and threshold is None else None,
        warnings.resolutions_doubt(output, graph.outputs) if logits is None else None,
    ]
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
        is_flat=view is not None or column,
        is_compared_inside=inside,
        limits=heads.limits_of(tensor) if is_threshold else None,
        independent=found_head == "argmax" and "ArgMax" not in dropped and heads.are_independent(output),
    )
    if head is None and found_head == "argmax":
        questions.append(
            warnings.picture_doubt(tensor, classes, located.input_channels, located.logits_size, located.input_size)
        )
    located = replace(located, doubts=tuple(one for one in questions if one is not None))
    if not multilabel:
        return located
    background = located.threshold if threshold is None else threshold
    return replace(located, classes=classes + 1, background=background)


def _check_meaning(tensor: gs.Variable, source: gs.Variable, head: Ending | None) -> None:
    """Refuse what is no mask, whatever its shape, and what is another one than the user says.

    Raises:
        ModelError: it is; the message says what to take instead.
    """
    if not depends_on(tensor, source):
        raise ModelError(f"tensor '{tensor.name}' is the same for every image: name another with --logits")
    batch, shape = dims(source)[0], dims(tensor)
    if len(shape) == 4 and batch == 1 and isinstance(shape[0], int) and shape[0] > 1:
        raise ModelError(
            f"tensor '{tensor.name}' {list(shape)} holds {shape[0]} masks of one image, as of networks that give each "
            "object its own, and trtpost gives one: name a tensor of four dimensions that begin with 1 with --logits"
        )
    class_ids.refuse_what_ids_became(tensor, head=head)
    if head in ("argmax", "multilabel") and heads.are_one_label_a_pixel(tensor):
        raise ModelError(
            f"tensor '{tensor.name}' holds class ids, one for each pixel, so --head {head} cannot be: leave it out, or "
            "name the scores that they were made from with --logits"
        )
    if head == "labels" and heads.are_fractions(tensor):
        raise ModelError(
            f"tensor '{tensor.name}' holds values between 0 and 1, and no class ids, so --head labels cannot be: leave "
            "it out, or say --head threshold"
        )
    heads.refuse_lone_argmax(tensor)
    if head is None:
        class_ids.refuse_unknown_integers(tensor)


def _ends_in_one(shape: tuple[int | str, ...], batch: int | str) -> bool:
    """True for labels [h, w, 1]: of one photo, with a last axis for the class id."""
    return len(shape) == 3 and shape[2] == 1 and 1 not in shape[:2] and shape[0] != batch and number(batch) in (0, 1)


def _refuse_other_batch(tensor: gs.Variable, shape: tuple[int | str, ...], batch: int | str) -> None:
    """Refuse what has not one entry for each photo.

    Raises:
        ModelError: it has not.
    """
    shown = f"tensor '{tensor.name}' {list(dims(tensor))}"
    if len(shape) == 2 and shape[0] == batch and batch != 1:
        raise ModelError(
            f"{shown} has a row of values for each photo of the batch, and no rows and columns of pixels: name another "
            "with --logits"
        )
    if len(shape) > 2 and isinstance(shape[0], int) and isinstance(batch, int) and shape[0] != batch:
        raise ModelError(
            f"{shown} has {shape[0]} entries, but the input holds {batch} photo{'s' * (batch != 1)}: name a tensor "
            "with one entry a photo with --logits"
        )


def input_of(model: onnx.ModelProto, logits: str | None = None) -> tuple[str, Layout]:
    """Name and layout of the image input, that which the tensor `logits` needs where it is given.

    Raises:
        ModelError: there is none, or more than one.
    """
    graph = gs.import_onnx(model)
    source = _image_input(graph, _tensor(graph, logits) if logits is not None else None)
    return source.name, input_layout(source)


def _image_input(graph: gs.Graph, tensor: gs.Variable | None) -> gs.Variable:
    """The one image among the inputs; the only one that `tensor` needs, where that is given."""
    inputs = [value for value in graph.inputs if tensor is None or depends_on(tensor, value)] or graph.inputs
    fitting = [value for value in inputs if len(dims(value)) == 4 and dtype_name(value) in _IMAGE_DTYPES]
    if len(fitting) == 1 and (tensor is None or len(inputs) == 1):
        return fitting[0]
    if not fitting:
        raise ModelError(
            f"the model has no image input: it needs one of four dimensions and type {', '.join(_IMAGE_DTYPES)}, "
            f"but has {listing(inputs)}"
        )
    raise ModelError(
        f"the model has {len(inputs)} inputs, {listing(inputs)}: trtpost takes networks with one image input; make the "
        "others constants before the export, or name a tensor that needs the image alone with --logits"
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
    if heads.are_one_label_a_pixel(tensor):
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
    if any(value.name == name for value in graph.inputs):
        raise ModelError(f"'{name}' (--logits) is an input of the model: name a tensor that the network computes")
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
