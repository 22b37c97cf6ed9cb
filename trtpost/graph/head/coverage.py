"""Which part of the network's input its logits lie on: valid convolutions lose a border, rounded pools an edge."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.errors import ModelError, SpecError
from trtpost.graph.emulate import session, with_outputs
from trtpost.graph.head.places import Axis, places_of
from trtpost.graph.head.probe import run_on_zeros
from trtpost.letterbox import grid_side
from trtpost.spec import Coverage, Located, Pre

Rectangle = tuple[float, float, float, float]
"""Top, left, height and width in pixels of the network's input."""

_LARGEST_STRIDE = 128
"""The most pixels of the input that a logit of a usual network has on a side."""

_FINEST = 32
"""The most logits that may lie on a pixel of the input, on a side."""

_SHARES = (0.3, 0.5, 0.7)
"""Places of squares along the diagonal of what the logits cover."""


def covered(
    model: onnx.ModelProto, located: Located, pre: Pre, given: Rectangle | None, outside: int | None
) -> Located:
    """What was located, with what the logits cover, and a sentence where that is not all of the input.

    Args:
        model: in which it was located.
        located: without `covers`.
        pre: how pixels become the network's input.
        given: what the user says that they cover; None: the graph tells.
        outside: class id of what they do not cover, if there is such; None: that of the nearest.

    Raises:
        SpecError: what the user says cannot be.
    """
    own, sides = located.own_size, located.input_size
    if not all(own):
        if given is not None:
            raise SpecError("--covers needs the size of the logits, which is dynamic: name others with --logits")
        return located
    axes = None
    if given is None and own != sides:
        axes = _followed(model, located)
        if axes is None:
            if all(_is_usual(count, side) for count, side in zip(own, sides, strict=True)):
                return located
            return _with_doubt(located, _unknown(located))
        given = _rectangle(axes, sides)
    if given is None or given == (0.0, 0.0, *map(float, sides)):
        return located
    for start, length, count, side in zip(given[:2], given[2:], own, sides, strict=True):
        if axes is None and (start >= side or start + length <= 0 or count > _FINEST * length):
            raise SpecError(
                f"--covers: {count} logits cannot lie on the pixels {start:g} to {start + length:g} of the {side} that "
                "the network's input has: it is TOP,LEFT,HEIGHT,WIDTH in those pixels"
            )
    grid = [grid_side(given[at], given[2 + at], own[at], sides[at]) for at in range(2)]
    located = replace(located, covers=Coverage(*given, (grid[0], grid[1]), outside))
    if axes is None:
        return located
    located = _with_doubt(located, _said(given, located, outside))
    if _contradicts(model, located, pre, axes):
        located = _with_doubt(
            located,
            "bright squares in the input show elsewhere in the logits than that: compare a mask with its photo, and "
            "settle it with --covers",
        )
    return located


def _followed(model: onnx.ModelProto, located: Located) -> tuple[Axis, Axis] | None:
    """Where the logits lie; None where it cannot be followed, be it that the graph states what cannot be."""
    try:
        return places_of(model, located)
    except (ValueError, LookupError, TypeError, ArithmeticError):
        return None


def _with_doubt(located: Located, doubt: str) -> Located:
    return replace(located, doubts=(*located.doubts, doubt))


def _is_usual(logits: int, side: int) -> bool:
    """True for a size that a network gives whose logits cover everything: a whole fraction, rounded up, or the same."""
    strides = [1 << power for power in range(_LARGEST_STRIDE.bit_length())]
    return side % logits == 0 or logits % side == 0 or any(logits == -(-side // one) for one in strides)


def _rectangle(axes: tuple[Axis, Axis], sides: tuple[int, int]) -> Rectangle | None:
    """What the logits cover; None where it is everything."""
    spans = [
        (0.0, float(side))
        if axis.size == side or axis.covers(side)
        else (float(axis.start), float(axis.end - axis.start))
        for axis, side in zip(axes, sides, strict=True)
    ]
    (top, height), (left, width) = spans
    return None if (top, left, height, width) == (0, 0, *sides) else (top, left, height, width)


def _unknown(located: Located) -> str:
    own, sides = ("x".join(map(str, one)) for one in (located.own_size, located.input_size))
    return (
        f"how the {own} logits lie on the {sides} input cannot be followed through the network: that they cover all of "
        "it is ASSUMED; settle it with --covers TOP,LEFT,HEIGHT,WIDTH in pixels of the input"
    )


def _said(given: Rectangle, located: Located, outside: int | None) -> str:
    top, left, height, width = given
    own, sides = ("x".join(map(str, one)) for one in (located.own_size, located.input_size))
    is_part = top > 0 or left > 0 or top + height < located.input_size[0] or left + width < located.input_size[1]
    rest = f"class {outside}" if outside is not None else "that of the nearest logit, unless --outside ID names a class"
    return (
        f"the {own} logits lie on rows {top:g} to {top + height:g} and columns {left:g} to {left + width:g} of the "
        f"{sides} input, and the mask is made for that"
        + (f"; where none lies, its class is {rest}" if is_part else "")
        + "; --covers says otherwise"
    )


def _contradicts(model: onnx.ModelProto, located: Located, pre: Pre, axes: tuple[Axis, Axis]) -> bool:
    """True where bright squares show in the logits at places that speak for all of the input being covered."""
    try:
        found = _seen(model, located, pre, axes)
    except ModelError:
        raise
    except Exception:  # what it cannot run, the build's other steps tell
        return False
    for at, (axis, side, own) in enumerate(zip(axes, located.input_size, located.own_size, strict=True)):
        if not found:
            return False
        as_followed = [abs(float(axis.start + axis.step * Fraction(seen[at])) - put[at]) for put, seen in found]
        as_whole = [abs(seen[at] * side / own - put[at]) for put, seen in found]
        if np.mean(as_followed) > np.mean(as_whole) + 1 and np.mean(as_followed) > 2 * axis.coarse:
            return True
    return False


def _seen(
    model: onnx.ModelProto, located: Located, pre: Pre, axes: tuple[Axis, Axis]
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Where squares were put into the image, in its pixels, and where the logits changed the most, in theirs.

    A network that does not react, as one of random weights may not, shows none.
    """
    runner = session(with_outputs(model, [located.logits]))
    sides, own = located.input_size, located.own_size

    def run(levels: NDArray[np.float32]) -> NDArray[np.float64]:
        values = (levels - np.array(pre.mean, np.float32)) / np.array(pre.std, np.float32)
        values = (values.transpose(2, 0, 1) if located.input_layout == "NCHW" else values)[None]
        images = np.repeat(values, max(located.batch, 1), axis=0).astype(located.input_dtype)
        (result,) = run_on_zeros(runner, [located.logits], {located.input: images})
        rows_first = located.head == "labels" or located.layout == "NHWC"
        one: NDArray[np.float64] = np.asarray(result, np.float64).reshape(
            len(images), *((*own, -1) if rows_first else (-1, *own))
        )[0]
        return one if rows_first else one.transpose(1, 2, 0)

    plain = np.random.default_rng(0).uniform(60, 90, (*sides, pre.depth)).astype(np.float32)
    before, found = run(plain), []
    for share in _SHARES:
        spot, put = plain.copy(), []
        cut = []
        for axis, side in zip(axes, sides, strict=True):
            low, high = max(float(axis.start), 0), min(float(axis.end), side)
            middle, half = round(low + share * (high - low)), max(2, side // 32)
            near, far = max(0, middle - half), min(side, middle + half)
            cut.append(slice(near, far))
            put.append((near + far) / 2)
        spot[cut[0], cut[1]] = 240
        change = np.abs(run(spot) - before).sum(axis=2)
        most = float(change.max())
        if not np.isfinite(most) or most <= 0:
            continue
        peak = np.maximum(change - most / 2, 0)
        seen = [float((peak.sum(axis=1 - at) * (np.arange(own[at]) + 0.5)).sum() / peak.sum()) for at in range(2)]
        found.append((tuple(put), tuple(seen)))
    return found
