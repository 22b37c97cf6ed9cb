"""Bundles from elsewhere, damaged, replaced while they are read, or written where they cannot be."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import in_threads, trtpost
from nets import nchw, save

from trtpost.backends.tensorrt.obstacle import Machine
from trtpost.builder.build import build
from trtpost.bundle.folder import (
    MODEL,
    PASSPORT,
    PLAN,
    load_bundle,
    newest_bundle,
    read_bundle,
    record_verification,
    write_bundle,
)
from trtpost.bundle.passport import FORMAT, Plan, Verification
from trtpost.cuda import Device, Driver
from trtpost.errors import BackendError, BundleError
from trtpost.segment import Segmenter
from trtpost.storage import whole_folder

PHOTO = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
GPU_PLAN = Plan("tensorrt", "11.4.0", ("8.9",), {"CONVOLUTION": 1}, {"fp32": 1})


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """A bundle without and one with a plan, to copy."""
    folder = tmp_path_factory.mktemp("templates")
    plain = build(save(nchw(), folder / "net.onnx"), folder / "plain.trtpost", flavour="none", normalize="unit")
    passport = replace(plain.passport, plan=GPU_PLAN)
    planned = write_bundle(folder / "planned.trtpost", read_bundle(plain.path).model, b"plan" * 100, passport)
    return plain.path, planned.path


@pytest.fixture
def bundle(templates, tmp_path):
    """The path of a bundle that may be spoilt."""
    return shutil.copytree(templates[0], tmp_path / "net.trtpost")


@pytest.fixture
def planned(templates, tmp_path):
    """The path of one with a plan."""
    return shutil.copytree(templates[1], tmp_path / "planned.trtpost")


def edited(bundle, change):
    values = json.loads((bundle / PASSPORT).read_text())
    change(values)
    (bundle / PASSPORT).write_text(json.dumps(values))


def setting(**changes):
    return lambda values: values.update(changes)


def within(name, **changes):
    return lambda values: values[name].update(changes)


def rebuilt(path, **settings):
    """What the messages tell the user to do works: build into the same name."""
    source = save(nchw(), path.parent / "again.onnx")
    assert load_bundle(build(source, path, flavour="none", **settings).path).path == path


# --- from elsewhere


@pytest.mark.parametrize(
    ("version", "says"),
    [(FORMAT - 1, "build it again$"), (99, "update trtpost, or build it again"), ("2", "build it again$")],
)
def test_a_bundle_of_another_format_says_what_to_do_and_can_be_built_again(bundle, version, says):
    """Bundles of older and newer versions of trtpost."""
    edited(bundle, setting(format=version, something_new=1))
    with pytest.raises(BundleError, match=rf"has format {version}, this trtpost reads format {FORMAT}: .*{says}"):
        load_bundle(bundle)
    rebuilt(bundle)


def test_a_bundle_of_another_version_with_the_same_format_works(templates, tmp_path):
    """The format decides, not the version that wrote it; but `build` builds anew."""
    contents = read_bundle(templates[0])
    model = contents.model
    del model.metadata_props[:]
    from trtpost.builder.build import embed

    passport = replace(contents.bundle.passport, version="0.0.1")
    embed(model, passport)
    written = write_bundle(tmp_path / "net.trtpost", model, None, passport)
    with Segmenter(written.path) as segmenter:
        assert segmenter.bundle.passport.version == "0.0.1"
        assert segmenter(PHOTO).mask.shape == PHOTO.shape[:2]


def gpu(capability="8.9", **versions):
    driver = Driver("13.0", (Device("Some GPU", capability, 1 << 33),))
    return Machine(driver, versions or {"tensorrt": "11.4.0"}, {"tensorrt": 13}, pycuda=True)


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (gpu("7.5"), "compute capability 8.9, but Some GPU has 7.5: build it again here"),
        (gpu(tensorrt="10.3.0"), "built by tensorrt 11.4.0, .* but 10.3.0 is installed here: build it again here"),
        (gpu(tensorrt_rtx="1.7"), "needs tensorrt 11.4.0, which is not installed"),
    ],
)
def test_a_plan_for_another_machine_or_flavour_leaves_the_cpu_and_says_why(planned, monkeypatch, machine, says):
    """Plans that cannot run here: the portable engine does, and the note says what to do."""
    monkeypatch.setattr("trtpost.backends.choice.this_machine", lambda: machine)
    monkeypatch.setattr("trtpost.backends.tensorrt.run.this_machine", lambda: machine)
    with Segmenter(planned) as segmenter, Segmenter(planned, backend="onnxruntime") as portable:
        assert segmenter.backend == "onnxruntime"
        np.testing.assert_array_equal(segmenter(PHOTO).mask, portable(PHOTO).mask)
        assert segmenter.note is not None
    with pytest.raises(BackendError, match=says):
        Segmenter(planned, backend="tensorrt")


# --- damaged


@pytest.mark.parametrize("name", [MODEL, PLAN, PASSPORT])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut short", "random", "longer", "a folder", "a dead link"])
def test_a_file_that_is_not_the_one_that_was_built(planned, name, damage):
    """Each file of a bundle, damaged in each way: refused by a sentence that names it, and mended by `build`."""
    file = planned / name
    content = file.read_bytes()
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    elif damage == "a dead link":
        file.symlink_to("nowhere")
    elif damage != "missing":
        cut = {"empty": b"", "cut short": content[: len(content) // 2], "longer": content + b"\0"}
        file.write_bytes(cut.get(damage, np.random.default_rng(0).bytes(len(content))))
    with pytest.raises(BundleError, match=rf"{name}.* build (it|the bundle) again|it has no {name}; build one"):
        load_bundle(planned)
    if damage != "a folder":
        rebuilt(planned)


@pytest.mark.parametrize("name", [MODEL, PLAN, PASSPORT])
def test_files_of_two_bundles_do_not_mix(planned, tmp_path, name):
    """A model, plan or passport of another build; a plan that cannot run here is left unread by what runs."""
    other = build(save(nchw(5), tmp_path / "other.onnx"), tmp_path / "other.trtpost", flavour="none")
    other = write_bundle(other.path, read_bundle(other.path).model, b"other", replace(other.passport, plan=GPU_PLAN))
    shutil.copy(other.path / name, planned / name)
    with pytest.raises(BundleError, match=r"is not the (file|passport) that was built"):
        load_bundle(planned) if name == PLAN else Segmenter(planned)


def test_hashes_that_were_made_to_fit_do_not_help(bundle, tmp_path):
    """A model of another build whose hash was written into the passport: its own passport tells."""
    other = build(save(nchw(5), tmp_path / "other.onnx"), tmp_path / "other.trtpost", flavour="none")
    shutil.copy(other.model, bundle / MODEL)
    edited(bundle, setting(files=other.passport.files))
    with pytest.raises(BundleError, match=rf"not the passport that was built \(the one in {MODEL} differs\)"):
        load_bundle(bundle)


HUGE = 10**30
EDITS = {
    "pre empty": (setting(pre={}), "damaged"),
    "pre null": (setting(pre=None), "damaged"),
    "unknown head": (setting(post={"head": "guess"}), "damaged"),
    "no classes": (setting(classes=[]), "class names"),
    "classes a number": (setting(classes=5), "classes"),
    "class a number": (setting(classes=["a", "b", "c", 4]), r"classes\.3"),
    "classes too many": (setting(classes=list("abcdefgh")), "8 class names do not fit 4 classes"),
    "no files": (setting(files={}), "list of files"),
    "files null": (setting(files=None), "files"),
    "a file elsewhere": (within("files", **{"../../etc/passwd": "0" * 64}), "list of files"),
    "size of nothing": (setting(max_size=[0, 5]), "damaged"),
    "size of one": (setting(max_size=[5]), "max_size"),
    "huge size": (setting(max_size=[HUGE, 5]), "damaged"),
    "another source": (setting(source="other.onnx"), "not the passport that was built"),
    "batch a text": (setting(max_batch="8"), "max_batch"),
    "batch a fraction": (setting(max_batch=1.5), "max_batch"),
    "batch negative": (setting(max_batch=-1), "damaged"),
    "batch huge": (setting(max_batch=HUGE), "damaged|differs"),
    "batch true": (setting(max_batch=True), "max_batch"),
    "mean not a number": (within("pre", mean=[float("nan")]), "damaged"),
    "std zero": (within("pre", std=[0]), "damaged"),
    "other mean": (within("pre", mean=[1.0]), "differs"),
    "other match": (within("post", match="torch"), "differs"),
    "height huge": (within("pre", height=HUGE), "damaged|pixels are taken"),
    "agreement above 1": (setting(agreement=7.0), "shares are from 0 to 1"),
    "agreement not a number": (setting(agreement=float("nan")), "damaged"),
    "plan of no flavour": (setting(plan={"flavour": "x"}), "damaged"),
    "plan placed nowhere": (within("plan", post="x"), r"plan\.post"),
    "layers a text": (within("plan", precisions={"fp16": "all"}), r"plan\.precisions"),
    "layers negative": (within("plan", layers={"CONVOLUTION": -1}), "no fewer than 0"),
    "no plan": (setting(plan=None), "list of files"),
    "verification empty": (setting(verification={}), "verification"),
    "an entry too many": (setting(colour="red"), "there is no entry 'colour'"),
    "an entry too many inside": (within("pre", colour="red"), "there is no entry 'colour'"),
    "an entry missing": (lambda values: values.pop("located"), "located"),
    "format missing": (lambda values: values.pop("format"), "damaged"),
    "format a list": (setting(format=[FORMAT]), "format"),
    "classes nested deep": (setting(classes=json.loads("[" * 500 + "]" * 500)), "classes"),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_passports(planned, name):
    """Entries of the wrong type, without sense, missing, unknown, or other than those of the build."""
    change, says = EDITS[name]
    edited(planned, change)
    with pytest.raises(BundleError, match=says) as caught:
        load_bundle(planned)
    assert str(planned) in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["pre", "post", "located", "classes", "max_size", "files", "plan", "source", "photos"])
@pytest.mark.parametrize("value", [None, True, -1, HUGE, float("nan"), "x", [], {}, [[]]], ids=str)
def test_every_entry_of_every_type(planned, name, value):
    """Entries of a passport with a value of every type that JSON has: none is taken."""
    edited(planned, setting(**{name: value}))
    with pytest.raises(BundleError):
        load_bundle(planned)


TEXTS = {
    "empty": b"",
    "list": b"[]",
    "object": b"{}",
    "null": b"null",
    "text": b'"x"',
    "cut": b"{",
    "bytes": b"\x00\xff",
    "deep": b"[" * 100_000,
    "deep object": b'{"format":' * 20_000,
    "UTF-16": '{"format": 2}'.encode("utf-16"),
    "long number": b'{"format": ' + b"9" * 10_000 + b"}",
    "twice": b'{"format": 2, "format": 99}',
}


@pytest.mark.parametrize("name", TEXTS)
def test_passports_that_are_none(bundle, name):
    """Files that are not JSON, or not an object."""
    (bundle / PASSPORT).write_bytes(TEXTS[name])
    with pytest.raises(BundleError, match=r"damaged|has format"):
        load_bundle(bundle)
    rebuilt(bundle)


@pytest.mark.parametrize("form", ["latin-1", "utf-8-sig"])
def test_a_passport_saved_by_an_editor_in_another_encoding(bundle, form):
    """Not UTF-8, and UTF-8 with a byte order mark."""
    text = (bundle / PASSPORT).read_text().replace("class 0", "straße")
    (bundle / PASSPORT).write_bytes(text.encode(form))
    with pytest.raises(BundleError, match="damaged"):
        load_bundle(bundle)


def test_files_that_are_no_bundle(tmp_path):
    """Garbage, a model that was not baked, and a model whose passport does not fit it."""
    (tmp_path / "x.onnx").write_bytes(b"garbage")
    with pytest.raises(BundleError, match="neither an engine bundle"):
        load_bundle(tmp_path / "x.onnx")
    with pytest.raises(BundleError, match="is a model, not an engine bundle: run `trtpost build"):
        load_bundle(save(nchw(), tmp_path / "plain.onnx"))
    with pytest.raises(BundleError, match="no such engine bundle"):
        load_bundle(tmp_path / "nothing")
    with pytest.raises(BundleError, match="not an engine bundle: it has no passport"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: setattr(graph.input[0], "name", "picture"),
        lambda graph: setattr(graph.output[0], "name", "masks"),
        lambda graph: setattr(graph.input[0].type.tensor_type, "elem_type", onnx.TensorProto.FLOAT),
        lambda graph: setattr(graph.output[0].type.tensor_type, "elem_type", onnx.TensorProto.INT32),
        lambda graph: setattr(graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 1 << 40),
        lambda graph: graph.input.pop(),
    ],
)
def test_a_passport_that_does_not_fit_its_graph(bundle, tmp_path, change):
    """A baked model by itself has no hash: its inputs and outputs are compared with what its passport promises."""
    model = onnx.load(bundle / MODEL)
    change(model.graph)
    with pytest.raises(BundleError, match="does not fit the graph"):
        load_bundle(save(model, tmp_path / "alone.onnx"))


# --- moved and linked


def test_a_bundle_works_wherever_it_is(bundle, tmp_path, monkeypatch):
    """Renamed, moved, behind a link, named relatively, and as the model alone."""
    mask = Segmenter(bundle)(PHOTO).mask
    (tmp_path / "my models").mkdir()
    moved = bundle.rename(tmp_path / "my models" / "straße.engine")
    (tmp_path / "link").symlink_to(moved)
    alone = shutil.copy(moved / MODEL, tmp_path / "alone.onnx")
    monkeypatch.chdir(moved)
    for path in (moved, tmp_path / "link", alone, ".", f"../{moved.name}", MODEL):
        np.testing.assert_array_equal(Segmenter(path)(PHOTO).mask, mask)


def test_a_link_stays_a_link(bundle, tmp_path):
    """Building into a link writes what it points to, also where that is missing; one in a circle is refused."""
    (tmp_path / "link.trtpost").symlink_to("net.trtpost")
    (tmp_path / "dead.trtpost").symlink_to("new.trtpost")
    (tmp_path / "circle.trtpost").symlink_to("circle.trtpost")
    for name, target in (("link", bundle), ("dead", tmp_path / "new.trtpost")):
        build(save(nchw(), tmp_path / "net.onnx"), tmp_path / f"{name}.trtpost", flavour="none", resize="bilinear")
        assert (tmp_path / f"{name}.trtpost").is_symlink()
        assert load_bundle(target).passport.post.resize == "bilinear"
    with pytest.raises(BundleError, match=r"circle\.trtpost"):
        build(tmp_path / "net.onnx", tmp_path / "circle.trtpost", flavour="none")
    with pytest.raises(BundleError, match="is a link in a circle"):
        load_bundle(tmp_path / "circle.trtpost")


# --- what may be replaced


@pytest.mark.parametrize(
    ("name", "files", "says"),
    [
        ("precious.trtpost", {"thesis.txt": "years of work"}, r"holds thesis\.txt, which is no part"),
        ("precious.trtpost", {PASSPORT: '{"request": ""}', "model.onnx.bak": "mine"}, r"holds model\.onnx\.bak"),
        ("project", {PASSPORT: '{"name": "holiday"}'}, "not an engine bundle"),
        ("project", {}, "not an engine bundle"),
    ],
)
def test_what_is_not_ours_is_not_overwritten(tmp_path, name, files, says):
    """Folders that hold something else, whatever they are called."""
    (tmp_path / name).mkdir()
    for file, text in files.items():
        (tmp_path / name / file).write_text(text)
    with pytest.raises(BundleError, match=says):
        build(save(nchw(), tmp_path / "net.onnx"), tmp_path / name, flavour="none")
    assert {file.name: file.read_text() for file in (tmp_path / name).iterdir()} == files


# --- while it is built again

WRITER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from trtpost.storage import whole_folder
from trtpost.bundle.folder import read_bundle, write_bundle
if sys.argv[4] == "two steps":
    whole_folder.renamed = lambda old, new, how: False
one, other = (read_bundle(Path(name)) for name in sys.argv[2:4])
print("ready", flush=True)
end = time.monotonic() + 1
while time.monotonic() < end:
    for contents in (one, other):
        write_bundle(Path(sys.argv[1]), contents.model, contents.plan, contents.bundle.passport)
"""


@pytest.mark.parametrize("way", ["one step", "two steps"])
def test_a_reader_sees_the_old_bundle_or_the_new_one(tmp_path, way):
    """A bundle that another process builds again and again: never missing, never half of each."""
    source = save(nchw(), tmp_path / "net.onnx")
    passports = {}
    for resize in ("nearest", "bilinear"):
        made = build(source, tmp_path / f"{resize}.trtpost", flavour="none", resize=resize)
        passport = replace(made.passport, plan=GPU_PLAN)
        passports[resize] = write_bundle(made.path, read_bundle(made.path).model, resize.encode() * 1000, passport)
    shutil.copytree(tmp_path / "nearest.trtpost", tmp_path / "shared.trtpost")
    paths = [tmp_path / f"{name}.trtpost" for name in ("shared", "nearest", "bilinear")]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, *map(str, paths), way], stdout=subprocess.PIPE)
    try:
        writer.stdout.readline()
        seen = []
        while writer.poll() is None:
            contents = read_bundle(paths[0])
            resize = contents.bundle.passport.post.resize
            assert contents.plan == resize.encode() * 1000
            assert contents.bundle.passport == passports[resize].passport
            assert newest_bundle(tmp_path).suffix == ".trtpost"
            seen.append(resize)
        assert writer.wait() == 0
    finally:
        writer.kill()
        writer.communicate()
    assert set(seen) == {"nearest", "bilinear"}
    assert not list(tmp_path.glob(".*"))


def test_many_builds_into_one_name(tmp_path, bundle):
    """Four threads build into one name: one of them wins, and nothing is left of the others."""
    contents = read_bundle(bundle)

    def work(_):
        for _ in range(10):
            write_bundle(tmp_path / "shared.trtpost", contents.model, None, contents.bundle.passport)

    in_threads(4, work)
    assert load_bundle(tmp_path / "shared.trtpost").passport == contents.bundle.passport
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.trtpost", "shared.trtpost"]


def test_a_bundle_that_was_built_again_after_it_was_loaded(bundle):
    """A `Bundle` stands for one build: another one in its place is not run in its name."""
    loaded = load_bundle(bundle)
    rebuilt(bundle, resize="bilinear")
    with pytest.raises(BundleError, match="built again after it was loaded: load it again"):
        Segmenter(loaded)


SLEEPER = """
import os, sys, time
from pathlib import Path
from trtpost.bundle.folder import read_bundle, write_bundle
contents = read_bundle(Path(sys.argv[1]))
def fsync(number):
    print("in the middle", flush=True)
    time.sleep(60)
os.fsync = fsync
write_bundle(Path(sys.argv[1]), contents.model, contents.plan, contents.bundle.passport)
"""


def test_a_build_that_is_killed_leaves_nothing_for_long(bundle, tmp_path):
    """SIGKILL in the middle of writing: the old bundle works, and the next build removes what is left; not before."""
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER, bundle], stdout=subprocess.PIPE)
    try:
        assert sleeper.stdout.readline() == b"in the middle\n"
        (theirs,) = tmp_path.glob(".net.trtpost.*")
        rebuilt(bundle)
        assert theirs.is_dir(), "somebody is still writing it"
    finally:
        os.kill(sleeper.pid, signal.SIGKILL)
        sleeper.communicate()
    assert theirs.is_dir()
    assert newest_bundle(tmp_path) == bundle
    assert load_bundle(bundle)
    (bundle / f".{PASSPORT}.1234abcd").write_text("of a verification that was killed")
    rebuilt(bundle, resize="bilinear")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.onnx", "net.trtpost"]
    assert sorted(path.name for path in bundle.iterdir()) == [MODEL, PASSPORT]


# --- where it cannot be written

STEPS = ["tempfile.mkdtemp", "pathlib.Path.mkdir", "pathlib.Path.open", "os.fsync", "pathlib.Path.chmod"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("call", [0, 1, 2])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_full_disk_leaves_the_old_bundle_or_none(planned, tmp_path, monkeypatch, step, call, is_there):
    """Each step of writing fails in turn: one sentence, nothing left over, and an older bundle as it was."""
    contents = read_bundle(planned)
    target = planned if is_there else tmp_path / "new.trtpost"
    home, name = step.rsplit(".", 1)
    owner = {"tempfile": tempfile, "os": os}.get(home, Path)
    real, calls = getattr(owner, name), []

    def failing(*arguments, **settings):
        calls.append(arguments)
        if len(calls) > call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        said = ""
        try:
            write_bundle(target, contents.model, contents.plan, contents.bundle.passport)
        except BundleError as error:
            said = str(error)
    if len(calls) > call:
        assert said == f"cannot write the engine bundle {target}: No space left on device"
    else:
        assert not said
        is_there = True
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        {planned.name, target.name} if is_there else {planned.name}
    )
    if is_there:
        assert load_bundle(target) == replace(contents.bundle, path=target)


@pytest.mark.parametrize("exchange", [True, False])
def test_a_rename_that_fails_leaves_the_old_bundle(planned, tmp_path, monkeypatch, exchange):
    """The last step fails, with and without a way to swap two names at once."""
    contents = read_bundle(planned)
    real = Path.rename

    def failing(path, target):
        if path.parent == tmp_path and path.name.startswith(".") and ".old" not in path.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        if exchange:
            write_bundle(planned, contents.model, contents.plan, contents.bundle.passport)
        else:
            patch.setattr(whole_folder, "renamed", lambda *_: False)
            with pytest.raises(BundleError, match="cannot write the engine bundle"):
                write_bundle(planned, contents.model, contents.plan, contents.bundle.passport)
    assert load_bundle(planned) == contents.bundle
    assert [path.name for path in tmp_path.iterdir()] == [planned.name]


def test_a_file_that_may_not_grow(tmp_path):
    """The operating system itself stops the writing in the middle of a file."""
    save(nchw(), tmp_path / "net.onnx")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    command = [
        sys.executable,
        "-c",
        f"{limit}; from trtpost.cli.entry import main; main()",
        "build",
        "net.onnx",
        "--flavour",
        "none",
    ]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1] == "trtpost: cannot write the engine bundle net.trtpost: File too large"
    assert "Traceback" not in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_a_read_only_place_is_said_before_there_is_any_work(tmp_path, monkeypatch):
    """A folder without the right to write, and a file where a folder should be: known before a model is converted."""
    source = save(nchw(), tmp_path / "net.onnx")
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match=r"cannot write .*/file is a file, not a folder"):
        build(source, tmp_path / "file" / "net.trtpost", flavour="none")
    (tmp_path / "locked").mkdir(mode=0o555)
    if os.access(tmp_path / "locked", os.W_OK):  # root may write anywhere
        monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("trtpost.builder.decide.decide", lambda *_: pytest.fail("was converted"))
    with pytest.raises(BundleError, match=r"cannot write .*/locked may not be written to; choose another place"):
        build(source, tmp_path / "locked" / "deep" / "net.trtpost", flavour="none")


def test_a_graph_too_large_for_one_file(bundle, tmp_path):
    """Protobuf holds 2 GiB: said in a sentence."""
    contents = read_bundle(bundle)

    class Large:
        def SerializeToString(self):  # noqa: N802
            raise ValueError("Message exceeds maximum protobuf size of 2GB: 3000000000")

    with pytest.raises(BundleError, match="does not go into one file, which holds 2 GiB"):
        write_bundle(tmp_path / "large.trtpost", Large(), None, contents.bundle.passport)
    assert not (tmp_path / "large.trtpost").exists()


# --- through the command line


def test_the_command_line_says_it_in_one_line(bundle, tmp_path):
    """Exit code 1, one line, no traceback, no mask; and the newest bundle is one that is whole."""
    from PIL import Image

    Image.fromarray(PHOTO).save(tmp_path / "photo.png")
    abandoned = tmp_path / ".net.trtpost.abandoned"
    shutil.copytree(bundle, abandoned)
    future = time.time_ns() + 10**12
    os.utime(abandoned / PASSPORT, ns=(future, future))
    good = trtpost("infer", "photo.png", "-o", "masks", cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    assert "engine net.trtpost" in good.stdout
    shutil.rmtree(tmp_path / "masks")
    (bundle / MODEL).write_bytes((bundle / MODEL).read_bytes()[:-10])
    bad = trtpost("infer", "photo.png", "-o", "masks", cwd=tmp_path)
    assert bad.returncode == 1
    assert (
        bad.stderr
        == "trtpost: net.trtpost/model.onnx is not the file that was built (its hash differs): build the bundle again\n"
    )
    assert not (tmp_path / "masks").exists()


def test_hashes_are_those_of_the_files(planned):
    """What the passport says of its files is what `sha256sum` says."""
    passport = load_bundle(planned).passport
    assert passport.files == {name: sha256((planned / name).read_bytes()).hexdigest() for name in (MODEL, PLAN)}


@pytest.mark.parametrize(
    "content", [b'{"user": "data"}', b'{"name": {"request": 1}}', b" " * (17 << 20)], ids=[0, 1, 2]
)
def test_a_passport_of_somebody_else(bundle, content):
    """A folder named like a bundle, whose files are called like ours: whole JSON without our entries, or huge."""
    (bundle / PASSPORT).write_bytes(content)
    with pytest.raises(BundleError, match="exists and is not an engine bundle"):
        rebuilt(bundle)
    assert (bundle / PASSPORT).read_bytes() == content


@pytest.mark.parametrize(("name", "size"), [(MODEL, 5 << 30), (PASSPORT, 3 << 30)])
def test_files_too_large_for_what_they_are(bundle, name, size):
    """Refused by their size, not read: they hold nothing, and take no room on the disk."""
    os.truncate(bundle / name, size)
    with pytest.raises(BundleError, match=f"{name} has {size} bytes, and a {name} no more than"):
        load_bundle(bundle)


def test_a_bundle_is_found_after_a_change_of_folder(bundle, tmp_path, monkeypatch):
    """What was loaded by a relative path, and keeps it for people."""
    monkeypatch.chdir(bundle.parent)
    loaded = load_bundle(bundle.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (str(loaded.path), loaded.model) == (bundle.name, bundle / MODEL)
    with Segmenter(loaded) as segmenter:
        assert segmenter.bundle == load_bundle(bundle)
    record_verification(loaded, Verification("net", "0", "engine", 1, 10, 0.9, 0, 1, 0.8))
    assert load_bundle(bundle).passport.verification is not None
