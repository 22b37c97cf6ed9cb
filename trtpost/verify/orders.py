"""Which order to choose: nearest after ArgMax, or bilinear before it, each against ground truth."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

from trtpost.builder.build import build
from trtpost.builder.options import BuildOptions
from trtpost.errors import ImageError
from trtpost.photos.find import photos_in
from trtpost.photos.read import read_photo
from trtpost.progress import Progress
from trtpost.segment import Segmenter
from trtpost.spec import IGNORED, Backend, Resize
from trtpost.verify.boundaries import Boundaries, boundaries_of, reach_of
from trtpost.verify.compare import Overlap, overlap
from trtpost.verify.truths import read_truth, truths_in

REPEATS = 7
"""Runs of each photo, both orders in turn; the fastest counts."""

NAMES: dict[Resize, str] = {
    "nearest": "ArgMax, then nearest resize",
    "bilinear": "bilinear resize of the logits, then ArgMax",
}


@dataclass(frozen=True)
class Order:
    """The scores of one order of the two steps.

    Attributes:
        resize: as in `Post`.
        mean_iou: with the ground truth, over the pixels of all photos.
        boundary: boundary F-score with the ground truth, over all photos, mean of the classes that it holds.
        milliseconds: what ArgMax and resize take, median over the photos of the fastest run.
    """

    resize: Resize
    mean_iou: float
    boundary: float
    milliseconds: float

    @property
    def name(self) -> str:
        """The order's name for people."""
        return NAMES[self.resize]


@dataclass(frozen=True)
class Orders:
    """Both orders' scores; `tolerance` is in pixels, as a range where the photos differ in size."""

    against: str
    engine: str
    photos: int
    tolerance: str
    orders: tuple[Order, ...]


def compare_orders(
    against: Path,
    images: Path,
    labels: Path,
    options: BuildOptions,
    *,
    backend: Backend = "auto",
    progress: Progress | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Orders:
    """Build both orders into a folder that is removed again, and run both on every photo.

    Args:
        against: the model.
        images, labels: as for `verify`.
        options: what both builds take; `resize` is not looked at.
        backend: as in `Segmenter`.
        progress: is told of the builds.
        advance: is called after each photo.

    Raises:
        TrtpostError: the model, a photo or a label cannot be used.
    """
    progress = progress or Progress()
    photos = photos_in(images, "--images")
    truths = truths_in(labels, photos)
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        segmenters = {
            resize: Segmenter(
                build(
                    against,
                    Path(folder) / f"{resize}.trtpost",
                    replace(options, resize=resize, flavour="auto" if backend == "tensorrt" else "none"),
                    progress=progress,
                ),
                backend=backend,
            )
            for resize in NAMES
        }
        overlaps: dict[Resize, list[Overlap]] = {resize: [] for resize in NAMES}
        boundaries: dict[Resize, list[Boundaries]] = {resize: [] for resize in NAMES}
        times: dict[Resize, list[float]] = {resize: [] for resize in NAMES}
        reaches: set[int] = set()
        for segmenter in segmenters.values():
            segmenter.warm_up()
        for photo in photos:
            try:
                pixels = read_photo(photo)
            except ImageError as error:
                progress.warn(f"a photo is left out: {error}")
                continue
            runs = [{resize: segmenter(pixels) for resize, segmenter in segmenters.items()} for _ in range(REPEATS)]
            for resize, result in runs[0].items():
                mask, classes = result.mask, len(result.classes)
                truth = read_truth(truths[photo], mask.shape, result.classes)
                reach = reach_of(mask.shape)
                reaches.add(reach)
                overlaps[resize].append(overlap(mask, truth, classes, IGNORED))
                boundaries[resize].append(boundaries_of(mask, truth, classes, reach))
                times[resize].append(min(run[resize].timing.argmax_resize for run in runs))
            advance()
        if not reaches:
            raise ImageError(f"no photo of {images} can be read")
        engine = next(iter(segmenters.values())).engine
        for segmenter in segmenters.values():
            segmenter.close()
    return Orders(
        against=str(against),
        engine=engine,
        photos=len(overlaps["nearest"]),
        tolerance=f"{min(reaches)}" if len(reaches) == 1 else f"{min(reaches)} to {max(reaches)}",
        orders=tuple(
            Order(
                resize,
                reduce(add, overlaps[resize]).mean_iou,
                reduce(add, boundaries[resize]).score,
                statistics.median(times[resize]),
            )
            for resize in NAMES
        ),
    )


def orders_to_json(report: Orders) -> str:
    """The scores as JSON, for programs."""
    return json.dumps(asdict(report), indent=2)
