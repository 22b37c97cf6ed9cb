"""Append ArgMax and Resize to a TensorRT network by hand, for networks that do not come from ONNX.

The layers mean what the function body of `trtpost::ArgMaxResize` means (`trtpost.graph.baking.postprocess`), and `Post`
decides the same things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from trtpost.backends.tensorrt.layers import Convention, Layers
from trtpost.backends.tensorrt.plugin import add_plugin
from trtpost.errors import SpecError
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region
from trtpost.spec import Match, Post

if TYPE_CHECKING:
    import tensorrt as trt

    Pair: TypeAlias = tuple[trt.ITensor, trt.ITensor]

Lowering = Literal["native", "plugin"]

AXES = ("rows", "cols")

CONVENTIONS: dict[Match, Convention] = {
    "tf": "half_pixel",
    "torch": "half_pixel",
    "opencv": "half_pixel",
    "tf1": "asymmetric",
    "align_corners": "align_corners",
}
"""Where pixels lie in bilinear interpolation, by what it is to equal."""


def append_postprocess(
    network: trt.INetworkDefinition,
    logits: trt.ITensor,
    post: Post,
    *,
    output_size: trt.ITensor | None = None,
    region: trt.ITensor | Region | None = None,
    rows: trt.ITensor | None = None,
    cols: trt.ITensor | None = None,
    image: trt.ITensor | None = None,
    lowering: Lowering = "native",
) -> trt.ITensor:
    """Append the post-processing to a network, and mark its result as the network's output `mask`.

    Where the size comes from at run time and no tensor is given for it, the network gets inputs of the names and types
    that baked graphs have: `output_size` int64 [2], `region` int64 [4], or the index tables `rows` int64 [H] and `cols`
    int64 [W]. Their ranges belong into the builder's optimization profile.

    Args:
        network: strongly typed, of TensorRT or TensorRT for RTX.
        logits: float32, float16 or bfloat16 [N, C, h, w] or [N, h, w, C] after `post.layout`; int32 or int64 [N, h, w]
            where `post.head` is `labels`.
        post: decides everything.
        output_size: int32 or int64 [2], for `post.size` runtime.
        region: int32 or int64 [4], or numbers, for `post.region` runtime: the part of the logits that holds the photo.
        rows, cols: int32 or int64 [H] and [W], for `post.size` runtime where `post.needs_tables`.
        image: the network's photo [N, H, W, C] or [N, C, H, W] with C of 1, 3 or 4, for `post.size` image.
        lowering: `native` layers, or `plugin`: the fused kernel, which the plan then carries (full TensorRT only).

    Returns:
        The mask [N, H, W]: uint8, or int32 where `post.wide`. With `plugin` int8 up to 128 classes, because TensorRT
        lets no plugin write uint8; the bytes are the same.

    Raises:
        SpecError: the tensors do not fit `post`; the message says how.
        BackendError: this TensorRT does not take a layer or plugin.
    """
    layers = Layers(network)
    if "mask" in [network.get_output(index).name for index in range(network.num_outputs)]:
        raise SpecError("the network has an output 'mask' already")
    _check_given(post, output_size=output_size, region=region, rows=rows, cols=cols, image=image)
    _check_logits(layers, logits, post)
    inside = _inside(layers, post, region)
    if post.needs_tables:
        positions = _tables(layers, logits, post, region, rows, cols)
    else:
        target = _target(layers, post, output_size, image)
        if lowering == "native" and inside is not None:
            logits, inside = _cropped(layers, logits, post, inside), None
        if lowering == "native" and post.resize == "bilinear":
            return _finished(layers, _labels(layers, _resized(layers, logits, target, post), post), post)
        positions = _positions(layers, logits, inside, target, post)
    append = _added_plugin if lowering == "plugin" else _selected
    return _finished(layers, append(layers, logits, positions, post), post)


def _inside(layers: Layers, post: Post, region: trt.ITensor | Region | None) -> trt.ITensor | None:
    """int64 [4]: the part of the logits that holds the photo; None where it is all, or the index tables hold it."""
    if post.region == "whole" or post.needs_tables:
        return None
    return layers.sizes("region", *region) if isinstance(region, Region) else _vector(layers, "region", region, 4)


def _finished(layers: Layers, labels: trt.ITensor, post: Post) -> trt.ITensor:
    """The mask, as the network's output."""
    wanted = layers.types.INT32 if post.wide else layers.types.UINT8
    # int8 is what a plugin writes in place of uint8, which only a cast may write
    mask = labels if labels.dtype == layers.types.INT8 else layers.cast("mask", labels, wanted)
    mask.name = "mask"
    layers.network.mark_output(mask)
    return mask


def _selected(layers: Layers, source: trt.ITensor, positions: Pair, post: Post) -> trt.ITensor:
    """Labels [N, h, w] of the logits, then int32 [N, H, W]: the rows and columns at `positions`."""
    labels = _labels(layers, source, post)
    for axis, (name, position) in enumerate(zip(AXES, positions, strict=True)):
        index = layers.cast(f"{name}/index", position, layers.types.INT32)
        labels = layers.gather(name, labels, index, 1 + axis)
    return labels


def _added_plugin(layers: Layers, source: trt.ITensor, positions: Pair, post: Post) -> trt.ITensor:
    """Class ids [N, H, W], int8 or int32, by the fused kernel."""
    rows, cols = (
        layers.cast(f"{name}/float", position, layers.types.FLOAT)
        for name, position in zip(AXES, positions, strict=True)
    )
    return add_plugin(layers, source, (rows, cols), post)


def _labels(layers: Layers, source: trt.ITensor, post: Post) -> trt.ITensor:
    """Logits [N, C, h, w] or [N, h, w, C], or labels [N, h, w], to int32 labels [N, h, w]."""
    axis = 1 if post.layout == "NCHW" else 3
    if post.head == "labels":
        return layers.cast("labels", source, layers.types.INT32)
    if post.head == "threshold":
        value = layers.cast("threshold/float", source, layers.types.FLOAT)
        threshold = layers.constant("threshold/value", np.full((1, 1, 1, 1), post.threshold, np.float32))
        above = layers.elementwise("threshold", value, threshold, layers.operations.GREATER)
        return layers.without_axis("labels", layers.cast("threshold/int32", above, layers.types.INT32), axis)
    best = layers.without_axis("labels/int64", layers.best("argmax", source, axis), axis)
    return layers.cast("labels", best, layers.types.INT32)


def _cropped(layers: Layers, logits: trt.ITensor, post: Post, inside: trt.ITensor) -> trt.ITensor:
    """The part of the logits that the region `inside` names."""
    shape = layers.shape("crop/shape", logits)
    # whole axes before, and (NHWC) after, the two that are cropped
    before = _first_side(post)
    after = len(logits.shape) - before - 2
    start = [layers.sizes("crop/before/start", *[0] * before), layers.part("crop/near", inside, 0, 2)]
    size = [layers.part("crop/before", shape, 0, before), layers.part("crop/extent", inside, 2, 2)]
    if after:
        start.append(layers.sizes("crop/after/start", *[0] * after))
        size.append(layers.part("crop/after", shape, before + 2, after))
    return layers.window("crop", logits, layers.joined("crop/start", start), layers.joined("crop/size", size))


def _resized(layers: Layers, source: trt.ITensor, target: trt.ITensor, post: Post) -> trt.ITensor:
    """Logits at the target size, in their layout."""
    shape = layers.shape("resize/shape", source)
    before = _first_side(post)
    after = len(source.shape) - before - 2
    sizes = [layers.part("resize/before", shape, 0, before), target]
    if after:
        sizes.append(layers.part("resize/after", shape, before + 2, after))
    return layers.resize_linear("resize", source, layers.joined("resize/sizes", sizes), CONVENTIONS[post.match])


def _target(layers: Layers, post: Post, output_size: trt.ITensor | None, image: trt.ITensor | None) -> trt.ITensor:
    """int64 [2]: height and width of the mask."""
    if isinstance(post.size, tuple):
        return layers.sizes("size", *post.size)
    if post.size == "runtime":
        return _vector(layers, "output_size", output_size, 2)
    if image is None:
        raise SpecError("size 'image' is that of the network's photo: give its tensor as image=")
    sides = [
        first for first, channels in ((1, 3), (2, 1)) if len(image.shape) == 4 and image.shape[channels] in (1, 3, 4)
    ]
    if not sides:
        raise SpecError(f"image must be [N, H, W, C] or [N, C, H, W] with 1, 3 or 4 channels, not {_text(image)}")
    return layers.part("size", layers.shape("image/shape", image), sides[0], 2)


def _positions(
    layers: Layers, logits: trt.ITensor, inside: trt.ITensor | None, target: trt.ITensor, post: Post
) -> Pair:
    """float32 [H] and [W]: where each row and each column of the mask lies in the logits."""
    if inside is None:
        corner, sides, first = None, layers.shape("logits/shape", logits), _first_side(post)
    else:
        corner, sides, first = inside, inside, 2
    types, positions = layers.types, []
    for axis, name in enumerate(AXES):
        source = layers.cast(f"{name}/source", layers.part(f"{name}/source/int64", sides, first + axis, 1), types.FLOAT)
        position = _position(layers, name, source, layers.part(f"{name}/target/int64", target, axis, 1), post)
        if corner is not None:
            start = layers.cast(f"{name}/start", layers.part(f"{name}/start/int64", corner, axis, 1), types.FLOAT)
            position = layers.elementwise(f"{name}/inside", position, start, layers.operations.SUM)
        positions.append(position)
    return positions[0], positions[1]


def _position(layers: Layers, name: str, source: trt.ITensor, target: trt.ITensor, post: Post) -> trt.ITensor:
    """Positions along one axis; every step in float32 as in `kernels.reference`, because the results depend on it.

    Args:
        layers: those of the network.
        name: the axis's.
        source: float32 [1], its length in the logits.
        target: int64 [1], its length in the mask.
        post: decides the pixel convention.

    Returns:
        float32 [target]: for nearest whole numbers, for bilinear positions between pixels, both within the source.
    """
    operations = layers.operations

    def number(suffix: str, value: float) -> trt.ITensor:
        return layers.constant(f"{name}/{suffix}", np.array([value], np.float32))

    def apply(suffix: str, operation: trt.ElementWiseOperation, first: trt.ITensor, second: trt.ITensor) -> trt.ITensor:
        return layers.elementwise(f"{name}/{suffix}", first, second, operation)

    nearest = post.resize == "nearest"
    half_pixel = post.match == "tf" if nearest else CONVENTIONS[post.match] == "half_pixel"
    one, half = number("one", 1), number("half", 0.5) if half_pixel else None
    last = apply("last", operations.SUB, source, one)
    over, under = source, layers.cast(f"{name}/target", target, layers.types.FLOAT)
    if post.match == "align_corners":
        gaps = apply("target/gaps", operations.SUB, under, one)
        over, under = last, apply("target/divisor", operations.MAX, gaps, one)
    scale = apply("scale", operations.DIV, over, under)
    position = layers.steps(f"{name}/steps", target)
    if half is not None:
        position = apply("centre", operations.SUM, position, half)
    position = apply("position", operations.PROD, position, scale)
    if nearest:
        return apply("nearest", operations.MIN, layers.floor(f"{name}/floor", position), last)
    if half is not None:
        position = apply("corner", operations.SUB, position, half)
    position = apply("low", operations.MAX, position, number("zero", 0))
    return apply("high", operations.MIN, position, last)


def _tables(
    layers: Layers,
    logits: trt.ITensor,
    post: Post,
    region: trt.ITensor | Region | None,
    rows: trt.ITensor | None,
    cols: trt.ITensor | None,
) -> Pair:
    """Integer [H] and [W]: the source row of each row of the mask, and the source column of each column."""
    if not isinstance(post.size, tuple):
        return _vector(layers, "rows", rows, -1), _vector(layers, "cols", cols, -1)
    first = _first_side(post)
    height, width = tuple(logits.shape)[first : first + 2]
    if min(height, width) < 0:
        raise SpecError(
            f"match '{post.match}' with a fixed size needs the logits' height and width, not {_text(logits)}"
        )
    if region is not None and not isinstance(region, Region):
        raise SpecError(f"match '{post.match}' makes its index tables now: give the region as numbers")
    values = size_inputs(post, region or Region(0, 0, height, width), post.size)
    return layers.constant("rows/table", values["rows"]), layers.constant("cols/table", values["cols"])


def _vector(layers: Layers, name: str, given: trt.ITensor | None, length: int) -> trt.ITensor:
    """int64 [length], of any length where it is -1: the given tensor, or a new input of the network."""
    if given is None:
        inputs = [layers.network.get_input(index).name for index in range(layers.network.num_inputs)]
        if name in inputs:
            raise SpecError(f"the network has an input '{name}' already: if it is meant, give it as {name}=")
        return layers.input(name, length)
    wanted = (length,)
    if tuple(given.shape) != wanted and not (length == -1 and len(given.shape) == 1):
        raise SpecError(f"{name} must be one-dimensional{f' of {length}' if length > 0 else ''}, not {_text(given)}")
    if given.dtype not in (layers.types.INT32, layers.types.INT64):
        raise SpecError(f"{name} must be int32 or int64, not {_text(given)}")
    return layers.cast(f"{name}/int64", given, layers.types.INT64)


def _first_side(post: Post) -> int:
    """The axis of the height in logits or labels; that of the width is next."""
    return 2 if post.head != "labels" and post.layout == "NCHW" else 1


def _check_given(post: Post, **given: object) -> None:
    """Each tensor says something that `post` leaves open; anything else would be ignored."""
    if isinstance(post.size, tuple):
        taken: set[str] = set()
    elif post.size == "image":
        taken = {"image"}
    else:
        taken = {"rows", "cols"} if post.needs_tables else {"output_size"}
    if post.region == "runtime" and (isinstance(post.size, tuple) or not post.needs_tables):
        taken.add("region")
    surplus = [name for name, value in given.items() if value is not None and name not in taken]
    if surplus:
        raise SpecError(
            f"{', '.join(surplus)} would not be used with match '{post.match}', size {post.size} and region "
            f"'{post.region}': these take {', '.join(sorted(taken)) or 'no tensors'}"
        )


def _check_logits(layers: Layers, logits: trt.ITensor, post: Post) -> None:
    shape, types = tuple(logits.shape), layers.types
    wanted: tuple[trt.DataType, ...]
    if post.head == "labels":
        wanted, layout = (types.INT32, types.INT64), "[N, h, w]"
    else:
        wanted = (types.FLOAT, types.HALF, types.BF16)
        layout = "[N, C, h, w]" if post.layout == "NCHW" else "[N, h, w, C]"
    if len(shape) != layout.count(",") + 1:
        raise SpecError(f"head '{post.head}' needs {layout}, not {_text(logits)}")
    if logits.dtype not in wanted:
        names = ", ".join(each.name for each in wanted)
        raise SpecError(f"head '{post.head}' needs one of {names}, not {_text(logits)}")
    if post.head == "labels":
        return
    channels = shape[1 if post.layout == "NCHW" else 3]
    expected = 1 if post.head == "threshold" else post.classes
    if channels != expected:
        raise SpecError(
            f"{layout} with {expected} channel{'s' * (expected > 1)} is expected for head '{post.head}' with "
            f"{post.classes} classes, not {_text(logits)}: check post.layout and post.classes"
        )


def _text(tensor: trt.ITensor) -> str:
    return f"'{tensor.name}', {tensor.dtype.name} {list(tensor.shape)}"
