"""What tests ask of the stand-in GPU: counts, faults, and what kind of device it is. Mirrors driver/control.h."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "build" / "standin" / "libcuda.so.1"

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
ILLEGAL_ADDRESS = 700
LAUNCH_FAILED = 719


@dataclass(frozen=True)
class Alive:
    """What has been made and not yet freed."""

    device_blocks: int
    device_bytes: int
    host_blocks: int
    host_bytes: int
    streams: int
    events: int
    graphs: int
    graph_execs: int
    modules: int
    contexts: int
    primary_refs: int


@dataclass(frozen=True)
class Mistakes:
    """What a real device would punish, or pass over in silence, since the last reset."""

    bad_frees: int
    bad_handles: int
    bad_accesses: int
    overruns: int
    bad_launches: int


@dataclass(frozen=True)
class Work:
    """What was carried out since the last reset."""

    launches: int
    graph_launches: int
    host_functions: int
    memsets: int
    copies_to_device: int
    copies_to_host: int
    copies_on_device: int
    bytes_to_device: int
    bytes_to_host: int
    pageable_copies: int
    captures: int
    broken_captures: int


_PARTS = (Alive, Mistakes, Work)


class _Counts(ctypes.Structure):
    _fields_ = [(field.name, ctypes.c_ulonglong) for part in _PARTS for field in fields(part)]


def driver() -> ctypes.CDLL:
    """The stand-in driver. The first call loads it for the whole process, before pycuda looks for `libcuda.so.1`."""
    library = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
    library.standin_calls.restype = ctypes.c_ulonglong
    return library


def _read(part: type) -> object:
    counts = _Counts()
    driver().standin_counts(ctypes.byref(counts))
    return part(*(getattr(counts, field.name) for field in fields(part)))


def alive() -> Alive:
    return _read(Alive)


def mistakes() -> Mistakes:
    return _read(Mistakes)


def work() -> Work:
    return _read(Work)


def calls(function: str) -> int:
    """How often a driver function, `cuMemAlloc` say, was called since the last reset."""
    return driver().standin_calls(function.encode())


def reset() -> None:
    """Forget mistakes, work, faults and a lost device; what is alive stays so."""
    driver().standin_defer(0)
    driver().standin_reset()


def pop_contexts() -> int:
    """Leave this thread without a current context; how many there were on its stack."""
    depth = 0
    while driver().cuCtxPopCurrent_v2(None) == 0:
        depth += 1
    return depth


def fail(function: str, code: int, after: int = 0, times: int = 1) -> None:
    """The `times` calls of a driver function after the next `after` ones return `code` and do nothing.

    pycuda collects garbage and tries again when an allocation fails: that takes two.
    """
    for one in range(after, after + times):
        driver().standin_fail(function.encode(), one, code)


def lose(code: int = ILLEGAL_ADDRESS) -> None:
    """Lose the device: everything fails with `code` until the next reset."""
    driver().standin_lose(code)


@contextmanager
def deferred() -> Iterator[None]:
    """The work of streams waits until something synchronises with it: reading results too early shows."""
    driver().standin_defer(1)
    try:
        yield
    finally:
        driver().standin_defer(0)


def kernels(path: str | os.PathLike[str] | None) -> None:
    """The shared library with the host build of the kernels; None takes TRTPOST_STANDIN_KERNELS."""
    if driver().standin_kernels(None if path is None else os.fsencode(path)):
        raise OSError(f"{path or '$TRTPOST_STANDIN_KERNELS'} has no host build of the kernels")


def device(name: str = "Stand-in GPU", compute_capability: str = "8.9", memory: int = 16 << 30) -> None:
    """What kind of GPU it is, until the next reset."""
    major, minor = (int(part) for part in compute_capability.split("."))
    driver().standin_device(name.encode(), major, minor, ctypes.c_ulonglong(memory))


def installation(cuda: str = "13.0", devices: int = 1) -> None:
    """The CUDA version of the driver and how many GPUs there are, until the next reset."""
    major, minor = (int(part) for part in cuda.split("."))
    driver().standin_driver(major * 1000 + minor * 10, devices)
