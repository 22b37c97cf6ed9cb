"""Masks as PNGs: whoever compresses them, every reader finds the same class ids."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from conftest import package
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from trtpost.errors import SpecError
from trtpost.kernels import cpu
from trtpost.masks.png import bits_for, encode_mask, palette, palette_png

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
        monkeypatch.setattr(cpu, "is_available", lambda: False)


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
    rows = np.frombuffer(zlib.decompress(cpu.deflate_mask(mask, 8)), np.uint8).reshape(mask.shape[0], -1)
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


PACKED = {
    "one pixel": np.ones((1, 1), np.uint8),
    "one class": np.zeros((30, 50), np.uint8),
    "like nearest": RNG.integers(0, 4, (20, 30)).astype(np.uint8).repeat(16, 0).repeat(17, 1),
    "noise": RNG.integers(0, 16, (30, 51)).astype(np.uint8),
    **{f"{width} wide": RNG.integers(0, 2, (7, width)).astype(np.uint8) for width in range(1, 18)},
}


@pytest.mark.usefixtures("compressor")
@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5, 16, 17, 256])
def test_packed_pixels_are_the_mask_and_take_few_bits(classes):
    bits = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 16: 4, 17: 8, 256: 8}[classes]
    for name, mask in PACKED.items():
        ids = (mask.astype(int) % classes).astype(np.uint8)
        png = palette_png(ids, COLOURS[:classes], pack=True)
        assert png[24] == bits, name
        with Image.open(io.BytesIO(png)) as image:
            assert image.mode == "P"
            np.testing.assert_array_equal(np.asarray(image), ids)
            np.testing.assert_array_equal(np.asarray(image.convert("RGB")), COLOURS[ids])


@pytest.mark.usefixtures("compressor")
def test_ids_beyond_the_classes_take_the_bits_that_they_need():
    mask = np.array([[0, 1, 5]], np.uint8)
    png = palette_png(mask, COLOURS[:2], pack=True)
    assert png[24] == 4
    with Image.open(io.BytesIO(png)) as image:
        np.testing.assert_array_equal(np.asarray(image), mask)


@given(
    st.sampled_from([1, 2, 4]).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            arrays(
                np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 70)), elements=st.integers(0, (1 << bits) - 1)
            ),
        )
    )
)
def test_the_native_packed_stream_is_what_zlib_unpacks(case):
    bits, mask = case
    rows = np.frombuffer(zlib.decompress(package("trtpost._cpu").deflate_mask(mask, bits)), np.uint8)
    packed = np.cumsum(rows.reshape(len(mask), -1)[:, 1:], axis=0, dtype=np.uint8)
    digits = np.unpackbits(packed, axis=1).reshape(len(mask), -1, bits)
    ids = digits @ (1 << np.arange(bits)[::-1])
    np.testing.assert_array_equal(ids[:, : mask.shape[1]], mask)
    assert not ids[:, mask.shape[1] :].any()  # what fills the last byte


def test_packed_masks_of_two_classes_are_smaller():
    mask = (RNG.random((60, 80)) < 0.5).astype(np.uint8).repeat(9, 0).repeat(7, 1)
    plain, packed = (len(palette_png(mask, COLOURS[:2], pack=pack)) for pack in (False, True))
    assert packed < 0.7 * plain


def test_bits_that_tell_values_apart():
    assert [bits_for(values) for values in (1, 2, 3, 4, 5, 16, 17, 256)] == [1, 1, 2, 2, 4, 4, 8, 8]


def test_chunks_are_whole():
    png, chunks, at = palette_png(PACKED["noise"], COLOURS[:16], pack=True), [], 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length)[0] == zlib.crc32(name + content)
        chunks.append((name, length))
        at += 12 + length
    assert [name for name, _ in chunks] == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert chunks[1] == (b"PLTE", 48)


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
