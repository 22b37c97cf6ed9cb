"""Runs many photos: while one is in the engine, others are read and written."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.cores import default_threads
from trtpost.errors import SpecError, TrtpostError
from trtpost.jobs.paths import PhotoJob
from trtpost.jobs.report import Outcome, Share
from trtpost.masks.finished import is_done, is_ours, mark_of
from trtpost.masks.png import palette, written_as
from trtpost.masks.write import write_mask, write_picture
from trtpost.photos.admission import Admission
from trtpost.photos.find import PhotoFile
from trtpost.photos.limits import MAX_PIXELS
from trtpost.segment import Result, Segmenter
from trtpost.spec import Encoding, class_name
from trtpost.storage.staging import remove_abandoned
from trtpost.timing import Stopwatch, Timing, summarize

MAX_WORKERS = 16
"""Most photos on their way at once, each with its pixels in memory."""


def run_all(
    segmenter: Segmenter,
    jobs: Sequence[PhotoJob],
    *,
    repeat: int = 1,
    encoding: Encoding = "palette",
    again: bool = True,
    threads: int | None = None,
    max_pixels: int = MAX_PIXELS,
    done: Callable[[], None] = lambda: None,
) -> tuple[list[Outcome], float]:
    """Run all jobs; gives their outcomes in order, and the seconds that they took together.

    While one photo is in the engine, others are read and written, on all cores; unless each is run `repeat` times, to
    be timed by itself.

    Args:
        segmenter: runs them.
        jobs: what to run.
        repeat: how often each runs.
        encoding: how masks are written, as for `Result.save_mask`.
        again: run photos of searched folders too whose masks are there already, from the same engine.
        threads: how many read and write; None: as many as there are cores.
        max_pixels: most pixels of all photos on their way at once; one that is larger alone is an error.
        done: is called after each job.
    """
    start = time.perf_counter()
    remove_abandoned(target for job in jobs for target in job.targets)
    admission = Admission(max_pixels)
    found_as = written_as(encoding, len(segmenter.bundle.passport.classes))

    def work(job: PhotoJob) -> Outcome:
        if not again and job.photo.searched and _is_done(job, segmenter.fingerprint, found_as):
            outcome = Outcome(job, skipped=True)
        else:
            try:
                with admission(job.photo.source):
                    outcome = run(segmenter, job, repeat=repeat, encoding=encoding)
            except TrtpostError as error:
                outcome = Outcome(job, error=str(error))
        done()
        return outcome

    if repeat > 1 or len(jobs) == 1:
        return [work(job) for job in jobs], time.perf_counter() - start
    # one more than cores: at any time one waits for the engine
    with ThreadPoolExecutor(min((threads or default_threads()) + 1, MAX_WORKERS)) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            return [future.result() for future in futures], time.perf_counter() - start
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _is_done(job: PhotoJob, fingerprint: str, encoding: Encoding) -> bool:
    wanted = {job.mask: encoding, job.overlay: None}  # overlays are no masks
    return all(is_done(target, job.photo.path, fingerprint, wanted[target]) for target in job.targets)


def run(segmenter: Segmenter, job: PhotoJob, *, repeat: int, encoding: Encoding = "palette") -> Outcome:
    """Run one job, `repeat` times; a fault that the user can mend becomes part of the outcome."""
    try:
        mark = _mark(job, segmenter.fingerprint)
        timings = [_run_once(segmenter, job, encoding, mark)[1] for _ in range(repeat - 1)]
        result, timing = _run_once(segmenter, job, encoding, mark)
        if job.overlay is not None:
            below = job.below or job.mask.parent
            write_picture(result.overlay(), job.overlay, mark=mark, below=below, replaces=is_ours)
    except TrtpostError as error:
        return Outcome(job, error=str(error) if job.photo.content is None else f"stdin: {error}")
    height, width = result.mask.shape
    summary = summarize([*timings, timing]) if repeat > 1 else None
    return Outcome(job, (height, width), timing, summary, _shares(result))


def _shares(result: Result) -> tuple[Share, ...]:
    """The classes that occur, the most frequent first."""
    ids, counts = _counted(result.mask)
    names = dict(enumerate(result.classes))
    found = [(int(ids[index]), counts[index] / result.mask.size) for index in np.argsort(-counts, kind="stable")]
    return tuple(Share(one, names.get(one, class_name(one)), share) for one, share in found)


def _counted(mask: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ids that occur in a mask, ascending, and how often."""
    if mask.dtype != np.uint8:
        return np.unique(mask, return_counts=True)
    counts = np.array(Image.fromarray(mask).histogram())  # `np.unique` takes longer than all else of a large photo
    ids = np.flatnonzero(counts)
    return ids, counts[ids]


def _mark(job: PhotoJob, fingerprint: str) -> str:
    """What the files of a job say of themselves; where the photo came on stdin, not which it was."""
    try:
        return fingerprint if job.photo.content is not None else mark_of(fingerprint, job.photo.path)
    except (OSError, ValueError):  # who reads it says what is wrong
        return fingerprint


def _run_once(segmenter: Segmenter, job: PhotoJob, encoding: Encoding, mark: str) -> tuple[Result, Timing]:
    watch = Stopwatch()
    result = segmenter(job.photo.source)
    with watch("encode"):
        colours = palette(result.classes)
        write_mask(result.mask, job.mask, colours, encoding, mark=mark, below=job.below, replaces=is_ours)
    return result, replace(result.timing, encode=watch.timing.encode)


def to_stdout(segmenter: Segmenter, photos: Sequence[PhotoFile], encoding: Encoding = "palette") -> None:
    """Write the mask of one photo to stdout, as a PNG.

    Raises:
        SpecError: several photos, or stdout is a terminal.
        TrtpostError: the photo cannot be segmented.
    """
    if len(photos) != 1:
        raise SpecError(f"-o - writes one mask to stdout, and there are {len(photos)} photos: give a folder with -o")
    if sys.stdout.isatty():
        raise SpecError("-o - writes a PNG to stdout, which is a terminal: trtpost infer PHOTO -o - > mask.png")
    sys.stdout.buffer.write(segmenter(photos[0].source).encode_mask(encoding))
