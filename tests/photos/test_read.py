"""Arrays that are photos, masks and overlays."""

from __future__ import annotations

import io

import numpy as np
import pytest
from conftest import package
from PIL import Image

from trtpost.errors import ImageError, SpecError
from trtpost.masks.colours import overlay, palette
from trtpost.masks.png import encode_mask
from trtpost.masks.write import write_mask, write_picture
from trtpost.photos.given import check_photo

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (30, 20, 3), np.uint8)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_arrays_that_are_no_photos(array):
    with pytest.raises(ImageError, match="uint8 array of shape"):
        check_photo(array)


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


def test_palette_colours_differ():
    colours = palette([f"{index}" for index in range(60)])
    assert len(np.unique(colours, axis=0)) == 60
    assert palette(["background", "a"])[0].tolist() == [0, 0, 0]
    assert palette(["sky", "a"])[0].any()


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
        write_picture(Image.fromarray(PHOTO), tmp_path / "x.zzz")


def test_overlay_tints_classes_and_leaves_the_background():
    photo = np.full((400, 600, 3), 100, np.uint8)
    mask = np.zeros((400, 600), np.uint8)
    mask[300:, 400:] = 1
    picture = np.asarray(overlay(photo, mask, ["background", "cat"], palette(["background", "cat"])))
    assert (picture[100:250, 300:390] == 100).all()
    assert (picture[350, 500] != 100).any()
    assert (picture[:20, :40] != 100).any(), "the legend"


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_overlay_of_tiny_pictures(shape):
    photo = np.full((*shape, 3), 100, np.uint8)
    picture = overlay(photo, np.ones(shape, np.uint8), ["background", "cat"], palette(["background", "cat"]))
    assert picture.size == shape[::-1]


@pytest.mark.parametrize("classes", [2, 4, 16])
def test_every_reader_makes_of_a_packed_mask_what_it_makes_of_the_other(classes):
    cv2, tensorflow = package("cv2"), package("tensorflow")
    mask = np.random.default_rng(classes).integers(0, classes, (9, 13)).astype(np.uint8)
    colours = palette([f"{index}" for index in range(classes)])
    plain, packed = (encode_mask(mask, colours, encoding) for encoding in ("palette", "packed"))
    assert plain[24] == 8
    assert packed[24] == {2: 1, 4: 2, 16: 4}[classes]
    for flag in (cv2.IMREAD_UNCHANGED, cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE):
        one, other = (cv2.imdecode(np.frombuffer(png, np.uint8), flag) for png in (plain, packed))
        np.testing.assert_array_equal(one, other)
    for channels in (0, 1, 3):
        one, other = (tensorflow.io.decode_png(png, channels=channels).numpy() for png in (plain, packed))
        np.testing.assert_array_equal(one, other)
    with Image.open(io.BytesIO(packed)) as image:
        np.testing.assert_array_equal(np.asarray(image), mask)


@pytest.mark.parametrize("classes", [2, 8, 256])
def test_every_reader_takes_a_gray_mask_as_ids(classes):
    """Of a palette OpenCV and TensorFlow make colours, as docs/infer.md says."""
    cv2, tensorflow = package("cv2"), package("tensorflow")
    mask = np.random.default_rng(classes).integers(0, classes, (9, 13)).astype(np.uint8)
    colours = palette([f"{index}" for index in range(classes)])
    gray, coloured = (encode_mask(mask, colours, encoding) for encoding in ("gray", "palette"))
    for png in (gray, coloured):
        with Image.open(io.BytesIO(png)) as image:
            np.testing.assert_array_equal(np.asarray(image), mask)
    for flag in (cv2.IMREAD_UNCHANGED, cv2.IMREAD_GRAYSCALE):
        np.testing.assert_array_equal(cv2.imdecode(np.frombuffer(gray, np.uint8), flag), mask)
    assert cv2.imdecode(np.frombuffer(coloured, np.uint8), cv2.IMREAD_UNCHANGED).shape == (9, 13, 3)
    np.testing.assert_array_equal(tensorflow.io.decode_png(gray).numpy()[..., 0], mask)
    assert tensorflow.io.decode_png(coloured).shape == (9, 13, 3)


def test_an_unknown_encoding_is_refused():
    with pytest.raises(SpecError, match="must be one of palette, packed, gray, not 'grey'"):
        encode_mask(np.zeros((2, 2), np.uint8), palette(("a", "b")), "grey")
