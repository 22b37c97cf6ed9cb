"""`trtpost bench post`: logits to mask, ours against everything people use, with the floor that memory sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from trtpost.bench.measure import machine, medians
from trtpost.bench.rivals import Kind, Rival, rivals
from trtpost.cores import default_threads
from trtpost.errors import MissingPackageError, SpecError
from trtpost.kernels import cpu, reference
from trtpost.spec import MAX_SIDE, Pattern, Post, Resize

MAX_BYTES = 2 << 30
"""Largest logits or mask: the rivals need many times as much."""


@dataclass(frozen=True)
class RivalResult:
    """Median in milliseconds of a rival, or why there is none; pixels of its mask that differ from the reference."""

    name: str
    resize: Resize
    match: str
    kind: Kind = "rival"
    milliseconds: float | None = None
    missing: str = ""
    different: int = 0
    ties: int = 0


@dataclass(frozen=True)
class PostReport:
    """All rivals' results; `floor` is the time to read the logits once and write the mask once, in ms."""

    classes: int
    source: tuple[int, int]
    size: tuple[int, int]
    pattern: Pattern
    boundary: float
    threads: int
    machine: str
    floor: float | None
    rows: tuple[RivalResult, ...]

    def ours(self, resize: Resize) -> float | None:
        """Milliseconds of our kernel."""
        return next((row.milliseconds for row in self.rows if row.kind == "kernel" and row.resize == resize), None)

    def fastest_rival(self, resize: Resize) -> RivalResult | None:
        """The fastest row that is not built on our code."""
        rows = [row for row in self.rows if row.resize == resize and row.milliseconds and row.kind == "rival"]
        return min(rows, key=lambda row: row.milliseconds or 0.0, default=None)


def bench_post(
    classes: int,
    source: tuple[int, int],
    size: tuple[int, int],
    *,
    pattern: Pattern = "smooth",
    threads: int | None = None,
    rounds: int = 15,
    advance: Callable[[], None] = lambda: None,
) -> PostReport:
    """Run all rivals in turn in this process.

    Args:
        classes: channels of the logits, from 2 to 256.
        source, size: (h, w) of the logits and (H, W) of the mask.
        pattern: `smooth` logits, as networks give them, or `noise`, where every cell is on a boundary.
        threads: for everybody; default all cores.
        rounds: runs of each row; slow ones run fewer.
        advance: called after each round.

    Raises:
        SpecError: sizes or classes out of range.
    """
    if pattern not in get_args(Pattern):
        raise SpecError(f"pattern must be one of {', '.join(get_args(Pattern))}, not '{pattern}'")
    if not 2 <= classes <= 256:
        raise SpecError(f"bench post takes 2 to 256 classes, not {classes}")
    if max(*source, *size) > MAX_SIDE or classes * math.prod(source) * 4 > MAX_BYTES or math.prod(size) > MAX_BYTES:
        raise SpecError(
            f"bench post takes sides up to {MAX_SIDE}, and logits and masks up to {MAX_BYTES >> 30} GiB, "
            f"not {classes} x {source[0]}x{source[1]} to {size[0]}x{size[1]}"
        )
    threads = threads or default_threads()
    logits = make_logits(classes, source, pattern)
    entrants, missing = rivals(), {}
    runs: dict[Rival | None, Callable[[], Any]] = {}  # None: the floor
    for rival in entrants:
        try:
            runs[rival] = rival.start(logits, size, threads)
        except MissingPackageError as error:
            missing[rival] = RivalResult(rival.name, rival.resize, rival.match, rival.kind, missing=str(error))
    answers = {rival: run() for rival, run in runs.items()}
    if cpu.is_available():
        runs[None] = _floor(logits, size, threads)
    times = medians(runs, rounds=rounds, budget=3.0, advance=advance)
    judge = _Judge(logits, size)
    rows = tuple(
        missing.get(rival)
        or RivalResult(
            rival.name,
            rival.resize,
            rival.match,
            rival.kind,
            times[rival],
            "",
            *judge.compare(answers[rival], rival),
        )
        for rival in entrants
    )
    return PostReport(
        classes,
        source,
        size,
        pattern,
        boundary_share(logits),
        threads,
        machine(),
        times.get(None),
        rows,
    )


def make_logits(classes: int, source: tuple[int, int], pattern: Pattern) -> NDArray[np.float32]:
    """Make logits float32 [1, classes, h, w], the same every time."""
    rng = np.random.default_rng(0)
    if pattern == "noise":
        return rng.standard_normal((1, classes, *source), np.float32)
    coarse = rng.standard_normal((source[0] // 16 + 2, source[1] // 16 + 2, classes), np.float32)
    return np.ascontiguousarray(reference.bilinear(coarse, source).transpose(2, 0, 1))[None]


def boundary_share(logits: NDArray[np.float32]) -> float:
    """Share of the logits' cells whose four corners have different classes."""
    labels = logits[0].argmax(0)
    corner = labels[:-1, :-1]
    agree = (corner == labels[1:, :-1]) & (corner == labels[:-1, 1:]) & (corner == labels[1:, 1:])
    return float(1 - agree.mean()) if agree.size else 0.0


def _floor(logits: NDArray[np.float32], size: tuple[int, int], threads: int) -> Callable[[], Any]:
    from trtpost import _cpu

    out = np.empty(size, np.uint8)
    return lambda: _cpu.floor_pass(logits, out, threads)


class _Judge:
    """Compares masks with the reference, which is computed once for each convention."""

    def __init__(self, logits: NDArray[np.float32], size: tuple[int, int]) -> None:
        self._logits, self._size = logits, size
        self._references: dict[tuple[Resize, str], NDArray[np.int32]] = {}

    def compare(self, mask: NDArray[Any], rival: Rival) -> tuple[int, int]:
        """Count the pixels that differ, and how many of them are ties: the two best closer than rounding."""
        # the bilinear rivals share one convention under three names
        key = (rival.resize, rival.match if rival.resize == "nearest" else "tf")
        if key not in self._references:
            post = Post(resize=rival.resize, match=rival.match, classes=max(self._logits.shape[1], 2))
            self._references[key] = reference.argmax_resize(self._logits, self._size, post)[0]
        rows, columns = np.nonzero(mask != self._references[key])
        if rival.resize == "nearest" or not rows.size:
            return len(rows), 0
        return len(rows), self._ties(rows, columns)

    def _ties(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> int:
        top, bottom, down = reference.linear_index(self._logits.shape[2], self._size[0], "tf")
        left, right, across = reference.linear_index(self._logits.shape[3], self._size[1], "tf")
        planes = self._logits[0].astype(np.float64)
        y0, y1, fy = top[rows], bottom[rows], down[rows].astype(np.float64)
        x0, x1, fx = left[columns], right[columns], across[columns].astype(np.float64)
        upper = planes[:, y0, x0] * (1 - fx) + planes[:, y0, x1] * fx
        lower = planes[:, y1, x0] * (1 - fx) + planes[:, y1, x1] * fx
        ordered = np.sort(upper * (1 - fy) + lower * fy, axis=0)
        return int((ordered[-1] - ordered[-2] <= 1e-4 * np.ptp(self._logits)).sum())
