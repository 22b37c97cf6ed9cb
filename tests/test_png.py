"""Masks as PNGs: whoever compresses them, every reader finds the same class ids."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from conftest import package
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from trtpost import fused
from trtpost.image import palette
from trtpost.png import palette_png

RNG = np.random.default_rng(0)
COLOURS = palette([f"{index}" for index in range(256)])
MASKS = {
    "one pixel": np.full((1, 1), 7, np.uint8),
    "one class": np.zeros((300, 500), np.uint8),
    "one row": RNG.integers(0, 3, (1, 4000)).astype(np.uint8),
    "one column": RNG.integers(0, 3, (4000, 1)).astype(np.uint8),
    "noise of all values": RNG.integers(0, 256, (300, 500)).astype(np.uint8),
    "like nearest": RNG.integers(0, 19, (20, 30)).astype(np.uint8).repeat(16, 0).repeat(17, 1),
    "wider than deflate's window": RNG.integers(0, 2, (3, 40)).astype(np.uint8).repeat(1_200, 1),
    "runs of every length": np.repeat(np.arange(600) % 3, np.arange(600)).astype(np.uint8)[None],
    # frequencies like these want codes of more than 15 bits
    "Fibonacci": np.repeat(np.arange(24), [int(1.618**k) for k in range(24)]).astype(np.uint8)[None],
}


@pytest.fixture(params=["native", "zlib"])
def compressor(request, monkeypatch):
    if request.param == "native":
        package("trtpost._cpu")
    else:
        monkeypatch.setattr(fused, "is_available", lambda: False)


@pytest.mark.usefixtures("compressor")
@pytest.mark.parametrize("kind", MASKS)
def test_pixels_are_the_mask(kind):
    mask = MASKS[kind]
    with Image.open(io.BytesIO(palette_png(mask, COLOURS))) as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), mask)
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), COLOURS[mask])


@pytest.mark.usefixtures("compressor")
def test_other_readers_see_the_colours():
    cv2 = package("cv2")
    for mask in MASKS.values():
        picture = cv2.imdecode(np.frombuffer(palette_png(mask, COLOURS), np.uint8), cv2.IMREAD_COLOR_RGB)
        np.testing.assert_array_equal(picture, COLOURS[mask])


@given(
    arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 40)), elements=st.integers(0, 3)),
    st.integers(1, 9),
    st.integers(1, 300),
)
def test_the_native_stream_is_what_zlib_unpacks(mask, down, across):
    cpu = package("trtpost._cpu")
    mask = np.ascontiguousarray(mask.repeat(down, 0).repeat(across, 1))
    rows = np.frombuffer(zlib.decompress(cpu.deflate_mask(mask)), np.uint8).reshape(mask.shape[0], -1)
    assert (rows[:, 0] == 2).all()
    np.testing.assert_array_equal(np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8), mask)


def test_masks_that_are_views():
    mask = MASKS["like nearest"]
    for view in (mask.T, mask[::-1], mask[:, ::2]):
        with Image.open(io.BytesIO(palette_png(view, COLOURS))) as image:
            np.testing.assert_array_equal(np.asarray(image), view)


def test_ids_without_a_colour_are_kept():
    mask = MASKS["noise of all values"]
    with Image.open(io.BytesIO(palette_png(mask, COLOURS[:3]))) as image:
        np.testing.assert_array_equal(np.asarray(image), mask)


@pytest.mark.usefixtures("compressor")
def test_smaller_than_what_pillow_writes():
    mask = MASKS["like nearest"]
    image = Image.fromarray(mask)
    image.putpalette(COLOURS.tobytes())
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=6)
    assert len(palette_png(mask, COLOURS)) < stream.tell()
