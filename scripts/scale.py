"""Photos per second: one process against Ray on this machine, by workers and cores; for docs/scale.md.

    python scripts/scale.py [PHOTOS]

A few minutes on two cores. A rate is of the photos after the first tenth, when everybody has started.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trtpost import BuildOptions, Segmenter, build
from trtpost import ray as archive
from trtpost.bench.picture import sides_of, write_photo
from trtpost.bench.post import machine
from trtpost.bundle import Bundle
from trtpost.fused import default_threads
from trtpost.inference import plan_jobs, run_all
from trtpost.photos import find_photos

ROOT = Path(__file__).resolve().parents[1]
DIFFERENT = 8
"""Photos that are drawn of each size; the others are links to them."""


def main() -> int:
    """Measure and print a table; returns the exit status."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 240
    cores = default_threads()
    table = Table("", "photos a second", "of one process", "whole run, s", title=machine())
    with tempfile.TemporaryDirectory(prefix="trtpost-") as name:
        folder = Path(name)
        bundle = build(ROOT / "models" / "scenes.keras", folder / "scenes.trtpost", BuildOptions(flavour="none"))
        for megapixels, number in ((1.0, 4 * count), (12.0, count)):
            photos = _photos(folder / f"{megapixels:g}", megapixels, number)
            table.add_row(f"[bold]{number} JPEGs of {megapixels:g} megapixels")
            alone = _row(table, "one process", *_one_process(bundle, photos, folder / "out"))
            with archive.cluster("local"):
                ways = [(workers, each) for workers in (1, cores) for each in (1, cores) if workers * each <= cores]
                for workers, each in ways:
                    title = f"Ray, {workers} worker{'s' if workers > 1 else ''} of {each} core{'s' if each > 1 else ''}"
                    rate, seconds = _on_ray(bundle, photos, folder / f"{workers}{each}", workers, each)
                    _row(table, title, rate, seconds, alone)
                rate, seconds = _on_ray(bundle, photos, folder / f"{workers}{each}", workers, each)
                _row(table, "the same once more, all masks there", rate, seconds, alone)
    Console().print(table)
    return 0


def _row(table: Table, title: str, rate: float, seconds: float, alone: float | None = None) -> float:
    table.add_row(f"  {title}", f"{rate:.1f}", f"{rate / alone:.2f}" if alone else "", f"{seconds:.1f}")
    return rate


def _photos(folder: Path, megapixels: float, count: int) -> list[Path]:
    folder.mkdir()
    photos = [folder / f"{index:04d}.jpg" for index in range(count)]
    for index, photo in enumerate(photos):
        if index < DIFFERENT:
            write_photo(photo, sides_of(megapixels * (1 + index / 100)), None)
        else:
            os.link(photos[index % DIFFERENT], photo)
    return photos


def _one_process(bundle: Bundle, photos: list[Path], output: Path) -> tuple[float, float]:
    start = time.perf_counter()
    times: list[float] = []
    with Segmenter(bundle) as segmenter:
        jobs = plan_jobs(find_photos([photos[0].parent]), output / photos[0].parent.name, overlay=False)
        outcomes, _ = run_all(segmenter, jobs, done=lambda: times.append(time.perf_counter()))
    _check(outcome.error for outcome in outcomes)
    return _rate(times), time.perf_counter() - start


def _on_ray(bundle: Bundle, photos: list[Path], output: Path, workers: int, cores: int) -> tuple[float, float]:
    start = time.perf_counter()
    times: list[float] = []
    output = output / photos[0].parent.name
    dataset = archive.photos_in(photos[0].parent)
    errors = []
    for entry in archive.segment_dataset(dataset, bundle, output=output, actors=workers, cores=cores).iter_rows():
        times.append(time.perf_counter())
        errors.append(archive.row_of(entry).error)
    _check(errors)
    return _rate(times), time.perf_counter() - start


def _rate(times: list[float]) -> float:
    first = len(times) // 10
    return (len(times) - 1 - first) / (times[-1] - times[first])


def _check(errors: Iterable[str | None]) -> None:
    if found := [error for error in errors if error]:
        sys.exit(found[0])


if __name__ == "__main__":
    sys.exit(main())
