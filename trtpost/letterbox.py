"""Where a letterboxed photo lies in the network's square, and its logits in the network's output; where logits lie that
do not cover the square."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple


class Region(NamedTuple):
    """A rectangle, in pixels of whatever it lies in."""

    top: int
    left: int
    height: int
    width: int


def placement(photo: tuple[int, int], network: tuple[int, int], logits: tuple[int, int]) -> Region:
    """Where a photo of (H, W) lies in a network input of (h, w): as large as it fits, centred, proportions kept.

    Its edges are moved onto the grid of the logits, where that is a whole fraction of the input: an edge inside a logit
    pixel would shift the mask by up to half of one.
    """
    scale = min(network[0] / photo[0], network[1] / photo[1])
    top, height = _centred(photo[0] * scale, network[0], logits[0])
    left, width = _centred(photo[1] * scale, network[1], logits[1])
    return Region(top, left, height, width)


def _centred(wanted: float, side: int, logits: int) -> tuple[int, int]:
    """Start and length, in steps of one logit, of about `wanted` pixels in the middle of `side`."""
    step = side // logits if logits and side % logits == 0 else 1
    steps = max(1, min(round(wanted / step), side // step))
    return (side // step - steps) // 2 * step, steps * step


def region_of(photo: tuple[int, int], network: tuple[int, int], logits: tuple[int, int]) -> Region:
    """The part of logits of (h, w) that holds the photo, in whole logit pixels and at least one."""
    inside = placement(photo, network, logits)
    top, height = _scaled(inside.top, inside.height, network[0], logits[0])
    left, width = _scaled(inside.left, inside.width, network[1], logits[1])
    return Region(top, left, height, width)


def _scaled(start: int, length: int, source: int, target: int) -> tuple[int, int]:
    first = min(round(start * target / source), target - 1)
    return first, max(1, round((start + length) * target / source) - first)


def grid_side(start: float, length: float, logits: int, side: int) -> int:
    """Cells of the coarsest grid on `side` pixels in which each logit has a whole number of cells of a pixel or more.

    Args:
        start, length: the pixels that the logits cover.
        logits: how many there are.
        side: that of the network's input.

    Returns:
        The number of cells. Where there is no such grid, a cell is a pixel of the input, or less where a logit is: the
        nearest logit is then found to half a cell.
    """
    begin, step = _exact(start), _exact(length) / logits
    for parts in range(1, max(1, math.floor(step)) + 1):
        cell = step / parts
        if (begin / cell).denominator == (side / cell).denominator == 1:
            return int(side / cell)
    return math.ceil(side / min(step, Fraction(1)))


def on_grid(start: float, length: float, logits: int, side: int, grid: int) -> list[float]:
    """Where the middle of each cell of a grid on `side` pixels lies, in logits: 0.5 is the middle of the first.

    It takes what `grid_side` takes. Below 0, and from `logits` on, a cell lies on none of them.
    """
    begin, step = _exact(start), _exact(length) / logits
    return [float(((2 * cell + 1) * Fraction(side, 2 * grid) - begin) / step) for cell in range(grid)]


def _exact(value: float) -> Fraction:
    return Fraction(value).limit_denominator(1 << 12)
