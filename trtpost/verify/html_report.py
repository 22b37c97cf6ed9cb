"""The report as one HTML file that needs nothing else: style and pictures are inside."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from trtpost.masks.png import palette
from trtpost.packages import require
from trtpost.photos.decode import Photo
from trtpost.storage import pages
from trtpost.verify.compare import Masked
from trtpost.verify.report import PhotoFigures, Report

SIDE = 480
"""Longest side of a picture in the report."""

PICTURED = 60
"""Most photos that are shown; the table has all of them."""

REAL, TIED = (255, 45, 85), (255, 190, 0)
"""Colours of pixels that really differ, and of those that differ where there is a tie."""

TINT = 0.6


@dataclass(frozen=True)
class Pictures:
    """One photo as four JPEGs: the photo, both masks over it, and where they differ."""

    original: bytes
    reference: bytes
    ours: bytes
    difference: bytes


@dataclass
class Gallery:
    """Takes the pictures while the photos go by, so that no photo is kept; `show` is for `verify`."""

    classes: tuple[str, ...]
    pictures: dict[Path, Pictures] = field(default_factory=dict)

    def show(self, one: PhotoFigures, photo: Photo, expected: Masked, ours: NDArray[Any]) -> None:
        """Take the pictures of one photo."""
        colours = palette(self.classes)
        size = _small(ours.shape)
        small = np.asarray(Image.fromarray(photo).resize(size[::-1], Image.Resampling.BOX))
        different = expected.labels != ours
        tied = different & expected.ties if expected.ties is not None else np.zeros_like(different)
        self.pictures[one.photo] = Pictures(
            original=_jpeg(small),
            reference=_jpeg(_tinted(small, expected.labels, colours)),
            ours=_jpeg(_tinted(small, ours, colours)),
            difference=_jpeg(_marked(small, different & ~tied, tied)),
        )


def write_page(report: Report, gallery: Gallery, path: Path) -> None:
    """Write the report and its pictures.

    Raises:
        MissingPackageError: Jinja2 is not installed.
        SpecError: the file cannot be written.
    """
    jinja2 = require("jinja2", "report", "--html")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["data_uri"] = _data_uri
    environment.filters["colour"] = lambda rgb: f"rgb({rgb[0]}, {rgb[1]}, {rgb[2]})"
    template = resources.files("trtpost.verify").joinpath("report.html.jinja").read_text(encoding="utf-8")
    content = environment.from_string(template).render(
        report=report,
        total=report.total,
        pictures=gallery.pictures,
        pictured=PICTURED,
        classes=_classes(report),
        real=REAL,
        tied=TIED,
    )
    pages.write_page(path, content)


def _classes(report: Report) -> list[dict[str, Any]]:
    """Name, colour, IoU, and IoU of both with the ground truth, of each class that occurs."""
    total = report.total
    colours = palette(report.classes)
    rows = []
    for index, iou in enumerate(total.overlap.ious[: len(report.classes)]):
        truth = [] if total.truth is None else [float(one.ious[index]) for one in total.truth]
        if not np.isnan(iou) or any(not np.isnan(value) for value in truth):
            name, colour = report.classes[index], colours[index].tolist()
            rows.append({"name": name, "colour": colour, "iou": float(iou), "truth": truth})
    return rows


def _small(shape: tuple[int, ...]) -> tuple[int, int]:
    scale = min(1.0, SIDE / max(shape))
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def _tinted(small: Photo, mask: NDArray[Any], colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Lay the classes' colours over the small photo; black, the background's, darkens it."""
    rows, columns = (
        (np.arange(count) + 0.5) * (full / count) for count, full in zip(small.shape[:2], mask.shape, strict=True)
    )
    labels = mask[rows.astype(int)[:, None], columns.astype(int)]
    tint = colours[np.minimum(labels, len(colours) - 1)].astype(np.float32)
    return np.asarray(np.rint(small * (1 - TINT) + tint * TINT), np.uint8)


def _marked(small: Photo, real: NDArray[np.bool_], tied: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Mark every difference on the small photo, made gray and dim: none gets lost in the small picture."""
    gray = np.asarray(Image.fromarray(small).convert("L")).astype(np.float32)
    picture = np.repeat((60 + gray * 0.35)[..., None], 3, axis=2).astype(np.uint8)
    for mask, colour in ((tied, TIED), (real, REAL)):
        picture[_pooled(mask, (small.shape[0], small.shape[1]))] = colour
    return picture


def _pooled(mask: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.bool_]:
    """True where anything in a small pixel is true, and one pixel around it."""
    for axis in (0, 1):
        starts = np.arange(size[axis]) * mask.shape[axis] // size[axis]
        mask = np.logical_or.reduceat(mask, starts, axis=axis)
    return np.asarray(Image.fromarray(mask.astype(np.uint8)).filter(ImageFilter.MaxFilter(3))).astype(bool)


def _jpeg(picture: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "JPEG", quality=85, subsampling=0)
    return stream.getvalue()


def _data_uri(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
