"""A look at what a network says of a made picture: an assumed normalisation that is far off can be seen there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.bundle.passport import Passport
from trtpost.convert.pictures import levels
from trtpost.graph.head.layout import channel_axis

LARGE = 1e5
"""Logits beyond this are those of no trained network that was seen: the largest of those are some hundreds."""

FLAT = 0.005
"""A lead of the first class over the second that varies by less than this share of itself follows no picture."""


@dataclass(frozen=True)
class Look:
    """What a network says of one picture.

    Attributes:
        largest: magnitude of its logits; not finite where one of them is not.
        share: of the pixels that have the most frequent class.
        variation: of the lead of that class over the next one: the deviation over the mean. Zero where the network
            says the same of every pixel.
    """

    largest: float
    share: float
    variation: float

    @property
    def wrong(self) -> str:
        """What looks wrong; empty where nothing does."""
        if not np.isfinite(self.largest):
            return "of a made picture the network says NaN or infinities"
        if self.largest > LARGE:
            return f"of a made picture the logits reach {self.largest:.1e}, as those of trained networks do not"
        if self.share == 1 and self.variation < FLAT:
            return "a made picture of many colours becomes one class, with nearly the same logits in every pixel"
        return ""


def look_at(engine: OnnxRuntimeEngine, passport: Passport) -> Look | None:
    """Show a picture to the network alone; None where it ends in class ids.

    Raises:
        BackendError: it fails.
    """
    if passport.post.head == "labels":
        return None
    pre, post, located = passport.pre, passport.post, passport.located
    shape = (max(located.batch, 1), pre.height, pre.width, pre.depth)
    logits = engine.logits(levels(shape, 1).astype(np.uint8)).astype(np.float64)
    largest = float(np.abs(logits).max(initial=0))
    if not np.isfinite(largest):
        return Look(np.inf, 1.0, 0.0)
    axis = channel_axis(post.layout)
    if post.head == "threshold":
        lead = _turned(logits, located.limits) - _turned(np.array(post.threshold), located.limits)
        labels = lead > 0
    else:
        labels = logits.argmax(axis)
        second, first = np.moveaxis(np.partition(logits, -2, axis), axis, 0)[-2:]
        lead = first - second
    counts = np.unique(labels, return_counts=True)[1]
    mean = float(np.abs(lead).mean())
    return Look(largest, float(counts.max() / labels.size), float(lead.std()) / mean if mean else 0.0)


def _turned(values: NDArray[np.float64], limits: tuple[float, float] | None) -> NDArray[np.float64]:
    """Logits of values between limits: close to those, probabilities hardly differ, and what they come from does."""
    if limits is None:
        return values
    share = np.clip((values - limits[0]) / (limits[1] - limits[0]), 1e-9, 1 - 1e-9)
    return np.asarray(np.log(share / (1 - share)))
