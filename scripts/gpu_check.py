"""`make gpu-check`: what only a machine with an NVIDIA GPU can show, in stages that say why where they cannot run.

(a) the device, and how fast it copies; (b) the CUDA kernel against the CPU kernel on every pixel, and its time against
PyTorch, CuPy and the speed of memory; (c) an engine built and run: equality with ONNX Runtime, times of its stages, the
share of post-processing, what a CUDA graph gains; (d) the usual TensorFlow pipeline on the same GPU. Prints its lines
and writes them as one table to docs/gpu-check.md. NumPy and pycuda or CuPy are enough for (a) and (b).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # works without an installation, on a machine lent for minutes

from trtpost import cuda  # noqa: E402
from trtpost.errors import MissingPackageError, TrtpostError, reason  # noqa: E402
from trtpost.kernels import cpu  # noqa: E402
from trtpost.kernels import cuda as kernels  # noqa: E402
from trtpost.kernels.reference import argmax_resize, bilinear, limited  # noqa: E402
from trtpost.spec import Post, Resize  # noqa: E402

RUNS = 30
CASES: tuple[tuple[int, tuple[int, int], tuple[int, int]], ...] = (
    (19, (512, 512), (3024, 4032)),
    (21, (257, 257), (1080, 1920)),
    (19, (1024, 2048), (1024, 2048)),
    (150, (128, 128), (4320, 7680)),
    (19, (512, 512), (100, 130)),
)
"""Classes, logits and mask: (a) to (d) use the first."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    stage: str
    what: str
    value: str
    note: str = ""


class Launcher(Protocol):
    """The little that stage (b) needs of pycuda or CuPy."""

    name: str

    def put(self, array: NDArray[Any]) -> int:
        """Copy to the device; the address stays valid."""

    def room(self, size: int) -> int:
        """Make room in device memory."""

    def get(self, address: int, out: NDArray[Any]) -> None:
        """Copy from the device."""

    def kernel(self, name: str) -> Callable[[tuple[int, ...], Sequence[int]], None]:
        """One of our kernels, as a function of grid and arguments."""

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy on the device."""

    def milliseconds(self, run: Callable[[], None]) -> float:
        """Median of many runs, by the GPU's clock."""

    def close(self) -> None:
        """Free everything."""


def main() -> int:
    """Run all stages; 1 if something was wrong."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    driver = cuda.driver()
    rows: list[Row] = []
    failed = False
    start = time.perf_counter()
    for letter, stage in (("a", device), ("b", kernel_stage), ("c", engine_stage), ("d", tensorflow_stage)):
        print(f"({letter}) {(stage.__doc__ or '').splitlines()[0]}", flush=True)
        try:
            for row in stage():
                rows.append(Row(letter, row.what, row.value, row.note))
                print(f"({letter}) {row.what}: {row.value}  {row.note}", flush=True)
                failed |= row.value.startswith("WRONG")
        except (Skipped, ModuleNotFoundError) as why:
            text = f"not installed: {why.name}" if isinstance(why, ModuleNotFoundError) else str(why)
            rows.append(Row(letter, "skipped", text))
            print(f"({letter}) skipped: {text}", flush=True)
        except Exception as error:  # one stage must not take the others' figures with it
            failed = True
            text = str(error) if isinstance(error, TrtpostError) else f"{type(error).__name__}: {reason(error)}"
            rows.append(Row(letter, "failed", text))
            print(f"({letter}) failed: {text}", file=sys.stderr, flush=True)
    if driver is None or not driver.devices:
        print("nothing was run, so docs/gpu-check.md is left as it is", file=sys.stderr)
        return 1
    lines = [
        f"# GPU check: {driver.devices[0].name}",
        "",
        f"Written by `make gpu-check` in {time.perf_counter() - start:.0f} s; medians of {RUNS} runs.",
        "",
        "| | | | |",
        "|---|---|---|---|",
        *(
            "| " + " | ".join(cell.replace("|", "/") for cell in (row.stage, row.what, row.value, row.note)) + " |"
            for row in rows
        ),
    ]
    target = ROOT / "docs" / "gpu-check.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")
    return int(failed)


class Skipped(Exception):  # noqa: N818, nothing is wrong
    """Says why a stage does not run."""


# ---- (a) -------------------------------------------------------------------------------------------------------------


def device() -> Iterator[Row]:
    """Tell what GPU there is, and how fast it copies."""
    driver = cuda.driver()
    if driver is None or not driver.devices:
        raise Skipped("no NVIDIA GPU")
    for one in driver.devices:
        yield Row("", one.name, f"compute capability {one.compute_capability}, {one.memory / 2**30:.0f} GiB")
    yield Row("", "driver", f"CUDA {driver.cuda}")
    with launcher_here() as launcher:
        size = 1 << 28
        source, target = launcher.room(size), launcher.room(size)
        milliseconds = launcher.milliseconds(lambda: launcher.copy(target, source, size))
        name = launcher.name
    yield Row("", "memory, read and written", f"{2 * size / milliseconds / 1e6:.0f} GB/s", f"by {name}")


@contextmanager
def launcher_here() -> Iterator[Launcher]:
    """Choose pycuda, or CuPy where it is missing."""
    reasons = []
    for kind in (Pycuda, Cupy):
        try:
            launcher: Launcher = kind()
        except (ImportError, MissingPackageError) as error:
            reasons.append(str(error))
            continue
        try:
            yield launcher
        finally:
            launcher.close()
        return
    raise Skipped("; ".join(reasons))


class Pycuda:
    """Launches by pycuda."""

    name = "pycuda"

    def __init__(self) -> None:
        import pycuda.driver

        self._scope = ExitStack()
        self._scope.enter_context(cuda.gpu().current())  # for as long as the launcher lives
        self._driver = pycuda.driver
        self._module = self._driver.module_from_buffer(kernels.ptx().encode())
        self._kept: list[Any] = []

    def put(self, array: NDArray[Any]) -> int:
        memory = self._driver.to_device(np.ascontiguousarray(array))
        self._kept.append(memory)
        return int(memory)

    def room(self, size: int) -> int:
        memory = self._driver.mem_alloc(size)
        self._kept.append(memory)
        return int(memory)

    def get(self, address: int, out: NDArray[Any]) -> None:
        self._driver.memcpy_dtoh(out, address)

    def kernel(self, name: str) -> Callable[[tuple[int, ...], Sequence[int]], None]:
        function = self._module.get_function(name)
        function.prepare("PPP" + "i" * len(kernels.Numbers._fields) + "P")
        return lambda grid, arguments: function.prepared_call(grid, kernels.BLOCK, *arguments)

    def copy(self, target: int, source: int, size: int) -> None:
        self._driver.memcpy_dtod(target, source, size)

    def milliseconds(self, run: Callable[[], None]) -> float:
        first, last = self._driver.Event(), self._driver.Event()

        def once() -> float:
            first.record()
            run()
            last.record()
            last.synchronize()
            return float(last.time_since(first))

        return statistics.median([once() for _ in range(RUNS + 5)][5:])

    def close(self) -> None:
        self._kept.clear()
        self._module = None
        self._scope.close()


class Cupy:
    """Launches by CuPy."""

    name = "CuPy"

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._kept: list[Any] = []
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(kernels.ptx())
            file.flush()
            self._module = cupy.RawModule(path=file.name)
            self._module.compile()

    def put(self, array: NDArray[Any]) -> int:
        memory = self._cupy.asarray(np.ascontiguousarray(array))
        self._kept.append(memory)
        return int(memory.data.ptr)

    def room(self, size: int) -> int:
        return self.put(np.zeros(size, np.uint8))

    def get(self, address: int, out: NDArray[Any]) -> None:
        self._cupy.cuda.runtime.memcpy(out.ctypes.data, address, out.nbytes, 2)

    def kernel(self, name: str) -> Callable[[tuple[int, ...], Sequence[int]], None]:
        function = self._module.get_function(name)
        types = [np.uint64] * 3 + [np.int32] * len(kernels.Numbers._fields) + [np.uint64]
        return lambda grid, arguments: function(
            grid, kernels.BLOCK, tuple(kind(one) for kind, one in zip(types, arguments, strict=True))
        )

    def copy(self, target: int, source: int, size: int) -> None:
        self._cupy.cuda.runtime.memcpyAsync(target, source, size, 3, self._cupy.cuda.get_current_stream().ptr)

    def milliseconds(self, run: Callable[[], None]) -> float:
        first, last = self._cupy.cuda.Event(), self._cupy.cuda.Event()

        def once() -> float:
            first.record()
            run()
            last.record()
            last.synchronize()
            return float(self._cupy.cuda.get_elapsed_time(first, last))

        return statistics.median([once() for _ in range(RUNS + 5)][5:])

    def close(self) -> None:
        self._kept.clear()


# ---- (b) -------------------------------------------------------------------------------------------------------------


def kernel_stage() -> Iterator[Row]:
    """Check our kernel on every pixel, and on the clock."""
    if (driver := cuda.driver()) is None or not driver.devices:
        raise Skipped("no NVIDIA GPU")
    with launcher_here() as launcher:
        yield from _correctness(launcher)
    for classes, source, size in CASES:
        logits = smooth_logits(classes, source)
        for resize in get_args(Resize):
            with launcher_here() as launcher:  # a new one each time, which frees the memory of the last
                yield from _speed(launcher, logits, size, Post(classes=classes, resize=resize))


def _speed(launcher: Launcher, logits: NDArray[np.float32], size: tuple[int, int], post: Post) -> Iterator[Row]:
    """Time our kernel and its rivals on one case."""
    _, ours, floor = _launch(launcher, logits, size, post)
    title = f"{'x'.join(map(str, logits.shape[1:]))} to {size[0]}x{size[1]}, {post.resize}"
    yield Row("", title, f"{ours:.3f} ms", f"{ours / floor:.1f} x reading the logits and writing the mask once")
    for name, rival in _rivals(logits, size, post.resize):
        yield Row("", f"- {name}", f"{rival:.3f} ms", f"{rival / ours:.1f} x ours")
    half = _launch(launcher, logits.astype(np.float16), size, post)[1]
    yield Row("", "- ours, float16", f"{half:.3f} ms")


def _correctness(launcher: Launcher) -> Iterator[Row]:
    """Count pixels that differ from the reference and are no tie within rounding, of random logits of every kind."""
    random = np.random.default_rng(1)
    pixels = wrong = ties = 0
    for round_ in range(60):
        resize = ("nearest", "bilinear")[round_ % 2]
        head, layout = ("argmax", "argmax", "threshold")[round_ % 3], ("NCHW", "NHWC")[round_ // 2 % 2]
        classes = 2 if head == "threshold" else int(random.choice([2, 3, 19, 40, 300]))
        source = tuple(int(side) for side in random.integers(1, 90, 2))
        size = tuple(int(side) for side in random.integers(1, 700, 2))
        post = Post(head=head, layout=layout, classes=classes, resize=resize, threshold=0.25)  # type: ignore[arg-type]
        shape = (2, 1 if head == "threshold" else classes, *source)
        logits = random.standard_normal(shape).astype((np.float32, np.float16)[round_ // 4 % 2])
        logits = np.ascontiguousarray(logits if layout == "NCHW" else logits.transpose(0, 2, 3, 1))
        mask = _launch(launcher, logits, size, post, timed=False)[0]  # type: ignore[arg-type]
        expected = argmax_resize(logits, size, post)  # type: ignore[arg-type]
        differs = mask != expected
        pixels += differs.size
        if differs.any():
            real = differs & ~_is_tie(logits, size, post, mask)  # type: ignore[arg-type]
            wrong, ties = wrong + int(real.sum()), ties + int((differs & ~real).sum())
    verdict = f"WRONG: {wrong} differ" if wrong else "equal"
    yield Row("", f"{pixels} pixels of 60 random cases against the reference", verdict, f"{ties} ties within rounding")
    classes, source, size = CASES[0]
    logits = smooth_logits(classes, source)
    for resize in get_args(Resize):
        post = Post(classes=classes, resize=resize)
        mask = _launch(launcher, logits, size, post, timed=False)[0]
        on_cpu = cpu.argmax_resize if cpu.is_available() else argmax_resize
        expected = on_cpu(logits, size, post)
        count = int((mask != expected).sum())
        allowed = 0 if resize == "nearest" else mask.size // 100_000
        verdict = f"WRONG: {count} differ" if count > allowed else "equal" if count == 0 else f"{count} ties differ"
        kernel = "CPU kernel" if cpu.is_available() else "reference"
        yield Row("", f"{mask.size} pixels of a smooth mask, {resize}, against the {kernel}", verdict)


def _is_tie(logits: NDArray[Any], size: tuple[int, int], post: Post, mask: NDArray[Any]) -> NDArray[np.bool_]:
    """True for pixels whose chosen class is the best within rounding."""
    planar = limited(logits if post.layout == "NCHW" else logits.transpose(0, 3, 1, 2))
    if post.resize == "nearest":
        return np.zeros(mask.shape, bool)
    values = bilinear(planar.transpose(2, 3, 0, 1), size, post.match).transpose(2, 3, 0, 1)
    if post.head == "threshold":
        gap = np.abs(values[:, 0] - np.float32(post.threshold))
    else:
        gap = values.max(axis=1) - np.take_along_axis(values, mask[:, None].astype(np.int64), 1)[:, 0]
    close: NDArray[np.bool_] = gap <= 1e-5 * np.abs(values).max()
    return close


def _launch(
    launcher: Launcher, logits: NDArray[Any], size: tuple[int, int], post: Post, *, timed: bool = True
) -> tuple[NDArray[Any], float, float]:
    """The mask, the kernel's milliseconds, and those of copying as many bytes as it must read and write."""
    source = kernels.spatial(post.layout, logits.shape)[1:]
    rows, columns = kernels.positions(post, source, size)
    mask = np.full((len(logits), *size), 0, np.int32 if post.wide else np.uint8)
    target = launcher.room(mask.nbytes)
    arguments = (
        *(launcher.put(array) for array in (logits, rows, columns)),
        *kernels.numbers(post, logits.shape, size),
        target,
    )
    kernel, grid = launcher.kernel(kernels.kernel_name(post, logits.dtype.name)), kernels.grid(len(logits), size)
    kernel(grid, arguments)
    launcher.get(target, mask)
    if not timed:
        return mask, 0.0, 1.0
    ours = launcher.milliseconds(lambda: kernel(grid, arguments))
    moved = (logits.nbytes + mask.nbytes) // 2  # a copy reads and writes each byte
    first, second = launcher.room(moved), launcher.room(moved)
    floor = launcher.milliseconds(lambda: launcher.copy(first, second, moved))
    return mask, ours, floor


def _rivals(logits: NDArray[np.float32], size: tuple[int, int], resize: str) -> Iterator[tuple[str, float]]:
    """Time those of PyTorch and CuPy that are installed, logits and mask on the device."""
    try:
        import torch
        from torch.nn import functional
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            values = torch.from_numpy(logits).cuda()
            if resize == "bilinear":
                run = lambda: functional.interpolate(values, size, mode="bilinear").argmax(1).to(torch.uint8)  # noqa: E731
            else:
                run = lambda: functional.interpolate(  # noqa: E731
                    values.argmax(1, keepdim=True).float(), size, mode="nearest"
                ).to(torch.uint8)
            yield "PyTorch", _torch_milliseconds(torch, run)
            torch.cuda.empty_cache()
    try:
        import cupy
        from cupyx.scipy import ndimage
    except ImportError:
        return
    if resize == "bilinear":
        return
    labels_of = cupy.asarray(logits)
    factors = (1, size[0] / logits.shape[2], size[1] / logits.shape[3])
    clock = Cupy()
    yield (
        "CuPy, argmax and zoom(order=0)",
        clock.milliseconds(lambda: ndimage.zoom(labels_of.argmax(1).astype(cupy.uint8), factors, order=0)),
    )


def _torch_milliseconds(torch: Any, run: Callable[[], Any]) -> float:
    times = []
    for _ in range(RUNS + 5):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        run()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return float(statistics.median(times[5:]))


def smooth_logits(classes: int, source: tuple[int, int]) -> NDArray[np.float32]:
    """Logits [1, C, h, w] as networks give them: large regions, few boundaries."""
    coarse = np.random.default_rng(0).standard_normal((8, 8, classes)).astype(np.float32)
    return np.ascontiguousarray(4 * bilinear(coarse, source).transpose(2, 0, 1)[None])


# ---- (c) -------------------------------------------------------------------------------------------------------------


def engine_stage() -> Iterator[Row]:
    """Build a plan of our own network, run, compare and time it."""
    from trtpost import Segmenter, build
    from trtpost.backends.tensorrt.suitable import builder_here
    from trtpost.cli.tables import parts_of
    from trtpost.packages import installed_version

    if (driver := cuda.driver()) is None or not driver.devices:
        raise Skipped("no NVIDIA GPU")
    flavour, why = builder_here()
    missing = [name for name in ("pycuda", "tensorflow", "tf2onnx") if installed_version(name) is None]
    if flavour is None or missing:
        raise Skipped(why if flavour is None else f"not installed: {', '.join(missing)}")
    photo = np.random.default_rng(0).integers(0, 256, (*CASES[0][2], 3), np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        for resize, post in (("nearest", "native"), ("nearest", "kernel"), ("bilinear", "kernel")):
            target = Path(folder) / f"{resize}_{post}.trtpost"
            bundle = build(ROOT / "models/scenes.keras", target, flavour=flavour, resize=resize, post=post)
            with Segmenter(bundle, backend="onnxruntime") as reference:
                expected = reference(photo).mask
            with Segmenter(bundle, backend="tensorrt") as segmenter:
                plain = segmenter(photo)
                agreement = float((plain.mask == expected).mean())
                first = segmenter(photo).timing  # this one is recorded, the next is the first graph
                timings = [segmenter(photo).timing for _ in range(RUNS)]
                title = f"{resize}, post-processing {post}, on {segmenter.engine}"
                verdict = f"{'' if agreement > 0.999 else 'WRONG: '}{agreement:.4%} of the pixels"
                yield Row("", f"{title}: as ONNX Runtime", verdict)
                for stage in ("upload", "network", "argmax_resize", "download"):
                    median = statistics.median(getattr(one, stage) for one in timings)
                    yield Row("", f"- {stage}", f"{median:.3f} ms", f"without a graph {getattr(first, stage):.3f} ms")
                yield Row("", "- copies", str(timings[-1].copies))
                parts = parts_of(segmenter.profile(photo))
                yield Row("", "- layers", ", ".join(f"{name} {ms:.3f} ms" for name, ms in parts.items()))


# ---- (d) -------------------------------------------------------------------------------------------------------------


def tensorflow_stage() -> Iterator[Row]:
    """Time ArgMax and resize in TensorFlow on the GPU, as in the field."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise Skipped(f"not installed: {error.name}") from None
    if not tf.config.list_physical_devices("GPU"):
        raise Skipped("this TensorFlow sees no GPU")
    classes, source, size = CASES[0]
    logits = tf.constant(np.ascontiguousarray(smooth_logits(classes, source).transpose(0, 2, 3, 1)))

    def nearest() -> Any:
        labels = tf.argmax(logits, -1)[..., None]
        return tf.image.resize(labels, size, method="nearest").numpy()

    def interpolated() -> Any:
        return tf.argmax(tf.image.resize(logits, size), -1).numpy()

    for name, run in (("nearest", nearest), ("bilinear", interpolated)):
        times = []
        for _ in range(RUNS + 5):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1000)
        yield Row(
            "", f"TensorFlow {tf.__version__}, {name}, mask copied back", f"{statistics.median(times[5:]):.2f} ms"
        )


if __name__ == "__main__":
    sys.exit(main())
