"""Compile the CUDA kernels to the PTX that the package carries, and report what they take of each GPU generation.

`make plugins` runs it after a change in `plugins/cuda`. The compiler is one exact version of NVRTC: the PTX is then the
same everywhere, and old enough a PTX version for every driver that TensorRT 10 runs on. `--check` writes nothing and
fails if the files that are there are not what the sources give.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import files
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "plugins" / "cuda" / "argmax_resize.cu"
PTX = ROOT / "trtpost" / "kernels" / "argmax_resize.ptx"
REPORT = ROOT / "docs" / "cuda-resources.md"
OLDEST = "75"
"""PTX for this compute capability runs on every newer one: the driver compiles it."""
CAPABILITIES = ("75", "80", "86", "87", "89", "90", "100", "103", "120", "121")


def main() -> None:
    """Compile, and write or check the two files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files that are there")
    check = parser.parse_args().check
    ptx = compile_ptx()
    report = report_of(ptx)
    for path, text in ((PTX, ptx), (REPORT, report)):
        name = path.relative_to(ROOT)
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{name} is not what plugins/cuda gives: run `make plugins`")
        else:
            print(f"{name} is up to date")


def compile_ptx() -> str:
    """The PTX of all kernels."""
    nvrtc = ctypes.CDLL(str(_file_of("nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12")))
    program = ctypes.c_void_p()
    source = SOURCE.read_bytes()
    _ask(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None))
    options = [
        f"--gpu-architecture=compute_{OLDEST}",
        "--std=c++17",
        "--fmad=false",  # masks must not depend on where a multiplication and an addition are fused
        f"--include-path={SOURCE.parent}",
    ]
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    _ask(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    log = ctypes.create_string_buffer(size.value)
    _ask(nvrtc.nvrtcGetProgramLog(program, log))
    if failed:
        sys.exit(log.value.decode())
    _ask(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    ptx = ctypes.create_string_buffer(size.value)
    _ask(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx.value.decode()


def report_of(ptx: str) -> str:
    """Registers, shared memory and spills of each kernel on each compute capability, as Markdown."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        file = Path(folder) / PTX.name
        file.write_text(ptx)
        tables = dict(zip(CAPABILITIES, pool.map(lambda one: resources(file, one), CAPABILITIES), strict=True))
    names = list(tables[OLDEST])
    lines = [
        "# What the CUDA kernels take",
        "",
        "Written by `make plugins`: the PTX of the package, assembled for each compute capability. Registers of a "
        "thread (256 threads to a block), bytes of shared memory of a block; no kernel spills registers to memory.",
        "",
        "| kernel | shared | " + " | ".join(f"{one[:-1]}.{one[-1]}" for one in CAPABILITIES) + " |",
        "|---|---" + "|---" * len(CAPABILITIES) + "|",
    ]
    for name in names:
        cells = []
        for capability in CAPABILITIES:
            registers, spilled = tables[capability][name][0], tables[capability][name][2]
            if spilled:
                sys.exit(f"{name} spills {spilled} bytes on compute capability {capability}")
            cells.append(str(registers))
        # newer GPUs reserve 1 kB of every block's shared memory, which the assembler counts there
        lines.append(f"| `{name}` | {tables[OLDEST][name][1]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def resources(ptx: Path, capability: str) -> dict[str, tuple[int, int, int]]:
    """Kernel to registers, bytes of shared memory, and bytes spilled (stores and loads)."""
    ptxas = _file_of("nvidia-cuda-nvcc", "ptxas")
    output = ptx.with_suffix(f".{capability}")
    command = [str(ptxas), "-v", f"-arch=sm_{capability}", str(ptx), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found = {}
    for block in done.stderr.split("Compiling entry function ")[1:]:
        name = block.split("'")[1]
        spills = re.findall(r"(\d+) bytes spill", block)
        (registers,) = re.findall(r"Used (\d+) registers", block)
        (shared,) = re.findall(r"(\d+) bytes smem", block)
        found[name] = int(registers), int(shared), sum(map(int, spills))
    return dict(sorted(found.items()))


def _file_of(package: str, name: str) -> Path:
    for file in files(package) or []:
        if file.name == name:
            return Path(str(file.locate()))
    raise FileNotFoundError(f"{package} holds no {name}")


def _ask(result: int) -> None:
    if result:
        raise RuntimeError(f"NVRTC failed with code {result}")


if __name__ == "__main__":
    main()
