"""Where the milliseconds go, stage by stage."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

STAGE_NAMES = {
    "decode": "decode",
    "preprocess": "preprocess",
    "network": "network",
    "argmax_resize": "ArgMax+resize",
    "encode": "encode",
}
"""Stage to the name that people read, in the order in which they run."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of each stage of one inference; 0 where a stage did not run."""

    decode: float = 0.0
    preprocess: float = 0.0
    network: float = 0.0
    argmax_resize: float = 0.0
    encode: float = 0.0

    @property
    def total(self) -> float:
        """Milliseconds of all stages together."""
        return self.decode + self.preprocess + self.network + self.argmax_resize + self.encode

    def with_stage(self, stage: str, milliseconds: float) -> Timing:
        """A copy with one stage set."""
        return replace(self, **{stage: milliseconds})

    def to_json(self) -> dict[str, float]:
        """Stages and `total`, rounded to microseconds."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: round(value, 3) for name, value in (values | {"total": self.total}).items()}


class Stopwatch:
    """Collects stages: `with watch("decode"): ...`, then `watch.timing`."""

    def __init__(self) -> None:
        self._stages: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._stages[stage] = self._stages.get(stage, 0.0) + (time.perf_counter() - start) * 1000

    @property
    def timing(self) -> Timing:
        """What has been collected so far."""
        return Timing(**self._stages)


@dataclass(frozen=True)
class Summary:
    """Median and 95th percentile of several inferences, each stage for itself."""

    median: Timing
    p95: Timing
    count: int


def summarize(timings: Sequence[Timing]) -> Summary:
    """Median and 95th percentile (nearest rank) of at least one timing, stage by stage."""

    def of(pick: int | None) -> Timing:
        stages = {}
        for field in fields(Timing):
            values = sorted(getattr(timing, field.name) for timing in timings)
            stages[field.name] = statistics.median(values) if pick is None else values[pick]
        return Timing(**stages)

    rank = max(0, -(-95 * len(timings) // 100) - 1)
    return Summary(of(None), of(rank), len(timings))
