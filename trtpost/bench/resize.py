"""`trtpost bench resize`: a gray photo made larger, with the conversion told apart from the resize.

The loop that people time often decodes the photo and converts it on every turn, and so measures these. Here each turn
does all of it, as they do, and each step has its own clock.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.bench.measure import take_turns
from trtpost.bench.picture import drawn_gray, jpeg_of
from trtpost.bench.post import machine
from trtpost.errors import MissingPackageError, SpecError
from trtpost.kernels import cpu, reference
from trtpost.packages import require
from trtpost.photos.scale import scaled
from trtpost.spec import MAX_SIDE, Match, Post, Resize
from trtpost.verify.frameworks import tensorflow

Gray = NDArray[np.uint8]
Size = tuple[int, int]

MAX_PIXELS = 1 << 26
"""Of the result."""


@dataclass(frozen=True)
class Way:
    """One way to resize, in the steps of one turn of the loop.

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
    """`start` loads the library; its threads are set to the given number."""

    name: str
    resize: Resize
    match: Match
    start: Callable[[int], Way]
    ours: bool = False


@dataclass(frozen=True)
class Row:
    """Medians in microseconds of each step, or why there are none.

    Attributes:
        different: nearest: pixels that differ from the reference of `match`.
        largest: bilinear: the largest difference from `tf.image.resize`'s arithmetic, in gray levels; rounding to
            uint8 alone makes 0.5.
    """

    name: str
    resize: Resize
    match: Match
    ours: bool
    decode: float = 0.0
    convert: float = 0.0
    scale: float = 0.0
    missing: str = ""
    different: int = 0
    largest: float = 0.0

    @property
    def total(self) -> float:
        """Microseconds of one turn of the loop."""
        return self.decode + self.convert + self.scale


@dataclass(frozen=True)
class ResizeReport:
    """All rows, and what they were measured on."""

    source: Size
    size: Size
    bytes: int
    threads: int
    machine: str
    rows: tuple[Row, ...]

    def ours(self, resize: Resize) -> Row | None:
        """Our row."""
        return next((row for row in self.rows if row.ours and row.resize == resize and not row.missing), None)


def bench_resize(
    source: Size,
    factor: int,
    *,
    threads: int = 1,
    rounds: int = 50,
    advance: Callable[[], None] = lambda: None,
) -> ResizeReport:
    """Run everybody in turn in this process, on a JPEG of a drawing that is held in memory.

    Args:
        source: (h, w) of the photo.
        factor: how many times as high and as wide the result is.
        threads: for everybody; on pictures as small as these, more than one mostly wait for each other.
        rounds: turns of each row.
        advance: called after each round.

    Raises:
        SpecError: sizes out of range.
    """
    size = (source[0] * factor, source[1] * factor)
    if factor < 1 or max(size) > MAX_SIDE or size[0] * size[1] > MAX_PIXELS:
        raise SpecError(f"bench resize makes results up to {MAX_PIXELS >> 20} Mi pixels, not {size[0]}x{size[1]}")
    content = jpeg_of(drawn_gray(*source))
    everybody = entrants()
    ways: dict[str, Way] = {}
    missing: dict[str, str] = {}
    for index, one in enumerate(everybody):
        try:
            ways[str(index)] = one.start(threads)
        except MissingPackageError as error:
            missing[str(index)] = str(error)
    turns = {name: _turn(way, content, size) for name, way in ways.items()}
    times = take_turns(turns, rounds=rounds, short=True, advance=advance)
    rows = []
    for index, one in enumerate(everybody):
        way = ways.get(str(index))
        if way is None:
            rows.append(Row(one.name, one.resize, one.match, one.ours, missing=missing[str(index)]))
            continue
        decode, convert, scale = (statistics.median(step) for step in zip(*times[str(index)], strict=True))
        different, largest = _verdict(one, way, content, size)
        rows.append(
            Row(
                one.name,
                one.resize,
                one.match,
                one.ours,
                decode,
                convert,
                scale,
                different=different,
                largest=largest,
            )
        )
    return ResizeReport(source, size, len(content), threads, machine(), tuple(rows))


def _turn(way: Way, content: bytes, size: Size) -> Callable[[], tuple[float, float, float]]:
    """One turn of the loop: microseconds of each step."""

    def turn() -> tuple[float, float, float]:
        start = time.perf_counter()
        decoded = way.decode(content)
        after_decode = time.perf_counter()
        converted = way.convert(decoded)
        after_convert = time.perf_counter()
        way.resize(converted, size)
        end = time.perf_counter()
        return (after_decode - start) * 1e6, (after_convert - after_decode) * 1e6, (end - after_convert) * 1e6

    return turn


def _verdict(one: Entrant, way: Way, content: bytes, size: Size) -> tuple[int, float]:
    decoded = way.decode(content)
    result = way.numpy(way.resize(way.convert(decoded), size))
    # TensorFlow decodes with another DCT, a level apart here and there
    gray = decoded.numpy()[..., 0] if hasattr(decoded, "numpy") else np.asarray(decoded)
    if one.resize == "nearest":
        rows, columns = (reference.nearest_index(gray.shape[axis], size[axis], one.match) for axis in (0, 1))
        return int((result != gray[rows[:, None], columns]).sum()), 0.0
    return 0, float(np.abs(result - reference.bilinear(gray, size)).max())


def entrants() -> list[Entrant]:
    """In the order of the table."""
    return [*_tensorflow(), *_torch(), *_opencv(), *_pillow(), *_ours()]


def _array(content: bytes) -> Gray:
    """What everybody writes: `np.array(Image.open(file))`; it is here that the photo is decoded."""
    return np.array(Image.open(io.BytesIO(content)))


def _as_is(value: Any) -> Any:
    return value


# --- TensorFlow


def _tensorflow() -> Iterator[Entrant]:
    def start(method: str, *, decodes: bool) -> Callable[[int], Way]:
        def way(threads: int) -> Way:
            tf = tensorflow()
            with contextlib.suppress(RuntimeError):  # raised once it has started, with what the first row set
                tf.config.threading.set_intra_op_parallelism_threads(threads)
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
    def start(mode: str, *, real: bool) -> Callable[[int], Way]:
        def way(threads: int) -> Way:
            torch = require("torch", None, "this row")
            torch.set_num_threads(threads)

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
    def start(method: str) -> Callable[[int], Way]:
        def way(threads: int) -> Way:
            cv2 = require("cv2", None, "this row")
            cv2.setNumThreads(threads)
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
    def start(method: Image.Resampling) -> Callable[[int], Way]:
        def decode(content: bytes) -> Image.Image:
            image = Image.open(io.BytesIO(content))
            image.load()
            return image

        return lambda _: Way(decode, _as_is, lambda image, size: image.resize(size[::-1], method), np.asarray)

    yield Entrant("Pillow", "nearest", "pil", start(Image.Resampling.NEAREST))
    yield Entrant("Pillow", "bilinear", "tf", start(Image.Resampling.BILINEAR))


def _ours() -> Iterator[Entrant]:
    def nearest(threads: int) -> Way:
        if not cpu.is_available():
            raise MissingPackageError("the native kernel was not built: see trtpost doctor")
        post = Post(head="labels", classes=256)
        return Way(
            _array,
            lambda array: array[None],
            lambda labels, size: cpu.argmax_resize(labels, size, post, threads=threads)[0],
            _as_is,
        )

    def bilinear(_: int) -> Way:
        return Way(_array, lambda array: array[..., None], scaled, lambda result: result[..., 0])

    yield Entrant("trtpost's fused kernel, gray levels as labels", "nearest", "tf", nearest, ours=True)
    yield Entrant("trtpost's preprocessing, one thread", "bilinear", "tf", bilinear, ours=True)
