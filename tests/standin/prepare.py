"""Build the stand-in GPU into build/standin/, and pycuda against it where the environment has none that works.

Needs gcc, and fetches NVIDIA's header files and pycuda's sources with pip. Does nothing that is done already.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from trtpost.cli import gpu_setup

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "driver"
BUILD = ROOT / "build" / "standin"
LIBRARY = BUILD / "libcuda.so.1"
INCLUDE = BUILD / "cuda" / "include"

CUDA = "13.0"  # that the stand-in is


def main() -> None:
    driver()
    pycuda()


def driver() -> Path:
    """Compile the driver if a source is newer than it."""
    sources = sorted(SOURCES.glob("*.c"))
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    if not LIBRARY.is_file() or LIBRARY.stat().st_mtime < newest:
        headers()
        flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wno-deprecated-declarations"]
        flags += ["-fPIC", "-shared", "-fvisibility=hidden", "-pthread", f"-I{INCLUDE}", "-Wl,-soname,libcuda.so.1"]
        fresh = LIBRARY.with_suffix(f".{os.getpid()}")
        _run(os.environ.get("CC", "gcc"), *flags, *sources, "-o", fresh, "-ldl")
        fresh.replace(LIBRARY)  # in one step: another process may be loading it
    return LIBRARY


def kernels() -> Path:
    """Compile our CUDA kernels for the host, if a source is newer than what is there."""
    target, folder = BUILD / "libkernels.so", ROOT / "plugins"
    newest = max(path.stat().st_mtime for name in ("cuda", "common") for path in (folder / name).iterdir())
    if not target.is_file() or target.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}")
        flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
        _run(os.environ.get("CXX", "g++"), *flags, folder / "cuda" / "host.cpp", "-o", fresh)
        fresh.replace(target)
    return target


def headers() -> None:
    """The CUDA header files, out of NVIDIA's wheels."""
    if not (INCLUDE / "cuda.h").is_file():
        print("== fetching the CUDA header files", flush=True)
        gpu_setup.fetch_headers(CUDA, INCLUDE)


def pycuda() -> None:
    """Install pycuda, compiled against the stand-in: a real driver serves the same extension as well."""
    if gpu_setup.pycuda_fault(LIBRARY) is not None:
        print("== compiling pycuda (a minute or two)", flush=True)
        gpu_setup.install_pycuda(CUDA, LIBRARY, INCLUDE)


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(str(part) for part in command[:4])} ...")


if __name__ == "__main__":
    main()
