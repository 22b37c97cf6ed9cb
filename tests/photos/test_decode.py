"""The right way up, whole and in one sentence; `tests/cases/test_photos.py` has what cameras and programs write."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from trtpost.errors import ImageError
from trtpost.photos import decode as module
from trtpost.photos.decode import decode, from_pillow

PHOTO = np.random.default_rng(0).integers(0, 256, (5, 3, 3), np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", orientation: object = None, **options: object) -> bytes:
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, kind, exif=exif, **options)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", range(10))
def test_every_orientation_is_turned_as_pillow_turns_it(orientation):
    content = encoded(Image.fromarray(PHOTO), orientation=orientation)
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
        np.testing.assert_array_equal(from_pillow(image), expected)
    photo, size = decode(content, "photo")
    np.testing.assert_array_equal(photo, expected)
    assert size == expected.shape[:2]
    assert photo.flags.c_contiguous


@pytest.mark.parametrize(
    ("mode", "level", "expected"),
    [
        ("L", 200, 200),
        ("1", 1, 255),
        ("I;16", 0xABCD, 0xAB),
        ("RGB", (1, 2, 3), (1, 2, 3)),
        ("RGBA", (1, 2, 3, 0), (1, 2, 3)),
        ("LA", (7, 0), 7),
        ("CMYK", (255, 0, 0, 0), (0, 255, 255)),
    ],
)
def test_colours_and_depths(mode, level, expected):
    photo = from_pillow(Image.new(mode, (2, 2), level))
    assert (photo == np.broadcast_to(expected, (2, 2, 3))).all()


@pytest.mark.parametrize("mode", ["F", "LAB", "HSV"])
def test_pixels_without_a_range_are_refused(mode):
    with pytest.raises(ImageError, match="save it with 8 bits a channel in RGB"):
        from_pillow(Image.new(mode, (2, 2)))


def test_empty_large_and_cut_short(monkeypatch):
    content = encoded(Image.fromarray(PHOTO))
    monkeypatch.setattr(module, "MAX_PIXELS", 15)
    assert decode(content, "photo")[1] == (5, 3)
    monkeypatch.setattr(module, "MAX_PIXELS", 14)
    for fault, said in (
        (content, "more than"),
        (b"", "is empty"),
        (b"x", "is text, not a photo"),
        (b"\1", "is not an image"),
    ):
        with pytest.raises(ImageError, match=f"^photo {said}|photo has {said}"):
            decode(fault, "photo")
    monkeypatch.setattr(module, "MAX_PIXELS", 15)
    with pytest.raises(ImageError, match="photo is damaged"):
        decode(content[:-40], "photo")
    with pytest.raises(ImageError, match="the image is empty: it has no pixels"):
        from_pillow(Image.new("RGB", (0, 5)))


def test_a_jpeg_2000_of_an_open_image_has_unknown_bits():
    content = encoded(Image.fromarray(PHOTO), "JPEG2000")
    np.testing.assert_array_equal(decode(content, "photo")[0], PHOTO)
    with Image.open(io.BytesIO(content)) as image, pytest.raises(ImageError, match="give the file itself"):
        from_pillow(image)


@pytest.mark.parametrize(
    ("message", "content", "damage"),
    [
        ("Corrupt JPEG data: 3 extraneous bytes before marker 0xd9", b"\xff\xd8\0\0\0\xff\xd9", False),
        ("Corrupt JPEG data: 3 extraneous bytes before marker 0xd9", b"\xff\xd8\0\1\0\xff\xd9", True),
        ("Corrupt JPEG data: 3 extraneous bytes before marker 0xd9", b"\xff\xd8\0\0\0", True),
        ("Corrupt JPEG data: bad Huffman code", b"", True),
        ("Premature end of JPEG file", b"", True),
        ("Corrupt JPEG data: bad ICC marker", b"", False),
        ("Unsupported color conversion request", b"", False),
    ],
)
def test_a_warning_about_pixels_is_damage(message, content, damage):
    assert module._is_damage(message, content) == damage
