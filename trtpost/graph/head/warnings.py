"""What was concluded of a head and may be wrong: a sentence each, with the flag that settles it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_graphsurgeon as gs

from trtpost.graph.head.bounds import Bounds, bounds_of
from trtpost.graph.head.class_ids import holds_whole_numbers
from trtpost.graph.walks import dims, dtype_name, is_constant, number

_USUAL: tuple[Bounds, ...] = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
"""Probabilities, those of a Tanh, and those as levels of a pixel."""

_MIXING = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "QLinearConv", "ConvInteger", "QLinearMatMul"})
"""Compute each value from many: what comes out has no limits, and logits turn at 0."""

_KEEPING = frozenset(
    {
        *("Identity", "Cast", "Dropout", "QuantizeLinear", "DequantizeLinear", "Pad", "Concat", "Expand", "Tile"),
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Resize", "Upsample", "Slice", "Split", "Gather"),
        *("DepthToSpace", "Add", "Sub", "Sum", "Mean", "AveragePool", "MaxPool", "BatchNormalization", "GridSample"),
    }
)
"""Leave logits what they are; so do a product and a quotient with constants."""


def threshold_doubt(tensor: gs.Variable) -> str | None:
    """Of scores of one channel, where nobody says what they must exceed."""
    low, high = bounds_of(tensor)
    if math.isfinite(low) and math.isfinite(high):
        usual = any(
            math.isclose(low, least, abs_tol=1e-3) and math.isclose(high, most, rel_tol=1e-3) for least, most in _USUAL
        )
        if usual and not _is_range_of_type(tensor):
            return None
        ids = ", or say --head labels if they are class ids" if holds_whole_numbers(tensor) else ""
        return (
            f"values of '{tensor.name}' lie between {low:g} and {high:g}, and nothing says which of them are "
            f"foreground: threshold {(low + high) / 2:g}, the middle, is ASSUMED; settle it with --threshold{ids}"
        )
    if low >= 0:
        return (
            f"values of '{tensor.name}' are never below {low:g} and have no limit, as those of depth or distance, "
            "which are no mask: threshold 0 is ASSUMED; settle it with --threshold"
        )
    if not _are_plain_logits(tensor):
        return (
            f"nothing tells between which limits the values of '{tensor.name}' lie, nor that they are logits: "
            "threshold 0 is ASSUMED; settle it with --threshold (0.5 for probabilities)"
        )
    return None


def _is_range_of_type(tensor: gs.Tensor) -> bool:
    """True where no operator bounds integers, so that their limits are only those of their type."""
    while tensor.inputs and tensor.inputs[0].op in _KEEPING and tensor.inputs[0].inputs:
        node = tensor.inputs[0]
        if node.op == "Cast" and not all(map(math.isfinite, bounds_of(node.inputs[0]))):
            return True
        tensor = node.inputs[0]
    return False


def _are_plain_logits(tensor: gs.Variable) -> bool:
    """True where nothing but what leaves logits as they are stands between a layer with weights and `tensor`."""
    pending: list[gs.Tensor] = [tensor]
    seen = set()
    while pending:
        value = pending.pop()
        if id(value) in seen or is_constant(value):
            continue
        seen.add(id(value))
        node = value.inputs[0] if value.inputs else None
        if node is None:
            return False
        if node.op in _MIXING:
            shape = dims(node.inputs[0])
            if "Conv" in node.op and len(shape) == 4 and shape[1] == 1:  # a blur
                pending.append(node.inputs[0])
        elif node.op in ("Mul", "Div"):
            if not any(is_constant(one) for one in node.inputs):
                return False
            pending += node.inputs
        elif node.op in _KEEPING:
            pending += node.inputs[: None if node.op in ("Add", "Sub", "Sum", "Mean", "Concat") else 1]
        else:
            return False
    return True


def picture_doubt(
    tensor: gs.Variable, classes: int, channels: int, size: Sequence[int], image: Sequence[int]
) -> str | None:
    """Of as many classes as an image has channels.

    Args:
        tensor: the logits.
        classes: how many.
        channels: of the image.
        size, image: (height, width) of the logits, and of the image; 0 where dynamic.
    """
    larger = all(size) and all(image) and size[0] > image[0] and size[1] > image[1]
    if classes != 3 or channels != 3 or not (larger or _adds_image(tensor)):
        return None
    return (
        f"'{tensor.name}' has three channels"
        + (", and is larger than the image" if larger else ", to which the image was added")
        + ": it looks like a picture, as of super-resolution, and its channels are taken for classes; if they are "
        "none, no mask can be had from it; else say --head argmax"
    )


def _adds_image(tensor: gs.Tensor) -> bool:
    """True of a correction that was added to the image itself."""
    while tensor.inputs and tensor.inputs[0].op in ("Clip", "Identity", "Cast", "Transpose", "Sigmoid", "Tanh"):
        tensor = tensor.inputs[0].inputs[0]
    if not tensor.inputs or tensor.inputs[0].op not in ("Add", "Sub"):
        return False
    added = list(tensor.inputs[0].inputs)
    while added:
        value = added.pop()
        if isinstance(value, gs.Variable) and not value.inputs:
            return True
        if value.inputs and value.inputs[0].op in ("Identity", "Cast", "Transpose"):
            added.append(value.inputs[0].inputs[0])
    return False


def resolutions_doubt(tensor: gs.Variable, outputs: Sequence[gs.Variable]) -> str | None:
    """Of one head out of three or more that differ in their resolution alone."""
    shape = [number(dim) for dim in dims(tensor)]
    if len(shape) != 4:
        return None
    others = [[number(dim) for dim in dims(one)] for one in outputs if one is not tensor]
    alike = [
        one for one in others if len(one) == 4 and one[2] != shape[2] and (one[1] == shape[1] or one[3] == shape[3])
    ]
    if len(alike) < 2:
        return None
    return (
        f"'{tensor.name}' is the finest of {len(alike) + 1} outputs of as many channels at several resolutions: so "
        "are heads that only training needs, but those of object detectors too, which hold no classes of pixels; if "
        f"it is the mask's, say --logits '{tensor.name}'"
    )


def precision_doubt(tensor: gs.Variable) -> str | None:
    """Of types that tell more numbers apart than float32, where the values may need it."""
    dtype = dtype_name(tensor)
    if dtype not in ("float64", "int32", "int64"):
        return None
    low, high = bounds_of(tensor)
    if dtype != "float64" and low >= -(1 << 24) and high <= 1 << 24:
        return None
    made = tensor
    while made.inputs and made.inputs[0].op in _KEEPING - {"Add", "Sub", "Sum", "Mean", "Concat"}:
        made = made.inputs[0].inputs[0]
        if dtype_name(made) in ("float16", "float32"):
            return None  # what was float32 is that again
    return (
        f"'{tensor.name}' is {dtype}, and compared in float32: classes whose values differ by less than that tells "
        "apart count as equal, and the first wins"
    )
