"""`make setup` and the demo on a machine with a GPU, from an environment that has no pycuda yet.

The environment is a new one; what is not to be installed anew (TensorFlow, NumPy) it borrows from the one that runs
the tests. pycuda is fetched, compiled without a CUDA toolkit, and installed into it.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import numpy as np
import prepare
import pytest
from nets import nchw, save
from PIL import Image
from test_run import with_plan

from trtpost.builder import build

ROOT = Path(__file__).parents[2]
STANDIN = Path(__file__).parent


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A new virtual environment with everything but pycuda."""
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    borrowed = folder / "borrowed"
    borrowed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(("pycuda", "_distutils", "pip", "setuptools", "__editable__")):
            (borrowed / entry.name).symlink_to(entry)
    return folder


def run(environment: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A Python program in the environment, on a machine whose driver is the stand-in."""
    paths = [str(STANDIN), str(ROOT), str(environment / "borrowed")]
    variables = {
        **os.environ,
        "LD_LIBRARY_PATH": str(prepare.LIBRARY.parent),
        "TRTPOST_STANDIN_KERNELS": str(prepare.kernels()),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    command = [environment / "venv" / "bin" / "python", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def test_from_an_empty_environment_to_a_mask_from_the_gpu(environment, tmp_path):
    (tmp_path / "photo.png").write_bytes(b"")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)).save(tmp_path / "photo.png")
    source = save(nchw(), tmp_path / "net.onnx")
    with_plan(build(source, tmp_path / "net.trtpost", flavour="none", normalize="signed"))
    infer = ("-m", "trtpost", "infer", "photo.png", "-e", "net.trtpost")

    before = run(environment, *infer, cwd=tmp_path)
    assert before.returncode == 0, before.stderr
    assert "on ONNX Runtime" in before.stdout
    assert "not on the GPU: plans are run by pycuda, which is not installed: trtpost doctor --fix" in before.stdout

    setup = run(environment, ROOT / "scripts" / "setup_gpu.py", cwd=tmp_path)
    assert setup.returncode == 0, setup.stderr
    assert setup.stdout.splitlines() == [
        "== Stand-in GPU, compute capability 8.9, CUDA 13.0",
        "   compiling pycuda (a minute or two)",
        "   plans run on this GPU",
    ], setup.stdout + setup.stderr

    after = run(environment, *infer, cwd=tmp_path)
    assert after.returncode == 0, after.stderr
    assert after.stdout.startswith("engine net.trtpost on tensorrt 11.4.0 on Stand-in GPU;")
    again = run(environment, "-m", "trtpost", "doctor", "--fix", cwd=tmp_path)
    assert again.stdout.splitlines()[-1] == "nothing is missing"


def test_what_fails_leaves_the_cpu(environment, tmp_path):
    (tmp_path / "bin").mkdir()
    script = (
        "import sys; sys.argv[:] = ['x']; import trtpost.gpu_setup as g; g.installed_version = lambda m: None; "
        "g.pip = lambda *a: (_ for _ in ()).throw(g.SetupError('the index is not reached')); "
        f"import runpy; runpy.run_path({str(ROOT / 'scripts' / 'setup_gpu.py')!r}, run_name='__main__')"
    )
    done = run(environment, "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert "the index is not reached" in done.stderr
    assert "going on with the CPU; once that is mended: trtpost doctor --fix" in done.stderr
