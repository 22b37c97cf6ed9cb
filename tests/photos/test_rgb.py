"""Tags of TIFF that Pillow does not heed, and strips."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from trtpost.photos import rgb as module
from trtpost.photos.cost import RefusedError
from trtpost.photos.rgb import heed_tags, may_be_unknown, rgb


def tiff(image: Image.Image, **tags: int | tuple[int, ...]) -> Image.Image:
    stream, info = io.BytesIO(), TiffImagePlugin.ImageFileDirectory_v2()
    image.save(stream, "TIFF", tiffinfo=info)
    opened = Image.open(io.BytesIO(stream.getvalue()))
    for number, value in tags.items():
        opened.tag_v2[int(number.removeprefix("t"))] = value
    return opened


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({}, None),
        ({"t254": 1}, "a small preview first"),
        ({"t254": 2}, None),  # a page of several
        ({"t339": 1}, None),
        ({"t339": 4}, None),
        ({"t339": 2}, "no defined range"),
        ({"t339": (1, 1, 3)}, "no defined range"),
        ({"t284": 2, "t258": (16, 16, 16)}, "a plane for each colour"),
        ({"t284": 2, "t258": (8, 8, 8)}, None),
        ({"t284": 2, "t258": (16, 16, 16), "t259": 5}, None),  # Pillow reads them where they are compressed
        ({"t284": 1, "t258": (16, 16, 16)}, None),
    ],
)
def test_tags(tags, said):
    image = tiff(Image.new("RGB", (2, 2)), **tags)
    if said is None:
        heed_tags(image)
    else:
        with pytest.raises(RefusedError, match=said):
            heed_tags(image)


@pytest.mark.parametrize(("largest", "level"), [(255, 255), (256, 1)])
def test_a_colour_map_of_8_bits_is_taken_as_such(largest, level):
    image = tiff(Image.new("P", (1, 1), 7), t320=tuple([0] * 7 + [largest] + [0] * 248) * 3)
    before = image.convert("RGB").getpixel((0, 0))
    heed_tags(image)
    assert rgb(image)[0, 0].tolist() == ([level] * 3 if largest < 256 else list(before))


@pytest.mark.parametrize(("compression", "unknown"), [(1, False), (5, False), (8, False), (34712, True), (50000, True)])
def test_a_compression_that_not_every_libtiff_knows(compression, unknown):
    assert may_be_unknown(tiff(Image.new("L", (2, 2)), t259=compression)) == unknown


@pytest.mark.parametrize(("photometric", "bits", "expected"), [(1, 16, 0xAB), (0, 16, 0x54), (1, 12, 0xBC)])
def test_gray_levels_of_more_than_8_bits(photometric, bits, expected):
    level = 0xABCD if bits == 16 else 0xBCD
    image = tiff(Image.fromarray(np.full((2, 2), level, np.uint16)), t258=(bits,), t262=photometric)
    image.load()
    assert (rgb(image) == expected).all()


def test_strips_are_the_whole(monkeypatch):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8))
    for pixels in (1, 5, 11, 34, 35):
        monkeypatch.setattr(module, "STRIP_PIXELS", pixels)
        np.testing.assert_array_equal(rgb(image), np.asarray(image))
