"""Timing many candidates fairly on a machine that is not quiet: in turn, round by round, and by the median."""

from __future__ import annotations

import contextlib
import platform
import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trtpost.cores import default_threads
from trtpost.kernels import cpu

Name = TypeVar("Name", bound=Hashable)
Answer = TypeVar("Answer")

LONG = 200.0
"""Milliseconds from which a run is not preceded by one that does not count."""


def medians(
    runs: Mapping[Name, Callable[[], Any]],
    *,
    rounds: int,
    budget: float,
    advance: Callable[[], None] = lambda: None,
) -> dict[Name, float]:
    """Time candidates in milliseconds: each once to warm up, then all of them in every round, in shuffled order.

    Args:
        runs: the whole work of each candidate.
        rounds: most runs of one candidate.
        budget: seconds after which a slow candidate, having run three times, sits out.
        advance: called after each round.
    """
    times: dict[Name, list[float]] = {name: [] for name in runs}
    expected = {name: _timed(run, LONG) for name, run in runs.items()}
    order, chance = list(runs), random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            if len(times[name]) < 3 or sum(times[name]) < budget * 1000:
                times[name].append(_timed(runs[name], expected[name]))
        advance()
    return {name: statistics.median(spent) for name, spent in times.items()}


def _timed(run: Callable[[], Any], expected: float) -> float:
    """Milliseconds of a run, after one that wakes its threads and fills the caches: as in a stream of images."""
    if expected < LONG:
        run()
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


def take_turns(
    runs: Mapping[Name, Callable[[], Answer]], *, rounds: int, advance: Callable[[], None] = lambda: None
) -> dict[Name, list[Answer]]:
    """Let candidates that time their own stages answer in turn, round by round in shuffled order.

    Each runs once at the start, to warm up; that answer is dropped.
    """
    answers: dict[Name, list[Answer]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    order, chance = list(runs), random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            answers[name].append(runs[name]())
        advance()
    return answers


def machine() -> str:
    """This machine's processor, cores, and the kernel's instruction set."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    isa = ""
    if cpu.is_available():
        from trtpost import _cpu

        isa = f", {_cpu.isas()[0]}"
    return f"{name}, {default_threads()} cores{isa}, {platform.system()}"
