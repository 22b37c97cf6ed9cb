"""What the stand-in TensorRT asks of the stand-in driver: memory, host functions in streams, whether one captures."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable

import control

_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_jobs: dict[int, tuple[Callable[[], None], bool]] = {}
_keys = itertools.count(1)
_lock = threading.Lock()


@_HOST_FUNCTION
def _run(key: int) -> None:
    with _lock:
        job, kept = _jobs[key]
        if not kept:
            del _jobs[key]
    job()


def enqueue(stream: int, job: Callable[[], None]) -> tuple[int, int | None]:
    """Run `job` in its turn in a stream. While it captures, the graph keeps the job until `forget` is called.

    Returns:
        CUDA's error code, and the key of a job that a graph keeps.
    """
    key, kept = next(_keys), capturing(stream)
    with _lock:
        _jobs[key] = job, kept
    code = control.driver().cuLaunchHostFunc(ctypes.c_void_p(stream), _run, ctypes.c_void_p(key))
    if code:
        forget(key)
    return code, key if kept and not code else None


def forget(key: int) -> None:
    with _lock:
        _jobs.pop(key, None)


def replace(key: int, job: Callable[[], None]) -> None:
    """Give another meaning to a job that a graph keeps."""
    with _lock:
        if key in _jobs:
            _jobs[key] = job, True


def capturing(stream: int) -> bool:
    status = ctypes.c_int()
    control.driver().cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
    return status.value != 0


def synchronize(stream: int) -> int:
    return control.driver().cuStreamSynchronize(ctypes.c_void_p(stream))


def compute_capability() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    control.driver().cuDeviceComputeCapability(ctypes.byref(major), ctypes.byref(minor), 0)
    return f"{major.value}.{minor.value}"


class Memory:
    """Device memory that TensorRT allocates for itself; freed with the object, whichever context is current then."""

    def __init__(self, size: int) -> None:
        self.context = ctypes.c_void_p()
        self.address = ctypes.c_uint64()
        control.driver().cuCtxGetCurrent(ctypes.byref(self.context))
        self.error = control.driver().cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(max(size, 1)))

    def __del__(self) -> None:
        if self.error:
            return
        driver = control.driver()
        driver.cuCtxPushCurrent_v2(self.context)
        driver.cuMemFree_v2(self.address)
        driver.cuCtxPopCurrent_v2(None)


def is_device_memory(address: int, size: int = 1) -> bool:
    return control.driver().standin_kind(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 2


def accessible(address: int, size: int) -> bool:
    """May a kernel touch this range? Otherwise the device is lost."""
    return control.driver().standin_access(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0
