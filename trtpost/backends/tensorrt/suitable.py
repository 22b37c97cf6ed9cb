"""Tells which TensorRT suits this machine, and the command that installs it."""

from __future__ import annotations

import re

from trtpost import cuda
from trtpost.packages import INDEXES, installation, installed_version, packages_of, pip_here

FLAVOURS = {"tensorrt": "tensorrt", "tensorrt_rtx": "rtx"}
"""The extra that installs each flavour, by its module's name, the preferred one first."""

RTX_TARGETS = ("8.0", "8.6", "8.9", "12.0")
"""Compute capabilities that a TensorRT for RTX plan runs on when none is chosen: it compiles for the GPU at load."""

TURING = "7.5"
"""The compute capability that TensorRT for RTX also knows, and leaves out of a plan unless it is asked for."""

OLDEST_CAPABILITY = 7.5
"""Compute capability of the oldest GPUs that TensorRT knows, in both flavours, since 10.5."""

OLDEST_CUDA, NEWEST_CUDA = 12, 13
"""CUDA versions with packages of TensorRT; a driver runs what is made for its own version or an older one."""


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
        f"no TensorRT is installed: {command_for('tensorrt_rtx', driver)} (or, on a machine with a GPU, the full one)",
    )


def newest_cuda(driver: cuda.Driver) -> int:
    """The newest CUDA version that a driver runs packages of."""
    return int(driver.cuda.split(".", maxsplit=1)[0])


def cuda_of(flavour: str) -> int:
    """The CUDA version that the installed package of a flavour is made for; 0 where its name does not tell."""
    found = [re.search(r"cu(\d+)", package.name) for package in packages_of(flavour)]
    return max((int(one.group(1)) for one in found if one), default=0)


def package_for(flavour: str, driver: cuda.Driver) -> str:
    """The package of a flavour whose libraries a driver runs."""
    series = min(newest_cuda(driver), NEWEST_CUDA)
    return f"tensorrt{'-rtx' if flavour == 'tensorrt_rtx' else ''}-cu{series}"


def command_for(flavour: str, driver: cuda.Driver | None) -> str:
    """The command that installs a flavour, in the package that this machine's driver runs where there is one."""
    if driver is None:
        return installation(FLAVOURS[flavour])
    return f"{pip_here()} install {package_for(flavour, driver)}{INDEXES.get(FLAVOURS[flavour], '')}"


def too_old(driver: cuda.Driver) -> str | None:
    """Why no TensorRT runs on the first GPU, whatever is installed; None: one does."""
    gpu = driver.devices[0]
    if newest_cuda(driver) < OLDEST_CUDA:
        return f"the driver supports CUDA {driver.cuda}, and TensorRT needs {OLDEST_CUDA} or later: update the driver"
    if float(gpu.compute_capability) < OLDEST_CAPABILITY:
        return (
            f"{gpu.name} has compute capability {gpu.compute_capability}, and TensorRT needs {OLDEST_CAPABILITY} or "
            "later"
        )
    return None


def beyond_rtx(driver: cuda.Driver) -> str | None:
    """A sentence that TensorRT for RTX does not know the first GPU, with the command that installs the one that does.

    It is None where it knows it: by its support matrix 7.5, 8.0, 8.6, 8.9, and 12.0 and later.
    """
    if old := too_old(driver):
        return old
    gpu = driver.devices[0]
    if gpu.compute_capability in (TURING, *RTX_TARGETS) or float(gpu.compute_capability) >= 12:
        return None
    return (
        f"TensorRT for RTX does not know {gpu.name}, compute capability {gpu.compute_capability}; the full TensorRT "
        f"does: {command_for('tensorrt', driver)}"
    )


def capabilities_here(flavour: str | None, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """The compute capabilities that a plan is built for: those chosen, or what lets it run on the GPU of this machine.

    None at all means the flavour's default, among which every GPU is that it knows, but for one in TensorRT for RTX.
    """
    driver = cuda.driver() if flavour == "tensorrt_rtx" and not chosen else None
    if driver and driver.devices and driver.devices[0].compute_capability == TURING:
        return (TURING,)
    return chosen
