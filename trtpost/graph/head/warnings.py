"""What was concluded of a head and may be wrong: a sentence each, with the flag that settles it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_graphsurgeon as gs

from trtpost.graph import ops
from trtpost.graph.head.bounds import Bounds, bounds_of
from trtpost.graph.head.class_ids import holds_whole_numbers
from trtpost.graph.walks import behind, chain_before, dims, dtype_name, is_constant, maker_of, number, proven

_USUAL: tuple[Bounds, ...] = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
"""Probabilities, those of a Tanh, and those as levels of a pixel."""

_OF_ALL_INPUTS = ops.SUMMING | {"Concat"}
"""Operators that give logits only where all of their inputs are logits."""


def threshold_doubt(tensor: gs.Variable) -> str | None:
    """A warning of scores of one channel, where nobody says what they must exceed."""
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
    casts = (node for node in chain_before(tensor, ops.KEEPING_LOGITS) if node.op == "Cast")
    return any(not all(map(math.isfinite, bounds_of(cast.inputs[0]))) for cast in casts)


def _are_plain_logits(tensor: gs.Variable) -> bool:
    """True where nothing but what leaves logits as they are stands between a layer with weights and `tensor`."""
    return proven(tensor, _logits_before)


def _logits_before(value: gs.Tensor) -> list[gs.Tensor] | None:
    """What must be logits too, so that a tensor is; None where it is none whatever they are."""
    if is_constant(value):
        return []
    node = maker_of(value)
    if node is None:
        return None
    if node.op in ops.MIXING:
        shape = dims(node.inputs[0])
        is_blur = node.op in ops.CONVOLUTIONS and len(shape) == 4 and shape[1] == 1
        return list(node.inputs[:1]) if is_blur else []
    if node.op in ("Mul", "Div"):
        return list(node.inputs) if any(is_constant(one) for one in node.inputs) else None
    if node.op in ops.KEEPING_LOGITS:
        return list(node.inputs if node.op in _OF_ALL_INPUTS else node.inputs[:1])
    return None


def picture_doubt(
    tensor: gs.Variable, classes: int, channels: int, size: Sequence[int], image: Sequence[int]
) -> str | None:
    """A warning of as many classes as an image has channels.

    Args:
        tensor: the logits.
        classes: how many.
        channels: how many the image has.
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
    """True for a correction that was added to the image itself."""
    sum_of = maker_of(behind(tensor, ("Clip", "Identity", "Cast", "Transpose", "Sigmoid", "Tanh")))
    if sum_of is None or sum_of.op not in ("Add", "Sub"):
        return False
    added = [behind(value, ("Identity", "Cast", "Transpose")) for value in sum_of.inputs]
    return any(isinstance(value, gs.Variable) and not value.inputs for value in added)


def resolutions_doubt(tensor: gs.Variable, outputs: Sequence[gs.Variable]) -> str | None:
    """A warning of one head out of three or more that differ in their resolution alone."""
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
    """A warning of types that tell more numbers apart than float32, where the values may need it."""
    dtype = dtype_name(tensor)
    if dtype not in ("float64", "int32", "int64"):
        return None
    low, high = bounds_of(tensor)
    if dtype != "float64" and low >= -(1 << 24) and high <= 1 << 24:
        return None
    chain = chain_before(tensor, ops.KEEPING_LOGITS - _OF_ALL_INPUTS)
    if any(dtype_name(node.inputs[0]) in ("float16", "float32") for node in chain):
        return None  # what was float32 is that again
    return (
        f"'{tensor.name}' is {dtype}, and compared in float32: classes whose values differ by less than that tells "
        "apart count as equal, and the first wins"
    )
