"""The limits, each from both sides; `tests/cases/test_hostile_photos.py` has files that cost minutes."""

from __future__ import annotations

import io
import struct

import pytest

from trtpost.photos import cost
from trtpost.photos.cost import RefusedError, check_cost, check_tiff

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
SCAN, FRAME = b"\xff\xda\0\2", b"\xff\xc2\0\x0b\x08" + struct.pack(">HH", 20_000, 10_000) + bytes(4)


def chunk(kind: bytes, length: int = 0) -> bytes:
    return struct.pack(">I4s", length, kind) + bytes(length + 4)


def bmp(width: int, height: int, compression: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, width, height, 1, 8, compression)


def tiff(count: int, kind: int, values: int, tag: int = 256, order: str = "<") -> bytes:
    entry = struct.pack(order + "HHII", tag, kind, values, 0)
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, count) + entry * count + bytes(8)


def jp2(width: int, tile: int, layers: int) -> bytes:
    size = struct.pack(">8I", width, 1, 0, 0, tile, 1, 0, 0)
    siz = struct.pack(">HH", 41, 0) + size + struct.pack(">H3B", 1, 7, 1, 1)
    cod = struct.pack(">HBBHB", 12, 0, 0, layers, 0) + bytes(5)
    return b"\xff\x4f\xff\x51" + siz + b"\xff\x52" + cod + b"\xff\x90" + bytes(12)


LIMITS = {
    "scans of a JPEG": (lambda n: b"\xff\xd8" + SCAN * n + b"\xff\xd9", cost.MAX_SCANS),
    "pixels times scans": (lambda n: b"\xff\xd8" + FRAME + SCAN * n + b"\xff\xd9", cost.MAX_SCANNED // 200_000_000),
    "segments of a JPEG": (lambda n: b"\xff\xd8" + b"\xff\xfe\0\2" * (n - 1) + SCAN, cost.MAX_SEGMENTS),
    "fill bytes": (lambda n: JPEG + bytes(n - 1) + SCAN, cost.HEADER_BYTES),
    "bytes that are no segment": (lambda n: JPEG + bytes(n - 1), cost.HEADER_BYTES),
    "chunks before the pixels": (lambda n: PNG + chunk(b"teST") * n + chunk(b"IDAT"), cost.MAX_SEGMENTS),
    "chunks": (lambda n: PNG + chunk(b"IDAT") * n, cost.MAX_CHUNKS),
    "run lengths": (lambda n: bmp(n, -1, 1), cost.MAX_RLE),
    "run lengths of 4 bits": (lambda n: bmp(1, n, 2), cost.MAX_RLE),
    "samples as text": (lambda n: b"P2 1 1 255\n".ljust(n, b" "), cost.MAX_PLAIN),
    "samples of other ranges": (lambda n: b"P5 %d 1 254\n" % n, cost.MAX_SCALED),
    "samples in colours": (lambda n: b"P6 %d 1 254\n" % (n // 3), cost.MAX_SCALED // 3 * 3 + 2),
    "tags": (lambda n: tiff(n, 3, 1), cost.MAX_TAGS),
    "strips": (lambda n: tiff(1, 7, n, 273), cost.MAX_STRIPS),
    "tiles": (lambda n: tiff(1, 7, n, 324, ">"), cost.MAX_STRIPS),
    "numbers of a tag": (lambda n: tiff(1, 4, n), cost.MAX_VALUES),
    "tiles of a JPEG 2000": (lambda n: jp2(n, 1, 1), cost.MAX_STRIPS),
    "layers": (lambda n: jp2(1, 1, n), cost.MAX_LAYERS),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_taken_and_one_more_is_not(name):
    make, limit = LIMITS[name]
    check_cost(make(limit))
    with pytest.raises(RefusedError):
        check_cost(make(limit + 1))


@pytest.mark.parametrize(
    "content",
    [
        bmp(5000, 5000, 0),
        b"P5 70000000 1 255\n",
        b"P5 70000000 1 65535\n",
        b"P4 900000000 1\n",
        tiff(1, 7, 1 << 30),  # bytes are not made to numbers
        JPEG + b"\xe2\xff\xff" + bytes(65_533) + SCAN,  # a segment says how long it is
    ],
    ids=lambda one: str(one[:20]),
)
def test_what_costs_nothing_is_not_counted(content):
    assert check_cost(content)


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"\xff\xd8\xff\xfe\0\2" + SCAN, True),
        (b"\xff\xd8\xff\xfe\0\2", False),
        (PNG + chunk(b"teST") + chunk(b"IDAT"), True),
        (PNG + chunk(b"teST"), False),
        (b"GIF89a" + bytes(7) + b"\x2c", True),
        (b"GIF89a" + bytes(7), False),
        (b"GIF89a", False),
        (jp2(1, 1, 1), True),
        (jp2(1, 1, 1)[:40], False),
    ],
)
def test_the_beginning_of_a_file_says_whether_it_is_enough(content, seen):
    assert check_cost(content, whole=False) == seen


def test_the_rest_of_a_tiff_is_read_where_its_directory_is():
    check_cost(tiff(1, 7, 1 << 20, 273), whole=False)
    with pytest.raises(RefusedError, match="strips or tiles"):
        check_tiff(io.BytesIO(tiff(1, 7, 1 << 20, 273)))
    for length in range(30):
        check_tiff(io.BytesIO(tiff(1, 7, 1, 273)[:length]))
