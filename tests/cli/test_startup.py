"""What starting takes and leaves behind: which packages are imported, which files appear, what is warned of."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from nets import nchw, save
from PIL import Image

import trtpost as tp
from trtpost.packages import installed_version, packages_of

PHOTO = np.zeros((9, 7, 3), np.uint8)

IMPORTED = """
import sys
from trtpost.cli.entry import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", *sorted({name.split(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its bundle with a plan as far as the passport says, and a photo."""
    place = tmp_path_factory.mktemp("startup")
    save(nchw(), place / "net.onnx")
    with warnings.catch_warnings(record=True):
        tp.build(place / "net.onnx", place / "net.trtpost", flavour="none")
    Image.fromarray(PHOTO).save(place / "photo.png")
    return place


def run(arguments, cwd, code=IMPORTED, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**{key: value for key, value in os.environ.items() if "TELEMETRY" not in key}, **environment},
    )


def test_infer_imports_nothing_that_builds(folder, tmp_path):
    """Running needs ONNX Runtime, NumPy and Pillow."""
    done = run(["infer", "photo.png", "-e", "net.trtpost", "-o", tmp_path / "mask.png"], folder)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.rsplit("imported:", 1)[1].split())
    assert {"onnxruntime", "numpy", "PIL"} <= imported
    assert not imported & {"onnx", "onnx_graphsurgeon", "google", "tensorflow", "matplotlib", "tensorrt_rtx", "pycuda"}
    assert "rich.progress" not in done.stdout


def test_segmenter_imports_nothing_that_builds(folder):
    """Nor does the Python API, nor Triton's backend and Ray's actor, which use it."""
    code = """
import sys, warnings
import trtpost as tp
warnings.simplefilter("ignore")
tp.Segmenter("net.trtpost")("photo.png").mask
ours = {"trtpost.builder.build", "trtpost.graph.head", "trtpost.graph.reading"}
print(sorted((ours | {"onnx", "rich", "typer", "tensorflow"}) & set(sys.modules)))
"""
    done = run([], folder, code)
    assert done.stdout == "[]\n", done.stderr


HEAVY = (
    *("onnx", "google", "tensorflow", "tensorrt_rtx", "PIL"),
    *("graph.reading", "graph.head", "graph.baking", "graph.precision", "photos.decode", "kernels"),
    *("convert.worker", "backends.tensorrt.build", "backends.onnxruntime", "builder.decide"),
)
"""Beginnings of what is slow to import: others' packages, and rooms of ours."""


def test_a_build_with_nothing_to_do_imports_nothing_that_builds(folder, tmp_path):
    """What takes longer to import than to see that the bundle is there."""
    code = IMPORTED.replace('.split(".")[0] for name', " for name")
    command = ["build", "net.onnx", "-o", tmp_path / "net.trtpost", "--flavour", "none"]
    for done, nothing in ((run(command, folder, code), False), (run(command, folder, code), True)):
        assert done.returncode == 0, done.stderr
        assert ("nothing to do" in done.stdout) == nothing
        imported = set(done.stdout.rsplit("imported:", 1)[1].split())
        found = {name for name in imported if name.removeprefix("trtpost.").startswith(HEAVY)}
        assert bool(found) != nothing, found


SEGMENT = """
import warnings
warnings.simplefilter("ignore")
import trtpost as tp
tp.Segmenter("net.trtpost")("photo.png")
"""


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        ["infer", "photo.png", "-e", "net.trtpost", "-o", "out.png"],
        ["build", "net.onnx", "-o", "new.trtpost", "--flavour", "none", "--normalize", "unit"],
        None,
    ],
    ids=["infer", "build", "Segmenter"],
)
def test_nothing_is_written_into_the_home_nor_said_of_it(folder, tmp_path, arguments, writable):
    """ONNX Runtime would keep a device id and a database there, and complain where it cannot."""
    home = tmp_path / "home"
    if writable:
        home.mkdir()
    else:
        home.write_text("a file, in which there can be no folder")
    where = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(tmp_path)}
    if arguments is not None:
        arguments = [tmp_path / one if one in ("out.png", "new.trtpost") else one for one in arguments]
    done = run(arguments or [], folder, IMPORTED if arguments else SEGMENT, **where)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if writable:
        assert list(home.rglob("*")) == []


def test_who_wants_telemetry_keeps_it():
    """The variable is left as the user has set it."""
    code = "import os, trtpost; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert run([], Path(), code, ORT_DISABLE_TELEMETRY="0").stdout == "0\n"
    assert run([], Path(), code).stdout == "1\n"


# --- doubts


def test_doubts_are_warnings_at_the_caller_s_line(folder, tmp_path):
    """`build` and `Segmenter` say what they assumed, once, as a class that can be turned off or into an error."""
    with pytest.warns(tp.DoubtWarning, match="pixels are normalised: .* is ASSUMED.*--normalize") as caught:
        bundle = tp.build(folder / "net.onnx", tmp_path / "net.trtpost", flavour="none")
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(tp.DoubtWarning, match="was assumed when .* was built") as caught:
        tp.Segmenter(bundle).close()
    assert [one.filename for one in caught] == [__file__]
    assert issubclass(tp.DoubtWarning, UserWarning)


def test_no_doubt_no_warning(folder, tmp_path):
    """With the flag that settles it there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bundle = tp.build(folder / "net.onnx", tmp_path / "net.trtpost", flavour="none", normalize="unit")
        tp.Segmenter(bundle).close()


def test_the_command_line_says_them_once_and_not_as_python_s(folder, tmp_path):
    """A line of its own; nothing on stderr."""
    done = run(["build", "net.onnx", "-o", tmp_path / "net.trtpost", "--flavour", "none"], folder)
    assert done.stdout.count("is ASSUMED") == 1
    assert done.stderr == ""
    done = run(["infer", "photo.png", "-e", tmp_path / "net.trtpost", "-o", tmp_path / "mask.png"], folder)
    assert done.stdout.count("was assumed") == 1
    assert done.stderr == ""


# --- versions


@pytest.mark.parametrize("module", ["numpy", "PIL", "onnx_graphsurgeon", "yaml", "tensorrt_rtx", "tensorflow"])
def test_versions_are_those_of_the_whole_list(module):
    """Found by name, or in the list of all that is installed: the same package."""
    from importlib.metadata import packages_distributions, version

    names = packages_distributions().get(module, [])
    if not names:
        assert installed_version(module) is None
    else:
        assert installed_version(module) in {version(name) for name in names}
        assert {one.name for one in packages_of(module)} <= set(names)
