"""How well a mask draws the boundaries of the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.spec import IGNORED

TOLERANCE = 0.001
"""Share of the diagonal by which a boundary that counts as found may be off; at least one pixel is allowed."""


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Boundary pixels of each class, float64 [classes]: found by the mask of the truth's, right of the mask's."""

    found: NDArray[np.float64]
    truth: NDArray[np.float64]
    right: NDArray[np.float64]
    drawn: NDArray[np.float64]

    def __add__(self, other: Boundaries) -> Boundaries:
        return Boundaries(
            self.found + other.found,
            self.truth + other.truth,
            self.right + other.right,
            self.drawn + other.drawn,
        )

    @property
    def score(self) -> float:
        """Harmonic mean of precision and recall, averaged over the classes whose boundary the truth holds."""
        occurs = self.truth > 0
        if not occurs.any():
            return 1.0
        recall = self.found[occurs] / self.truth[occurs]
        precision = self.right[occurs] / np.maximum(self.drawn[occurs], 1)
        return float((2 * precision * recall / np.maximum(precision + recall, 1e-12)).mean())


def reach_of(shape: tuple[int, ...]) -> int:
    """`TOLERANCE` for a mask [H, W], in pixels."""
    return max(1, round(TOLERANCE * math.hypot(*shape)))


def boundaries_of(mask: NDArray[Any], truth: NDArray[Any], classes: int, reach: int) -> Boundaries:
    """Compare a mask's boundaries with the truth's: right ones are at most `reach` pixels apart in either axis."""
    known = truth != IGNORED
    counted = ~_widened(~known, 1)  # where the truth ends nothing begins
    counts = np.zeros((4, classes))
    for index in np.union1d(np.unique(mask), np.unique(truth[known])):
        drawn, real = (_boundary(one == index) & counted for one in (mask, truth))
        counts[:, index] = (
            (real & _widened(drawn, reach)).sum(),
            real.sum(),
            (drawn & _widened(real, reach)).sum(),
            drawn.sum(),
        )
    return Boundaries(*counts)


def _boundary(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pixels of a region with a neighbour outside, in the four directions; the picture's edge is none."""
    padded = np.pad(inside, 1, mode="edge")
    surrounded = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return inside & ~surrounded


def _widened(mask: NDArray[np.bool_], reach: int) -> NDArray[np.bool_]:
    """True within `reach` pixels of what is true, in either axis: a square, made in doubling steps."""
    for axis in (0, 1):
        done = 0
        while done < reach:
            step = min(max(done, 1), reach - done)
            wider = mask.copy()
            size = mask.shape[axis]
            ahead = [slice(None)] * 2
            behind = [slice(None)] * 2
            ahead[axis], behind[axis] = slice(min(step, size), None), slice(None, max(size - step, 0))
            wider[tuple(ahead)] |= mask[tuple(behind)]
            wider[tuple(behind)] |= mask[tuple(ahead)]
            mask, done = wider, done + step
    return mask
