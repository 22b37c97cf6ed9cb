"""Segments of JPEG, and boxes of JPEG 2000."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from trtpost.photos.headers import EOI, first_jpeg_end, jpeg2000_boxes, jpeg2000_samples, jpeg_segments

SOI, END, COMMENT = b"\xff\xd8", b"\xff\xd9", b"\xff\xfe"
CODESTREAM = b"\xff\x4f\xff\x51"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SOI, []),
        (SOI + END, [(EOI, 2, 4)]),
        (SOI + COMMENT + b"\0\4" + END, [(0xFE, 2, 8)]),  # the length spans what looks like an end
        (SOI + COMMENT + b"\0\2" + END, [(0xFE, 2, 6), (EOI, 6, 8)]),
        (SOI + b"junk" + END, [(EOI, 6, 8)]),
        (SOI + b"\xff\x00\xff\xd0\xff\xd7\xff\xff" + END, [(EOI, 10, 12)]),  # zeros, restarts and fill bytes
        (SOI + b"\xff\x01" + SOI + END, [(0x01, 2, 4), (0xD8, 4, 6), (EOI, 6, 8)]),  # without a length
    ],
)
def test_segments_are_stepped_over_by_their_lengths(content, expected):
    assert list(jpeg_segments(content)) == expected
    assert first_jpeg_end(content) == next((start for marker, start, _ in expected if marker == EOI), None)


def box(kind: bytes, content: bytes, *, large: bool = False) -> bytes:
    if large:
        return struct.pack(">I4sQ", 1, kind, 16 + len(content)) + content
    return struct.pack(">I4s", 8 + len(content), kind) + content


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CODESTREAM, [(b"jp2c", 0)]),
        (box(b"free", bytes(8)) + box(b"jp2c", CODESTREAM + bytes(8)), [(b"free", 0), (b"jp2c", 24)]),
        (box(b"free", CODESTREAM + bytes(4)) + box(b"jp2c", CODESTREAM + bytes(4)), [(b"free", 0), (b"jp2c", 24)]),
        (box(b"free", bytes(8), large=True) + box(b"jp2c", CODESTREAM, large=True), [(b"free", 0), (b"jp2c", 40)]),
        (box(b"free", b"") + box(b"jp2c", CODESTREAM + bytes(4)), [(b"free", 0), (b"jp2c", 16)]),
        (box(b"jp2c", bytes(20)), []),
        (box(b"free", bytes(8)), [(b"free", 0)]),
        (struct.pack(">I4s", 7, b"free") + bytes(20), []),  # shorter than its own header
        (struct.pack(">I4s", 0, b"free") + bytes(20), []),
    ],
)
def test_boxes_end_at_the_codestream(content, expected):
    assert list(jpeg2000_boxes(content)) == expected


def test_samples():
    stream = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(stream, "JPEG2000")
    content = bytearray(stream.getvalue())
    assert jpeg2000_samples(content) == [(8, False)] * 3
    start = content.index(CODESTREAM)
    content[start + 42], content[start + 45] = 0x80 | 11, 0
    assert jpeg2000_samples(bytes(content)) == [(12, True), (1, False), (8, False)]
    assert jpeg2000_samples(bytes(content[: start + 41])) == []
