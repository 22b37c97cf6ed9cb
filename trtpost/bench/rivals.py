"""Everything that people use today to turn logits into a mask: each rival as a function from logits to mask.

All take float32 logits [1, C, h, w] that are there already, in the layout that the framework prefers, and give class
ids [H, W] as a numpy array. `match` names the pixel convention, so that the answer can be compared with the reference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnx.parser
from numpy.typing import NDArray

from trtpost import onnx_runtime
from trtpost.errors import MissingPackageError
from trtpost.graph.baking.postprocess import node_model
from trtpost.kernels import cpu
from trtpost.packages import require
from trtpost.spec import Match, Post, Resize

Logits = NDArray[np.float32]
Mask = NDArray[Any]
Kind = Literal["kernel", "variant", "rival"]


@dataclass(frozen=True)
class Rival:
    """A way from logits to a mask: `start` loads the package and places the logits; what it returns is timed.

    `kind`: `kernel` is ours; `variant` is built on our code too, so it is no rival.
    """

    name: str
    resize: Resize
    match: Match
    start: Callable[[Logits, tuple[int, int], int], Callable[[], Mask]]
    kind: Kind = "rival"


def rivals() -> list[Rival]:
    """All rivals: ours first, then the reference pipeline of the field (TensorFlow)."""
    return [*_ours(), *_tensorflow(), *_torch(), *_opencv(), *_onnxruntime()]


def _ours() -> Iterator[Rival]:
    for resize in ("nearest", "bilinear"):
        yield Rival("trtpost fused kernel", resize, "tf", _fused(resize, full=False), "kernel")
    yield Rival("the same, without the cell rule", "bilinear", "tf", _fused("bilinear", full=True), "variant")


def _fused(resize: Resize, *, full: bool) -> Callable[..., Callable[[], Mask]]:
    def start(logits: Logits, size: tuple[int, int], threads: int) -> Callable[[], Mask]:
        if not cpu.is_available():
            raise MissingPackageError("the native kernel was not built: see trtpost doctor")
        post = Post(resize=resize, classes=max(logits.shape[1], 2))
        out = np.empty((1, *size), np.int32 if post.wide else np.uint8)
        return lambda: cpu.argmax_resize(logits, size, post, out=out, threads=threads, full=full)[0]

    return start


# --- TensorFlow


def _tensorflow() -> Iterator[Rival]:
    def as_in_the_field(tf: Any, logits: Any, size: tuple[int, int]) -> Mask:
        labels = tf.argmax(logits, axis=-1)[..., None]
        return np.asarray(tf.image.resize(labels, size, method="nearest")[0, ..., 0])

    def int16(tf: Any, logits: Any, size: tuple[int, int]) -> Mask:
        labels = tf.cast(tf.argmax(logits, axis=-1), tf.int16)[..., None]
        return np.asarray(tf.image.resize(labels, size, method="nearest")[0, ..., 0])

    def through_numpy(tf: Any, logits: Any, size: tuple[int, int]) -> Mask:
        labels = np.argmax(logits.numpy(), axis=-1)[..., None]
        return np.asarray(tf.image.resize(labels, size, method="nearest")[0, ..., 0])

    def float_cast(tf: Any, logits: Any, size: tuple[int, int]) -> Mask:
        labels = tf.cast(tf.argmax(logits, axis=-1), tf.float32)[..., None]
        return np.asarray(tf.image.resize(labels, size, method="nearest")[0, ..., 0])

    def raw_op(tf: Any, logits: Any, size: tuple[int, int]) -> Mask:
        labels = tf.cast(tf.argmax(logits, axis=-1), tf.uint8)[..., None]
        options = {"half_pixel_centers": True}
        return np.asarray(tf.raw_ops.ResizeNearestNeighbor(images=labels, size=size, **options)[0, ..., 0])

    def bilinear(tf: Any, logits: Any, size: tuple[int, int]) -> Mask:
        return np.asarray(tf.argmax(tf.image.resize(logits, size), axis=-1)[0])

    yield Rival("TensorFlow argmax, resize (as in the field)", "nearest", "tf", _with_tensorflow(as_in_the_field))
    yield Rival("TensorFlow, labels cast to int16", "nearest", "tf", _with_tensorflow(int16))
    yield Rival("TensorFlow, argmax in NumPy", "nearest", "tf", _with_tensorflow(through_numpy))
    yield Rival("TensorFlow, labels cast to float", "nearest", "tf", _with_tensorflow(float_cast))
    yield Rival("TensorFlow raw_ops.ResizeNearestNeighbor, uint8", "nearest", "tf", _with_tensorflow(raw_op))
    yield Rival("TensorFlow resize, argmax", "bilinear", "tf", _with_tensorflow(bilinear))


def _with_tensorflow(run: Callable[[Any, Any, tuple[int, int]], Mask]) -> Callable[..., Callable[[], Mask]]:
    def start(logits: Logits, size: tuple[int, int], threads: int) -> Callable[[], Mask]:
        tf = require("tensorflow", "tf", "this row")
        with contextlib.suppress(RuntimeError):  # raised once it has started, with the number that the first row set
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        tensor = tf.constant(np.ascontiguousarray(logits.transpose(0, 2, 3, 1)))
        return lambda: run(tf, tensor, size)

    return start


# --- PyTorch


def _torch() -> Iterator[Rival]:
    def nearest(torch: Any, logits: Any, size: tuple[int, int]) -> Mask:
        labels = logits.argmax(1, keepdim=True).to(torch.uint8)
        return np.asarray(torch.nn.functional.interpolate(labels, size=size, mode="nearest")[0, 0].numpy())

    def bilinear(torch: Any, logits: Any, size: tuple[int, int]) -> Mask:
        resized = torch.nn.functional.interpolate(logits, size=size, mode="bilinear", align_corners=False)
        return np.asarray(resized.argmax(1)[0].numpy())

    yield Rival("PyTorch argmax, interpolate", "nearest", "torch", _with_torch(nearest))
    yield Rival("PyTorch interpolate, argmax", "bilinear", "torch", _with_torch(bilinear))


def _with_torch(run: Callable[[Any, Any, tuple[int, int]], Mask]) -> Callable[..., Callable[[], Mask]]:
    def start(logits: Logits, size: tuple[int, int], threads: int) -> Callable[[], Mask]:
        torch = require("torch", None, "this row")
        torch.set_num_threads(threads)
        tensor = torch.from_numpy(logits)

        def timed() -> Mask:
            with torch.inference_mode():
                return run(torch, tensor, size)

        return timed

    return start


# --- NumPy and OpenCV


def _opencv() -> Iterator[Rival]:
    def nearest(cv2: Any, logits: Logits, size: tuple[int, int]) -> Mask:
        labels = logits[0].argmax(0).astype(np.uint8)
        return np.asarray(cv2.resize(labels, size[::-1], interpolation=cv2.INTER_NEAREST))

    def bilinear(cv2: Any, logits: Logits, size: tuple[int, int]) -> Mask:
        # one class at a time, because OpenCV resizes no more than a few channels at once
        best = np.full(size, -np.inf, np.float32)
        mask = np.zeros(size, np.uint8)
        for index, plane in enumerate(logits[0]):
            value = cv2.resize(plane, size[::-1], interpolation=cv2.INTER_LINEAR)
            wins = value > best
            mask[wins] = index
            np.maximum(best, value, out=best)
        return mask

    yield Rival("NumPy argmax, OpenCV resize", "nearest", "opencv", _with_opencv(nearest))
    yield Rival("OpenCV resize of each class, NumPy argmax", "bilinear", "opencv", _with_opencv(bilinear))


def _with_opencv(run: Callable[[Any, Logits, tuple[int, int]], Mask]) -> Callable[..., Callable[[], Mask]]:
    def start(logits: Logits, size: tuple[int, int], threads: int) -> Callable[[], Mask]:
        cv2 = require("cv2", None, "this row")
        cv2.setNumThreads(threads)
        return lambda: run(cv2, logits, size)

    return start


# --- ONNX Runtime


def _onnxruntime() -> Iterator[Rival]:
    yield Rival("ONNX Runtime, plain ArgMax and Resize", "nearest", "tf", _with_onnxruntime(_plain_nearest))
    yield Rival("ONNX Runtime, our function body", "nearest", "tf", _with_onnxruntime(_body("nearest")), "variant")
    yield Rival("ONNX Runtime, plain Resize and ArgMax", "bilinear", "tf", _with_onnxruntime(_body("bilinear")))


def _plain_nearest(logits: Logits, size: tuple[int, int]) -> onnx.ModelProto:
    """A model as exporters write it: ArgMax, then a Resize that rounds some indices differently from TensorFlow."""
    shape = ", ".join(map(str, logits.shape))
    return onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 17]>
    plain (float[{shape}] logits) => (uint8[1, 1, {size[0]}, {size[1]}] mask) {{
      best = ArgMax <axis = 1> (logits)
      labels = Cast <to = 2> (best)
      sizes = Constant <value_ints = [1, 1, {size[0]}, {size[1]}]> ()
      mask = Resize <mode = "nearest", coordinate_transformation_mode = "half_pixel",
                     nearest_mode = "round_prefer_ceil"> (labels, , , sizes)
    }}""")


def _body(resize: Resize) -> Callable[[Logits, tuple[int, int]], onnx.ModelProto]:
    def model(logits: Logits, size: tuple[int, int]) -> onnx.ModelProto:
        post = Post(resize=resize, classes=max(logits.shape[1], 2), size=size)
        return node_model(post, onnx.TensorProto.FLOAT, logits.shape, 17)

    return model


def _with_onnxruntime(
    model: Callable[[Logits, tuple[int, int]], onnx.ModelProto],
) -> Callable[..., Callable[[], Mask]]:
    def start(logits: Logits, size: tuple[int, int], threads: int) -> Callable[[], Mask]:
        session = onnx_runtime.session(model(logits, size).SerializeToString(), threads=threads)
        return lambda: np.asarray(session.run(None, {"logits": logits})[0]).reshape(size)

    return start
