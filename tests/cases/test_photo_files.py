"""Which files are photos, and which files they become: folders, names of every kind, stdin; nothing is lost."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from nets import nchw, save
from pictures import encoded
from PIL import Image
from typer.testing import CliRunner

from trtpost.builder.build import build
from trtpost.cli.app import app
from trtpost.errors import ImageError, TrtpostError
from trtpost.jobs.paths import plan_jobs
from trtpost.jobs.run import run_all
from trtpost.masks.png import encode_mask, palette
from trtpost.photos.find import find_photos, photos_in, photos_under
from trtpost.photos.read import read_photo
from trtpost.segment import Segmenter

PHOTO = encoded(np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8))


def masks(*photos: str | Path, output: str | Path = "out") -> list[str]:
    """The masks' names below the output folder."""
    jobs = plan_jobs(find_photos([Path(photo) for photo in photos]), Path(output), overlay=True)
    files = [path for job in jobs for path in (job.mask, job.overlay)]
    assert len({unicodedata.normalize("NFC", str(path)).casefold() for path in files}) == len(files)
    return [job.mask.relative_to(output).as_posix() for job in jobs]


def tree(root: Path, *names: str) -> Path:
    """A folder of photos."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(PHOTO)
    return root


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    return build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none", normalize="unit").path


@pytest.fixture
def infer(bundle):
    """Runs `trtpost infer` in this process; gives exit code, stdout and stderr, or the sentence that would be shown."""

    def run(*arguments: object, content: bytes | None = None) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["infer", "-e", str(bundle), *map(str, arguments)], input=content)
        if isinstance(done.exception, TrtpostError):
            return 1, str(done.exception)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    return run


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# --- names ------------------------------------------------------------------------------------------------------------


def test_the_stem_names_the_mask():
    """The usual case."""
    assert masks("a.jpg", "x/b.png", "with space.jpg", "ü.jpg", "two.dots.jpg", "-dash.jpg", "none") == [
        "a.mask.png",
        "b.mask.png",
        "with space.mask.png",
        "ü.mask.png",
        "two.dots.mask.png",
        "-dash.mask.png",
        "none.mask.png",
    ]


def test_photos_of_the_same_stem_lose_nothing():
    """One stem twice in one call: by suffix, by folder, by case, by how an accent is written."""
    assert masks("a.jpg", "a.png", "b.jpg") == ["a.jpg.mask.png", "a.png.mask.png", "b.mask.png"]
    assert masks("a.jpg", "x/a.jpg") == ["a.jpg.mask.png", "x_a.jpg.mask.png"]
    assert masks("a.jpg", "a.png", "x/a.jpg") == ["a.jpg.mask.png", "a.png.mask.png", "x_a.jpg.mask.png"]
    assert (
        len(masks("a.jpg", "A.JPG", "ä.jpg", unicodedata.normalize("NFD", "ä.jpg"), "Straße.jpg", "STRASSE.jpg")) == 6
    )
    assert len(masks("a.jpg", "a.png", "x/a.jpg", "x_a.jpg", "A.JPG", "y/x_a.jpg", "../x/a.jpg", "x/../a.jpg")) == 8


def test_numbered_names_step_aside():
    """Names that are made up must not be those of other photos."""
    assert len(masks("a.png", "../a.png", "001_a.png", "a_001.png")) == 4


def test_a_photo_given_twice_runs_once(tmp_path):
    """Patterns that overlap; stdin has only one content."""
    assert masks("a.jpg", "a.jpg") == ["a.mask.png"]
    folder = tree(tmp_path / "photos", "a.jpg", "b.jpg")
    assert masks(folder, folder / "a.jpg", folder) == ["photos/a.mask.png", "photos/b.mask.png"]


@pytest.mark.parametrize("name", ["x" * 251 + ".jpg", "ü" * 125 + ".jpg", "🐈" * 62 + ".jpg"], ids=["x", "ü", "cat"])
def test_names_as_long_as_file_systems_allow(tmp_path, infer, name):
    """255 bytes, to which `.overlay.png` has to be added: shortened, at a character, and still distinct."""
    tree(tmp_path, name, name.replace(".jpg", ".png"))
    code, output = infer(tmp_path / name, tmp_path / name.replace(".jpg", ".png"), "-o", tmp_path / "out", "--overlay")
    assert code == 0, output
    assert len(files(tmp_path / "out")) == 4
    for written in files(tmp_path / "out"):
        assert len(written.encode()) < 256
        assert written.encode().decode() == written


@pytest.mark.parametrize("kind", ["table", "repeated", "json"])
def test_names_that_are_no_line_of_text(tmp_path, infer, kind):
    """Line breaks, and sequences that would steer the terminal: shown as escapes, in one row each."""
    names = ["new\nline.jpg", "carriage\rreturn.jpg", "\x1b[31mred.jpg", "tab\t.jpg", "bad\n.jpg"]
    tree(tmp_path, *names)
    (tmp_path / names[-1]).write_bytes(b"text")
    flags = {"table": [], "repeated": ["--repeat", "2"], "json": ["--json"]}[kind]
    code, output = infer(*(tmp_path / name for name in names), "-o", tmp_path / "out", *flags)
    assert code == 1
    assert files(tmp_path / "out") == sorted(f"{Path(name).stem}.mask.png" for name in names[:-1])
    if kind == "json":
        assert [Path(one["photo"]).name for one in json.loads(output)["photos"]] == names
        return
    assert not {"\r", "\x1b", "\t"} & set(output)
    (row,) = [line for line in output.splitlines() if line.startswith("new")]
    assert row.startswith(r"new\nline.jpg")
    assert [line for line in output.splitlines() if r"bad\n.jpg is text, not a photo" in line]


def test_a_bundle_whose_name_is_no_line_of_text(tmp_path, bundle, infer):
    """A newline, an escape and bytes that are no text: in no line of any command, and in no JSON, as they are."""
    tree(tmp_path, "a.jpg")
    odd = shutil.copytree(bundle, tmp_path / "odd\n\x1b[31m\udcff.trtpost")
    model = str(bundle.parent / "net.onnx")
    said = [infer(tmp_path / "a.jpg", "-o", tmp_path, "-e", odd, *flags) for flags in ([], ["--json"])]
    for arguments in (["inspect", str(odd)], ["build", model, "--flavour", "none", "--force", "-o", str(odd)]):
        done = CliRunner().invoke(app, arguments)
        said.append((done.exit_code, done.output))
    for code, text in said:
        assert code == 0
        assert "odd\\" in text
        assert not {"\x1b", "\udcff"} & set(text)
        assert "odd\n" not in text
    assert json.loads(said[1][1])["bundle"] == str(odd).replace("\udcff", "\\udcff")


def test_a_leading_dash(tmp_path, infer, monkeypatch):
    """Names that look like options: behind `--`, or in their folder."""
    monkeypatch.chdir(tree(tmp_path, "-o.jpg"))
    assert infer("-o", "out", "--", "-o.jpg")[0] == 0
    assert infer(".", "-o", "again")[0] == 0
    assert files(tmp_path) == ["-o.jpg", "again/-o.mask.png", "out/-o.mask.png"]


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_is_a_photo_each(tmp_path, infer):
    """A folder as input, with what else lies in it: what is hidden or no photo is passed over."""
    folder = tree(
        tmp_path / "photos", "b.jpg", "a.PNG", "c.heic", ".hidden.jpg", ".trash/d.jpg", "a.mask.png", "A.Overlay.PNG"
    )
    (folder / "notes.txt").write_text("not a photo")
    (folder / "c.heic").unlink()
    assert [photo.path.name for photo in find_photos([folder])] == ["a.PNG", "b.jpg"]
    code, output = infer(folder, "-o", tmp_path / "out", "--overlay")
    assert code == 0, output
    assert files(tmp_path / "out") == ["a.mask.png", "a.overlay.png", "b.mask.png", "b.overlay.png"]


def test_what_an_earlier_run_left_is_no_photo(tmp_path, infer):
    """Masks beside the photos, or in a folder below them: a second run does the same as the first."""
    folder = tree(tmp_path / "photos", "a.jpg", "x/b.jpg")
    for output in (folder, folder / "masks"):
        counts = []
        for _ in range(2):
            code, said = infer(folder, "-o", output, "--overlay")
            assert code == 0, said
            counts.append(len(files(tmp_path)))
        assert counts[0] == counts[1]
    assert [path.name for path in photos_under(folder, nested=True)] == ["a.jpg", "b.jpg"]


def test_a_folder_tree_keeps_its_structure(tmp_path, infer):
    """Data sets: the same names in many folders."""
    folder = tree(tmp_path / "photos", "a.jpg", "x/a.jpg", "x/y/a.jpg", "x/y/a.png")
    code, output = infer(folder, "-o", tmp_path / "out")
    assert code == 0, output
    assert files(tmp_path / "out") == ["a.mask.png", "x/a.mask.png", "x/y/a.jpg.mask.png", "x/y/a.png.mask.png"]
    assert " x/y/a.png" in output.replace("\n", " "), "the table tells them apart"


def test_several_folders_and_files(tmp_path):
    """Each folder keeps its name, so that `photos/*` gives what `photos` does; folders of one name stay apart too."""
    tree(tmp_path, "one/a.jpg", "two/a.jpg", "x/one/a.jpg", "a.jpg")
    one, two = tmp_path / "one", tmp_path / "two"
    assert masks(one, two, tmp_path / "a.jpg") == ["one/a.mask.png", "two/a.mask.png", "a.mask.png"]
    assert masks(one, tmp_path / "a.jpg", one / "a.jpg") == ["one/a.mask.png", "a.mask.png"]
    assert masks(one / "a.jpg", two / "a.jpg") == ["one_a.jpg.mask.png", "two_a.jpg.mask.png"]
    assert sorted(masks(*tmp_path.iterdir())) == sorted(masks(tmp_path))
    assert len(masks(one, tmp_path / "x/one", two)) == 3


def test_a_folder_as_the_current_one(tmp_path, monkeypatch):
    """`.`, `..` and a trailing slash have no name of their own."""
    tree(tmp_path, "one/a.jpg", "two/b.jpg")
    monkeypatch.chdir(tmp_path / "one")
    assert masks(".", "../two/") == ["one/a.mask.png", "two/b.mask.png"]
    assert masks(".") == ["a.mask.png"]
    assert masks("..") == ["one/a.mask.png", "two/b.mask.png"]


def test_links_in_folders(tmp_path):
    """Followed, each folder once: also where they lead in a circle. What they do not reach is an error of its own."""
    folder = tree(tmp_path / "photos", "a.jpg", "x/b.jpg")
    tree(tmp_path / "elsewhere", "c.jpg")
    (folder / "x/circle").symlink_to(folder)
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    assert [path.name for path in photos_under(folder, nested=True)] == ["a.jpg", "gone.jpg", "c.jpg", "b.jpg"]
    with pytest.raises(ImageError, match=r"no such image: .*gone.jpg, a link to what is not there"):
        read_photo(folder / "gone.jpg")


def test_folders_without_photos(tmp_path, infer):
    """Empty, or full of other things: said before there is any work."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text/notes.txt").touch()
    for name in ("empty", "text"):
        assert infer(tmp_path / name, "-o", tmp_path)[1].startswith(
            f"{tmp_path / name} holds no photo; in folders they"
        )


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    """Rights that are missing."""

    def scandir(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(TrtpostError, match=r"folder .* cannot be read: Permission denied"):
        photos_under(tmp_path, nested=True)


def test_calibration_and_verify_find_photos_the_same_way(tmp_path):
    """One way to look through a folder; but in theirs, folders may hold the ground truth."""
    folder = tree(tmp_path / "photos", "b.jpg", "a.png", "a.mask.png", ".c.jpg", "truth/a.png")
    (folder / "notes.txt").touch()
    assert list(photos_in(folder)) == photos_under(folder, nested=False) == [folder / "a.png", folder / "b.jpg"]


def test_a_folder_deleted_during_the_run(tmp_path, bundle):
    """What was there when the run began: an error a photo, and the others go on."""
    tree(tmp_path, "x/a.jpg", "y/b.jpg")
    jobs = plan_jobs(find_photos([tmp_path / "x", tmp_path / "y"]), tmp_path / "out", overlay=True)
    shutil.rmtree(tmp_path / "x")
    with Segmenter(bundle) as segmenter:
        outcomes, _ = run_all(segmenter, jobs)
    assert [outcome.error for outcome in outcomes] == [f"no such image: {tmp_path / 'x/a.jpg'}", None]
    assert files(tmp_path / "out") == ["y/b.mask.png", "y/b.overlay.png"]


# --- special files, stdin ---------------------------------------------------------------------------------------------


def test_files_that_are_no_files(tmp_path):
    """Pipes would be read once and never again, devices for ever."""
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="is a pipe: give what comes out of it to trtpost infer -"):
        read_photo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="/dev/zero is not a regular file"):
        read_photo("/dev/zero")
    with pytest.raises(ImageError, match="is a folder"):
        read_photo(tmp_path)
    with pytest.raises(ImageError, match="no such image"):
        read_photo(tmp_path / "missing.jpg")
    with pytest.raises(ImageError, match="File name too long"):
        read_photo(tmp_path / ("x" * 300))


def test_files_that_may_not_be_read(tmp_path, monkeypatch):
    """Rights that are missing."""

    def refused(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    tree(tmp_path, "a.jpg")
    monkeypatch.setattr("trtpost.storage.files._regular", refused)
    with pytest.raises(ImageError, match=r"a.jpg cannot be read: Permission denied"):
        read_photo(tmp_path / "a.jpg")


@pytest.mark.parametrize("arguments", [["--repeat", "3"], ["--overlay"], ["--json"], ["--fast-decode"]], ids=str)
def test_stdin(tmp_path, infer, arguments):
    """A photo from a pipe, which can be read only once."""
    code, output = infer("-", "-", "-o", tmp_path / "mask.png", *arguments, content=PHOTO)
    assert code == 0, output
    with Image.open(tmp_path / "mask.png") as mask:
        assert mask.size == (9, 6)


def test_stdin_among_files(tmp_path, infer):
    """Its mask has a name too, which a photo may want as well."""
    tree(tmp_path, "stdin.png", "a.jpg")
    code, output = infer(tmp_path / "stdin.png", "-", tmp_path / "a.jpg", "-o", tmp_path / "out", content=PHOTO)
    assert code == 0, output
    assert files(tmp_path / "out") == ["a.mask.png", "stdin.mask.png", "stdin.png.mask.png"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "stdin is empty"), (b"text", "stdin: the image is text, not a photo"), (PHOTO[:99], "damaged")],
)
def test_stdin_that_is_no_photo(tmp_path, infer, content, says):
    """A pipe whose other end failed."""
    code, output = infer("-", "-o", tmp_path, content=content)
    assert code == 1
    assert says in output
    assert files(tmp_path) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "says"), [(Terminal(), "which is a terminal"), (None, "which is closed")])
def test_stdin_that_nobody_fills(monkeypatch, stream, says):
    """Waiting for ever would be no answer."""
    monkeypatch.setattr(sys, "stdin", stream)
    with pytest.raises(TrtpostError, match=says):
        find_photos([Path("-")])


def test_a_real_pipe(tmp_path, bundle):
    """The same in a process of its own, as a shell runs it."""
    command = [sys.executable, "-c", "from trtpost.cli.entry import main; main()", "infer", "-e", str(bundle), "-"]
    done = subprocess.run(command, cwd=tmp_path, input=PHOTO, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == ["stdin.mask.png"]


# --- where masks go ---------------------------------------------------------------------------------------------------


def test_photos_are_not_overwritten(tmp_path):
    """A mask that would take the place of a photo, by its name, another name or a link."""
    tree(tmp_path, "a.png", "x.png", "x.mask.png")
    (tmp_path / "link.png").symlink_to("a.png")
    (tmp_path / "same.png").hardlink_to(tmp_path / "a.png")
    for output in ("a.png", "link.png", "same.png"):
        with pytest.raises(TrtpostError, match="would overwrite a photo"):
            masks(tmp_path / "a.png", output=tmp_path / output)
    with pytest.raises(TrtpostError, match="would overwrite a photo"):
        masks(tmp_path / "x.png", tmp_path / "x.mask.png", output=tmp_path)


def test_one_photo_into_one_file(tmp_path):
    """Either a file or a folder, and it is clear which."""
    (job,) = plan_jobs(find_photos([Path("a.jpg")]), Path("out/b.png"), overlay=True)
    assert (job.mask, job.overlay) == (Path("out/b.png"), Path("out/b.overlay.png"))
    with pytest.raises(TrtpostError, match="is one file, but there are 2 photos: give a folder"):
        masks("a.jpg", "b.jpg", output="out/b.png")
    (tmp_path / "folder.png").mkdir()
    assert masks("a.jpg", output=tmp_path / "folder.png") == ["a.mask.png"]


def test_outputs_that_cannot_be(tmp_path):
    """Found before there is any work."""
    tree(tmp_path, "file")
    for output, says in [
        (tmp_path / "out.jpg", "masks are PNG, so give a name that ends in .png, or a folder"),
        (tmp_path / "file", "masks are PNG, so give a name that ends in .png, or a folder"),
        (tmp_path / "file/out", "file is a file, not a folder"),
        (tmp_path / "file/out.png", "file is a file, not a folder"),
        (Path("/dev/null"), "masks are PNG"),
        (Path("-"), "masks are files"),
    ]:
        with pytest.raises(TrtpostError, match=says):
            masks("a.jpg", output=output)


# --- what is replaced -------------------------------------------------------------------------------------------------


def picture(path: Path, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (9, 6), 3).save(path)
    return path


@pytest.mark.parametrize("link", ["folder", "file", "overlay"])
def test_two_masks_that_links_make_one_file(tmp_path, infer, link):
    """Each has a name of its own, and one would replace the other: through a folder, a file, two kinds of file."""
    folder, out = tree(tmp_path / "photos", "x/a.jpg", "y/a.jpg"), tmp_path / "out"
    (out / "x").mkdir(parents=True)
    if link == "folder":
        (out / "y").symlink_to("x")
    else:
        (out / "y").mkdir()
        (out / "y/a.mask.png").symlink_to("../x/a.mask.png" if link == "file" else "a.overlay.png")
    code, said = infer(folder, "-o", out, "--overlay")
    assert (code, said.count("are one file by a link")) == (1, 1)
    assert files(out) == []


@pytest.mark.parametrize("mode", ["RGB", "P", "L"])
def test_a_picture_of_somebody_elses_is_not_replaced(tmp_path, infer, mode):
    """The user's own, under the name of a mask or an overlay, of each kind of pixels, also behind a link."""
    tree(tmp_path, "a.jpg", "b.jpg")
    for name, target in (("keep.png", "keep.png"), ("a.overlay.png", "."), ("a.mask.png", "."), ("real.png", "l.png")):
        own = picture(tmp_path / "own" / name, mode)
        if target == "l.png":
            (own.parent / target).symlink_to(name)
        before = own.read_bytes()
        code, said = infer(tmp_path / "a.jpg", "-o", own.parent / target, "--overlay")
        assert (code, own.read_bytes()) == (1, before)
        assert "exists and is no mask or overlay that trtpost wrote" in said
        shutil.rmtree(own.parent)


@pytest.mark.parametrize("encoding", ["palette", "packed", "gray"])
def test_masks_and_overlays_of_ours_are_replaced(tmp_path, infer, encoding):
    """By a second run, under any name, behind a link; so is an empty file, which others make to have a name."""
    tree(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "empty.png").touch()
    (tmp_path / "link.png").symlink_to("one.png")
    for target in ("one.png", "one.png", "link.png", "empty.png", "", ""):
        assert infer(tmp_path / "a.jpg", "-o", tmp_path / target, "--overlay", "--mask", encoding)[0] == 0
    assert (tmp_path / "link.png").is_symlink()


@pytest.mark.parametrize("name", ["a.mask.png", "keep.mask.png"])
def test_what_could_be_a_mask_but_has_no_mark_is_not_replaced(tmp_path, infer, name):
    """16 bits of gray, such as depth, and a palette of our colours: of somebody else's, whatever they are called."""
    tree(tmp_path, "a.jpg")
    mask, colours = tmp_path / name, palette(("a", "b", "c"))
    depth = io.BytesIO()
    Image.fromarray(np.full((6, 9), 3000, np.uint16)).save(depth, "PNG")
    for foreign in (depth.getvalue(), encode_mask(np.zeros((6, 9), np.uint8), colours)):
        mask.write_bytes(foreign)
        code, said = infer(tmp_path / "a.jpg", "-o", tmp_path if name == "a.mask.png" else mask)
        assert (code, mask.read_bytes()) == (1, foreign)
        assert "exists and is no mask or overlay that trtpost wrote" in said


def test_bundles_are_no_folders_for_masks(tmp_path, bundle, infer):
    """The next build would refuse a bundle with something else in it: itself, a folder in it, behind a link."""
    tree(tmp_path, "a.jpg")
    copy = shutil.copytree(bundle, tmp_path / "copy.trtpost")
    (tmp_path / "link").symlink_to("copy.trtpost")
    for output in ("copy.trtpost", "copy.trtpost/masks", "copy.trtpost/a.png", "link"):
        code, said = infer(tmp_path / "a.jpg", "-o", tmp_path / output)
        assert (code, "lies in the engine bundle" in said) == (1, True)
    assert files(copy) == files(bundle)


def test_masks_of_another_photo_are_not_taken_for_done(tmp_path, infer):
    """Two calls into one folder: the second's mask replaces the first's of that name, also where it is newer."""
    first, second = tree(tmp_path / "first", "a.jpg"), tmp_path / "second"
    second.mkdir()
    Image.new("RGB", (9, 6), "red").save(second / "a.png")
    os.utime(second / "a.png", (1, 1))
    out = tmp_path / "out"
    made = {}
    for folder in (first, second, first, second, second):
        assert infer(folder, "-o", out, "--overlay")[0] == 0
        for name in ("a.mask.png", "a.overlay.png"):
            made.setdefault((folder, name), (out / name).read_bytes())
            assert made[folder, name] == (out / name).read_bytes()
    assert len(set(made.values())) == 4
    before = (out / "a.overlay.png").stat().st_mtime_ns
    assert infer(second, "-o", out, "--overlay")[0] == 0
    assert (out / "a.overlay.png").stat().st_mtime_ns == before


def test_what_a_killed_process_leaves_is_removed(tmp_path, infer):
    """Hidden files of masks that were being written: by the next run of the same masks, once they are old."""
    tree(tmp_path, "a.jpg")
    names = [".a.mask.png.0123abcd", ".a.overlay.png.0123abcd", ".b.mask.png.0123abcd", ".a.mask.png.note", ".new"]
    for name in (*names, ".a.mask.png.12345678"):
        (tmp_path / name).touch()
    for name in names:
        os.utime(tmp_path / name, (1, 1))
    assert infer(tmp_path / "a.jpg", "-o", tmp_path, "--overlay")[0] == 0
    assert [name for name in files(tmp_path) if name.startswith(".")] == [
        ".a.mask.png.12345678",
        ".a.mask.png.note",
        ".b.mask.png.0123abcd",
        ".new",
    ]


def test_links_in_a_circle_are_called_so(tmp_path, infer):
    """As a photo, an output, a folder above it, an engine."""
    tree(tmp_path, "a.jpg")
    circle = tmp_path / "circle.png"
    circle.symlink_to("circle.png")
    photo = tmp_path / "a.jpg"
    for arguments in ((circle,), (photo, "-o", circle), (photo, "-o", circle / "x"), (photo, "-e", circle)):
        code, said = infer(*arguments)
        assert (code, "link in a circle" in said) == (1, True), said
