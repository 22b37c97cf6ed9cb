"""What differs between the two flavours of TensorRT and between their versions, and nothing else.

`tensorrt` (data centre, Jetson; 10 and 11) and `tensorrt_rtx` (TensorRT for RTX) have nearly the same Python API.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from trtpost import cuda
from trtpost.errors import BackendError
from trtpost.packages import installed_version, require

FLAVOURS = {"tensorrt": "tensorrt", "tensorrt_rtx": "rtx"}
"""Module name to the extra that installs it, the preferred one first."""

RTX_TARGETS = ("8.0", "8.6", "8.9", "12.0")
"""Compute capabilities that a TensorRT for RTX plan runs on when none is chosen: it compiles for the GPU at load."""


def builder_here() -> tuple[str | None, str]:
    """The flavour that can build a plan on this machine, and why.

    The full TensorRT times its kernels while it builds, so it needs the GPU; TensorRT for RTX does not.
    """
    driver = cuda.driver()
    gpu = driver.devices[0] if driver and driver.devices else None
    if installed_version("tensorrt") and gpu:
        return "tensorrt", f"tensorrt {installed_version('tensorrt')} is installed and there is a GPU ({gpu.name})"
    if installed_version("tensorrt_rtx"):
        return (
            "tensorrt_rtx",
            f"TensorRT for RTX {installed_version('tensorrt_rtx')} is installed and builds without a GPU",
        )
    if installed_version("tensorrt"):
        return (
            None,
            "tensorrt is installed, but it builds only on a machine with an NVIDIA GPU, and there is none here",
        )
    return (
        None,
        "no TensorRT is installed: pip install 'trtpost[rtx]' (or 'trtpost[tensorrt]' on a machine with a GPU)",
    )


def check_builder(flavour: str) -> None:
    """Refuse a flavour that cannot build here, before any work is done.

    Raises:
        MissingPackageError: it is not installed.
        BackendError: it needs a GPU, and there is none.
    """
    require(flavour, FLAVOURS[flavour], "building a TensorRT plan")
    driver = cuda.driver()
    if flavour == "tensorrt" and not (driver and driver.devices):
        raise BackendError(
            "tensorrt builds only on a machine with an NVIDIA GPU, and there is none here: "
            "use --flavour tensorrt_rtx, or none for the portable engine alone"
        )


def strongly_typed(trt: Any) -> int:
    """TensorRT 10 has weakly typed networks too; TensorRT 11 keeps the flag, though it knows nothing else."""
    flags = trt.NetworkDefinitionCreationFlag
    flag = getattr(flags, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def targets(flavour: str) -> tuple[str, ...]:
    if flavour == "tensorrt_rtx":
        return RTX_TARGETS
    driver = cuda.driver()
    return (driver.devices[0].compute_capability,) if driver and driver.devices else ()


@cache
def logger_of(flavour: str) -> Any:
    """One logger a process: TensorRT keeps the first that it is given and ignores the others."""
    trt = require(flavour, FLAVOURS[flavour], "TensorRT")

    class Collector(trt.ILogger):  # type: ignore[misc, name-defined]
        """Keeps warnings and errors for our own messages; prints nothing."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.messages.append(text.strip())

        def last(self) -> str:
            """The last error on one line."""
            return self.messages[-1].splitlines()[0] if self.messages else "it gives no reason"

    return Collector()
