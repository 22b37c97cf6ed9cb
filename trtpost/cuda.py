"""Drives the GPU: what there is, asked from the driver itself, and what the runtime needs of it, through pycuda.

The only module that imports pycuda, which is found when the first plan is run. There is no `pycuda.autoinit`: the
device's primary context is retained, which TensorFlow, PyTorch and TensorRT in the same process share, and it is
current only while one of our calls is under way. Stream capture, which pycuda does not have, asks the driver directly.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.errors import BackendError, reason
from trtpost.packages import require

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in cuda.h


@dataclass(frozen=True)
class Device:
    """A GPU as the driver describes it; `compute_capability` such as `8.9`, `memory` in bytes."""

    name: str
    compute_capability: str
    memory: int


@dataclass(frozen=True)
class Driver:
    """The CUDA driver: the newest CUDA version that it supports, such as `13.0`, and the GPUs that it sees."""

    cuda: str
    devices: tuple[Device, ...]


def driver() -> Driver | None:
    """The CUDA driver of this machine, or None where there is none; needs no package."""
    try:
        library = _library()
    except OSError:
        return None
    version, count = ctypes.c_int(), ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)):
        return None
    text = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return Driver(text, ())
    return Driver(text, tuple(_device(library, index) for index in range(count.value)))


def _device(library: ctypes.CDLL, index: int) -> Device:
    handle, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    library.cuDeviceGet(ctypes.byref(handle), index)
    library.cuDeviceGetName(name, len(name), handle)
    library.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, handle)
    library.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, handle)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    return Device(name.value.decode(errors="replace"), f"{major.value}.{minor.value}", memory.value)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


# ---- what the runtime needs ------------------------------------------------------------------------------------------


@contextmanager
def understood(doing: str) -> Iterator[None]:
    """Make one sentence of what pycuda raises while `doing` something.

    Raises:
        BackendError: instead of pycuda's errors.
    """
    driver = _pycuda()
    try:
        yield
    except driver.MemoryError:
        raise BackendError(
            f"the GPU has not enough memory for {doing}: close other programs on it, or build for smaller photos "
            "(--max-size, --max-batch)"
        ) from None
    except driver.Error as error:
        raise BackendError(f"the GPU failed at {doing}: {reason(error).removesuffix(' -')}") from None


def _pycuda() -> Any:
    return require("pycuda.driver", "gpu", "running a plan on the GPU")


class Gpu:
    """The primary context of the first GPU, retained until the process ends, as CUDA's own runtime retains it.

    Everything of this module is made, used and freed `with gpu.current():`, in any thread.
    """

    def __init__(self) -> None:
        self._driver = _pycuda()
        with understood("starting"):
            self._driver.init()
            device = self._driver.Device(0)
            self._context = device.retain_primary_context()
            self.name: str = device.name()
        # at exit, after the engines: pycuda's own way there complains
        weakref.finalize(self, self._context.detach)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current for this thread, and whatever was current before afterwards."""
        with understood("switching to its context"):
            self._context.push()
        try:
            yield
        except BaseException:
            with suppress(self._driver.Error):  # the fault above is the one to tell
                self._driver.Context.pop()
            raise
        with understood("switching back from its context"):
            self._driver.Context.pop()


@cache
def gpu() -> Gpu:
    """The GPU of this process.

    Raises:
        BackendError: it does not start.
        MissingPackageError: pycuda is not installed.
    """
    return Gpu()


class Stream:
    """A stream, with marks on it that tell times. Marks ask the driver directly: pycuda's cannot be captured.

    Args:
        marks: how many.
    """

    def __init__(self, marks: int) -> None:
        with understood("making a stream"):
            self._stream = _pycuda().Stream(_STREAM_NON_BLOCKING)
        self.handle = int(self._stream.handle)
        self.is_captured = False
        self._events: list[ctypes.c_void_p] = []
        try:
            for _ in range(marks):
                event = ctypes.c_void_p()
                _ask("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
                self._events.append(event)
        except BaseException:
            self.close()
            raise

    def mark(self, index: int) -> None:
        """Note the time at which the stream's work comes by here; in a graph, each time that it is launched."""
        flags = ctypes.c_uint(_EVENT_EXTERNAL if self.is_captured else 0)
        _ask("cuEventRecordWithFlags", self._events[index], ctypes.c_void_p(self.handle), flags)

    def wait(self) -> None:
        """Wait until all work of the stream is done.

        Raises:
            BackendError: some of it failed.
        """
        with understood("running the plan"):
            self._stream.synchronize()

    def milliseconds(self, first: int, last: int) -> float:
        """Milliseconds between two marks, after `wait`."""
        result = ctypes.c_float()
        _ask("cuEventElapsedTime", ctypes.byref(result), self._events[first], self._events[last])
        return result.value

    def upload(self, buffer: Buffer) -> None:
        """Queue a copy of the buffer's page-locked memory to the device."""
        with understood("copying to it"):
            _pycuda().memcpy_htod_async(buffer.address, buffer.host, self._stream)

    def download(self, buffer: Buffer) -> None:
        """Queue a copy of the buffer's device memory to its page-locked memory."""
        with understood("copying from it"):
            _pycuda().memcpy_dtoh_async(buffer.host, buffer.address, self._stream)

    def launch(self, kernel: Kernel, grid: tuple[int, int, int], block: tuple[int, int, int], *arguments: int) -> None:
        """Queue a kernel."""
        with understood("launching the fused kernel"):
            kernel.function.prepared_async_call(grid, block, self._stream, *arguments)

    def close(self) -> None:
        """Free the stream and its marks, whatever state the device is in."""
        while self._events:
            _library().cuEventDestroy_v2(self._events.pop())
        self._stream = None


class Buffer:
    """Device memory and, unless it never leaves the device, page-locked memory of the same size, grown when needed."""

    def __init__(self, *, on_host: bool = True) -> None:
        self._on_host = on_host
        self._device: Any = None
        self._pinned: Any = None
        self._capacity = 0
        self.host: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.address = 0

    def fit(self, size: int) -> bool:
        """Hold `size` bytes; `host` is then exactly so large. True where the memory moved, and old addresses are void.

        Raises:
            BackendError: there is not enough memory; the buffer is then empty.
        """
        moved = size > self._capacity
        if moved:
            self.close()
            driver = _pycuda()
            with understood(f"{max(size / 1e6, 0.01):.2f} MB of memory"):
                self._device = driver.mem_alloc(size)
                if self._on_host:
                    self._pinned = driver.pagelocked_empty(size, np.uint8)
            self._capacity, self.address = size, int(self._device)
        if self._on_host:
            self.host = self._pinned[:size]
        return moved

    def close(self) -> None:
        """Free the memory."""
        if self._device is not None:
            self._device.free()
        if self._pinned is not None:
            self._pinned.base.free()
        self._device = self._pinned = None
        self.host, self.address, self._capacity = np.empty(0, np.uint8), 0, 0


class Kernel:
    """One kernel of a PTX module.

    Args:
        ptx: the module.
        name: entry point.
        arguments: types of the kernel's arguments, in the letters of `struct`.
    """

    def __init__(self, ptx: str, name: str, arguments: str) -> None:
        with understood(f"loading the kernel {name}"):
            self._module = _pycuda().module_from_buffer(ptx.encode())
            self.function = self._module.get_function(name)
            self.function.prepare(arguments)

    def close(self) -> None:
        """Unload the module."""
        del self.function, self._module


class Graph:
    """A piece of a stream's work, recorded once and launched as a whole.

    Calls the driver directly: pycuda has no stream capture.
    """

    def __init__(self, executable: ctypes.c_void_p) -> None:
        self._executable = executable

    def launch(self, stream: Stream) -> None:
        """Queue everything that was recorded.

        Raises:
            BackendError: the driver refuses.
        """
        _ask("cuGraphLaunch", self._executable, ctypes.c_void_p(stream.handle))

    def close(self) -> None:
        """Free it, whatever state the device is in."""
        _library().cuGraphExecDestroy(self._executable)


@contextmanager
def captured(stream: Stream) -> Iterator[list[Graph]]:
    """Record what is queued on the stream inside the block, instead of running it; the list then holds the graph.

    Raises:
        BackendError: something in the block cannot be recorded; what it raises itself goes through.
    """
    handle, graph, executable = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), ctypes.c_void_p()
    result: list[Graph] = []
    library = _library()
    try:
        stream.is_captured = _captures.under_way = True
        _ask("cuStreamBeginCapture_v2", handle, ctypes.c_int(_CAPTURE_THREAD_LOCAL))
        yield result
        _ask("cuStreamEndCapture", handle, ctypes.byref(graph))
        stream.is_captured = False
        _ask("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        result.append(Graph(executable))
    finally:  # whatever these calls say, a fault above is the one to tell
        if stream.is_captured:
            library.cuStreamEndCapture(handle, ctypes.byref(graph))
        if graph:
            library.cuGraphDestroy(graph)
        if executable and not result:
            library.cuGraphExecDestroy(executable)
        stream.is_captured = _captures.under_way = False
        while _captures.later:
            _captures.later.pop()()


class _Captures(threading.local):
    """State of this thread: no memory may be freed by one that records a graph."""

    def __init__(self) -> None:
        self.under_way = False
        self.later: list[Callable[[], None]] = []


_captures = _Captures()


def outside_captures(free: Callable[[], None]) -> None:
    """Run `free` now or, where this thread is recording a graph, after that: garbage may be collected anywhere."""
    if _captures.under_way:
        _captures.later.append(free)
    else:
        free()


_CAPTURE_THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL in cuda.h: other threads may allocate memory meanwhile."""

_STREAM_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING in cuda.h: what others do in the default stream would break a capture."""

_EVENT_EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL in cuda.h: the mark becomes part of the graph."""


def _ask(name: str, *arguments: Any) -> None:
    code = getattr(_library(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _library().cuGetErrorName(code, ctypes.byref(text))
        raise BackendError(f"the GPU failed at {name}: {(text.value or b'unknown error').decode()}")
