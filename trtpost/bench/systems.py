"""The ways from a photo file to a mask file: each as a function of two paths that times its own stages.

All run the same network: TensorFlow's rows the model as it is, the others its ONNX form in ONNX Runtime or TensorRT.
Each decodes, resizes and encodes with what people use there, at its own defaults unless its name says otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.backends.tensorrt.obstacle import this_machine
from trtpost.bundle.folder import Bundle
from trtpost.convert import kind_of, load
from trtpost.convert.formats import saved_model_folder
from trtpost.errors import SpecError, TrtpostError
from trtpost.packages import require
from trtpost.segment import Segmenter
from trtpost.spec import Backend, Encoding, Located, Pre
from trtpost.timing import Stopwatch, Timing
from trtpost.verify.frameworks import tensorflow
from trtpost.verify.network import output_layout

FIELD = "TensorFlow as in the field"
OPENCV = "ONNX Runtime, NumPy, OpenCV"
OURS = "trtpost on the CPU"

Run = Callable[[Path, Path], Timing]
"""A function of a photo file and the file of its mask that tells how long each stage took."""


@dataclass(frozen=True)
class System:
    """A way to a mask; `missing` says why it cannot run here, `close` frees what it holds."""

    name: str
    run: Run | None = None
    missing: str = ""
    close: Callable[[], None] = lambda: None


def systems(bundle: Bundle, source: Path | None, threads: int) -> list[System]:
    """Start all systems, the usual pipeline first, ours last.

    Args:
        bundle: what ours run; its network in ONNX Runtime for those that have none of their own.
        source: the model in TensorFlow's format, for TensorFlow.
        threads: how many everybody uses.
    """
    pre, located = bundle.passport.pre, bundle.passport.located
    network = OnnxRuntimeEngine(bundle, threads)
    axis = 1 if bundle.passport.post.layout == "NCHW" else 3
    return [
        _system(FIELD, lambda: _tensorflow(source, pre, located, threads, tuned=False)),
        _system(
            "TensorFlow, labels cast to float, PNG level 1",
            lambda: _tensorflow(source, pre, located, threads, tuned=True),
        ),
        _system(OPENCV, lambda: _opencv(network, pre, axis, threads)),
        _system("ONNX Runtime, Pillow, PyTorch", lambda: _torch(network, pre, axis, threads)),
        _ours(OURS, bundle, threads, "onnxruntime"),
        _ours(f"{OURS}, --mask packed", bundle, threads, "onnxruntime", encoding="packed"),
        _ours(f"{OURS}, --fast-decode", bundle, threads, "onnxruntime", fast_decode=True),
        _ours("trtpost on TensorRT", bundle, threads, "tensorrt"),
    ]


def _system(name: str, start: Callable[[], Run]) -> System:
    try:
        return System(name, start())
    except TrtpostError as error:
        return System(name, missing=str(error))


def _ours(
    name: str,
    bundle: Bundle,
    threads: int,
    backend: Backend,
    *,
    fast_decode: bool = False,
    encoding: Encoding = "palette",
) -> System:
    if backend == "tensorrt" and this_machine().driver is None:
        return System(name, missing="there is no NVIDIA GPU here")
    try:
        segmenter = Segmenter(bundle, backend=backend, threads=threads, fast_decode=fast_decode)
    except TrtpostError as error:
        return System(name, missing=str(error))

    def run(photo: Path, target: Path) -> Timing:
        watch = Stopwatch()
        result = segmenter(photo)
        with watch("encode"):
            result.save_mask(target, encoding)
        return replace(result.timing, encode=watch.timing.encode)

    return System(name, run, close=segmenter.close)


# --- TensorFlow


def _tensorflow(source: Path | None, pre: Pre, located: Located, threads: int, *, tuned: bool) -> Run:
    if pre.channels == "gray":
        raise SpecError("takes networks of colour photos alone")
    if output_layout(located) != "NHWC":
        raise SpecError("takes networks whose classes come last")
    if located.covers is not None:
        raise SpecError("takes networks whose logits cover their input")
    tf = tensorflow()
    with contextlib.suppress(RuntimeError):  # raised once it has started, with the number that the first row set
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    with tf.device("CPU"):
        network = _tensorflow_network(tf, source)
    mean, std = tf.constant(pre.mean), tf.constant(pre.std)

    def run(photo: Path, target: Path) -> Timing:
        watch = Stopwatch()
        with tf.device("CPU"):
            with watch("decode"):
                image = tf.io.decode_image(tf.io.read_file(str(photo)), channels=3, expand_animations=False)
            with watch("preprocess"):
                pixels = (tf.image.resize(image, (pre.height, pre.width)) - mean) / std
                pixels = (pixels[..., ::-1] if pre.channels == "bgr" else pixels)[None]
            with watch("network"):
                logits = network(pixels)
            with watch("argmax_resize"):
                if all(located.own_size):
                    logits = tf.reshape(logits, (1, *located.own_size, -1))
                labels = tf.argmax(logits, axis=-1)
                if located.background is not None:
                    some = tf.reduce_max(logits, axis=-1) > located.background
                    labels = tf.where(some, labels + 1, tf.zeros_like(labels))
                labels = labels[..., None]
                labels = tf.cast(labels, tf.float32) if tuned else labels
                mask = tf.image.resize(labels, image.shape[:2], method="nearest")[0]
            with watch("encode"):
                content = tf.io.encode_png(tf.cast(mask, tf.uint8), compression=1 if tuned else -1)
                tf.io.write_file(str(target), content)
        return watch.timing

    return run


def _tensorflow_network(tf: Any, source: Path | None) -> Callable[[Any], Any]:
    """A function from normalised pixels float32 [1, h, w, C] to logits [1, h, w, classes]."""
    kind = kind_of(source) if source is not None else "onnx"
    if source is None or kind not in ("keras", "saved_model"):
        raise SpecError("needs the model as a Keras file or SavedModel folder: bench pipeline MODEL")
    if kind == "keras":
        model, _, _ = load.keras_function(source, None)
        return tf.function(lambda pixels: model(pixels, training=False))  # type: ignore[no-any-return]
    loaded = load.saved_model(saved_model_folder(source))
    signature = next(iter(loaded.signatures.values()))
    name = next(iter(signature.structured_input_signature[1]))

    def run(pixels: Any) -> Any:
        _ = loaded  # frees its variables when it goes
        return next(iter(signature(**{name: pixels}).values()))

    return run


# --- the network in ONNX Runtime


def _opencv(network: OnnxRuntimeEngine, pre: Pre, axis: int, threads: int) -> Run:
    cv2 = require("cv2", None, "this row")
    cv2.setNumThreads(threads)

    def run(photo: Path, target: Path) -> Timing:
        watch = Stopwatch()
        with watch("decode"):
            image = cv2.imread(str(photo), cv2.IMREAD_COLOR_RGB)
        with watch("preprocess"):
            pixels = _in_depth(cv2.resize(image, (pre.width, pre.height)), pre)
        with watch("network"):
            logits = network.logits(pixels[None])
        with watch("argmax_resize"):
            labels = logits.argmax(axis)[0].astype(np.uint8)
            mask = cv2.resize(labels, image.shape[1::-1], interpolation=cv2.INTER_NEAREST)
        with watch("encode"):
            cv2.imwrite(str(target), mask)
        return watch.timing

    return run


def _torch(network: OnnxRuntimeEngine, pre: Pre, axis: int, threads: int) -> Run:
    torch = require("torch", None, "this row")
    torch.set_num_threads(threads)
    interpolate = torch.nn.functional.interpolate

    def run(photo: Path, target: Path) -> Timing:
        watch = Stopwatch()
        with torch.inference_mode():
            with watch("decode"), Image.open(photo) as file:
                image = np.array(file.convert("RGB"))
            with watch("preprocess"):
                tensor = torch.from_numpy(image).permute(2, 0, 1)[None].float()
                small = interpolate(tensor, (pre.height, pre.width), mode="bilinear").round().byte()
                pixels = _in_depth(small[0].permute(1, 2, 0).contiguous().numpy(), pre)
            with watch("network"):
                logits = network.logits(pixels[None])
            with watch("argmax_resize"):
                labels = torch.from_numpy(logits).argmax(axis, keepdim=axis == 1).to(torch.uint8)
                labels = labels if axis == 1 else labels[:, None]
                mask = interpolate(labels, image.shape[:2], mode="nearest")[0, 0].numpy()
            with watch("encode"):
                Image.fromarray(mask).save(target)
        return watch.timing

    return run


def _in_depth(pixels: NDArray[np.uint8], pre: Pre) -> NDArray[np.uint8]:
    """Make pixels uint8 [h, w, 3] gray where the network takes gray."""
    return np.asarray(Image.fromarray(pixels).convert("L"))[..., None] if pre.channels == "gray" else pixels
