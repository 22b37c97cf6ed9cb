"""`trtpost::ArgMaxResize` as a native kernel on the CPU (`plugins/cpu`).

Without the extension everything still works: ONNX Runtime runs the node's function body instead.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.cores import default_threads
from trtpost.errors import SpecError
from trtpost.letterbox import Region
from trtpost.spec import MAX_SIDE, Match, Post

_HEADS = {"argmax": 0, "threshold": 1, "labels": 2}
_MATCHES: dict[Match, int] = {"tf": 0, "tf1": 1, "torch": 1, "opencv": 2, "pil": 3, "align_corners": 4}
_LINEAR_MATCHES: dict[Match, int] = _MATCHES | {"torch": 0, "opencv": 0}

LOGIT_TYPES = ("float32", "float16", "int8", "uint8")
LABEL_TYPES = ("uint8", "int8", "int32", "int64")

MARGIN_SCALE = 16.0
"""Steps of the margin per unit of the logits."""

MAX_THREADS = 1024
"""Most threads that are started, whatever is asked for."""


def is_available() -> bool:
    """Was the native extension built?"""
    return find_spec("trtpost._cpu") is not None


def argmax_resize(
    logits: NDArray[Any],
    size: tuple[int, int],
    post: Post,
    *,
    region: Region | None = None,
    out: NDArray[Any] | None = None,
    margin: NDArray[np.uint8] | None = None,
    threads: int | None = None,
    full: bool = False,
    isa: str = "",
) -> NDArray[Any]:
    """Class ids at the output resolution: what `trtpost.kernels.reference.argmax_resize` defines, fast.

    Safe to call from several threads at once; the interpreter lock is released while it works. Memory beyond the
    arguments is a few rows for each thread, whatever the sizes.

    Numbers: ties go to the lower class; a NaN loses against every number, and where all classes are NaN the answer is
    class 0 (or 0 for a threshold). For interpolation, values are limited to +-2^125, infinities among them; which of
    several values beyond the limit wins is not defined.

    Args:
        logits: [N, C, h, w] or [N, h, w, C] after `post.layout`, float32, float16, int8 or uint8, any strides;
            class ids [N, h, w], uint8, int8, int32 or int64, where `post.head` is `labels`. Other number types and
            byte orders work by way of a copy: logits as float32, labels as int64. Labels that the mask's type does not
            hold wrap around.
        size: (H, W) of the mask; `post.size` is not looked at.
        post: decides everything else.
        region: part of the logits that holds the photo; None: all.
        out: C-contiguous [N, H, W], uint8 (int32 where `post.wide`), to write into.
        margin: C-contiguous uint8 [N, H, W], to write confidence into: `min(255, round(16 * margin))`, where the
            margin is the best logit minus the second best, or the distance from the threshold. Bilinear then does
            without the cell rule.
        threads: default all cores that this process may use.
        full: evaluate every class at every pixel instead of following the cell rule: for benchmarks and tests.
        isa: instruction set by name, for tests; default the best that the processor has.

    Returns:
        `out`, or a new array: [N, H, W], uint8, or int32 where `post.wide`.

    Raises:
        SpecError: shape or type does not fit.
    """
    from trtpost import _cpu

    planar = _planar(logits, post)
    if region is not None:
        bottom, right = region.top + region.height, region.left + region.width
        if min(region.top, region.left, region.height - 1, region.width - 1) < 0 or (
            bottom > planar.shape[2] or right > planar.shape[3]
        ):
            raise SpecError(f"{region} does not lie inside logits of shape {logits.shape}")
        planar = planar[:, :, region.top : bottom, region.left : right]
    dtype = np.dtype(np.int32 if post.wide else np.uint8)
    shape = (planar.shape[0], *size)
    if len(size) != 2 or min(size) < 1 or max(size) > MAX_SIDE:
        raise SpecError(f"the mask's sides must be from 1 to {MAX_SIDE}, not {size}")
    if out is None:
        out = np.empty(shape, dtype)
    _check(out, "out", shape, dtype)
    if margin is not None:
        if post.head == "labels":
            raise SpecError("labels have no margin: the logits are gone")
        _check(margin, "margin", shape, np.dtype(np.uint8))
        if np.may_share_memory(out, margin):
            raise SpecError("out and margin must not share memory")
    if np.may_share_memory(out, logits):
        raise SpecError("out and the logits must not share memory")
    bilinear = post.resize == "bilinear"
    _cpu.argmax_resize(
        planar.view(np.uint16) if planar.dtype == np.float16 else planar,
        out,
        head=_HEADS[post.head],
        match=(_LINEAR_MATCHES if bilinear else _MATCHES)[post.match],
        bilinear=bilinear,
        threshold=post.threshold,
        margin=margin,
        margin_scale=MARGIN_SCALE,
        threads=min(max(threads or default_threads(), 1), MAX_THREADS),
        full=full,
        isa=isa,
    )
    return out


def _planar(logits: NDArray[Any], post: Post) -> NDArray[Any]:
    """A view of [N, C, h, w], of one channel for labels."""
    if not isinstance(logits, np.ndarray):
        raise SpecError(f"{post.head} takes a numpy array, not {type(logits).__name__}")
    rank, types = (3, LABEL_TYPES) if post.head == "labels" else (4, LOGIT_TYPES)
    if logits.ndim != rank or 0 in logits.shape:
        raise SpecError(f"{post.head} takes a non-empty array of {rank} dimensions, not {logits.shape}")
    if logits.dtype.kind not in "biuf" or (post.head == "labels" and logits.dtype.kind == "f"):
        raise SpecError(f"{post.head} takes {', '.join(types)}, not {logits.dtype}")
    if logits.dtype.name not in types:
        logits = logits.astype(np.int64 if post.head == "labels" else np.float32)
    if not logits.dtype.isnative or any(stride % logits.itemsize for stride in logits.strides):
        logits = logits.astype(logits.dtype.newbyteorder("="), order="C")
    if max(logits.shape) >= 1 << 24 or logits.shape[0] * max(logits.shape[1:]) >= 1 << 31:
        raise SpecError(f"{post.head} takes no arrays as large as {logits.shape}")
    if post.head == "labels":
        return logits[:, None]
    planar = logits if post.layout == "NCHW" else logits.transpose(0, 3, 1, 2)
    if post.head == "threshold" and planar.shape[1] != 1:
        raise SpecError(f"a threshold needs one channel, not {planar.shape[1]}")
    if planar.shape[1] > 256 and not post.wide:
        raise SpecError(f"{planar.shape[1]} channels do not fit {post.classes} classes")
    return planar


def _check(array: NDArray[Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous or not array.flags.writeable:
        raise SpecError(f"{name} must be a writable C-contiguous {dtype} array of shape {shape}")
