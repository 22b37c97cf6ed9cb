"""Which files are photos; `tests/cases/test_photo_files.py` has what people name, and how masks are called."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from trtpost.errors import ImageError, SpecError, TrtpostError
from trtpost.photos import find
from trtpost.photos.find import STDIN, find_photos, photos_in, photos_under


def folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("name", "photo"),
    [
        ("a.jpg", True),
        ("a.JPG", True),
        ("a.tiff", True),
        ("a.heic", True),
        ("a.mask.jpg", True),
        ("a.mask.png", False),
        ("a.MASK.PNG", False),
        ("a.overlay.png", False),
        (".a.jpg", False),
        ("jpg", False),
        ("a.txt", False),
    ],
)
def test_photos_of_a_folder_are_known_by_their_endings(tmp_path, name, photo):
    assert photos_under(folder(tmp_path, name), nested=True) == ([tmp_path / name] if photo else [])


def test_folders_inside_are_searched_in_order_where_that_is_wanted(tmp_path):
    folder(tmp_path, "b.png", "a/c.png", "a/.hidden/d.png", "c/e.png")
    (tmp_path / "a" / "circle").symlink_to(tmp_path)
    assert photos_under(tmp_path, nested=True) == [tmp_path / name for name in ("a/c.png", "b.png", "c/e.png")]
    assert photos_under(tmp_path, nested=False) == [tmp_path / "b.png"]


def test_each_photo_comes_once_and_lies_below_its_folder(tmp_path):
    folder(tmp_path, "x/a.png", "x/y/b.png")
    (alone,) = [find_photos([tmp_path / "x"])]
    assert [(str(one.place), one.searched) for one in alone] == [("a.png", True), ("y/b.png", True)]
    both = find_photos([tmp_path / "x" / "a.png", tmp_path / "x", tmp_path / "x" / "a.png"])
    assert [(str(one.place), one.searched) for one in both] == [("a.png", False), ("x/y/b.png", True)]


def test_patterns_that_no_shell_expanded(tmp_path):
    folder(tmp_path, "a.png", "b.png", "b.mask.png", "[c].png")
    assert [one.path.name for one in find_photos([tmp_path / "?.png"])] == ["a.png", "b.png"]
    assert [one.path.name for one in find_photos([tmp_path / "b*"])] == ["b.png"]
    assert [one.path.name for one in find_photos([tmp_path / "[c].png"])] == ["[c].png"]
    with pytest.raises(SpecError, match="nothing matches"):
        find_photos([tmp_path / "*.jpg"])
    with pytest.raises(SpecError, match="holds no photo"):
        find_photos([folder(tmp_path / "empty", "a.txt")])


def test_photos_to_learn_from_lie_in_one_folder_and_one_can_be_read(tmp_path):
    folder(tmp_path, "a.png", "in/c.png")
    for path, said in ((tmp_path / "a.png", "is not a folder"), (tmp_path / "none", "is not a folder")):
        with pytest.raises(SpecError, match=f"--photos .* {said}"):
            photos_in(path, "--photos")
    with pytest.raises(SpecError, match=r"holds no photo that can be read: .*a\.png is empty"):
        photos_in(tmp_path)
    Image.new("RGB", (2, 2)).save(tmp_path / "b.png")
    assert photos_in(tmp_path) == (tmp_path / "a.png", tmp_path / "b.png")


class Stdin:
    def __init__(self, content: bytes = b"", *, closed: bool = False, terminal: bool = False) -> None:
        self.buffer, self.closed, self.isatty = io.BytesIO(content), closed, lambda: terminal


@pytest.mark.parametrize(
    ("stdin", "error", "said"),
    [
        (None, TrtpostError, "is closed"),
        (Stdin(closed=True), TrtpostError, "is closed"),
        (Stdin(terminal=True), TrtpostError, "is a terminal"),
        (Stdin(), ImageError, "is empty"),
        (Stdin(bytes(11)), ImageError, "has more than"),
    ],
)
def test_what_is_no_photo_on_stdin(monkeypatch, stdin, error, said):
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr(find, "MAX_BYTES", 10)
    with pytest.raises(error, match=said):
        find_photos([STDIN])


def test_a_photo_on_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", Stdin(bytes(10)))
    monkeypatch.setattr(find, "MAX_BYTES", 10)
    (photo,) = find_photos([STDIN, STDIN])
    assert (photo.content, photo.source, photo.place) == (bytes(10), bytes(10), Path("stdin"))
