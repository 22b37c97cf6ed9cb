"""Which sizes a network of dynamic height and width takes: found by running it, for its graph does not say.

A U-Net that halves its input five times and joins what it doubles again with what it had before takes multiples of 32
alone; others are cut to pieces that must come out even.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from trtpost.errors import ModelError, reason
from trtpost.graph.emulate import session
from trtpost.graph.head.layout import channel_axis
from trtpost.graph.head.probe import run_on_zeros
from trtpost.spec import Layout

_STRIDES = (2, 4, 8, 16, 32, 64, 128)

_USUAL = (224, 256, 257, 320, 384, 448, 512, 513, 640, 768, 1024)
"""Sides of squares that networks are trained with: some take one size, or those up to it."""

_LEAST = 32
"""Fewest pixels of a side that are tried where it was not asked for less."""


def refuse_size(model: onnx.ModelProto, source: str, layout: Layout, size: tuple[int, int]) -> None:
    """Run a network of dynamic height or width at `size`, on zeros.

    Nothing is done where ONNX Runtime does not load it, where the number of channels is open, or other inputs are
    needed too: the build's other steps tell.

    Args:
        model: as `load_model` returns it.
        source, layout: name and layout of its image input.
        size: (height, width) that it shall have.

    Raises:
        ModelError: it fails, and the message names the sizes nearby at which it runs; or it does not end.
    """
    (value,) = (one for one in model.graph.input if one.name == source)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    start = 1 if layout == "NHWC" else 2
    known = shape[start], shape[start + 1]
    if all(known) or not shape[channel_axis(layout)] or len(model.graph.input) > 1:
        return
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    try:
        runner = session(model)
    except Exception:  # what it cannot load, the build's other steps may
        return

    def fault(height: int, width: int) -> str | None:
        shape[start : start + 2] = [height, width]
        try:
            run_on_zeros(runner, None, {source: np.zeros([side or 1 for side in shape], dtype)})
        except ModelError:  # it does not end
            raise
        except Exception as error:  # an operator of the network
            return reason(error)
        return None

    why = fault(*size)
    if why is None:
        return
    height, width = size
    stride, nearest = _nearest(size, known, lambda *sides: fault(*sides) is None)
    if stride:
        sizes = " or ".join(f"{one[0]}x{one[1]}" for one in nearest)
        raise ModelError(
            f"the network cannot run at {height}x{width}: its height and width must be multiples of {stride}; "
            f"nearest to what was asked for is --input-size {sizes}"
        )
    other = _other(size, known, lambda *sides: fault(*sides) is None)
    if other is not None:
        raise ModelError(
            f"the network cannot run at {height}x{width}: nearest to it, by trying, is --input-size "
            f"{other[0]}x{other[1]}"
        )
    raise ModelError(
        f"the network cannot run at {height}x{width}, nor at multiples of up to {_STRIDES[-1]} around it, nor at usual "
        f"sizes ({why}): give the size that it was trained with (--input-size)"
    )


def _nearest(
    size: tuple[int, int], known: tuple[int, int], runs: Callable[[int, int], bool]
) -> tuple[int, list[tuple[int, int]]]:
    """The smallest stride whose multiples around `size` run, and these; 0 where there is none."""
    for stride in _STRIDES:
        below, above = (
            tuple(fixed or -(-(side - less) // stride) * stride for side, fixed in zip(size, known, strict=True))
            for less in (stride - 1, 0)
        )
        nearest = [(height, width) for height, width in dict.fromkeys((below, above)) if min(height, width) > 0]
        further = tuple(fixed or side + stride for side, fixed in zip(above, known, strict=True))
        # one that runs may be a multiple of more by chance
        if all(runs(height, width) for height, width in {*nearest, further}):
            return stride, nearest
    return 0, []


def _other(size: tuple[int, int], known: tuple[int, int], runs: Callable[[int, int], bool]) -> tuple[int, int] | None:
    """A size that runs, with each side as near as can be to the one in `size`; None where none was found."""
    halves = [(size[0] >> step, size[1] >> step) for step in range(1, 5) if min(size) >> step >= _LEAST]
    squares = [(side, side) for side in sorted(_USUAL, key=lambda side: abs(side - max(size)))]
    tried = dict.fromkeys((known[0] or height, known[1] or width) for height, width in (*squares, *halves))
    found = next((sides for sides in tried if runs(*sides)), None)
    if found is None:
        return None
    height = _towards(size[0], found[0], lambda side: runs(side, found[1]))
    return height, _towards(size[1], found[1], lambda side: runs(height, side))


def _towards(wanted: int, found: int, runs: Callable[[int], bool]) -> int:
    """The side next to `wanted` that runs, where `found` does and those between them do up to one of them."""
    if wanted == found or runs(wanted):
        return wanted
    while abs(wanted - found) > 1:
        middle = (wanted + found) // 2
        if runs(middle):
            found = middle
        else:
            wanted = middle
    return found
