"""The step that lowers a network's precision: calibrated on photos, and measured on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.builder import agreement
from trtpost.builder.options import MIN_AGREEMENT, BuildOptions
from trtpost.bundle.passport import Passport
from trtpost.describe import counted, describe_precision
from trtpost.errors import ImageError
from trtpost.graph.baking.bake import bake
from trtpost.graph.precision.reduce import network_inputs, reduced
from trtpost.photos.pixels import pixels_of
from trtpost.photos.read import read_photo
from trtpost.progress import Progress
from trtpost.spec import Pre

FEW_PHOTOS = 10
"""Number of photos below which the ranges that int8 takes from them are chance."""


def lowered(
    source: onnx.ModelProto,
    reference: onnx.ModelProto,
    passport: Passport,
    photos: tuple[Path, ...],
    options: BuildOptions,
    progress: Progress,
) -> tuple[onnx.ModelProto, Passport]:
    """Bake the source model in a lower precision.

    Returns:
        The baked graph, and the passport with how well it agrees with the `reference`.

    Raises:
        ModelError: it agrees too little, or cannot be computed in that precision.
    """
    precision, pre, located = options.precision, passport.pre, passport.located
    minimum = MIN_AGREEMENT[precision] if options.min_agreement is None else options.min_agreement
    skipped: dict[str, None] = {}  # each photo is read twice, and said to be unreadable once

    def pixels() -> Iterator[NDArray[np.uint8]]:
        return pixels_in(photos, pre, located.logits_size, skipped.setdefault)

    with progress.step("precision") as step:
        passes = 2 if precision == "int8" else 1
        done = itertools.count(1)

        def calibrated() -> None:
            step.advance(next(done) / (passes * len(photos)), f"calibrating {precision}")

        def compared() -> None:
            step.advance(next(done) / (passes * len(photos)), f"comparing {precision} with the model's own precision")

        inputs = network_inputs(pixels(), pre, located)
        baked = bake(
            source,
            located,
            pre,
            passport.post,
            reduce=lambda network: reduced(network, precision, inputs, on_photo=calibrated),
        )
        found = agreement.compare(reference, baked, pixels(), minimum=minimum, on_photo=compared)
        agreement.check(found, precision, minimum)
        passport = replace(
            passport, precision=precision, agreement=found.share, mean_iou=found.mean_iou, photos=found.photos
        )
        step.result = describe_precision(passport)
    for reason in skipped:
        progress.warn(f"a photo of --calibration is left out: {reason}")
    if precision == "int8" and found.photos < FEW_PHOTOS:
        progress.warn(
            f"int8 was calibrated on {counted(found.photos, 'photo')}, and measured on the same: "
            "give some dozen like those that it will see"
        )
    if found.share is None:
        progress.warn(
            f"{precision} was only checked for NaN and infinities, not compared with the model's own precision: "
            "give photos with --calibration"
        )
    return baked, passport


def pixels_in(
    photos: tuple[Path, ...], pre: Pre, logits_size: tuple[int, int], skipped: Callable[[str], None]
) -> Iterator[NDArray[np.uint8]]:
    """Each photo as an engine takes it, uint8 [h, w, C]; `skipped` is told why where one cannot be read."""
    for path in photos:
        try:
            photo = read_photo(path)
        except ImageError as error:
            skipped(str(error))
            continue
        yield pixels_of(photo, pre, logits_size)
