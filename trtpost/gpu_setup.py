"""What this machine's GPU needs that is not installed: a TensorRT that knows it, and pycuda, compiled here.

pycuda has no wheels and asks for a CUDA toolkit. It needs no more of one than two header files, which NVIDIA publishes
in wheels, and the driver's own library to link against.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trtpost import cuda
from trtpost.errors import MissingPackageError, TrtpostError
from trtpost.packages import installed_version, packages_of

RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""Compute capabilities of the GPUs that TensorRT for RTX knows (its support matrix)."""

OLDEST_CUDA = 12
"""Of the driver: TensorRT's packages are for CUDA 12 and 13."""

PYCUDA = "pycuda>=2026.1"

NVIDIA_INDEX = "https://pypi.nvidia.com"
"""Where the libraries of the full TensorRT are."""


class SetupError(TrtpostError):
    """Something that the GPU needs could not be installed."""


@dataclass(frozen=True)
class Needs:
    """What a machine with an NVIDIA driver lacks to run plans on its GPU.

    Attributes:
        gpu: the GPU that plans run on.
        cuda: the newest CUDA version that its driver supports, such as `13.0`.
        packages: TensorRT's, to be installed with pip; empty where one is there that knows this GPU, or none can be
            had from the package index.
        pycuda: True where it has to be compiled.
        by_hand: what only the user can do: a sentence each, with the command.
    """

    gpu: cuda.Device
    cuda: str
    packages: tuple[str, ...]
    pycuda: bool
    by_hand: tuple[str, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """What `satisfy` would do, a line each."""
        lines = [f"install {name} (TensorRT for RTX)" for name in self.packages]
        if self.pycuda:
            lines.append(f"compile {PYCUDA.partition('>')[0]} from its sources, with header files of CUDA {self.cuda}")
        return tuple(lines)


def needs(driver: cuda.Driver | None = None) -> Needs | None:
    """What is missing here; None where there is no driver, or no GPU that it sees.

    Args:
        driver: None: this machine's.
    """
    driver = driver or cuda.driver()
    if driver is None or not driver.devices:
        return None
    gpu, major = driver.devices[0], int(driver.cuda.split(".")[0])
    if major < OLDEST_CUDA:
        old = f"the driver supports CUDA {driver.cuda}, and TensorRT needs {OLDEST_CUDA} or later: update the driver"
        return Needs(gpu, driver.cuda, (), False, (old,))
    packages: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    series = min(major, 13)
    if gpu.compute_capability in RTX_CAPABILITIES:
        there = {package.name.replace("_", "-") for package in packages_of("tensorrt_rtx")}
        fits = "tensorrt-rtx-cu13" not in there or series >= 13
        if installed_version("tensorrt") is None and not (there and fits):
            packages = (f"tensorrt-rtx-cu{series}",)
    elif installed_version("tensorrt") is None:
        by_hand = (
            f"TensorRT for RTX does not know compute capability {gpu.compute_capability}; the full TensorRT does: "
            f"{shown_python()} -m pip install tensorrt-cu{series} --extra-index-url {NVIDIA_INDEX}",
        )
    return Needs(gpu, driver.cuda, packages, installed_version("pycuda") is None, by_hand)


def satisfy(missing: Needs, tell: Callable[[str], None]) -> None:
    """Install what is missing into the environment that runs this; what is installed already stays.

    Args:
        missing: as `needs` gives it.
        tell: takes a line on each step before it begins.

    Raises:
        SetupError: a step failed; nothing of that step is left.
    """
    if missing.packages:
        tell(f"installing {', '.join(missing.packages)}")
        pip("install", *missing.packages)
    if missing.pycuda:
        tell("compiling pycuda (a minute or two)")
        install_pycuda(missing.cuda)


def install_pycuda(version: str, library: Path | None = None, include: Path | None = None) -> None:
    """Compile pycuda without a CUDA toolkit, and install it.

    Args:
        version: of CUDA, `MAJOR.MINOR`; header files of a newer one would ask for functions that the driver lacks.
        library: the driver's library to link against; None: this machine's `libcuda.so.1`.
        include: folder with `cuda.h` and `cudaProfiler.h`; None fetches them.

    Raises:
        MissingPackageError: there is no C++ compiler.
        SetupError: pip or the compiler failed.
    """
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        raise MissingPackageError(
            "pycuda is compiled here, and there is no C++ compiler: install g++ and Python's header files "
            "(apt-get install g++ python3-dev)"
        )
    with tempfile.TemporaryDirectory(prefix="trtpost-") as name:
        folder = Path(name)
        root = folder / "cuda"
        (root / "lib64").mkdir(parents=True)
        # to link, a name without a version is wanted, which a driver without a toolkit does not have
        (root / "lib64" / "libcuda.so").symlink_to(library or _driver_library())
        if include is None:
            fetch_headers(version, root / "include")
        else:
            (root / "include").symlink_to(include)
        pip("download", "--no-deps", "--no-binary", "pycuda", "--dest", str(folder), PYCUDA)
        (archive,) = folder.glob("pycuda-*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(folder, filter="data")
        (source,) = (path for path in folder.glob("pycuda-*") if path.is_dir())
        # What setup.py would otherwise look for in the user's home. No optimisation: it halves the time, and Python
        # objects are all that it handles.
        (source / "siteconf.py").write_text(
            f'CUDA_ROOT = "{root}"\nCUDA_ENABLE_CURAND = False\nCXXFLAGS = ["-O0", "-g0"]\n'
        )
        pip("install", str(source))


def fetch_headers(version: str, include: Path) -> None:
    """Write `cuda.h` and `cudaProfiler.h` of CUDA `version`, or the last before it, out of NVIDIA's wheels.

    Raises:
        SetupError: they cannot be had.
    """
    major, minor = (int(part) for part in version.split("."))
    suffix = "" if major > 12 else f"-cu{major}"
    wheels = (f"nvidia-cuda-runtime{suffix}>={major}.0,<{major}.{minor + 1}", f"nvidia-cuda-profiler-api{suffix}")
    include.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        pip("download", "--no-deps", "--only-binary", ":all:", "--dest", folder, *wheels)
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.endswith(("/include/cuda.h", "/include/cudaProfiler.h")):
                        (include / Path(name).name).write_bytes(archive.read(name))
    if missing := [name for name in ("cuda.h", "cudaProfiler.h") if not (include / name).is_file()]:
        raise SetupError(f"NVIDIA's wheels for CUDA {version} hold no {missing[0]}: install the CUDA toolkit instead")


def pip(*arguments: str) -> None:
    """Run pip in this environment, silently.

    Raises:
        SetupError: it failed; the message has its last line that says something.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    said = next((line for line in lines if "error:" in line.lower()), lines[-1] if lines else "it says nothing")
    raise SetupError(f"{shown_python()} -m pip {' '.join(arguments)} failed: {said[:300]}")


def shown_python() -> str:
    """The interpreter of this environment, as short as it can be written."""
    try:
        return str(Path(sys.executable).relative_to(Path.cwd()))
    except ValueError:
        return sys.executable


def _driver_library() -> Path:
    """Where the driver's library lies, which has been loaded.

    Raises:
        SetupError: it cannot be found.
    """
    cuda.driver()
    for line in Path("/proc/self/maps").read_text().splitlines():
        place = line.partition("/")[1:]
        if "libcuda.so" in place[-1]:
            return Path("".join(place))
    raise SetupError("the driver's libcuda.so.1 cannot be found, against which pycuda is linked")
