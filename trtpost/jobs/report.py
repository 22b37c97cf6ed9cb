"""Says what became of the photos, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trtpost.errors import one_line, printable
from trtpost.jobs.paths import PhotoJob
from trtpost.timing import Summary, Timing, summarize


@dataclass(frozen=True)
class Share:
    """One class that occurs in a mask, and its share of the pixels, 0..1."""

    id: int
    name: str
    share: float


@dataclass(frozen=True)
class Outcome:
    """The end of a job: timing and the classes found, the most frequent first; an error; or it was done before."""

    job: PhotoJob
    size: tuple[int, int] = (0, 0)
    timing: Timing | None = None
    summary: Summary | None = None
    classes: tuple[Share, ...] = ()
    error: str | None = None
    skipped: bool = False

    def describe(self) -> str:
        """One line for people."""
        found = ", ".join(f"{one.name} {_percent(one.share)}" for one in self.classes)
        files = " and ".join(map(str, self.job.targets))
        size = f"{self.size[0]}x{self.size[1]}"
        return one_line(f"{self.job.photo.path} -> {files}: {', '.join(filter(None, (size, found)))}")


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


LISTED = 20
"""Most photos that are shown one by one; where there are more, the times over all are shown, and the faults."""


def timing_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, Timing | Summary]]:
    """A row for each photo that was run, or one for all where there are more than `LISTED`."""
    if len(outcomes) <= LISTED:
        return [(str(one.job.photo.place), one.summary or one.timing) for one in outcomes if one.timing]
    timings = [one.timing for one in outcomes if one.timing]
    return [("all photos", summarize(timings))] if timings else []


def summary_line(outcomes: Sequence[Outcome], seconds: float) -> str:
    """How many photos became masks, how fast, and how many did not."""
    run = sum(one.error is None and not one.skipped for one in outcomes)
    parts = [f"{run} photos in {seconds:.2f} s: {run / seconds:.1f} a second"] if run else []
    if skipped := sum(one.skipped for one in outcomes):
        parts.append(f"{skipped} were done before, by the same engine (--force runs them again)")
    if failed := sum(one.error is not None for one in outcomes):
        parts.append(f"{failed} failed")
    return "; ".join(parts)


def to_json(
    path: Path,
    engine: dict[str, object],
    outcomes: Sequence[Outcome],
    seconds: float,
    layers: Sequence[tuple[str, float]] = (),
) -> str:
    """All outcomes for programs; times in milliseconds, but `seconds` of everything.

    Args:
        path: where the bundle lies.
        engine: what is known of what ran it.
        outcomes, seconds: what `run_all` gives.
        layers: what `Segmenter.profile` gives.
    """
    return json.dumps(
        {"bundle": printable(str(path))}
        | engine
        | {"seconds": round(seconds, 3), "photos": [_entry(outcome) for outcome in outcomes]}
        | ({"layers": [{"name": name, "ms": round(ms, 4)} for name, ms in layers]} if layers else {}),
        indent=2,
    )


def _entry(outcome: Outcome) -> dict[str, object]:
    entry: dict[str, object] = {"photo": printable(str(outcome.job.photo.path))}
    if outcome.skipped:
        return entry | {"mask": printable(str(outcome.job.mask)), "skipped": True}
    if outcome.error is not None:
        return entry | {"error": outcome.error}
    entry |= {
        "mask": printable(str(outcome.job.mask)),
        "overlay": printable(str(outcome.job.overlay)) if outcome.job.overlay else None,
        "height": outcome.size[0],
        "width": outcome.size[1],
    }
    if outcome.timing is not None:
        shares = [{"id": one.id, "name": one.name, "share": round(float(one.share), 6)} for one in outcome.classes]
        entry |= {"classes": shares, "timing_ms": outcome.timing.to_json()}
    if outcome.summary is not None:
        entry["repeated"] = {
            "count": outcome.summary.count,
            "median_ms": outcome.summary.median.to_json(),
            "p95_ms": outcome.summary.p95.to_json(),
        }
    return entry
