"""Installs what this machine's GPU needs: a TensorRT that knows it, and pycuda, compiled here.

pycuda has no wheels and asks for a CUDA toolkit. It needs no more of one than two header files, which NVIDIA publishes
in wheels, and the driver's own library to link against.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trtpost import cuda
from trtpost.backends.tensorrt.suitable import beyond_rtx, command_for, cuda_of, newest_cuda, package_for, too_old
from trtpost.errors import MissingPackageError, TrtpostError
from trtpost.packages import installed_version, packages_of, pip_here

PYCUDA = "pycuda>=2026.1"


class SetupError(TrtpostError):
    """Something that the GPU needs could not be installed."""


@dataclass(frozen=True)
class Needs:
    """What a machine with an NVIDIA driver lacks to run plans on its GPU.

    Attributes:
        gpu: where plans run.
        cuda: the newest CUDA version that its driver supports, such as `13.0`.
        package: the one of TensorRT to install with pip; None where one is there that knows this GPU, or none can be
            had from the package index.
        replaces: packages that have to go for it, because they are made for a newer driver.
        pycuda: True where it has to be compiled.
        by_hand: what only the user can do: a sentence each, with the command.
    """

    gpu: cuda.Device
    cuda: str
    package: str | None
    replaces: tuple[str, ...]
    pycuda: bool
    by_hand: tuple[str, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """What `satisfy` would do, a line each."""
        lines = []
        if self.package:
            place = f" in place of {self.replaces[0]}, which needs a newer driver" if self.replaces else ""
            lines.append(f"install {self.package} (TensorRT for RTX){place}")
        if self.pycuda:
            lines.append(f"compile pycuda from its sources, with header files of CUDA {self.cuda}")
        return tuple(lines)


def needs(driver: cuda.Driver | None = None) -> Needs | None:
    """Look for what is missing here; None where there is no driver, or no GPU that it sees.

    Args:
        driver: None: this machine's.
    """
    driver = driver or cuda.driver()
    if driver is None or not driver.devices:
        return None
    gpu = driver.devices[0]
    if old := too_old(driver):
        return Needs(gpu, driver.cuda, None, (), False, (old,))
    package: str | None = None
    replaces: tuple[str, ...] = ()
    by_hand: list[str] = []
    full = installed_version("tensorrt")
    if full is not None:
        if (made_for := cuda_of("tensorrt")) > newest_cuda(driver):
            there = " ".join(_installed("tensorrt"))
            by_hand.append(
                f"tensorrt {full} is made for CUDA {made_for}, and the driver supports CUDA {driver.cuda}: update the "
                f"driver, or take the other one: {pip_here()} uninstall {there}, then {command_for('tensorrt', driver)}"
            )
    elif other := beyond_rtx(driver):
        by_hand.append(other)
    elif installed_version("tensorrt_rtx") is None or cuda_of("tensorrt_rtx") > newest_cuda(driver):
        package, replaces = package_for("tensorrt_rtx", driver), _installed("tensorrt_rtx")
    pycuda = installed_version("pycuda") is None or pycuda_fault() is not None
    if pycuda and sys.platform != "linux":
        pycuda = False
        by_hand.append("pycuda is compiled here on Linux only: install the CUDA toolkit, then pip install pycuda")
    return Needs(gpu, driver.cuda, package, replaces, pycuda, tuple(by_hand))


def _installed(module: str) -> tuple[str, ...]:
    """The names of the packages that a flavour consists of."""
    names = [package.name.replace("_", "-") for package in packages_of(module)]
    return tuple(f"{name}{part}" for part in ("", "-bindings", "-libs") for name in names)


def satisfy(missing: Needs, tell: Callable[[str], None]) -> None:
    """Install what is missing into the environment that runs this; what is installed already and runs here stays.

    Args:
        missing: what `needs` gives.
        tell: takes a line on each step before it begins.

    Raises:
        MissingPackageError: there is no C++ compiler, or Python has no header files.
        SetupError: a step failed; nothing of that step is left.
    """
    if missing.pycuda:
        check_compiler()
    if missing.package:
        tell(f"installing {missing.package}")
        with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
            # both have the same files, so one goes before the other comes, and not before that one is here whole
            pip("wheel", "--wheel-dir", folder, missing.package, doing=f"fetching {missing.package}")
            if missing.replaces:
                pip("uninstall", "--yes", *missing.replaces, doing=f"removing {missing.replaces[0]}")
            local = ("--no-index", "--find-links", folder)
            pip("install", *local, missing.package, doing=f"installing {missing.package}")
    if missing.pycuda:
        library = driver_library()
        tell(f"compiling pycuda with header files of CUDA {missing.cuda}, linked to {library} (a minute or two)")
        install_pycuda(missing.cuda, library)


def install_pycuda(version: str, library: Path, include: Path | None = None) -> None:
    """Compile pycuda without a CUDA toolkit, install it, and see that it runs.

    Args:
        version: the CUDA version, `MAJOR.MINOR`; header files of a newer one ask for functions that the driver lacks.
        library: the driver's, to link against.
        include: folder with `cuda.h` and `cudaProfiler.h`; None fetches them.

    Raises:
        MissingPackageError: there is no C++ compiler, or Python has no header files.
        SetupError: pip or the compiler failed, or what they made does not run.
    """
    check_compiler()
    with tempfile.TemporaryDirectory(prefix="trtpost-") as name:
        folder = Path(name)
        root = folder / "cuda"
        (root / "lib64").mkdir(parents=True)
        # to link, a name without a version is wanted, which a driver without a toolkit does not have
        (root / "lib64" / "libcuda.so").symlink_to(library)
        if include is None:
            fetch_headers(version, root / "include")
        else:
            (root / "include").symlink_to(include)
        arguments = ("--no-deps", "--no-binary", "pycuda", "--dest", str(folder), PYCUDA)
        pip("download", *arguments, doing="fetching pycuda")
        (archive,) = folder.glob("pycuda-*.tar.gz")
        with tarfile.open(archive) as sources:
            if hasattr(tarfile, "data_filter"):  # Python 3.10.12 and later
                sources.extractall(folder, filter="data")
            else:
                sources.extractall(folder)
        (source,) = (path for path in folder.glob("pycuda-*") if path.is_dir())
        # What setup.py would otherwise look for in the user's home. No optimisation: it halves the time, and Python
        # objects are all that it handles.
        (source / "siteconf.py").write_text(
            f'CUDA_ROOT = "{root}"\nCUDA_ENABLE_CURAND = False\nCXXFLAGS = ["-O0", "-g0"]\n'
        )
        pip("install", str(source), doing="compiling pycuda")
    if fault := pycuda_fault(library):
        pip("uninstall", "--yes", "pycuda", doing="removing pycuda again")
        raise SetupError(f"pycuda was compiled but does not run on {library}, so it was removed again: {fault}")


def check_compiler() -> None:
    """Look for what compiling takes, before anything is fetched.

    Raises:
        MissingPackageError: it is not there.
    """
    if shutil.which(os.environ.get("CXX", "g++").split()[0]) is None:
        raise MissingPackageError(
            "pycuda is compiled here, and there is no C++ compiler: install g++ and Python's header files "
            "(apt-get install g++ python3-dev)"
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise MissingPackageError(
            f"pycuda is compiled here, and Python's header files are not there ({header}): apt-get install python3-dev"
        )


def pycuda_fault(library: Path | None = None) -> str | None:
    """Why the installed pycuda does not see the GPU, tried in a process of its own; None: it does.

    Args:
        library: the driver's, where it does not lie in the usual place.
    """
    load = f"import ctypes; ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL); " if library else ""
    code = f"{load}import pycuda.driver as driver; driver.init(); driver.Device(0)"
    done = _python("-c", code)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ended with status {done.returncode}"


def fetch_headers(version: str, include: Path) -> None:
    """Write `cuda.h` and `cudaProfiler.h` of CUDA `version`, or the last before it, out of NVIDIA's wheels.

    Raises:
        SetupError: they cannot be had.
    """
    major, minor = (int(part) for part in version.split("."))
    suffix, first = ("", 13) if major > 12 else (f"-cu{major}", major)  # since 13 the names have no version
    wheels = (f"nvidia-cuda-runtime{suffix}>={first}.0,<{major}.{minor + 1}", f"nvidia-cuda-profiler-api{suffix}")
    include.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        arguments = ("--no-deps", "--only-binary", ":all:", "--dest", folder, *wheels)
        pip("download", *arguments, doing=f"fetching the header files of CUDA {version}")
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.endswith(("/include/cuda.h", "/include/cudaProfiler.h")):
                        (include / Path(name).name).write_bytes(archive.read(name))
    if missing := [name for name in ("cuda.h", "cudaProfiler.h") if not (include / name).is_file()]:
        raise SetupError(f"NVIDIA's wheels for CUDA {version} hold no {missing[0]}: install the CUDA toolkit instead")


def pip(*arguments: str, doing: str) -> None:
    """Run pip in this environment, silently.

    Args:
        arguments: what pip is called with.
        doing: what for; the message begins with it where pip fails.

    Raises:
        SetupError: it failed; the message has the line of its output that says why.
    """
    done = _python("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)
    if done.returncode:
        raise SetupError(f"{doing} failed: {said(done.stderr or done.stdout)[:300]}")


def said(output: str) -> str:
    """The line that says why pip failed, out of its output, in which a compiler's may be."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    compilers = [line for line in lines if re.search(r"[^:\s]: (fatal )?error: |\bld: ", line)]
    scripts = [line for line in lines if line.startswith("error: ") and "subprocess-exited" not in line]
    pips = [line for line in lines if line.startswith("ERROR: ")]
    return (compilers[:1] or scripts[:1] or pips[-1:] or lines[-1:] or ["it says nothing"])[0].removeprefix("ERROR: ")


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another Python of this environment; not in the working folder, where a `pip.py` might lie."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=sys.prefix, capture_output=True, text=True, errors="replace", check=False)


def driver_library() -> Path:
    """Find where the driver's library lies, which has been loaded.

    Raises:
        SetupError: it cannot be found.
    """
    cuda.driver()
    for line in Path("/proc/self/maps").read_text().splitlines():
        place = "".join(line.partition("/")[1:])
        if Path(place).name.startswith("libcuda.so"):
            return Path(place)
    raise SetupError("the driver's libcuda.so.1 cannot be found, against which pycuda is linked")
