"""The pipeline that a bundle replaces, written out plainly: resize, normalise, network, ArgMax or threshold, resize."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.kernels.reference import bilinear
from trtpost.letterbox import Region, placement, region_of
from trtpost.photos.decode import Photo
from trtpost.photos.scale import PAD
from trtpost.spec import Located, Post, Pre
from trtpost.verify.compare import Masked
from trtpost.verify.frameworks import Resizer, tensorflow
from trtpost.verify.network import Answer, Network
from trtpost.verify.squashing import interpolable

if TYPE_CHECKING:
    from trtpost.builder.decide import Decided

TIE = 1e-4
"""Two values are a tie where they differ by less than this share of the range of all: more than float32 rounding
makes of a network, and less than anybody sees."""

GROUP_BYTES = 1 << 28
"""Memory for classes that are interpolated together."""


@dataclass(frozen=True)
class Reference:
    """The replaced pipeline, ready to run.

    Attributes:
        decided: what `trtpost build` would make of the model: normalisation, channels, layout, head, threshold.
        network: the model in its own framework.
        resizer: what brings labels or scores to the photo's size.
        gray_first: the photo of a gray network is made gray before it is resized, as an engine that takes whole
            photos needs it.
    """

    decided: Decided
    network: Network
    resizer: Resizer
    gray_first: bool = False

    @property
    def pre(self) -> Pre:
        """The steps from the photo to the network's input."""
        return self.decided.pre

    @property
    def post(self) -> Post:
        """The steps from the network's output to the mask."""
        return self.decided.post

    @property
    def located(self) -> Located:
        """The input and the output of the network."""
        return self.decided.located


def levels_of(photo: Photo, pre: Pre, logits_size: tuple[int, int], *, gray_first: bool = False) -> NDArray[np.uint8]:
    """The photo at the network's size, uint8 [h, w, C], RGB or gray: bilinear, not antialiased, rounded."""
    size = (pre.height, pre.width)
    if gray_first and pre.channels == "gray":
        photo = np.repeat(np.asarray(Image.fromarray(photo).convert("L"))[..., None], 3, axis=2)
    if pre.fit == "letterbox":
        inside = placement((photo.shape[0], photo.shape[1]), size, logits_size)
        levels = np.full((*size, 3), PAD, np.uint8)
        resized = _resized(photo, (inside.height, inside.width))
        levels[inside.top : inside.top + inside.height, inside.left : inside.left + inside.width] = resized
    else:
        levels = photo if photo.shape[:2] == size else _resized(photo, size)
    return np.asarray(Image.fromarray(levels).convert("L"))[..., None] if pre.channels == "gray" else levels


def _resized(photo: Photo, size: tuple[int, int]) -> NDArray[np.uint8]:
    floats = np.asarray(tensorflow().image.resize(photo, size)) if find_spec("tensorflow") else bilinear(photo, size)
    levels: NDArray[np.uint8] = np.rint(floats).astype(np.uint8)
    return levels


def tensor_of(levels: NDArray[np.uint8], pre: Pre, located: Located) -> NDArray[Any]:
    """The tensor [1, ...] that the network is given for `levels_of` a photo, in its own layout and type."""
    values: NDArray[Any] = levels[..., ::-1] if pre.channels == "bgr" else levels
    if not pre.is_identity:
        values = (values.astype(np.float32) - np.array(pre.mean, np.float32)) / np.array(pre.std, np.float32)
    values = values.astype(located.input_dtype)
    return np.ascontiguousarray(values.transpose(2, 0, 1) if located.input_layout == "NCHW" else values)[None]


def region_for(size: tuple[int, int], reference: Reference, plane: tuple[int, int]) -> Region | None:
    """The part of an output of (h, w) that holds a photo of (H, W); None where all of it does."""
    if reference.pre.fit == "stretch":
        return None
    return region_of(size, (reference.pre.height, reference.pre.width), plane)


def mask_of(photo: Photo, size: tuple[int, int], reference: Reference) -> Masked:
    """The replaced pipeline's mask of a photo, of (H, W)."""
    levels = levels_of(photo, reference.pre, reference.located.logits_size, gray_first=reference.gray_first)
    return masked(reference.network.run(tensor_of(levels, reference.pre, reference.located)), size, reference)


def other_masks(photo: Photo, size: tuple[int, int], reference: Reference) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """The masks of a photo, of (H, W), that the framework's other kernel sets give, by the names of these."""
    if reference.network.others:
        levels = levels_of(photo, reference.pre, reference.located.logits_size, gray_first=reference.gray_first)
        tensor = tensor_of(levels, reference.pre, reference.located)
        for network in reference.network.others:
            yield network.kernels, masked(network.run(tensor), size, reference).labels


def masked(answer: Answer, size: tuple[int, int], reference: Reference) -> Masked:
    """The mask of the photo's size (H, W) out of what a network says of it."""
    post, run = reference.post, reference.resizer.run
    plane = answer.labels if answer.labels is not None else answer.scores
    assert plane is not None
    inside = region_for(size, reference, (plane.shape[0], plane.shape[1]))
    scores = None if answer.scores is None else _inside(answer.scores, inside)
    if post.resize == "bilinear":
        assert scores is not None
        values = interpolable(scores, reference.network.squashed)
        return _interpolated(values, size, reference, _margin(values, answer.step))
    if answer.labels is not None:
        labels = _inside(answer.labels, inside).astype(np.int32)
    else:
        assert scores is not None
        labels = _labels(scores, post)
    ties = None
    if scores is not None:
        gap = np.abs(scores[..., 0] - np.float32(post.threshold)) if post.head == "threshold" else _gap(scores)
        close = (gap <= _margin(scores, answer.step)).astype(np.int32)
        ties = run(close[..., None], size)[..., 0].astype(bool)
    return Masked(run(labels[..., None], size)[..., 0].astype(np.int32), ties)


def _labels(scores: NDArray[np.float32], post: Post) -> NDArray[np.int32]:
    if post.head == "threshold":
        return np.asarray(scores[..., 0] > np.float32(post.threshold), np.int32)
    return np.asarray(np.argmax(scores, axis=-1), np.int32)


def _interpolated(scores: NDArray[np.float32], size: tuple[int, int], reference: Reference, margin: float) -> Masked:
    """The mask of resized scores, a few classes at a time, so that a large photo fits into memory."""
    if reference.post.head == "threshold":
        values = reference.resizer.run(scores, size)[..., 0]
        threshold = np.float32(reference.post.threshold)
        return Masked((values > threshold).astype(np.int32), np.abs(values - threshold) <= margin)
    labels = np.zeros(size, np.int32)
    best, second = (np.full(size, -np.inf, np.float32) for _ in range(2))
    for first, group in _groups(scores, size):
        resized = reference.resizer.run(group, size)
        for index in range(group.shape[2]):
            value = resized[..., index]
            second = np.maximum(second, np.minimum(best, value))
            labels[value > best] = first + index
            best = np.maximum(best, value)
    return Masked(labels, best - second <= margin)


def _groups(scores: NDArray[np.float32], size: tuple[int, int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    step = max(1, GROUP_BYTES // (4 * size[0] * size[1]))
    for first in range(0, scores.shape[2], step):
        yield first, np.ascontiguousarray(scores[..., first : first + step])


def _gap(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The gap between the two best classes of each pixel."""
    if scores.shape[2] < 2:
        return np.full(scores.shape[:2], np.inf, np.float32)
    best = np.partition(scores, -2, axis=-1)
    gap: NDArray[np.float32] = best[..., -1] - best[..., -2]
    return gap


def _margin(scores: NDArray[np.float32], step: float) -> float:
    """The difference up to which two values are a tie: a step of quantised ones, `TIE` of the range of others."""
    return 1.001 * step if step else TIE * float(np.ptp(scores))


def _inside(values: NDArray[Any], region: Region | None) -> NDArray[Any]:
    if region is None:
        return values
    return values[region.top : region.top + region.height, region.left : region.left + region.width]
