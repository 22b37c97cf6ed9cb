"""Scales photos to network resolution, stretched or letterboxed: bilinear without antialiasing, as `tf.image.resize`
does, rounded to uint8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trtpost.kernels import cpu
from trtpost.kernels.reference import bilinear, linear_index
from trtpost.letterbox import placement

PAD = 127
"""Grey level of a letterbox's bars: about 0 after the usual normalisations."""


def scaled(photo: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Scale uint8 [H, W, C] to [h, w, C]: `reference.bilinear`, rounded half to even; natively where that was built."""
    if not cpu.is_available():
        return np.rint(bilinear(photo, size)).astype(np.uint8)
    from trtpost import _cpu

    out = np.empty((*size, photo.shape[2]), np.uint8)
    rows, columns = (linear_index(photo.shape[axis], size[axis], "tf") for axis in (0, 1))
    _cpu.bilinear_pixels(np.ascontiguousarray(photo), *rows, *columns, out)
    return out


def letterboxed(
    photo: NDArray[np.uint8],
    network: tuple[int, int],
    logits: tuple[int, int],
    whole: tuple[int, int] | None = None,
) -> NDArray[np.uint8]:
    """Scale uint8 [H, W, C] into [h, w, C], proportions kept, with grey bars where there is no photo.

    `logits` is the size of the network's output, on whose grid the photo's edges lie; `whole` the photo's (H, W)
    where it was decoded at a fraction, which is not exact.
    """
    inside = placement(whole or (photo.shape[0], photo.shape[1]), network, logits)
    result = np.full((*network, photo.shape[2]), PAD, np.uint8)
    rows = slice(inside.top, inside.top + inside.height)
    columns = slice(inside.left, inside.left + inside.width)
    result[rows, columns] = scaled(photo, (inside.height, inside.width))
    return result
