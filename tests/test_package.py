"""What is published: wheel and sdist hold what git tracks and nothing else, and install where no compiler is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest
from conftest import package, skip
from nets import nchw, save
from PIL import Image

import trtpost as tp
from trtpost.masks.png import SIGNATURE

ROOT = Path(__file__).parents[1]
LEFT_OUT = (".ci/", ".github/", ".gitattributes", ".gitignore", ".pre-commit-config.yaml")
"""Of what git tracks: what drives a host or an editor is not published."""

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def succeeded(*command: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = run(*command, cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """Files that git tracks."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        skip("this is no git checkout, so nothing tells which files belong to the project")
    files = succeeded("git", "ls-files", "-z", cwd=ROOT).split("\0")
    return {name for name in files if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def dist(tracked, tmp_path_factory) -> Path:
    """Wheel and sdist of the tracked files, built as `python -m build` does, with the packages that are here."""
    for name in ("build", "scikit_build_core", "nanobind", "twine"):
        package(name)
    checkout = tmp_path_factory.mktemp("checkout")
    for name in tracked:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, checkout / name)
    for junk in ("demo/mask.png", "models/downloads/model.tflite", "build/old.o", "net.trtpost/passport.json"):
        (checkout / junk).parent.mkdir(parents=True, exist_ok=True)
        (checkout / junk).write_text("junk")
    folder = tmp_path_factory.mktemp("dist")
    succeeded(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout, cwd=folder)
    return folder


def environment(bin_folder: Path, home: Path) -> dict[str, str]:
    """Of a machine where no compiler, make or cmake is on PATH, and none can be named."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TRTPOST_", "CMAKE"))}
    nothing = str(home / "no-compiler")
    return kept | {"PATH": str(bin_folder), "HOME": str(home), "CC": nothing, "CXX": nothing, "VIRTUAL_ENV": ""}


@pytest.fixture(scope="module")
def clean(dist, tmp_path_factory) -> Path:
    """The Python of an empty environment into which the wheel was installed, with what it depends on."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    env = environment(python.parent, folder)
    # the cache of whoever runs the tests, and no package without a wheel
    env |= {"HOME": os.environ.get("HOME", str(folder))}
    done = run(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel, cwd=folder, env=env)
    if done.returncode and any(word in done.stderr for word in ("Connection", "Temporary failure", "Network")):
        skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def photo(tmp_path_factory) -> Path:
    """A photo; beside it a bundle, and the mask that it should have."""
    folder = tmp_path_factory.mktemp("photo")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "photo.png")
    bundle = tp.build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none", normalize="unit")
    with tp.Segmenter(bundle.place, backend="onnxruntime") as segmenter:
        np.save(folder / "expected.npy", segmenter(pixels).mask)
    return folder / "photo.png"


def test_the_sdist_holds_what_git_tracks_and_nothing_else(dist, tracked):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        found = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    assert found == {name for name in tracked if not name.startswith(LEFT_OUT)} | {"PKG-INFO"}


def test_the_wheel_holds_the_package_and_nothing_else(dist, tracked):
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    native = {name for name in names if name.startswith("trtpost/_cpu.") and name.endswith((".so", ".pyd"))}
    assert len(native) == 1
    assert names - metadata - native == {name for name in tracked if name.startswith("trtpost/")}
    for needed in ("trtpost/py.typed", "trtpost/kernels/argmax_resize.ptx", "trtpost/verify/report.html.jinja"):
        assert needed in names
    assert {name.split("/", 1)[1] for name in metadata} == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    }


def test_the_metadata_say_what_an_index_wants(dist):
    (wheel,) = dist.glob("*.whl")
    succeeded(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("METADATA"))
        stated = Parser().parsestr(opened.read(name).decode())
    assert (stated["Name"], stated["License-Expression"]) == ("trtpost", "Apache-2.0")
    assert stated.get_all("License-File") == ["LICENSE"]
    base = [one for one in stated.get_all("Requires-Dist") if "extra ==" not in one]
    assert not [one for one in base if one.startswith(("tensor", "tf2onnx", "pycuda", "matplotlib", "openvino"))]


def answers(python: Path, photo: Path, tmp_path: Path) -> str:
    """What doctor says, after the version and one mask were right."""
    env = environment(python.parent, tmp_path)
    trtpost = python.with_name("trtpost")
    assert succeeded(trtpost, "--version", cwd=tmp_path, env=env) == f"trtpost {tp.__version__}\n"
    succeeded(trtpost, "infer", photo, "-e", photo.with_name("net.trtpost"), "-o", tmp_path, cwd=tmp_path, env=env)
    mask = tmp_path / "photo.mask.png"
    assert mask.read_bytes().startswith(SIGNATURE)
    np.testing.assert_array_equal(np.asarray(Image.open(mask)), np.load(photo.with_name("expected.npy")))
    return succeeded(trtpost, "doctor", cwd=tmp_path, env=env | {"COLUMNS": "200"})


def test_the_wheel_works_where_no_compiler_is(clean, photo, tmp_path):
    assert "built; runs with" in answers(clean, photo, tmp_path)


def test_the_sdist_installs_without_a_compiler_and_says_what_is_missing(dist, clean, photo, tmp_path):
    (archive,) = dist.glob("*.tar.gz")
    empty = tmp_path / "bin"
    empty.mkdir()
    env = environment(empty, tmp_path)
    built = tmp_path / "dist"
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", built)
    succeeded(*command, archive, cwd=tmp_path, env=env)
    (wheel,) = built.glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "/_cpu." in name and not name.endswith(".pyi")]
    install = (clean, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall")
    succeeded(*install, wheel, cwd=tmp_path, env=environment(clean.parent, tmp_path))
    try:
        said = answers(clean, photo, tmp_path)
        assert "fused kernel" in said
        assert "built; runs with" not in said
    finally:
        succeeded(*install, *dist.glob("*.whl"), cwd=tmp_path, env=environment(clean.parent, tmp_path))
