"""Files and folders that somebody has prepared: nothing of anybody else's is read, waited for, replaced or lost."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import package
from nets import nchw, save
from PIL import Image

import trtpost as tp
from trtpost.backends.tensorrt import timing_cache
from trtpost.bench.pipeline import bench_pipeline
from trtpost.builder.labels import read_labels
from trtpost.bundle.folder import MODEL, PASSPORT, PLAN, load_bundle, read_again, read_bundle, write_bundle
from trtpost.bundle.passport import Plan
from trtpost.errors import BundleError, ImageError, ModelError, SpecError, TrtpostError
from trtpost.export import export_onnx
from trtpost.graph.reading.model import load_model, save_model
from trtpost.jobs.paths import plan_jobs
from trtpost.jobs.run import run_all
from trtpost.masks.finished import is_ours
from trtpost.masks.png import encode_mask, palette
from trtpost.photos.find import find_photos, photos_in
from trtpost.photos.limits import MAX_PIXELS
from trtpost.ray import actor as worker
from trtpost.ray.dataset import row_of
from trtpost.segment import Segmenter
from trtpost.storage import whole_file, whole_folder
from trtpost.storage.files import open_regular
from trtpost.storage.pages import write_page
from trtpost.storage.whole_file import write_whole
from trtpost.triton.export import export_triton
from trtpost.verify.truths import read_truth

SECRET = b"a secret of somebody else's, which no command may copy, replace or lose" * 9
MASK = encode_mask(np.zeros((6, 9), np.uint8), palette(("a", "b")), mark="0" * 64)


@pytest.fixture(autouse=True)
def no_waiting():
    """What waits for ever fails instead."""

    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return tp.build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none").path


@pytest.fixture
def bundle(built, tmp_path):
    return Path(shutil.copytree(built, tmp_path / "net.trtpost"))


@pytest.fixture
def elsewhere(tmp_path):
    """A folder outside, with a secret in it."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


def picture(path: Path, colour: object = "red", size: tuple[int, int] = (9, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- rows of a dataset ------------------------------------------------------------------------------------------------


@pytest.fixture
def actor(bundle, monkeypatch):
    """What an actor does with rows, without Ray."""
    package("pyarrow")

    class Ray:
        get = staticmethod(lambda given: given)

    monkeypatch.setattr(worker, "ray_package", lambda: Ray)

    def make(output: Path | str, **settings: object) -> worker.Actor:
        values = {"resume": True, "encoding": "palette", "fast_decode": False, "backend": "onnxruntime", "cores": 1}
        values |= {"folder": "/nowhere", "filesystem": None, "output_filesystem": None, "max_pixels": MAX_PIXELS}
        values |= settings
        return worker.Actor(read_again(load_bundle(bundle)).files, worker.Settings(output=str(output), **values))

    return make


def rows_of(actor: worker.Actor, **columns: list[object]) -> list[worker.PhotoRow]:
    table = package("pyarrow").table(columns)
    return [row_of(entry) for entry in actor(table).to_pylist()]


@pytest.mark.parametrize("resume", [True, False])
def test_a_row_replaces_nothing_but_masks_of_ours(actor, tmp_path, elsewhere, resume):
    """A text, a photo, a picture called like a mask, what links lead to: a row may name any of them."""
    photo, out = picture(tmp_path / "photo.png"), tmp_path / "out"
    picture(out / "photo.png", "blue")
    picture(out / "x.mask.png", "green")
    (out / "notes.txt").write_bytes(SECRET)
    (out / "folder.png").mkdir()
    (out / "tree").symlink_to(elsewhere)
    (out / "link.png").symlink_to(elsewhere / "secret")
    (out / "dead.png").symlink_to(elsewhere / "new")
    (elsewhere / "ours.mask.png").write_bytes(MASK)
    (out / "ours.png").symlink_to(elsewhere / "ours.mask.png")
    os.mkfifo(out / "pipe.png")
    targets = ["notes.txt", "photo.png", "x.mask.png", "folder.png", "tree/secret", "tree/new.png", "tree/a/new.png"]
    targets += ["link.png", "dead.png", "ours.png", "pipe.png", "tree/ours.mask.png"]
    before = contents_of(out), contents_of(elsewhere)
    rows = rows_of(actor(out, resume=resume), path=[str(photo)] * len(targets), target=targets)
    for target, row in zip(targets, rows, strict=True):
        assert row.error is not None, target
    assert (contents_of(out), contents_of(elsewhere)) == before
    assert not hidden(out)


def test_a_row_replaces_a_mask_of_ours(actor, tmp_path):
    photo, out = picture(tmp_path / "photo.png"), tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "a/x.png").write_bytes(MASK)
    (out / "empty.png").touch()
    (tmp_path / "link").symlink_to("out")  # it is named
    for output in (out, tmp_path / "link"):
        rows = rows_of(
            actor(output, resume=False), path=[str(photo)] * 3, target=["a/x.png", "empty.png", "b/../c.png"]
        )
        assert [row.error for row in rows] == [None] * 3
    assert sorted(contents_of(out)) == ["a/x.png", "c.png", "empty.png"]
    assert all(is_ours(io.BytesIO(content)) and content != MASK for content in contents_of(out).values())


def test_a_row_replaces_nothing_on_other_file_systems(actor, tmp_path):
    """They have no links that we know of: what counts is how a file begins."""
    package("pyarrow")
    from pyarrow.fs import _MockFileSystem

    store, photo = _MockFileSystem(), picture(tmp_path / "photo.png")
    store.create_dir("bucket")
    for name, content in (("notes.txt", SECRET), ("ours.png", MASK), ("empty.png", b"")):
        with store.open_output_stream(f"bucket/{name}") as stream:
            stream.write(content)
    for resume in (True, False):
        run = actor("mock://bucket", resume=resume, output_filesystem=store)
        rows = rows_of(run, path=[str(photo)] * 4, target=["notes.txt", "ours.png", "empty.png", "new.png"])
        assert [row.error is None for row in rows] == [False, True, True, True]
        assert "exists and is no mask that trtpost wrote" in rows[0].error
    with store.open_input_file("bucket/notes.txt") as file:
        assert file.read() == SECRET


@pytest.fixture(params=["part", "part of a part", "fsspec"])
def disguised(request, tmp_path):
    """This machine's files by another file system, and the name of the folder `out` in it."""
    package("pyarrow")
    from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem, SubTreeFileSystem

    if request.param == "fsspec":
        return PyFileSystem(FSSpecHandler(package("fsspec").filesystem("file"))), str(tmp_path / "out")
    if request.param == "part":
        return SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "out"
    return SubTreeFileSystem(tmp_path.name, SubTreeFileSystem(str(tmp_path.parent), LocalFileSystem())), "out"


def test_links_are_not_followed_by_whatever_file_system(actor, tmp_path, elsewhere, disguised):
    """A part of the local file system, or fsspec's, has the links of the local one."""
    store, output = disguised
    (tmp_path / "out").mkdir()
    (tmp_path / "out/folder").symlink_to(elsewhere)
    (tmp_path / "out/new.png").symlink_to(elsewhere / "new.png")
    (tmp_path / "out/secret.png").symlink_to(elsewhere / "secret")
    (tmp_path / "out/ours.png").write_bytes(MASK)
    os.mkfifo(tmp_path / "out/pipe.png")
    before = contents_of(elsewhere)
    content = picture(tmp_path / "photo.png").read_bytes()
    targets = ["folder/x.png", "new.png", "secret.png", "pipe.png", "ours.png", "sub/x.png"]
    run = actor(output, output_filesystem=store)
    rows = rows_of(run, path=["p"] * 6, bytes=[content] * 6, target=targets)
    assert [row.error is None for row in rows] == [False, False, False, False, True, True]
    assert contents_of(elsewhere) == before
    assert is_ours(io.BytesIO((tmp_path / "out/sub/x.png").read_bytes()))
    assert (tmp_path / "out/ours.png").read_bytes() != MASK
    assert (tmp_path / "out/new.png").is_symlink()
    assert not hidden(tmp_path / "out")


def test_a_photo_by_whatever_file_system_is_a_regular_file(actor, tmp_path, disguised):
    store, output = disguised
    picture(tmp_path / "out/a.png")
    os.mkfifo(tmp_path / "out/pipe.jpg")
    paths = [f"{output}/a.png", f"{output}/pipe.jpg"]
    rows = rows_of(actor(tmp_path / "masks", filesystem=store), path=paths, target=["a.png", "b.png"])
    assert rows[0].error is None
    assert "not a regular file" in rows[1].error


def test_a_part_of_a_file_system_is_not_left(actor, tmp_path):
    package("pyarrow")
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    picture(tmp_path / "outside.png")
    (tmp_path / "part").mkdir()
    store = SubTreeFileSystem(str(tmp_path / "part"), LocalFileSystem())
    (row,) = rows_of(actor(tmp_path / "masks", filesystem=store), path=["../outside.png"], target=["x.png"])
    assert "leads out of the file system" in row.error


@pytest.mark.parametrize(("name", "sentence"), [("a\0b", "no name of a file"), ("x" * 300, "File name too long")])
def test_a_name_without_meaning_is_the_fault_of_its_row(actor, tmp_path, name, sentence):
    """The others of its batch have their masks."""
    content = picture(tmp_path / "photo.png").read_bytes()
    run = actor(tmp_path / "out")
    for columns in ({"path": ["p", "q"], "target": [name, "q.png"]}, {"path": [name, "q"]}):
        rows = rows_of(run, bytes=[content] * 2, **columns)
        assert sentence in rows[0].error
        assert rows[1].error is None
    (row,) = rows_of(run, path=[f"/{name}"], target=["x.png"])
    assert row.error


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
def test_a_row_that_is_no_file_is_an_error(actor, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    special(tmp_path / "x.jpg", kind)
    (tmp_path / "link.jpg").symlink_to("x.jpg")
    for resume in (True, False):
        run = actor(tmp_path / "out", resume=resume)
        for row in rows_of(run, path=[str(tmp_path / "x.jpg"), str(tmp_path / "link.jpg")], target=["x.png", "y.png"]):
            assert "is not a regular file" in row.error or "is a folder" in row.error


def test_rows_know_a_photo_by_its_date_and_its_ends(actor, tmp_path):
    """Of one name and length, the later one with an older date; the same photo again is left alone."""
    photo, run = tmp_path / "p.bmp", actor(tmp_path / "out")

    def skipped(colour: str, date: int) -> bool:
        picture(photo, colour)
        os.utime(photo, ns=(date, date))
        (row,) = rows_of(run, path=[str(photo)], target=["p.png"])
        assert row.error is None
        return row.skipped

    assert [skipped("red", 5), skipped("red", 5)] == [False, True]
    assert [skipped("blue", 4), skipped("blue", 4), skipped("blue", 5)] == [False, True, False]


# --- what lies in a bundle's folder -----------------------------------------------------------------------------------


def prepared(bundle: Path, elsewhere: Path) -> Path:
    """Files that the passport does not list: links to a secret, to a tree, to a device, a pipe."""
    (elsewhere / "tree").mkdir()
    (elsewhere / "tree/secret").write_bytes(SECRET)
    (bundle / "secret").symlink_to(elsewhere / "secret")
    (bundle / "tree").symlink_to(elsewhere / "tree")
    (bundle / "zero").symlink_to("/dev/zero")
    (bundle / "own.txt").write_bytes(SECRET)
    os.mkfifo(bundle / "pipe")
    return bundle


def test_export_takes_what_the_passport_lists(bundle, tmp_path, elsewhere):
    before = contents_of(bundle)
    (version,) = export_triton(load_bundle(prepared(bundle, elsewhere)), tmp_path / "repository", name="net")
    assert contents_of(version / "bundle.trtpost") == before
    assert sorted(path.name for path in (version / "bundle.trtpost").iterdir()) == [MODEL, PASSPORT]
    assert not any(SECRET in content for content in contents_of(tmp_path / "repository").values())
    assert load_bundle(version / "bundle.trtpost").passport == load_bundle(bundle).passport


def test_export_takes_the_bytes_that_were_verified(bundle, tmp_path):
    """Changed after it was loaded, and then back again: what is written is what has the right hash."""
    loaded, content = load_bundle(bundle), (bundle / MODEL).read_bytes()
    (bundle / MODEL).write_bytes(content + b"\0")
    for form in ("python", "onnxruntime_onnx"):
        with pytest.raises(BundleError, match="is not the file that was built"):
            export_triton(loaded, tmp_path / "repository", name="net", form=form)
    with pytest.raises(BundleError, match="is not the file that was built"):
        export_onnx(loaded, tmp_path / "net.inlined.onnx")
    assert not (tmp_path / "repository").exists()
    tp.build(save(nchw(), tmp_path / "net.onnx"), bundle, flavour="none", resize="bilinear")
    with pytest.raises(BundleError, match="was built again after it was loaded"):
        export_triton(loaded, tmp_path / "repository", name="net")


def test_a_baked_model_alone_is_exported_alone(bundle, tmp_path):
    alone = Path(shutil.copy(bundle / MODEL, tmp_path / "alone.onnx"))
    (version,) = export_triton(load_bundle(alone), tmp_path / "repository", name="net")
    assert (version / "bundle.trtpost").read_bytes() == alone.read_bytes()
    assert read_again(load_bundle(alone)).files == {MODEL: alone.read_bytes()}


def test_actors_get_what_the_passport_lists(bundle, elsewhere):
    before = contents_of(bundle)
    assert read_again(load_bundle(prepared(bundle, elsewhere))).files == before


def test_the_score_is_not_written_through_a_link(bundle, elsewhere):
    """A bundle's passport may be a link, as in caches of downloads: it is read, and what it leads to stays."""
    from trtpost.bundle.folder import record_verification
    from trtpost.bundle.passport import Verification

    shutil.move(bundle / PASSPORT, elsewhere / PASSPORT)
    (bundle / PASSPORT).symlink_to(elsewhere / PASSPORT)
    before = (elsewhere / PASSPORT).read_bytes()
    with pytest.raises(BundleError, match="a link is there"):
        record_verification(load_bundle(bundle), Verification("net", "0", "engine", 1, 10, 0.9, 0, 1, 0.8))
    assert (elsewhere / PASSPORT).read_bytes() == before


# --- between the check and the write ----------------------------------------------------------------------------------


@pytest.fixture(params=["the kernel swaps", "the kernel does not swap"])
def swaps(request, monkeypatch):
    """Both ways to rename: not all systems and file systems can do it in one step."""
    if "not" in request.param:
        monkeypatch.setattr(whole_file, "renamed", lambda *_, **__: False)
        monkeypatch.setattr(whole_folder, "renamed", lambda *_, **__: False)


@contextlib.contextmanager
def placed(monkeypatch: pytest.MonkeyPatch, target: Path, what: object) -> Iterator[None]:
    """When a file is about to take the place of `target`, somebody puts something there."""
    real = whole_file._Folder.put

    def put(folder: whole_file._Folder, temporary: str, name: str, replaces: object) -> None:
        if folder.path / name == target and not os.path.lexists(target):
            what.link(target) if isinstance(what, Link) else target.write_bytes(what)
        real(folder, temporary, name, replaces)

    with monkeypatch.context() as patch:
        patch.setattr(whole_file._Folder, "put", put)
        yield


class Link:
    """A link to something elsewhere."""

    def __init__(self, to: Path) -> None:
        self.to = to

    def link(self, path: Path) -> None:
        path.symlink_to(self.to)


@pytest.mark.usefixtures("swaps")
@pytest.mark.parametrize("kind", ["file", "link", "dead link"])
@pytest.mark.parametrize("target", ["a.mask.png", "a.overlay.png"])
def test_what_comes_while_a_photo_is_run_stays(bundle, tmp_path, elsewhere, monkeypatch, kind, target):
    """A mask and an overlay, in a folder that was named: the photo is an error, and what came is as it was."""
    photo, out = picture(tmp_path / "a.png"), tmp_path / "out"
    jobs = plan_jobs(find_photos([photo]), out, overlay=True)
    came = SECRET if kind == "file" else Link(elsewhere / ("secret" if kind == "link" else "new"))
    with Segmenter(bundle) as segmenter, placed(monkeypatch, out / target, came):
        ((outcome,), _) = run_all(segmenter, jobs)
    assert f"cannot write {out / target}" in outcome.error
    assert (out / target).read_bytes() == SECRET if kind != "dead link" else not (elsewhere / "new").exists()
    assert contents_of(elsewhere) == {"secret": SECRET}
    assert not hidden(out)


@pytest.mark.usefixtures("swaps")
def test_a_mask_of_ours_that_comes_meanwhile_is_replaced(bundle, tmp_path, monkeypatch):
    """Two runs of one photo at once."""
    photo, out = picture(tmp_path / "a.png"), tmp_path / "out"
    jobs = plan_jobs(find_photos([photo]), out, overlay=False)
    with Segmenter(bundle) as segmenter, placed(monkeypatch, out / "a.mask.png", MASK):
        ((outcome,), _) = run_all(segmenter, jobs)
    assert outcome.error is None
    assert [path.name for path in out.iterdir()] == ["a.mask.png"]
    assert (out / "a.mask.png").read_bytes() != MASK


def test_a_folder_that_becomes_a_link_is_not_followed(bundle, tmp_path, elsewhere, monkeypatch):
    """Below the output, after the check and before the write; or while the file is written."""
    picture(tmp_path / "photos/x/a.png")
    out = tmp_path / "out"
    jobs = plan_jobs(find_photos([tmp_path / "photos"]), out, overlay=False)
    out.mkdir()
    (out / "x").symlink_to(elsewhere)
    with Segmenter(bundle) as segmenter:
        ((outcome,), _) = run_all(segmenter, jobs)
        assert "out/x is a link" in outcome.error
        (out / "x").unlink()
        real = whole_file._Folder.put

        def put(folder: whole_file._Folder, *rest: object) -> None:
            (out / "x").rename(out / "moved")
            (out / "x").symlink_to(elsewhere)
            real(folder, *rest)

        monkeypatch.setattr(whole_file._Folder, "put", put)
        ((outcome,), _) = run_all(segmenter, jobs)
    assert contents_of(elsewhere) == {"secret": SECRET}
    assert [path.name for path in (out / "moved").iterdir()] == ["a.mask.png"]


@pytest.mark.parametrize("kind", ["file", "link", "another file", "nothing"])
def test_what_comes_at_the_very_last_moment_is_given_back(tmp_path, elsewhere, monkeypatch, kind):
    """Between the last look and the rename itself; where the kernel can swap two names, nothing is lost even then."""
    target = tmp_path / "m.png"
    if kind in ("another file", "nothing"):
        target.write_bytes(MASK)
    real, looked = whole_file._Folder.look, []

    def look(folder: whole_file._Folder, name: str, replaces: object) -> object:
        found = real(folder, name, replaces)
        looked.append(found)
        if len(looked) == 2:
            target.unlink(missing_ok=True)
            if kind == "link":
                target.symlink_to(elsewhere / "secret")
            elif kind != "nothing":
                target.write_bytes(SECRET)
        return found

    monkeypatch.setattr(whole_file._Folder, "look", look)
    write = {"below": tmp_path, "replaces": is_ours}
    if kind == "nothing":
        write_whole(target, lambda file: file.write(b"new"), ImageError, **write)
        assert target.read_bytes() == b"new"
    else:
        with pytest.raises(ImageError, match="a link is there" if kind == "link" else "trtpost did not write is there"):
            write_whole(target, lambda file: file.write(b"new"), ImageError, **write)
        assert target.read_bytes() == SECRET
        assert target.is_symlink() == (kind == "link")
    assert not hidden(tmp_path)
    assert contents_of(elsewhere) == {"secret": SECRET}


def test_who_keeps_on_writing_a_target_does_not_hold_us_up(tmp_path, monkeypatch):
    """Another file each time that it is looked at."""
    target = tmp_path / "m.png"
    target.write_bytes(MASK)
    real = whole_file._Folder.look

    def look(folder: whole_file._Folder, name: str, replaces: object) -> object:
        found = real(folder, name, replaces)
        target.unlink()
        target.write_bytes(MASK)
        os.utime(target, (1, len(seen)))
        seen.append(1)
        return found

    seen: list[int] = []
    monkeypatch.setattr(whole_file._Folder, "look", look)
    with pytest.raises(ImageError, match="somebody else keeps on writing it"):
        write_whole(target, lambda file: file.write(b"new"), ImageError, below=tmp_path, replaces=is_ours)
    assert target.read_bytes() == MASK
    assert not hidden(tmp_path)


@pytest.mark.usefixtures("swaps")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_pages_and_graphs_too(bundle, tmp_path, elsewhere, monkeypatch, kind):
    """A page without a page's name, a converted graph without its ending, an exported graph: each came meanwhile."""
    model = load_model(tmp_path.parent / save(nchw(), tmp_path / "source.onnx"))
    came = SECRET if kind == "file" else Link(elsewhere / "secret")
    writers = {
        "report.txt": lambda path: write_page(path, "<html>"),
        "net.bin": lambda path: save_model(model, path, replaces=lambda _: path.suffix == ".onnx"),
        "net.onnx": lambda path: export_onnx(load_bundle(bundle), path),
    }
    for name, write in writers.items():
        with placed(monkeypatch, tmp_path / name, came), pytest.raises(TrtpostError, match="is there"):
            write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == SECRET
    assert contents_of(elsewhere) == {"secret": SECRET}


@pytest.mark.usefixtures("swaps")
@pytest.mark.parametrize("kind", ["file", "folder", "link", "bundle with more in it", "a bundle"])
def test_what_comes_while_a_bundle_is_built_stays(bundle, tmp_path, elsewhere, monkeypatch, kind):
    """Between the check and the rename: only a bundle is replaced by a bundle."""
    contents, target = read_bundle(bundle), tmp_path / "new.trtpost"
    real = whole_folder._replace

    def replace(new: Path, path: Path, check: object) -> None:
        if kind == "file":
            target.write_bytes(SECRET)
        elif kind == "link":
            target.symlink_to(elsewhere)
        elif kind == "folder":
            shutil.copytree(elsewhere, target)
        else:
            shutil.copytree(bundle, target)
            if kind != "a bundle":
                (target / "notes.txt").write_bytes(SECRET)
        before.update(contents_of(target) if target.is_dir() else {"": target.read_bytes()})
        real(new, path, check)

    before: dict[str, bytes] = {}
    monkeypatch.setattr(whole_folder, "_replace", replace)
    arguments = (target, contents.model, None, contents.bundle.passport)
    if kind == "a bundle":
        write_bundle(*arguments)
        assert load_bundle(target).passport.files
    else:
        with pytest.raises(BundleError):
            write_bundle(*arguments)
        assert (contents_of(target) if target.is_dir() else {"": target.read_bytes()}) == before
        assert target.is_symlink() == (kind == "link")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert contents_of(elsewhere) == {"secret": SECRET}


# --- links in an output, and names of ours that are there already -----------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "dead", "ours", "folder", "overlay"])
def test_links_below_the_output_are_refused_before_the_work(tmp_path, elsewhere, kind):
    photo, out = picture(tmp_path / "photos/x/a.png"), tmp_path / "out"
    (out / "x").mkdir(parents=True)
    if kind == "folder":
        (out / "x").rmdir()
        (out / "x").symlink_to(elsewhere)
    elif kind == "overlay":
        (out / "x/a.overlay.png").symlink_to(elsewhere / "new")
    else:
        (elsewhere / "ours").write_bytes(MASK)
        leads = {"file": "secret", "dead": "new", "ours": "ours"}[kind]
        (out / "x/a.mask.png").symlink_to(elsewhere / leads)
    with pytest.raises(TrtpostError, match="links are not followed"):
        plan_jobs(find_photos([tmp_path / "photos"]), out, overlay=True)
    if kind == "overlay":  # the mask is named, and may be a link; the overlay is not
        (out / "x/m.overlay.png").symlink_to(elsewhere / "new")
        with pytest.raises(TrtpostError, match="links are not followed"):
            plan_jobs(find_photos([photo]), out / "x/m.png", overlay=True)


def test_links_that_were_named_are_followed(bundle, tmp_path, elsewhere):
    """The output's folder, one above it, a mask's own name."""
    photo = picture(tmp_path / "a.png")
    (tmp_path / "out").symlink_to(elsewhere)
    (tmp_path / "m.png").symlink_to(elsewhere / "new.png")
    with Segmenter(bundle) as segmenter:
        for output in (tmp_path / "out", tmp_path / "out/in/it", tmp_path / "m.png"):
            ((outcome,), _) = run_all(segmenter, plan_jobs(find_photos([photo]), output, overlay=False))
            assert outcome.error is None
    assert sorted(contents_of(elsewhere)) == ["a.mask.png", "in/it/a.mask.png", "new.png", "secret"]
    assert (tmp_path / "m.png").is_symlink()


def test_a_link_at_the_temporary_name_is_not_followed(tmp_path, elsewhere, monkeypatch):
    """The name cannot be guessed; and where it could, nothing would be written through it, or removed."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "00000000")
    (tmp_path / ".m.png.00000000").symlink_to(elsewhere / "secret")
    with pytest.raises(ImageError, match="File exists"):
        write_whole(tmp_path / "m.png", lambda file: file.write(b"new"), ImageError, below=tmp_path)
    assert contents_of(elsewhere) == {"secret": SECRET}


@pytest.mark.parametrize("name", ["original", "backup", "a1b2c3d4", "x.part", "a1b2c3d4.part.txt"])
def test_hidden_folders_of_others_beside_a_bundle_stay(bundle, tmp_path, name):
    """What is left of killed builds is known by its whole name."""
    own = tmp_path / f".net.trtpost.{name}"
    own.mkdir()
    (own / "notes.txt").write_bytes(SECRET)
    tp.build(save(nchw(), tmp_path / "net.onnx"), bundle, flavour="none", resize="bilinear")
    assert contents_of(own) == {"notes.txt": SECRET}


@pytest.mark.parametrize("what", ["model", "configuration", "labels", "a pipe"])
def test_links_in_a_repository_are_not_followed(bundle, tmp_path, elsewhere, what):
    """A repository that others write to: a model that is a link, a configuration or labels that are."""
    repository = tmp_path / "repository"
    loaded = load_bundle(bundle)
    export_triton(loaded, repository, name="net")
    changed = tp.build(save(nchw(), tmp_path / "net.onnx"), bundle, flavour="none", labels=("w", "x", "y", "z"))
    if what == "model":
        shutil.move(repository / "net", elsewhere / "net")
        (repository / "net").symlink_to(elsewhere / "net")
    else:
        name = "config.pbtxt" if what == "configuration" else "labels.txt"
        shutil.move(repository / "net" / name, elsewhere / name)
        if what == "a pipe":
            os.mkfifo(repository / "net" / name)
        else:
            (repository / "net" / name).symlink_to(elsewhere / name)
    before = contents_of(elsewhere)
    with pytest.raises(TrtpostError, match=r"is a link|a link is there|not a regular file"):
        export_triton(changed, repository, name="net", max_batch=5)
    assert contents_of(elsewhere) == before


def test_versions_are_counted_as_triton_does(bundle, tmp_path):
    """Nine digits and more, up to 63 bits; not beyond."""
    loaded, repository = load_bundle(bundle), tmp_path / "repository"
    export_triton(loaded, repository, name="net")
    for last in (999_999_999, (1 << 63) - 2):
        (repository / "net" / str(last)).mkdir()
        (version,) = export_triton(loaded, repository, name="net")
        assert version.name == str(last + 1)
    with pytest.raises(TrtpostError, match="Triton counts no further"):
        export_triton(loaded, repository, name="net")
    (repository / "net" / ("9" * 30)).mkdir()  # no version of Triton's
    with pytest.raises(TrtpostError, match="Triton counts no further"):
        export_triton(loaded, repository, name="net")


# --- only regular files are opened ------------------------------------------------------------------------------------

READERS = {
    "x.jpg": lambda path: tp.Segmenter(path.parent / "net.trtpost")(path),
    "x.png": lambda path: read_truth(path, (6, 9), ("a", "b")),
    "x.txt": read_labels,
    "x.trtpost": load_bundle,
    **dict.fromkeys(
        [f"x.{suffix}" for suffix in ("onnx", "keras", "h5", "tflite", "pb", "pbtxt")],
        lambda path: tp.build(path, path.parent / "new.trtpost", flavour="none"),
    ),
}


def special(path: Path, kind: str) -> None:
    """Make something of a name that can be opened, or not, and is no file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))  # its names are short
    else:
        path.mkdir()


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_refused_by_every_reader(tmp_path, monkeypatch, kind, name):
    monkeypatch.chdir(tmp_path)
    special(tmp_path / name, kind)
    with pytest.raises(TrtpostError, match=r"not a regular file|is a pipe"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_takes_the_place_of_a_file_after_the_check_is_refused(tmp_path, monkeypatch, kind):
    """The check is of the open file, so nothing can come between."""
    path = tmp_path / "x"
    path.write_bytes(b"x")
    regular = path.stat()
    path.unlink()
    special(path, kind)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: regular)
    with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
        open_regular(path)


@pytest.mark.parametrize("name", [MODEL, PASSPORT, PLAN])
def test_a_bundle_of_pipes(bundle, tmp_path, name):
    contents = read_bundle(bundle)
    passport = contents.bundle.passport
    plan = Plan("tensorrt", "10.9.0", ("8.9",), {}, {})
    write_bundle(bundle, contents.model, b"a plan", dataclasses.replace(passport, plan=plan))
    (bundle / name).unlink()
    os.mkfifo(bundle / name)
    with pytest.raises(BundleError, match=name):
        load_bundle(bundle)
    tp.build(save(nchw(), tmp_path / "net.onnx"), bundle, flavour="none")  # mended
    load_bundle(bundle)


def test_a_folder_of_photos_with_a_pipe_in_it(bundle, tmp_path):
    """The pipe is an error, and the others go on; calibration and verify say so too."""
    folder = tmp_path / "photos"
    picture(folder / "a.png")
    os.mkfifo(folder / "b.jpg")
    (folder / "c.jpg").symlink_to("/dev/zero")
    with Segmenter(bundle) as segmenter:
        outcomes, _ = run_all(segmenter, plan_jobs(find_photos([folder]), tmp_path / "out", overlay=False), again=False)
        assert [outcome.error is None for outcome in outcomes] == [True, False, False]
        for path in photos_in(folder)[1:]:
            with pytest.raises(ImageError, match=r"is a pipe|not a regular file"):
                segmenter(path)


def test_a_photo_of_a_benchmark_that_is_a_pipe(bundle, tmp_path):
    os.mkfifo(tmp_path / "x.jpg")
    with pytest.raises(ImageError, match="not a regular file"):
        bench_pipeline(load_bundle(bundle), None, image=tmp_path / "x.jpg", megapixels=(), rounds=3)


def test_ground_truth_that_is_a_program(tmp_path, monkeypatch):
    """Pillow would give PostScript to another program, whatever the file is called."""
    (tmp_path / "x.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 6\n%%EndComments\nshowpage\n%%EOF\n"
    )
    run: list[object] = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *given, **_: run.append(given))
    with pytest.raises(ImageError, match="is not a mask that can be read"):
        read_truth(tmp_path / "x.png", (6, 9), ("a", "b"))
    assert not run


def test_a_saved_model_with_a_pipe_in_it(tmp_path):
    """TensorFlow would open it."""
    (tmp_path / "model/variables").mkdir(parents=True)
    (tmp_path / "model/saved_model.pb").write_bytes(b"\x08\x01")
    os.mkfifo(tmp_path / "model/variables/variables.index")
    with pytest.raises(ModelError, match=r"variables\.index is not a regular file"):
        tp.build(tmp_path / "model", tmp_path / "new.trtpost", flavour="none")


def test_weights_in_a_pipe(tmp_path):
    """External data of ONNX."""
    path = save(nchw(), tmp_path / "net.onnx")
    onnx.save(
        onnx.load(path),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    assert load_model(path).graph.node
    (tmp_path / "weights.bin").unlink()
    os.mkfifo(tmp_path / "weights.bin")
    with pytest.raises(ModelError, match=r"weights\.bin, which is not a regular file"):
        load_model(path)


def test_a_timing_cache_that_is_a_pipe(tmp_path, monkeypatch):
    said: list[str] = []
    given: list[bytes] = []
    monkeypatch.setattr(timing_cache, "_set", lambda _, content, __: given.append(content) or True)
    os.mkfifo(tmp_path / "cache")
    timing_cache.attach(None, tmp_path / "cache", None, said.append)
    timing_cache.attach(None, tmp_path / "missing", None, said.append)
    assert given == [b"", b""]
    assert len(said) == 1
    assert "not a regular file" in said[0]
    timing_cache.save(b"x", tmp_path / "cache", said.append)
    assert "not a regular file" in said[1]
    assert (tmp_path / "cache").is_fifo()


def test_targets_that_are_no_files(tmp_path):
    """A device, a pipe, a folder, a socket: nothing is renamed over them."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(SpecError, match=r"not a regular file|Is a directory"):
            write_whole(tmp_path / name, lambda file: file.write(b"x"), SpecError)
    with pytest.raises(SpecError, match="not a regular file"):
        write_whole(Path("/dev/null"), lambda file: file.write(b"x"), SpecError)
    assert not hidden(tmp_path)


# --- folders in folders -----------------------------------------------------------------------------------------------


@pytest.fixture
def deep(tmp_path):
    """1,300 folders in each other, and a photo in the last."""
    root = tmp_path / "deep"
    path = root
    for _ in range(1300):
        path.mkdir()
        path /= "d"
    picture(path.parent / "a.png")
    yield root
    for folder in ("deep", "out"):  # Python's own way to remove them ends at a thousand
        subprocess.run(["rm", "-rf", str(tmp_path / folder)], check=True)


def test_folders_1300_deep(bundle, tmp_path, deep, command_line):
    """Photos are found in them, and masks are written as deep."""
    code, _, faults = command_line("infer", deep, "-e", bundle, "-o", tmp_path / "out", cwd=tmp_path)
    assert (code, faults) == (0, ""), faults
    last = tmp_path / "out" / Path(*["d"] * 1299) / "a.mask.png"
    assert is_ours(io.BytesIO(last.read_bytes()))
    code, said, _ = command_line("infer", deep, "-e", bundle, "-o", tmp_path / "out", "--json", cwd=tmp_path)
    assert (code, json.loads(said)["photos"][0]["skipped"]) == (0, True)


@pytest.mark.parametrize("command", ["infer", "build", "inspect", "verify"])
def test_deep_folders_are_no_fault_of_ours(bundle, tmp_path, deep, command_line, command):
    """As a pattern, as a model's folder, as a bundle, as a folder of photos: a sentence at most."""
    arguments = {
        "infer": (f"{deep}/**", "-e", bundle, "-o", tmp_path / "out"),
        "build": (deep, "-o", tmp_path / "new.trtpost"),
        "inspect": (deep,),
        "verify": (bundle, "--against", deep, "--images", deep),
    }[command]
    (deep / "saved_model.pb").write_bytes(b"\x08\x01")
    code, _, faults = command_line(command, *arguments, cwd=tmp_path)
    assert code in (0, 1)
    assert "Traceback" not in faults


def test_a_name_that_no_file_can_have(tmp_path):
    for path in (tmp_path / "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(ImageError):
            write_whole(path, lambda file: file.write(b"x"), ImageError, below=tmp_path)
    with pytest.raises(ImageError, match="not a file below"):
        write_whole(tmp_path / "x/../../y", lambda file: file.write(b"x"), ImageError, below=tmp_path)


def test_a_rename_that_is_refused_leaves_nothing(tmp_path, monkeypatch):
    """For another reason than that something is there."""

    def refused(*_: object, **__: object) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(whole_file._Folder, "put", refused)
    with pytest.raises(ImageError, match="Input/output error"):
        write_whole(tmp_path / "m.png", lambda file: file.write(b"x"), ImageError, below=tmp_path)
    assert not list(tmp_path.iterdir())
