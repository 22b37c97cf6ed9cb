"""Made pictures, on which a network shows how it computes: smooth colours with some grain, the same in every run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_COLOURS = 7
"""Colours along each side, between which a picture is smooth."""


def levels(shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Whole numbers of 0..255 that change smoothly along each long side, and a little from pixel to pixel."""
    rng = np.random.default_rng(seed)
    values: NDArray[np.float64] = rng.uniform(-40, 295, tuple(min(side, _COLOURS) for side in shape))
    for axis, side in enumerate(shape):
        if side > _COLOURS:
            at = np.linspace(0, _COLOURS - 1, side)
            low = np.minimum(at.astype(int), _COLOURS - 2)
            share = (at - low).reshape([-1 if one == axis else 1 for one in range(len(shape))])
            values = values.take(low, axis) * (1 - share) + values.take(low + 1, axis) * share
    return np.rint(np.clip(values + rng.normal(0, 8, shape), 0, 255))
