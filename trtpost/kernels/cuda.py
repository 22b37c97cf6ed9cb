"""`trtpost::ArgMaxResize` as CUDA kernels (`plugins/cuda`): the PTX, which kernel to launch, and how.

Used by the runtime, which launches a kernel after an engine that ends in logits, and by the TensorRT plugin, whose plan
carries the PTX. Needs neither a GPU nor a package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trtpost.errors import SpecError
from trtpost.kernels.reference import linear_index, nearest_index
from trtpost.letterbox import Region
from trtpost.spec import Head, Layout, Post

BLOCK = (16, 16, 1)
"""Threads of a block, as the kernels are written for."""

TILE = (32, 256)
"""Height and width of the part of the mask that a block writes."""

LEAD = 15
"""A row's first store begins up to so many pixels left of it, where memory is aligned."""

LOGIT_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
"""Types of logits that there are kernels for, and their short names."""

HEADS: tuple[Head, ...] = ("argmax", "threshold")
"""Heads in the order of their numbers. Labels have no kernel: there is no ArgMax to fuse."""

MAX_ELEMENTS = 2**31 - 1
"""Most numbers in the logits of one image, because the kernels count in int32."""

MAX_LOGITS_SIDE = 2**24
"""Largest position up to which float32 holds each."""


class Numbers(NamedTuple):
    """The int32 arguments of every kernel, between the input pointers and the mask's.

    The threshold travels as the upper and lower half of its float32 bits: a TensorRT plugin passes whole numbers that
    are not negative.
    """

    channels: int
    height: int
    width: int
    target_height: int
    target_width: int
    channels_last: int
    head: int
    threshold_high: int
    threshold_low: int


@cache
def ptx() -> str:
    """The kernels, for every GPU of compute capability 7.5 and newer: the driver compiles them."""
    return (Path(__file__).parent / "argmax_resize.ptx").read_text(encoding="ascii")


def kernel_name(post: Post, logits: str) -> str:
    """The entry point for logits of a type by its numpy name.

    Raises:
        SpecError: there is no kernel for it.
    """
    if post.head not in HEADS:
        raise SpecError(f"there is no kernel for head '{post.head}': a resize of labels is left to TensorRT")
    if logits not in LOGIT_TYPES:
        raise SpecError(f"there is no kernel for logits of type {logits}: there are {', '.join(LOGIT_TYPES)}")
    return f"trtpost_{post.resize}_{LOGIT_TYPES[logits]}_{'i32' if post.wide else 'u8'}"


def grid(batch: int, size: tuple[int, int]) -> tuple[int, int, int]:
    """Blocks for masks of (H, W)."""
    return -(-(size[1] + LEAD) // TILE[1]), -(-size[0] // TILE[0]), batch


def numbers(post: Post, logits: tuple[int, ...], size: tuple[int, int]) -> Numbers:
    """The whole-number arguments for logits of a shape [N, C, h, w] or [N, h, w, C], and masks of (H, W).

    Raises:
        SpecError: the logits are too large.
    """
    channels, height, width = spatial(post.layout, logits)
    if channels * height * width > MAX_ELEMENTS or max(height, width) > MAX_LOGITS_SIDE:
        raise SpecError(
            f"the kernel takes no logits as large as {logits}: at most {MAX_ELEMENTS} numbers an image, and sides of "
            f"{MAX_LOGITS_SIDE}"
        )
    bits = int(np.float32(post.threshold).view(np.uint32))
    last = int(post.layout == "NHWC")
    return Numbers(channels, height, width, *size, last, HEADS.index(post.head), bits >> 16, bits & 0xFFFF)


def spatial(layout: Layout, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of a shape [N, C, h, w] or [N, h, w, C]."""
    _, *rest = shape
    channels, height, width = rest if layout == "NCHW" else (rest[2], rest[0], rest[1])
    return channels, height, width


def positions(
    post: Post, source: tuple[int, int], size: tuple[int, int], region: Region | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Where each row and each column of a mask of (H, W) lies in logits of (h, w): float32 [H] and [W], ascending.

    For nearest a whole number, the source index; for bilinear the whole part is the lower neighbour and the rest the
    weight of the upper one.
    """
    inside = region or Region(0, 0, *source)
    rows = _positions(post, inside.height, size[0]) + np.float32(inside.top)
    columns = _positions(post, inside.width, size[1]) + np.float32(inside.left)
    return rows, columns


def _positions(post: Post, source: int, target: int) -> NDArray[np.float32]:
    if post.resize == "nearest":
        return nearest_index(source, target, post.match).astype(np.float32)
    lower, _, weight = linear_index(source, target, post.match)
    return lower.astype(np.float32) + weight
