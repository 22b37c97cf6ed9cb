"""Timing many candidates fairly on a machine that is not quiet: in turn, round by round, and by the median."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(frozen=True)
class Candidate:
    """Something to time; `run` does the whole work and returns the answer, `missing` says why it cannot run here."""

    name: str
    run: Callable[[], Any] | None = None
    missing: str = ""


@dataclass(frozen=True)
class Measurement:
    """Milliseconds of each run of a candidate, in the order in which they were made."""

    candidate: Candidate
    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the milliseconds."""
        return statistics.median(self.milliseconds)


def interleave(
    candidates: Sequence[Candidate],
    *,
    rounds: int,
    budget: float,
    advance: Callable[[], None] = lambda: None,
) -> list[Measurement]:
    """Time the candidates that can run: each once to warm up, then all of them in every round, in shuffled order.

    Args:
        candidates: what to time.
        rounds: most runs of one candidate.
        budget: seconds after which a slow candidate, having run three times, sits out.
        advance: called after each round.
    """
    running = [candidate for candidate in candidates if candidate.run is not None]
    times: dict[str, list[float]] = {candidate.name: [] for candidate in running}
    expected = {candidate.name: _timed(candidate, LONG) for candidate in running}
    order = random.Random(0)
    for _ in range(rounds):
        order.shuffle(running)
        for candidate in running:
            spent = times[candidate.name]
            if len(spent) < 3 or sum(spent) < budget * 1000:
                spent.append(_timed(candidate, expected[candidate.name]))
        advance()
    return [Measurement(one, tuple(times[one.name])) for one in candidates if one.run is not None]


LONG = 200.0
"""Milliseconds from which a run is not preceded by one that does not count."""


def _timed(candidate: Candidate, expected: float) -> float:
    """One run, in milliseconds, after one that wakes its threads and fills the caches: as in a stream of images."""
    assert candidate.run is not None
    if expected < LONG:
        candidate.run()
    start = time.perf_counter()
    candidate.run()
    return (time.perf_counter() - start) * 1000


Answer = TypeVar("Answer")


def take_turns(
    runs: Mapping[str, Callable[[], Answer]],
    *,
    rounds: int,
    short: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, list[Answer]]:
    """What each run gave, round by round in shuffled order: for runs that time their own stages.

    Each runs once at the start, to warm up; that answer is dropped. `short` runs are also each preceded by one that
    wakes their threads and fills the caches: as in a loop over images.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    order, chance = list(runs), random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            if short:
                runs[name]()
            answers[name].append(runs[name]())
        advance()
    return answers
