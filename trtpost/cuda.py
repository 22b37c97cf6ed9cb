"""The GPU: what there is, asked from the driver itself."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

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
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
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
