"""Many photos to many files: which file each mask goes to, and what became of it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.errors import SpecError, TrtpostError, one_line, printable
from trtpost.machine import default_threads
from trtpost.masks.colours import palette
from trtpost.masks.marks import is_done, mark_of
from trtpost.masks.png import written_as
from trtpost.masks.targets import check_targets
from trtpost.masks.write import is_ours, write_mask, write_picture
from trtpost.photos.admission import Admission
from trtpost.photos.decode import SUFFIXES
from trtpost.photos.find import MASK_ENDING, OVERLAY_ENDING, STDIN, PhotoFile
from trtpost.photos.limits import MAX_PIXELS
from trtpost.segment import Result, Segmenter
from trtpost.spec import Encoding, class_name
from trtpost.storage.staging import remove_abandoned
from trtpost.timing import Stopwatch, Summary, Timing, summarize

MAX_WORKERS = 16
"""Photos on their way at once, each with its pixels in memory."""


@dataclass(frozen=True)
class Job:
    """One photo and the files that it becomes.

    Attributes:
        photo: what was asked for.
        mask, overlay: files to write; `overlay` is None where none is wanted.
        below: the folder that was named for them, in which links are not followed; None where the mask was named.
    """

    photo: PhotoFile
    mask: Path
    overlay: Path | None
    below: Path | None = None


@dataclass(frozen=True)
class Share:
    """One class that occurs in a mask, and its share of the pixels, 0..1."""

    id: int
    name: str
    share: float


@dataclass(frozen=True)
class Outcome:
    """What became of a job: timing and the classes found, the most frequent first; an error; or it was done before."""

    job: Job
    size: tuple[int, int] = (0, 0)
    timing: Timing | None = None
    summary: Summary | None = None
    classes: tuple[Share, ...] = ()
    error: str | None = None
    skipped: bool = False

    def describe(self) -> str:
        """One line for people."""
        found = ", ".join(f"{one.name} {_percent(one.share)}" for one in self.classes)
        files = " and ".join(str(path) for path in (self.job.mask, self.job.overlay) if path)
        size = f"{self.size[0]}x{self.size[1]}"
        return one_line(f"{self.job.photo.path} -> {files}: {', '.join(filter(None, (size, found)))}")


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def plan_jobs(photos: Sequence[PhotoFile], output: Path, *, overlay: bool) -> list[Job]:
    """Decide the files; photos that would share one get their folder and suffix into the name.

    Args:
        photos: in the order in which they will run, each once.
        output: a folder, made if it is missing, where masks lie as the photos do in theirs; or, for one photo, a file
            that ends in `.png`.
        overlay: whether overlays are wanted.

    Raises:
        TrtpostError: several photos and a single output file, a file that is no PNG, a folder that cannot be, or
            files that `check_targets` refuses.
    """
    _check_output(output, len(photos))
    below = None if output.suffix.lower() == ".png" and not output.is_dir() else output
    if below is None:
        jobs = [Job(photos[0], output, output.with_suffix(OVERLAY_ENDING) if overlay else None)]
    else:
        places = [output / name for name in _distinct_names(photos)]
        masks = [_with_ending(place, MASK_ENDING) for place in places]
        overlays = [_with_ending(place, OVERLAY_ENDING) if overlay else None for place in places]
        jobs = [Job(*files, below) for files in zip(photos, masks, overlays, strict=True)]
    sources = [photo.path for photo in photos if photo.content is None]
    check_targets(_targets(jobs), sources, below or output.parent, output if below is None else None)
    return jobs


def _targets(jobs: Sequence[Job]) -> list[Path]:
    return [target for job in jobs for target in (job.mask, job.overlay) if target is not None]


def mask_names(photos: Sequence[PhotoFile]) -> list[Path]:
    """Where `plan_jobs` puts their masks, below the output."""
    return [_with_ending(name, MASK_ENDING) for name in _distinct_names(photos)]


def _check_output(output: Path, count: int) -> None:
    """Before the work, not after it."""
    if output == STDIN:
        raise TrtpostError("--output -: masks are files, so give a name that ends in .png, or a folder")
    if output.is_dir():
        return
    above = next(parent for parent in output.absolute().parents if parent.exists())
    if not above.is_dir():
        raise TrtpostError(f"--output {output}: {above} is a file, not a folder")
    if output.suffix.lower() == ".png":
        if count > 1:
            raise TrtpostError(f"--output {output} is one file, but there are {count} photos: give a folder")
    elif output.suffix.lower() in {*SUFFIXES, *Image.registered_extensions()} or output.exists():
        raise TrtpostError(f"--output {output}: masks are PNG, so give a name that ends in .png, or a folder")


def _distinct_names(photos: Sequence[PhotoFile]) -> list[Path]:
    """`a` for x/a.jpg; `a.jpg` and `a.png` where that occurs twice; then `x_a.jpg`, the whole path, a number.

    Photos of a folder that was searched keep the folders in it.
    """
    forms: tuple[Callable[[PhotoFile], Path], ...] = (
        lambda photo: photo.place.with_name(photo.place.stem),
        lambda photo: photo.place,
        lambda photo: Path("_".join(_plain_parts(photo.path)[-2:])),
        lambda photo: Path("_".join(_plain_parts(photo.path))),
    )
    names: dict[PhotoFile, Path] = {}
    taken: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}  # a counter for each stem: names that share one are counted once
    left = list(photos)
    for form in forms:
        keys = {photo: _key(form(photo)) for photo in left}
        counts = Counter(keys.values())
        fitting = [photo for photo in left if counts[keys[photo]] == 1 and keys[photo] not in taken]
        names |= {photo: form(photo) for photo in fitting}
        taken |= {keys[photo] for photo in fitting}
        left = [photo for photo in left if photo not in names]
    for photo in left:
        counter = numbers.setdefault(_key(photo.place.with_name(f"000_{photo.place.stem}")), itertools.count(1))
        numbered = (photo.place.with_name(f"{number:03d}_{photo.place.stem}") for number in counter)
        names[photo] = next(name for name in numbered if _key(name) not in taken)
        taken.add(_key(names[photo]))
    return [names[photo] for photo in photos]


def _plain_parts(path: Path) -> list[str]:
    return [part for part in path.parts if part not in (path.anchor, "..", ".")]


def _key(name: Path) -> str:
    """Equal for names that some file system holds for one: without case, accents composed, shortened."""
    return unicodedata.normalize("NFC", str(_with_ending(name, ""))).casefold()


NAME_BYTES = 255 - len(".") - len(".12345678") - len(OVERLAY_ENDING)
"""That a photo's name may take: file systems allow 255, of which `write_whole` takes some while it writes."""


def _with_ending(path: Path, ending: str) -> Path:
    """A file's name and what it ends in, the name cut where it would be too long."""
    name = path.name
    if len(os.fsencode(name)) > NAME_BYTES:
        name = os.fsencode(name)[:NAME_BYTES].decode("utf-8", "ignore")
    return path.with_name(name + ending)


def run_all(
    segmenter: Segmenter,
    jobs: Sequence[Job],
    *,
    repeat: int = 1,
    encoding: Encoding = "palette",
    again: bool = True,
    threads: int | None = None,
    max_pixels: int = MAX_PIXELS,
    done: Callable[[], None] = lambda: None,
) -> tuple[list[Outcome], float]:
    """Run all jobs: their outcomes in order, and the seconds that they took together.

    While one photo is in the engine, others are read and written, on all cores; unless each is run `repeat` times, to
    be timed by itself.

    Args:
        segmenter: runs them.
        jobs: what to run.
        repeat: runs of each.
        encoding: of the masks, as for `Result.save_mask`.
        again: run photos of searched folders too whose masks are there already, from the same engine.
        threads: that read and write; None: as many as there are cores.
        max_pixels: of all photos on their way at once; one that is larger alone is an error.
        done: is called after each job.
    """
    start = time.perf_counter()
    remove_abandoned(_targets(jobs))
    admission = Admission(max_pixels)

    found_as = written_as(encoding, len(segmenter.bundle.passport.classes))

    def work(job: Job) -> Outcome:
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


def _is_done(job: Job, fingerprint: str, encoding: Encoding) -> bool:
    wanted = {job.mask: encoding, job.overlay: None}  # overlays are no masks
    return all(is_done(target, job.photo.path, fingerprint, wanted[target]) for target in _targets([job]))


def run(segmenter: Segmenter, job: Job, *, repeat: int, encoding: Encoding = "palette") -> Outcome:
    """Run one job, `repeat` times; a fault that the user can mend becomes part of the outcome."""
    try:
        mark = _mark(job, segmenter.fingerprint)
        timings = [_run_once(segmenter, job, encoding, mark)[1] for _ in range(repeat - 1)]
        result, timing = _run_once(segmenter, job, encoding, mark)
        if job.overlay is not None:
            write_picture(
                result.overlay(), job.overlay, mark=mark, below=job.below or job.mask.parent, replaces=is_ours
            )
    except TrtpostError as error:
        return Outcome(job, error=str(error) if job.photo.content is None else f"stdin: {error}")
    ids, counts = _counted(result.mask)
    order = np.argsort(-counts, kind="stable")
    names = dict(enumerate(result.classes))
    shares = tuple(
        Share(
            int(ids[index]), names.get(int(ids[index]), class_name(int(ids[index]))), counts[index] / result.mask.size
        )
        for index in order
    )
    height, width = result.mask.shape
    summary = summarize([*timings, timing]) if repeat > 1 else None
    return Outcome(job, (height, width), timing, summary, shares)


def _counted(mask: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ids that occur in a mask, ascending, and how often."""
    if mask.dtype != np.uint8:
        return np.unique(mask, return_counts=True)
    counts = np.array(Image.fromarray(mask).histogram())  # `np.unique` takes longer than all else of a large photo
    ids = np.flatnonzero(counts)
    return ids, counts[ids]


def _mark(job: Job, fingerprint: str) -> str:
    """What the files of a job say of themselves; of stdin, not which photo it was."""
    try:
        return fingerprint if job.photo.content is not None else mark_of(fingerprint, job.photo.path)
    except (OSError, ValueError):  # who reads it says what is wrong
        return fingerprint


def _run_once(segmenter: Segmenter, job: Job, encoding: Encoding, mark: str) -> tuple[Result, Timing]:
    watch = Stopwatch()
    result = segmenter(job.photo.source)
    with watch("encode"):
        write_mask(
            result.mask,
            job.mask,
            palette(result.classes),
            encoding,
            mark=mark,
            below=job.below,
            replaces=is_ours,
        )
    return result, result.timing.with_stage("encode", watch.timing.encode)


LISTED = 20
"""Photos that are shown one by one; of more, the times over all are, and the faults."""


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
        path: of the bundle.
        engine: what is known of what ran it.
        outcomes, seconds: as `run_all` gives them.
        layers: as `Segmenter.profile` gives them.
    """
    return json.dumps(
        {"bundle": printable(str(path))}
        | engine
        | {
            "seconds": round(seconds, 3),
            "photos": [_entry(outcome) for outcome in outcomes],
        }
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
