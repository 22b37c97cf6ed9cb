"""The resizes that people use, each done by the framework that its convention is named after.

Where that framework is not installed, `trtpost.kernels.reference` stands in for it, and the name says so.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.kernels.reference import bilinear, nearest_index
from trtpost.packages import require
from trtpost.spec import Match, Resize

Size = tuple[int, int]


@dataclass(frozen=True)
class Resizer:
    """A resize of one framework.

    Attributes:
        name: what is called, for people.
        run: [h, w, c] and (H, W) to [H, W, c]: int32 for nearest, float32 for bilinear.
    """

    name: str
    run: Callable[[NDArray[Any], Size], NDArray[Any]]


def resizer(resize: Resize, match: Match) -> Resizer:
    """The resize that `match` is named after, or our reference where its framework is missing."""
    package, name, run = _RESIZERS[resize, match]
    if find_spec(package) is not None:
        return Resizer(name, run)
    return Resizer(f"trtpost's reference in numpy of {name}, as {package} is not installed", _by_us(resize, match))


def tensorflow() -> Any:
    """TensorFlow, made quiet and kept off the GPU, which is left to the engine that is verified.

    Raises:
        MissingPackageError: it is not installed.
    """
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with quiet():
            tf = require("tensorflow", "tf", "running the model in its own framework")
        with contextlib.suppress(RuntimeError):  # somebody has used the GPU with it already
            tf.config.set_visible_devices([], "GPU")
    return sys.modules["tensorflow"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide what native libraries write to standard error."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _tf_nearest(labels: NDArray[Any], size: Size) -> NDArray[Any]:
    return np.asarray(tensorflow().image.resize(labels, size, method="nearest"))


def _tf_bilinear(values: NDArray[Any], size: Size) -> NDArray[Any]:
    return np.asarray(tensorflow().image.resize(values, size))


def _tf1_nearest(labels: NDArray[Any], size: Size) -> NDArray[Any]:
    return np.asarray(tensorflow().raw_ops.ResizeNearestNeighbor(images=labels[None], size=size)[0])


def _tf1_bilinear(values: NDArray[Any], size: Size) -> NDArray[Any]:
    return np.asarray(tensorflow().raw_ops.ResizeBilinear(images=values[None], size=size)[0])


def _align_corners(values: NDArray[Any], size: Size) -> NDArray[Any]:
    return np.asarray(tensorflow().raw_ops.ResizeBilinear(images=values[None], size=size, align_corners=True)[0])


def _torch_nearest(labels: NDArray[Any], size: Size) -> NDArray[Any]:
    return _interpolate(labels.astype(np.float32), size, mode="nearest").astype(np.int32)


def _torch_bilinear(values: NDArray[Any], size: Size) -> NDArray[Any]:
    return _interpolate(values, size, mode="bilinear", align_corners=False)


def _interpolate(values: NDArray[Any], size: Size, **how: Any) -> NDArray[Any]:
    import torch

    channels_first = torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))[None]
    resized: NDArray[Any] = torch.nn.functional.interpolate(channels_first, size=size, **how)[0].numpy()
    return np.moveaxis(resized, 0, -1)


def _cv2_nearest(labels: NDArray[Any], size: Size) -> NDArray[Any]:
    import cv2

    resized = cv2.resize(labels.astype(np.float32), size[::-1], interpolation=cv2.INTER_NEAREST)
    return np.asarray(resized).astype(np.int32)[..., None]


def _cv2_bilinear(values: NDArray[Any], size: Size) -> NDArray[Any]:
    import cv2

    channels = [cv2.resize(values[..., index], size[::-1]) for index in range(values.shape[2])]  # linear by default
    return np.stack(channels, axis=-1)


def _pil_nearest(labels: NDArray[Any], size: Size) -> NDArray[Any]:
    image = Image.fromarray(np.ascontiguousarray(labels[..., 0], np.int32))
    return np.asarray(image.resize(size[::-1], Image.Resampling.NEAREST))[..., None]


def _by_us(resize: Resize, match: Match) -> Callable[[NDArray[Any], Size], NDArray[Any]]:
    def nearest(labels: NDArray[Any], size: Size) -> NDArray[Any]:
        rows, columns = (nearest_index(labels.shape[axis], size[axis], match) for axis in (0, 1))
        return labels[rows[:, None], columns]

    return nearest if resize == "nearest" else lambda values, size: bilinear(values, size, match)


_RESIZERS: dict[tuple[Resize, Match], tuple[str, str, Callable[[NDArray[Any], Size], NDArray[Any]]]] = {
    ("nearest", "tf"): ("tensorflow", "tf.image.resize(method='nearest')", _tf_nearest),
    ("nearest", "tf1"): ("tensorflow", "tf.raw_ops.ResizeNearestNeighbor", _tf1_nearest),
    ("nearest", "torch"): ("torch", "torch interpolate(mode='nearest')", _torch_nearest),
    ("nearest", "opencv"): ("cv2", "cv2.resize(INTER_NEAREST)", _cv2_nearest),
    ("nearest", "pil"): ("PIL", "Pillow resize(NEAREST)", _pil_nearest),
    ("bilinear", "tf"): ("tensorflow", "tf.image.resize", _tf_bilinear),
    ("bilinear", "tf1"): ("tensorflow", "tf.raw_ops.ResizeBilinear", _tf1_bilinear),
    ("bilinear", "torch"): ("torch", "torch interpolate(mode='bilinear')", _torch_bilinear),
    ("bilinear", "opencv"): ("cv2", "cv2.resize(INTER_LINEAR)", _cv2_bilinear),
    ("bilinear", "align_corners"): ("tensorflow", "tf.raw_ops.ResizeBilinear(align_corners=True)", _align_corners),
}
"""Each resize: the package that has it, its name, and our function that calls it."""
