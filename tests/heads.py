"""Networks of one convolution with every kind of end, and what people would write after their own network.

Every mask is compared with what NumPy makes of the output that ONNX Runtime gives for the very file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from nets import kernel, save

from trtpost.builder.build import build
from trtpost.bundle.folder import Bundle
from trtpost.progress import Progress
from trtpost.segment import Segmenter

SIZE = (8, 12)
"""Of every network here, and of the photo: there is nothing to resize before it."""

PHOTO = np.random.default_rng(7).integers(0, 256, (*SIZE, 3), np.uint8)

NCHW = "y = Conv (image, k)\n", "float[1,3,8,12] image"
NHWC = "x = Transpose <perm = [0, 3, 1, 2]> (image)\n y = Conv (x, k)\n", "float[1,8,12,3] image"
"""A convolution to `y`, NCHW, of an input in either layout."""

Read = Callable[[np.ndarray], np.ndarray]
"""From an output to class ids [h, w]."""


def written(path: Path, body: str, image: str, out: str, *, opset: int = 17, **weights: np.ndarray) -> Path:
    """An ONNX file as its exporter wrote it."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> net ({image}) => ({out}) {{ {body} }}'
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    return save(model, path)


def output_of(path: Path, photo: np.ndarray = PHOTO) -> np.ndarray:
    """The first output of the file itself, for a photo with values from 0 to 1."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (source,) = session.get_inputs()
    pixels = (photo.astype(np.float32) / np.float32(255))[None]
    nchw_input = len(source.shape) == 4 and source.shape[1] == 3
    return session.run(None, {source.name: pixels.transpose(0, 3, 1, 2) if nchw_input else pixels})[0]


def near(labels: np.ndarray, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Class ids at another size, by the nearest pixel as `tf.image.resize` finds it."""
    rows, cols = (
        np.minimum(((np.arange(n, dtype=np.float32) + np.float32(0.5)) * np.float32(m / n)).astype(int), m - 1)
        for m, n in zip(labels.shape, size, strict=True)
    )
    return labels[rows][:, cols]


def built(path: Path, **settings: object) -> Bundle:
    return build(path, path.with_suffix(".trtpost"), flavour="none", **({"normalize": "unit"} | settings))


def mask_of(path: Path, photo: np.ndarray = PHOTO, **settings: object) -> np.ndarray:
    with Segmenter(built(path, **settings), backend="onnxruntime") as segmenter:
        return segmenter(photo).mask


def check(path: Path, read: Read, **settings: object) -> None:
    """The mask is what `read` makes of the file's own output."""
    np.testing.assert_array_equal(mask_of(path, **settings), near(read(output_of(path))))


class Ears(Progress):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)


def last(values: np.ndarray) -> np.ndarray:
    """ArgMax over the last axis of [1, h, w, C]."""
    return values[0].argmax(-1)


def first(values: np.ndarray) -> np.ndarray:
    """ArgMax over the classes of [1, C, h, w]."""
    return values[0].argmax(0)


def exceeding(values: np.ndarray, threshold: float = 0.5) -> np.ndarray:
    """What people write: threshold each, then the largest, background where none passes; [h, w, C] to ids."""
    passing = np.where(values > np.float32(threshold), values, -np.inf)
    return np.where(np.isfinite(passing).any(-1), passing.argmax(-1) + 1, 0)


def gray(classes: int) -> np.ndarray:
    """Weights of a 1x1 convolution that gives 0 for gray pixels: of a photo, as much above as below."""
    weights = kernel(classes, seed=4)
    return weights - weights.mean(1, keepdims=True)
