"""`make setup` and the demo on a machine with a GPU, from an environment that has no pycuda yet.

The environment is a new one; what is not to be installed anew (TensorFlow, NumPy) it borrows from the one that runs
the tests. pycuda is fetched, compiled without a CUDA toolkit, and installed into it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import prepare
import pytest
from nets import nchw, save
from PIL import Image
from test_run import with_plan

from trtpost.builder.build import build

ROOT = Path(__file__).parents[2]
STANDIN = Path(__file__).parent
SETUP = ROOT / "scripts" / "setup_gpu.py"
NOT_BORROWED = ("pycuda", "_distutils", "pip", "setuptools", "__editable__", "tensorrt_rtx")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A new virtual environment with everything but pycuda and TensorRT for RTX."""
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    for entry in (entry for site in map(Path, sys.path) if site.name == "site-packages" for entry in site.iterdir()):
        target = borrowed / entry.name
        if not entry.name.lower().startswith(NOT_BORROWED) and not target.is_symlink():
            target.symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def rtx(tmp_path_factory):
    """A folder of packages to be put on the path: nothing but that TensorRT for RTX is installed, for CUDA 13."""
    folder = tmp_path_factory.mktemp("rtx")
    package(folder, "tensorrt-rtx-cu13", "tensorrt_rtx")
    return folder


def package(folder: Path, name: str, module: str) -> None:
    """An installed package, as far as one that is never imported goes."""
    info = folder / f"{name.replace('-', '_')}-1.7.1.116.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.7.1.116\n")
    (info / "top_level.txt").write_text(f"{module}\n")
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("")


def run(
    environment: Path, *arguments: object, cwd: Path, extra: tuple[Path, ...] = (STANDIN,), **variables: str
) -> subprocess.CompletedProcess[str]:
    """A Python program in the environment, on a machine whose driver is the stand-in.

    Args:
        environment: as the fixture makes it.
        arguments: of Python.
        cwd: working folder.
        extra: folders of packages; by default the one with the stand-in tensorrt.
        variables: of the environment.
    """
    paths = [*map(str, extra), str(ROOT), str(environment / "borrowed")]
    everything = {
        **os.environ,
        "LD_LIBRARY_PATH": str(prepare.LIBRARY.parent),
        "TRTPOST_STANDIN_KERNELS": str(prepare.kernels()),
        "PYTHONPATH": os.pathsep.join(paths),
        **variables,
    }
    command = [environment / "venv" / "bin" / "python", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=everything, capture_output=True, text=True, check=False)


def has_pycuda(environment: Path) -> bool:
    (site,) = environment.glob("venv/lib/python*/site-packages")
    return any(one.name == "pycuda" for one in importlib.metadata.distributions(path=[str(site)]))


def programs(folder: Path, **scripts: str) -> Path:
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


# In the order of the file, because the last one installs pycuda.


def test_without_a_compiler_it_says_so_and_the_cpu_goes_on(environment, tmp_path):
    setup = run(environment, SETUP, cwd=tmp_path, PATH=str(programs(tmp_path / "bin")))
    assert setup.returncode == 0, setup.stderr
    assert setup.stdout == "== Stand-in GPU, compute capability 8.9, CUDA 13.0\n"
    assert "there is no C++ compiler: install g++" in setup.stderr
    assert "going on with the CPU; once that is mended: trtpost doctor --fix" in setup.stderr
    fix = run(environment, "-m", "trtpost", "doctor", "--fix", "--yes", cwd=tmp_path, PATH=str(tmp_path / "bin"))
    assert fix.returncode == 1
    assert fix.stderr.startswith("trtpost: pycuda is compiled here, and there is no C++ compiler")


def test_a_compiler_that_fails_is_quoted_and_nothing_is_left(environment, tmp_path):
    compiler = "echo 'src/cpp/cuda.hpp:15:2: error: #error no such thing' >&2; exit 1"
    (tmp_path / "pip.py").write_text("raise SystemExit('the working folder is no place to take pip from')")
    bad = programs(tmp_path / "bin", cc=compiler) / "cc"
    setup = run(environment, SETUP, cwd=tmp_path, CC=str(bad), CXX=str(bad))
    assert setup.returncode == 0, setup.stderr
    assert setup.stderr.splitlines() == [
        "   compiling pycuda failed: src/cpp/cuda.hpp:15:2: error: #error no such thing",
        "   going on with the CPU; once that is mended: trtpost doctor --fix",
    ]
    assert not has_pycuda(environment)


@pytest.mark.parametrize(
    ("gpu", "series"), [("9.0 13.0", 13), ("9.0 12.4", 12), ("8.7 12.6", 12), ("10.0 13.1", 13), ("11.0 14.0", 13)]
)
def test_what_only_the_full_tensorrt_knows_is_said_with_its_command(environment, rtx, tmp_path, gpu, series):
    at = {"cwd": tmp_path, "extra": (rtx,), "TRTPOST_STANDIN_GPU": gpu}
    setup = run(environment, SETUP, PATH=str(programs(tmp_path / "bin")), **at)
    capability, cuda = gpu.split()
    python = environment / "venv" / "bin" / "python"
    sentence = (
        f"TensorRT for RTX does not know Stand-in GPU, compute capability {capability}; the full TensorRT does: "
        f"{python} -m pip install tensorrt-cu{series} --extra-index-url https://pypi.nvidia.com"
    )
    assert setup.returncode == 0, setup.stderr
    assert setup.stdout.splitlines()[:2] == [
        f"== Stand-in GPU, compute capability {capability}, CUDA {cuda}",
        f"   {sentence}",
    ]
    doctor = run(environment, "-m", "trtpost", "doctor", "--json", **at)
    findings = json.loads(doctor.stdout)
    assert sentence in [one["text"] for one in findings]
    (line,) = (one["text"] for one in findings if one["name"] == "tensorrt")
    assert f"-m pip install tensorrt-cu{series} --extra-index-url" in line
    assert findings[-1]["text"].endswith("for the GPU, pycuda and a TensorRT that knows it must be installed")


def test_a_driver_that_is_too_old_for_the_package_gets_the_other(environment, rtx, tmp_path):
    at = {"cwd": tmp_path, "extra": (rtx,), "TRTPOST_STANDIN_GPU": "8.9 12.4"}
    asked = run(environment, "-m", "trtpost", "doctor", "--fix", **at)
    assert asked.returncode == 1
    assert asked.stdout.splitlines() == [
        "Stand-in GPU, compute capability 8.9, CUDA 12.4",
        f"into {environment / 'venv'}:",
        "  install tensorrt-rtx-cu12 (TensorRT for RTX) in place of tensorrt-rtx-cu13, which needs a newer driver",
        "  compile pycuda from its sources, with header files of CUDA 12.4",
    ]
    assert "this is no terminal to answer on" in asked.stderr


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ("8.9 11.8", "the driver supports CUDA 11.8, and TensorRT needs 12 or later: update the driver"),
        ("7.0 12.8", "Stand-in GPU has compute capability 7.0, and TensorRT needs 7.5 or later"),
    ],
)
def test_what_no_tensorrt_runs_on_is_said(environment, rtx, tmp_path, gpu, why):
    setup = run(environment, SETUP, cwd=tmp_path, extra=(rtx,), TRTPOST_STANDIN_GPU=gpu)
    assert setup.stdout.splitlines()[1:] == [f"   {why}", "   going on with the CPU"]


def test_from_an_empty_environment_to_a_mask_from_the_gpu(environment, tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).save(tmp_path / "photo.png")
    source = save(nchw(), tmp_path / "net.onnx")
    with_plan(build(source, tmp_path / "net.trtpost", flavour="none", normalize="signed"))
    infer = ("-m", "trtpost", "infer", "photo.png", "-e", "net.trtpost")

    before = run(environment, *infer, cwd=tmp_path)
    assert before.returncode == 0, before.stderr
    assert "on ONNX Runtime" in before.stdout
    assert "not on the GPU: plans are run by pycuda, which is not installed: trtpost doctor --fix" in before.stdout

    setup = run(environment, SETUP, cwd=tmp_path)
    assert setup.returncode == 0, setup.stderr
    assert setup.stdout.splitlines() == [
        "== Stand-in GPU, compute capability 8.9, CUDA 13.0",
        f"   compiling pycuda with header files of CUDA 13.0, linked to {prepare.LIBRARY} (a minute or two)",
        "   plans run on this GPU",
    ], setup.stdout + setup.stderr
    assert has_pycuda(environment)

    after = run(environment, *infer, cwd=tmp_path)
    assert after.returncode == 0, after.stderr
    assert after.stdout.startswith("engine net.trtpost on tensorrt 11.4.0 on Stand-in GPU;")
    again = run(environment, "-m", "trtpost", "doctor", "--fix", cwd=tmp_path)
    assert again.stdout.splitlines()[-1] == "nothing is missing"
