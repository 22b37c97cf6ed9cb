"""Photos per second: one process against Ray on this machine, by workers and cores; for docs/scale.md.

    python scripts/scale.py [PHOTOS]

A few minutes on two cores. A rate is of all photos, from when the folder of the first mask is there: without the start.
Core time is of this process and those below it in that time: it does not mind who else is on the machine.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

import trtpost.ray as archive
from trtpost import BuildOptions, Segmenter, build
from trtpost.bench.measure import machine
from trtpost.bench.picture import sides_of, write_photo
from trtpost.bundle.folder import Bundle
from trtpost.cores import default_threads
from trtpost.jobs.paths import plan_jobs
from trtpost.jobs.run import run_all
from trtpost.photos.find import find_photos
from trtpost.ray.cluster import cluster

ROOT = Path(__file__).resolve().parents[1]
DIFFERENT = 8
"""Photos that are drawn of each size; the others are links to them."""


def main() -> int:
    """Measure and print a table; returns the exit status."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 240
    cores = default_threads()
    table = Table("", "photos a second", "core ms a photo", "whole run, s", title=machine())
    with tempfile.TemporaryDirectory(prefix="trtpost-") as name:
        folder = Path(name)
        bundle = build(ROOT / "models" / "scenes.keras", folder / "scenes.trtpost", BuildOptions(flavour="none"))
        for megapixels, number in ((1.0, 4 * count), (12.0, count)):
            photos = _photos(folder / "photos" / f"{megapixels:g}", megapixels, number)
            table.add_row(f"[bold]{number} JPEGs of {megapixels:g} megapixels")
            for used in sorted({1, cores}):
                with _on_cores(used):
                    title = f"one process, {used} core{'s' if used > 1 else ''}"
                    _row(table, title, *_one_process(bundle, photos, folder / f"alone{used}"))
            with cluster("local"):
                ways = [(workers, each) for workers in (1, cores) for each in (1, cores) if workers * each <= cores]
                for workers, each in ways:
                    title = f"Ray, {workers} worker{'s' if workers > 1 else ''} of {each} core{'s' if each > 1 else ''}"
                    _row(table, title, *_on_ray(bundle, photos, folder / f"{workers}x{each}", workers, each))
                again = _on_ray(bundle, photos, folder / f"{workers}x{each}", workers, each)
                _row(table, "the same once more, all masks there", *again)
    Console(width=110).print(table)
    return 0


def _row(table: Table, title: str, count: int, used: _Cores, seconds: float) -> None:
    cells = (f"{count / used.lasted:.1f}", f"{1000 * used.seconds / count:.1f}", f"{seconds:.1f}")
    print(title, *cells, file=sys.stderr)
    table.add_row(f"  {title}", *cells)


def _photos(folder: Path, megapixels: float, count: int) -> list[Path]:
    folder.mkdir(parents=True)
    photos = [folder / f"{index:04d}.jpg" for index in range(count)]
    for index, photo in enumerate(photos):
        if index < DIFFERENT:
            write_photo(photo, sides_of(megapixels * (1 + index / 100)), None)
        else:
            os.link(photos[index % DIFFERENT], photo)
    return photos


@contextlib.contextmanager
def _on_cores(count: int) -> Iterator[None]:
    """This thread, and those that it starts meanwhile, on so many cores; where the system can say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _one_process(bundle: Bundle, photos: list[Path], output: Path) -> tuple[int, _Cores, float]:
    start = time.perf_counter()
    output = output / photos[0].parent.name
    with Segmenter(bundle) as segmenter, _Cores(output) as used:
        outcomes, _ = run_all(segmenter, plan_jobs(find_photos([photos[0].parent]), output, overlay=False))
    _check(outcome.error for outcome in outcomes)
    return len(outcomes), used, time.perf_counter() - start


def _on_ray(bundle: Bundle, photos: list[Path], output: Path, workers: int, cores: int) -> tuple[int, _Cores, float]:
    start = time.perf_counter()
    output = output / photos[0].parent.name
    dataset = archive.photos_in(photos[0].parent)
    with _Cores(output) as used:
        rows = archive.segment_dataset(dataset, bundle, output=output, actors=workers, cores=cores).iter_rows()
        errors = [archive.row_of(entry).error for entry in rows]
    _check(errors)
    return len(errors), used, time.perf_counter() - start


class _Cores:
    """Seconds that pass, and seconds of cores that this process and those below it spend, while it works.

    Cores are sampled, since some of the processes end meanwhile.

    Args:
        begin: what was before this folder was there does not count.
    """

    def __init__(self, begin: Path) -> None:
        self._begin, self._first, self._last = begin, dict[int, float](), dict[int, float]()
        self._start = self._stop = time.perf_counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> _Cores:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = time.perf_counter()
        self._end.set()
        self._thread.join()

    @property
    def lasted(self) -> float:
        return self._stop - self._start

    @property
    def seconds(self) -> float:
        return sum(last - self._first.get(process, 0) for process, last in self._last.items())

    def _sample(self) -> None:
        started = False
        while not self._end.wait(0.02):
            spent = _spent()
            if not started:
                self._first, self._start = spent, time.perf_counter()
                started = self._begin.exists()
            self._last |= spent


def _spent() -> dict[int, float]:
    """Seconds of cores of this process and those below it, by process."""
    processes: dict[int, tuple[int, float]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = file.read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            processes[int(file.parent.name)] = (int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
    ours = {os.getpid()}
    while more := {process for process, (parent, _) in processes.items() if parent in ours} - ours:
        ours |= more
    return {process: processes[process][1] for process in ours}


def _check(errors: Iterable[str | None]) -> None:
    if found := [error for error in errors if error]:
        sys.exit(found[0])


if __name__ == "__main__":
    sys.exit(main())
