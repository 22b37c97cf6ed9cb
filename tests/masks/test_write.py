"""Masks and overlays as files: PNGs that say what they were made with, whole or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from trtpost.errors import ImageError
from trtpost.masks.finished import is_ours
from trtpost.masks.png import palette
from trtpost.masks.write import write_mask, write_picture

RNG = np.random.default_rng(0)
PICTURE = Image.fromarray(RNG.integers(0, 256, (30, 20, 3), np.uint8))


def test_masks_are_palette_pngs_of_class_ids(tmp_path):
    mask = RNG.integers(0, 21, (50, 40)).astype(np.uint8)
    colours = palette(["background", *"abcdefghijklmnopqrst"])
    write_mask(mask, tmp_path / "mask.png", colours)
    with Image.open(tmp_path / "mask.png") as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), mask)
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), colours[mask])


def test_wide_masks_are_16_bit(tmp_path):
    mask = RNG.integers(0, 60_000, (50, 40)).astype(np.int32)
    write_mask(mask, tmp_path / "mask.png", palette(["a"]))
    with Image.open(tmp_path / "mask.png") as image:
        np.testing.assert_array_equal(np.asarray(image), mask)


def test_ids_that_no_png_holds_are_refused(tmp_path):
    for mask in (np.full((4, 4), -1, np.int32), np.full((4, 4), 70_000, np.int32)):
        with pytest.raises(ImageError, match="do not fit a 16-bit PNG"):
            write_mask(mask, tmp_path / "mask.png", palette(["a"]))


def test_unwritable_output_leaves_nothing(tmp_path):
    mask = np.zeros((4, 4), np.uint8)
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match="cannot write"):
        write_mask(mask, tmp_path / "file" / "mask.png", palette(["a"]))
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(ImageError, match="cannot write"):
        write_mask(mask, tmp_path / "taken.png", palette(["a"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken.png"]
    with pytest.raises(ImageError, match="unknown picture format"):
        write_picture(PICTURE, tmp_path / "x.zzz")


@pytest.mark.parametrize(("name", "good"), [("m.png", True), ("m.PNG", True), ("m.jpg", False), ("m", False)])
def test_masks_are_pngs_by_their_name(tmp_path, name, good):
    if good:
        write_mask(np.zeros((4, 4), np.uint8), tmp_path / name, palette(["a"]))
    else:
        with pytest.raises(ImageError, match="masks are PNG"):
            write_mask(np.zeros((4, 4), np.uint8), tmp_path / name, palette(["a"]))
    assert (tmp_path / name).exists() == good


@pytest.mark.parametrize("mark", ["", "5" * 64])
def test_what_has_a_mark_is_ours(tmp_path, mark):
    write_mask(np.zeros((4, 4), np.uint8), tmp_path / "mask.png", palette(["a"]), mark=mark)
    write_picture(PICTURE, tmp_path / "overlay.png", mark=mark)
    for name in ("mask.png", "overlay.png"):
        with (tmp_path / name).open("rb") as file:
            assert is_ours(file) == bool(mark)


def test_only_what_may_be_replaced_is(tmp_path):
    target = tmp_path / "mask.png"
    target.write_bytes(b"a file of somebody else's")
    with pytest.raises(ImageError):
        write_mask(np.zeros((4, 4), np.uint8), target, palette(["a"]), replaces=is_ours)
    assert target.read_bytes() == b"a file of somebody else's"
