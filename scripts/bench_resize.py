"""A gray photo made larger, with the conversion told apart from the resize; the tables of docs/answers.md, in a minute.

The loop that people time often decodes the photo and converts it on every turn, and so measures these. Here each turn
does all of it, as they do, and each step has its own clock.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

from trtpost.bench.measure import machine, take_turns
from trtpost.bench.output import Cells, Grid, shown
from trtpost.bench.picture import QUALITY
from trtpost.errors import MissingPackageError
from trtpost.kernels import cpu, reference
from trtpost.packages import require
from trtpost.photos.scale import scaled
from trtpost.spec import Match, Post, Resize
from trtpost.verify.frameworks import tensorflow

Gray = NDArray[np.uint8]
Size = tuple[int, int]

SOURCES: tuple[Size, ...] = ((48, 64), (480, 640))
FACTOR, ROUNDS = 3, 50

THREADS = 1
"""Threads of everybody: on pictures as small as these, more than one mostly wait for each other."""


@dataclass(frozen=True)
class Way:
    """A way to resize, in the steps of one turn of the loop.

    Attributes:
        decode: the file's content to what the library decodes to.
        convert: that to what its resize takes.
        resize: that and (H, W) to the result.
        numpy: the result as an array [H, W], to be compared; not timed.
    """

    decode: Callable[[bytes], Any]
    convert: Callable[[Any], Any]
    resize: Callable[[Any, Size], Any]
    numpy: Callable[[Any], NDArray[Any]]


@dataclass(frozen=True)
class Entrant:
    """A library and the pixel convention that it follows; `start` loads it."""

    name: str
    resize: Resize
    match: Match
    start: Callable[[], Way]


@dataclass(frozen=True)
class Turn:
    """Medians in microseconds of each step, or why there are none.

    Attributes:
        different: nearest: pixels that differ from the reference of the entrant's convention.
        largest: bilinear: the largest difference from `tf.image.resize`'s arithmetic, in gray levels; rounding to
            uint8 alone makes 0.5.
    """

    decode: float = 0.0
    convert: float = 0.0
    resize: float = 0.0
    missing: str = ""
    different: int = 0
    largest: float = 0.0


def main() -> int:
    """Print a table for each size; returns the exit status."""
    for source in SOURCES:
        Console(width=160, highlight=False).print(shown([grid(source)]))
    return 0


def grid(source: Size) -> Grid:
    """Tell what a turn of the loop spends on decoding, converting and resizing; nearest above bilinear."""
    size = (source[0] * FACTOR, source[1] * FACTOR)
    content = jpeg(*source)
    turns = measured(content, size)
    rows: list[Cells] = []
    for way in ("nearest", "bilinear"):
        rows.append((way,))
        half = {one: turn for one, turn in turns.items() if one.resize == way}
        ours = list(half.values())[-1]
        for one, turn in half.items():
            if turn.missing:
                rows.append((f"  {one.name}", "-", "-", "-", "-", "", turn.missing))
                continue
            steps = (turn.decode, turn.convert, turn.resize, turn.decode + turn.convert + turn.resize)
            ratio = "" if ours.missing else f"{turn.resize / ours.resize:.1f}"
            rows.append((f"  {one.name}", *(f"{step:.1f}" for step in steps), ratio, _verdict(one, turn)))
    title = (
        f"a gray JPEG of {source[0]}x{source[1]} ({len(content) / 1000:.0f} kB, in memory) to {size[0]}x{size[1]}, "
        f"medians in microseconds; {THREADS} thread; {machine()}"
    )
    columns = ("", "decode", "convert", "resize", "one turn", "resize x ours", "result against the reference")
    return Grid(title, columns, tuple(rows), words=(0, 6))


def _verdict(one: Entrant, turn: Turn) -> str:
    if one.resize == "bilinear":
        return f"within {turn.largest:.2f} gray levels"
    return f"{turn.different} pixels differ of '{one.match}'" if turn.different else f"equal of '{one.match}'"


def jpeg(height: int, width: int) -> bytes:
    """The content of a JPEG of a drawing without noise: shades and a circle."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    shade = 127 + 60 * np.sin(x / 40) + 60 * np.cos(y / 30)
    inside = np.hypot(x - width / 2, y - height / 2) < min(height, width) / 3
    stream = io.BytesIO()
    Image.fromarray(np.where(inside, 255 - shade, shade).astype(np.uint8)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def measured(content: bytes, size: Size) -> dict[Entrant, Turn]:
    """Run everybody in turn in this process, on a JPEG in memory."""
    everybody = entrants()
    ways: dict[Entrant, Way] = {}
    missing: dict[Entrant, Turn] = {}
    for one in everybody:
        try:
            ways[one] = one.start()
        except MissingPackageError as error:
            missing[one] = Turn(missing=str(error))
    times = take_turns({one: _turn(way, content, size) for one, way in ways.items()}, rounds=ROUNDS)
    found = {}
    for one, way in ways.items():
        decode, convert, resize = (statistics.median(step) for step in zip(*times[one], strict=True))
        different, largest = _compared(one, way, content, size)
        found[one] = Turn(decode, convert, resize, different=different, largest=largest)
    return {one: missing.get(one) or found[one] for one in everybody}


def _turn(way: Way, content: bytes, size: Size) -> Callable[[], tuple[float, float, float]]:
    """Microseconds of each step of a turn, after one that wakes threads and fills caches: as in a loop over images."""

    def once() -> tuple[float, float, float]:
        start = time.perf_counter()
        decoded = way.decode(content)
        after_decode = time.perf_counter()
        converted = way.convert(decoded)
        after_convert = time.perf_counter()
        way.resize(converted, size)
        end = time.perf_counter()
        return (after_decode - start) * 1e6, (after_convert - after_decode) * 1e6, (end - after_convert) * 1e6

    def turn() -> tuple[float, float, float]:
        once()
        return once()

    return turn


def _compared(one: Entrant, way: Way, content: bytes, size: Size) -> tuple[int, float]:
    decoded = way.decode(content)
    result = way.numpy(way.resize(way.convert(decoded), size))
    # TensorFlow decodes with another DCT, a level apart here and there
    gray = decoded.numpy()[..., 0] if hasattr(decoded, "numpy") else np.asarray(decoded)
    if one.resize == "nearest":
        rows, columns = (reference.nearest_index(gray.shape[axis], size[axis], one.match) for axis in (0, 1))
        return int((result != gray[rows[:, None], columns]).sum()), 0.0
    return 0, float(np.abs(result - reference.bilinear(gray, size)).max())


def entrants() -> list[Entrant]:
    """Everybody in the order of the table: ours are the last of each half."""
    return [*_tensorflow(), *_torch(), *_opencv(), *_pillow(), *_ours()]


def _array(content: bytes) -> Gray:
    """Read a photo as everybody does, by `np.array(Image.open(file))`, which is what decodes it."""
    return np.array(Image.open(io.BytesIO(content)))


def _as_is(value: Any) -> Any:
    return value


# --- TensorFlow


def _tensorflow() -> Iterator[Entrant]:
    def start(method: str, *, decodes: bool) -> Callable[[], Way]:
        def way() -> Way:
            tf = tensorflow()
            with contextlib.suppress(RuntimeError):  # raised once it has started, with what the first row set
                tf.config.threading.set_intra_op_parallelism_threads(THREADS)
            with tf.device("CPU"):
                return Way(
                    (lambda content: tf.io.decode_jpeg(content, channels=1)) if decodes else _array,
                    _as_is if decodes else lambda array: tf.convert_to_tensor(array)[..., None],
                    lambda tensor, size: tf.image.resize(tensor, size, method=method),
                    lambda result: np.asarray(result)[..., 0],
                )

        return way

    for resize in ("nearest", "bilinear"):
        yield Entrant("TensorFlow, decoded by TensorFlow", resize, "tf", start(resize, decodes=True))
        yield Entrant("TensorFlow, from np.array", resize, "tf", start(resize, decodes=False))


# --- PyTorch


def _torch() -> Iterator[Entrant]:
    def start(mode: str, *, real: bool) -> Callable[[], Way]:
        def way() -> Way:
            torch = require("torch", None, "this row")
            torch.set_num_threads(THREADS)

            def convert(array: Gray) -> Any:
                tensor = torch.from_numpy(array)
                return (tensor.float() if real else tensor).unsqueeze(0).unsqueeze(0)

            options = {"mode": mode} | ({"align_corners": False} if mode == "bilinear" else {})
            return Way(
                _array,
                convert,
                lambda tensor, size: torch.nn.functional.interpolate(tensor, size=size, **options),
                lambda result: result[0, 0].numpy(),
            )

        return way

    for resize in ("nearest", "bilinear"):
        for real in (True, False):
            name = f"PyTorch, {'float' if real else 'uint8'}"
            yield Entrant(name, resize, "torch", start(resize, real=real))


# --- libraries that take the array as it is


def _opencv() -> Iterator[Entrant]:
    def start(method: str) -> Callable[[], Way]:
        def way() -> Way:
            cv2 = require("cv2", None, "this row")
            cv2.setNumThreads(THREADS)
            how = getattr(cv2, method)
            return Way(
                lambda content: cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_GRAYSCALE),
                _as_is,
                lambda array, size: cv2.resize(array, size[::-1], interpolation=how),
                np.asarray,
            )

        return way

    yield Entrant("OpenCV", "nearest", "opencv", start("INTER_NEAREST"))
    yield Entrant("OpenCV", "bilinear", "opencv", start("INTER_LINEAR"))


def _pillow() -> Iterator[Entrant]:
    def start(method: Image.Resampling) -> Callable[[], Way]:
        def decode(content: bytes) -> Image.Image:
            image = Image.open(io.BytesIO(content))
            image.load()
            return image

        return lambda: Way(decode, _as_is, lambda image, size: image.resize(size[::-1], method), np.asarray)

    yield Entrant("Pillow", "nearest", "pil", start(Image.Resampling.NEAREST))
    yield Entrant("Pillow", "bilinear", "tf", start(Image.Resampling.BILINEAR))


def _ours() -> Iterator[Entrant]:
    def nearest() -> Way:
        if not cpu.is_available():
            raise MissingPackageError("the native kernel was not built: see trtpost doctor")
        post = Post(head="labels", classes=256)
        return Way(
            _array,
            lambda array: array[None],
            lambda labels, size: cpu.argmax_resize(labels, size, post, threads=THREADS)[0],
            _as_is,
        )

    def bilinear() -> Way:
        return Way(_array, lambda array: array[..., None], scaled, lambda result: result[..., 0])

    yield Entrant("trtpost's fused kernel, gray levels as labels", "nearest", "tf", nearest)
    yield Entrant("trtpost's preprocessing, one thread", "bilinear", "tf", bilinear)


if __name__ == "__main__":
    sys.exit(main())
