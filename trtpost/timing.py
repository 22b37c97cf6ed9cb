"""Measures where the milliseconds go, stage by stage."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

STAGE_NAMES = {
    "decode": "decode",
    "preprocess": "preprocess",
    "upload": "H2D",
    "network": "network",
    "argmax_resize": "ArgMax+resize",
    "download": "D2H",
    "encode": "encode",
}
"""The name of each stage that people read, in the order in which they run."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of each stage of one inference; 0 where a stage did not run.

    `upload` and `download` are copies to a GPU and back, of `uploaded` and `downloaded` bytes. Where ArgMax and resize
    are layers of a TensorRT plan, their time is in `network`.
    """

    decode: float = 0.0
    preprocess: float = 0.0
    upload: float = 0.0
    network: float = 0.0
    argmax_resize: float = 0.0
    download: float = 0.0
    encode: float = 0.0
    uploaded: int = 0
    downloaded: int = 0

    @property
    def total(self) -> float:
        """Milliseconds of all stages together."""
        return sum(float(getattr(self, stage)) for stage in STAGE_NAMES)

    @property
    def copies(self) -> str | None:
        """The copies to the GPU and back, for people; None where there were none."""
        if not self.uploaded:
            return None
        return f"H2D {_rate(self.uploaded, self.upload)}, D2H {_rate(self.downloaded, self.download)}"

    def to_json(self) -> dict[str, float]:
        """Stages and `total`, rounded to microseconds, and the bytes that were copied to a GPU and back."""
        values = {stage: getattr(self, stage) for stage in STAGE_NAMES}
        rounded = {name: round(value, 3) for name, value in (values | {"total": self.total}).items()}
        if not self.uploaded:
            return rounded
        return rounded | {"uploaded_bytes": self.uploaded, "downloaded_bytes": self.downloaded}

    def share(self, count: int) -> Timing:
        """One photo's part of what was measured for `count` photos together."""
        parts = {stage: getattr(self, stage) / count for stage in STAGE_NAMES}
        return Timing(**parts, uploaded=self.uploaded // count, downloaded=self.downloaded // count)


def _rate(size: int, milliseconds: float) -> str:
    rate = f" at {size / milliseconds / 1e6:.1f} GB/s" if milliseconds else ""
    return f"{size / 1e6:.2f} MB{rate}"


class Stopwatch:
    """Collects stages: `with watch("decode"): ...`, then `watch.timing`."""

    def __init__(self) -> None:
        self._stages: dict[str, float] = {}
        self._copied = (0, 0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, (time.perf_counter() - start) * 1000)

    def add(self, stage: str, milliseconds: float) -> None:
        """Count what another clock has measured, a GPU's for example."""
        self._stages[stage] = self._stages.get(stage, 0.0) + milliseconds

    def copied(self, uploaded: int, downloaded: int) -> None:
        """Count bytes that went to a GPU and came back."""
        self._copied = (self._copied[0] + uploaded, self._copied[1] + downloaded)

    @property
    def timing(self) -> Timing:
        """The stages that have been collected so far."""
        return Timing(**self._stages, uploaded=self._copied[0], downloaded=self._copied[1])


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
        for stage in STAGE_NAMES:
            values = sorted(getattr(timing, stage) for timing in timings)
            stages[stage] = statistics.median(values) if pick is None else values[pick]
        return replace(timings[0], **stages)

    rank = max(0, -(-95 * len(timings) // 100) - 1)
    return Summary(of(None), of(rank), len(timings))
