"""Letterboxing: where a photo lies in the network's square, and where its logits lie in the network's output."""

from __future__ import annotations

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
