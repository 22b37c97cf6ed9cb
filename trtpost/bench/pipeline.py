"""`trtpost bench pipeline`: photo file to mask file, whole, stage by stage, for each way that people go."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.backends.tensorrt.obstacle import this_machine
from trtpost.bench.measure import machine, take_turns
from trtpost.bench.picture import sides_of, write_photo
from trtpost.bench.systems import OURS, System, systems
from trtpost.builder.build import build
from trtpost.builder.request import content_of
from trtpost.bundle.folder import Bundle, load_bundle
from trtpost.convert import kind_of
from trtpost.cores import default_threads
from trtpost.errors import ImageError, SpecError
from trtpost.photos.read import read_photo
from trtpost.storage.files import existing_file
from trtpost.timing import STAGE_NAMES, Timing, summarize

TOGETHER = ("decode", "preprocess", "network", "argmax_resize", "encode")
"""Stages of every system; a GPU has copies too."""


@dataclass(frozen=True)
class SystemResult:
    """The median of each stage of a system, or why there is none.

    Attributes:
        agreement: share of pixels with the class that ours gives.
        bytes: size of the mask's file.
    """

    name: str
    timing: Timing | None = None
    missing: str = ""
    agreement: float | None = None
    bytes: int = 0

    @property
    def aside(self) -> float:
        """Milliseconds of everything but the network."""
        assert self.timing is not None
        return self.timing.total - self.timing.network


@dataclass(frozen=True)
class Sheet:
    """All systems' results on one photo of that name, (H, W), and bytes of its file."""

    photo: str
    size: tuple[int, int]
    bytes: int
    rows: tuple[SystemResult, ...]

    @property
    def stages(self) -> list[str]:
        """Stages that a system had: copies only where there is a GPU."""
        timings = [row.timing for row in self.rows if row.timing is not None]
        return [stage for stage in STAGE_NAMES if stage in TOGETHER or any(getattr(one, stage) for one in timings)]

    def row(self, name: str) -> SystemResult | None:
        """The system of that name, if it ran."""
        return next((row for row in self.rows if row.name == name and row.timing is not None), None)

    def ratio(self, row: SystemResult, stages: Sequence[str] = ()) -> float | None:
        """How many times as long as ours a system takes for some stages, or for everything but the network."""
        ours = self.row(OURS)
        if ours is None or row.timing is None:
            return None
        theirs, mine = ((_sum(one, stages) if stages else one.aside) for one in (row, ours))
        return theirs / mine if mine else None


@dataclass(frozen=True)
class PipelineReport:
    """A sheet for each photo, the smallest first, and what it was measured on."""

    model: str
    network: tuple[int, int]
    classes: int
    threads: int
    machine: str
    sheets: tuple[Sheet, ...]


def bench_pipeline(
    bundle: Bundle,
    source: Path | None,
    *,
    image: Path | None = None,
    megapixels: Sequence[float] = (12,),
    threads: int | None = None,
    rounds: int = 7,
    advance: Callable[[], None] = lambda: None,
) -> PipelineReport:
    """Run every system in turn in this process, on photos from small to large.

    Args:
        bundle: what our rows run, and the network of all that use ONNX Runtime.
        source: the model that it was built from, for TensorFlow.
        image: photo to take; None draws one.
        megapixels: sizes; empty takes the image as it is.
        threads: for everybody; default all cores.
        rounds: runs of each system on each photo.
        advance: called after each round.

    Raises:
        SpecError: a bundle whose masks the others cannot make, or no image and no size.
        TrtpostError: the image cannot be read.
    """
    post, pre = bundle.passport.post, bundle.passport.pre
    if (post.head, post.resize, post.size, pre.fit, post.wide) != ("argmax", "nearest", "runtime", "stretch", False):
        raise SpecError(
            "bench pipeline takes a bundle of the usual pipeline, which the others have too: "
            "argmax, nearest, size runtime, fit stretch, up to 256 classes"
        )
    if image is None and not megapixels:
        raise SpecError("bench pipeline needs a photo: give --image, or --megapixels for a drawn one")
    threads = threads or default_threads()
    entrants = systems(bundle, source, threads)
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of photos that are large on purpose
        sheets = [
            _sheet(entrants, photo, name, Path(folder), rounds, advance)
            for name, photo in _photos(image, megapixels, Path(folder))
        ]
    for entrant in entrants:
        entrant.close()
    return PipelineReport(
        bundle.passport.source, (pre.height, pre.width), post.classes, threads, machine(), tuple(sheets)
    )


def parse_megapixels(text: str) -> tuple[float, ...]:
    """Read numbers such as `1,12,50`.

    Raises:
        SpecError: they are none.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SpecError(f"--megapixels takes numbers such as 1,12,50, not '{text}'") from None


@contextmanager
def bundle_of(model: Path, path: Path | None) -> Iterator[Bundle]:
    """Open the bundle at `path`, or else one that is built of the model and goes when it is no longer needed.

    Raises:
        TrtpostError: the bundle cannot be read, or the model not be built.
    """
    if path is not None:
        bundle = load_bundle(path)
        if content_of(model, kind_of(model)) != bundle.passport.source_sha256:
            raise SpecError(
                f"{path} was built from another model ({bundle.passport.source}), so there is nothing to compare: "
                "leave it out, or give its own model"
            )
        yield bundle
        return
    # a plan takes long to build, and without a GPU nothing runs it
    flavour = "auto" if this_machine().driver is not None else "none"
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        yield build(model, Path(folder) / "bench.trtpost", flavour=flavour)


def _photos(image: Path | None, megapixels: Sequence[float], folder: Path) -> list[tuple[str, Path]]:
    if image is not None and not megapixels:
        return [(image.name, existing_file(image, "image", ImageError))]
    photos = []
    for size in sorted(megapixels):
        path = folder / f"{size:g}.jpg"
        write_photo(path, sides_of(size), image)
        photos.append((f"{size:g} megapixel{'' if size == 1 else 's'}", path))
    return photos


def _sheet(
    entrants: Sequence[System], photo: Path, name: str, folder: Path, rounds: int, advance: Callable[[], None]
) -> Sheet:
    height, width = read_photo(photo).shape[:2]
    targets = {entrant.name: folder / f"{index}.png" for index, entrant in enumerate(entrants)}
    runs = {one.name: _bound(one.run, photo, targets[one.name]) for one in entrants if one.run is not None}
    timings = take_turns(runs, rounds=rounds, advance=advance)
    masks = {name: _mask(targets[name]) for name in runs}
    rows = tuple(
        SystemResult(
            one.name,
            summarize(timings[one.name]).median,
            agreement=float((masks[one.name] == masks[OURS]).mean()) if OURS in masks else None,
            bytes=targets[one.name].stat().st_size,
        )
        if one.name in runs
        else SystemResult(one.name, missing=one.missing)
        for one in entrants
    )
    return Sheet(name, (height, width), photo.stat().st_size, rows)


def _bound(run: Callable[[Path, Path], Timing], photo: Path, target: Path) -> Callable[[], Timing]:
    return lambda: run(photo, target)


def _mask(path: Path) -> NDArray[Any]:
    with Image.open(path) as image:
        return np.asarray(image)


def _sum(row: SystemResult, stages: Sequence[str]) -> float:
    return sum(float(getattr(row.timing, stage)) for stage in stages)
