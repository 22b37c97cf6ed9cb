"""Folders of photos that lower precisions are calibrated on."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from trtpost.builder.precision import pixels_in
from trtpost.builder.request import photos_hash
from trtpost.errors import SpecError
from trtpost.photos.find import photos_in
from trtpost.spec import Pre


@pytest.fixture
def folder(tmp_path):
    for index, name in enumerate(["b.jpg", "a.png"]):
        Image.new("RGB", (30, 20), (index * 40, 100, 200)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a photo")
    (tmp_path / ".hidden.png").write_text("not one to see")
    return tmp_path


def test_pixels_are_what_the_engine_takes_and_damaged_photos_are_skipped(folder):
    (folder / "c.png").write_bytes((folder / "a.png").read_bytes()[:40])
    skipped = []
    pixels = list(pixels_in(photos_in(folder), Pre(8, 12, channels="gray"), (4, 6), skipped.append))
    assert [(one.shape, one.dtype) for one in pixels] == [((8, 12, 1), np.uint8)] * 2
    assert len(skipped) == 1
    assert "c.png" in skipped[0]


def test_the_hash_follows_names_and_contents(folder):
    before = photos_hash(photos_in(folder))
    Image.new("RGB", (30, 20)).save(folder / "b.jpg")
    after = photos_hash(photos_in(folder))
    (folder / "b.jpg").rename(folder / "c.jpg")
    assert len({before, after, photos_hash(photos_in(folder))}) == 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda _: None, "is not a folder"),
        (lambda path: path.write_text("x"), "is not a folder"),
        (lambda path: path.mkdir(), "holds no photo: give a folder"),
        (lambda path: (path.mkdir(), (path / "a.jpg").write_text("x")), "no photo that can be read: .*a.jpg is text"),
    ],
    ids=["missing", "file", "empty", "unreadable"],
)
def test_folders_without_photos(tmp_path, make, says):
    make(tmp_path / "photos")
    with pytest.raises(SpecError, match=says):
        photos_in(tmp_path / "photos")
