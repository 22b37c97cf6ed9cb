"""Index arithmetic of every pixel convention, and the mask itself, in numpy: the reference for every kernel.

`j` is the output index, `w` the source size, `W` the output size; every step is done in the precision named, because
the frameworks' results depend on it. Nearest:

=================  ==============================================================  ===================================
match              equals                                                          source index, at most `w - 1`
=================  ==============================================================  ===================================
`tf`               `tf.image.resize(method="nearest")`                             float32 `floor((j + 0.5) * (w / W))`
`tf1`, `torch`     TF1 `resize_nearest_neighbor`, torch `nearest`                  float32 `floor(j * (w / W))`
`opencv`           `cv2.INTER_NEAREST`                                             float64 `floor(j * (1 / (W / w)))`
`pil`              Pillow `NEAREST`, `cv2.INTER_NEAREST_EXACT`                     float64 `floor(a/2 + a + a + ...)`,
                                                                                   `a = w / W`, summed in that order
=================  ==============================================================  ===================================

torch's `nearest-exact` follows `tf` except where an output centre falls exactly on the edge between two source pixels:
there its rounding goes its own way (51 of the 23,541 size pairs up to 59 -> 399, torch 2.13 on x86-64).

Bilinear, in float32: `tf`, `torch` and `opencv` put pixels at half-integers (`(j + 0.5) * w / W - 0.5`), `tf1` at
integers (`j * w / W`), `align_corners` maps the ends onto each other (`j * (w - 1) / (W - 1)`).

Numbers: ties go to the lower class. A NaN loses against every number, and where all classes are NaN the answer is
class 0 (or 0 for a threshold). For interpolation, values are limited to +-2^125, infinities among them, so that
infinities interpolate like large numbers instead of turning into NaN; which of several values beyond the limit
wins is not defined.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.letterbox import Region
from trtpost.spec import Match, Post


def nearest_index(source: int, target: int, match: Match) -> NDArray[np.int64]:
    """The source index of each output index, int64 [target], for nearest resize from `source` to `target` pixels."""
    if match == "tf":
        j = np.arange(target, dtype=np.float32)
        position = (j + np.float32(0.5)) * (np.float32(source) / np.float32(target))
    elif match in ("tf1", "torch"):
        j = np.arange(target, dtype=np.float32)
        position = j * (np.float32(source) / np.float32(target))
    elif match == "opencv":
        position = np.arange(target, dtype=np.float64) * (1.0 / (target / source))
    elif match == "pil":
        step = source / target
        # cumsum adds from left to right, which is what Pillow's loop does; a closed form rounds differently
        position = np.cumsum(np.concatenate([[step / 2], np.full(target - 1, step)]))
    else:
        raise ValueError(f"no nearest convention '{match}'")
    index: NDArray[np.int64] = np.minimum(np.floor(position).astype(np.int64), source - 1)
    return index


def linear_index(
    source: int, target: int, match: Match
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """For bilinear resize from `source` to `target` pixels: lower and upper neighbour, and the upper one's weight.

    Returns:
        int64 [target], int64 [target], float32 [target] in 0..1.
    """
    j = np.arange(target, dtype=np.float32)
    scale = np.float32(source) / np.float32(target)
    if match in ("tf", "torch", "opencv"):
        position = (j + np.float32(0.5)) * scale - np.float32(0.5)
    elif match == "tf1":
        position = j * scale
    elif match == "align_corners":
        position = j * (np.float32(source - 1) / np.float32(max(target - 1, 1)))
    else:
        raise ValueError(f"no bilinear convention '{match}'")
    position = np.clip(position, np.float32(0), np.float32(source - 1))
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(lower + 1, source - 1)
    return lower, upper, position - lower.astype(np.float32)


def bilinear(
    array: NDArray[Any], size: tuple[int, int], match: Match = "tf", rows: slice = slice(None)
) -> NDArray[np.float32]:
    """Bilinear resize of the first two axes, [h, w, ...] to float32 [H, W, ...], or to some `rows` of that alone.

    Only the rows and columns that are used are read, so a small output of a large photo is cheap.
    """
    top, bottom, down = linear_index(array.shape[0], size[0], match)
    top, bottom, down = top[rows], bottom[rows], down[rows]
    left, right, across = linear_index(array.shape[1], size[1], match)
    trailing = (1,) * (array.ndim - 2)
    down = down.reshape(-1, 1, *trailing)
    across = across.reshape(1, -1, *trailing)
    shape = (len(top), len(left), *array.shape[2:])
    width = array.shape[1]
    pixels = array.reshape(array.shape[0] * width, -1)  # so that `take` copies whole pixels

    def taken(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float32]:
        values: NDArray[Any] = pixels.take(rows[:, None] * width + columns, axis=0)
        return values.reshape(shape).astype(np.float32)

    def row(index: NDArray[np.int64]) -> NDArray[np.float32]:
        from_left, value = taken(index, left), taken(index, right)
        value -= from_left
        value *= across
        value += from_left
        return value

    upper, lower = row(top), row(bottom)
    lower -= upper
    lower *= down
    lower += upper
    return lower


LIMIT = np.float32(2.0**125)
"""Differences of differences of values within it are still finite."""


def limited(values: NDArray[Any]) -> NDArray[np.float32]:
    """The values in float32, within +-`LIMIT`; NaN, which loses against everything, becomes `-LIMIT`."""
    floats = values.astype(np.float32)
    return np.clip(np.where(np.isnan(floats), -LIMIT, floats), -LIMIT, LIMIT)


def labels_of(logits: NDArray[Any], post: Post) -> NDArray[np.int32]:
    """Class ids at the logits' own resolution, int32 [N, h, w].

    Args:
        logits: [N, C, h, w] or [N, h, w, C] after `post.layout`; integer [N, h, w] where `post.head` is `labels`.
        post: decides head, layout and threshold. Ties go to the lower class.
    """
    if post.head == "labels":
        return logits.astype(np.int32)
    axis = 1 if post.layout == "NCHW" else 3
    if post.head == "threshold":
        above: NDArray[np.bool_] = np.squeeze(logits.astype(np.float32) > np.float32(post.threshold), axis)
        return above.astype(np.int32)
    best: NDArray[np.int64] = np.argmax(np.where(np.isnan(logits), -np.inf, logits), axis)
    return best.astype(np.int32)


def argmax_resize(logits: NDArray[Any], size: tuple[int, int], post: Post) -> NDArray[np.int32]:
    """The meaning of `trtpost::ArgMaxResize`: class ids at the output resolution, int32 [N, H, W].

    Args:
        logits: what `labels_of` takes.
        size: (H, W) of the mask; `post.size` is not looked at.
        post: decides everything else.
    """
    if post.resize == "bilinear":
        values = limited(logits)
        rows_first = np.moveaxis(values, 0, -1) if post.layout == "NHWC" else values.transpose(2, 3, 1, 0)
        to_layout = (3, 2, 0, 1) if post.layout == "NCHW" else (3, 0, 1, 2)
        strips = [  # of [H, W, C, N]: whole, it would be the large tensor that the kernels avoid
            labels_of(bilinear(rows_first, size, post.match, slice(row, row + 64)).transpose(to_layout), post)
            for row in range(0, size[0], 64)
        ]
        return np.concatenate(strips, axis=1)
    labels = labels_of(logits, post)
    rows = nearest_index(labels.shape[1], size[0], post.match)
    columns = nearest_index(labels.shape[2], size[1], post.match)
    return labels[:, rows[:, None], columns]


def size_inputs(post: Post, region: Region, size: tuple[int, int]) -> dict[str, NDArray[np.int64]]:
    """The inputs of the node, by name, for a mask of `size` from the given part of the logits."""
    if post.needs_tables:
        rows = region.top + nearest_index(region.height, size[0], post.match)
        return {"rows": rows, "cols": region.left + nearest_index(region.width, size[1], post.match)}
    sizes = {"output_size": np.array(size, np.int64)}
    return sizes | ({"region": np.array(region, np.int64)} if post.region == "runtime" else {})
