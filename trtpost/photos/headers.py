"""How JPEG and JPEG 2000 are put together, as far as Pillow does not say it: segments, boxes, samples."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""Any but those within the data of a scan: stuffed zeros, fill bytes and restart markers."""

EOI = 0xD9
_ALONE = (0x01, 0xD8, EOI)
"""Markers without a length behind them."""

_CODESTREAM = b"\xff\x4f\xff\x51"
"""The first two markers of JPEG 2000, SOC and SIZ (ISO/IEC 15444-1, A.4.1 and A.5.1)."""


def jpeg_segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, beginning and end of each segment of a JPEG; by their lengths, for thumbnails within have markers too."""
    end = 2
    while found := _MARKER.search(content, end):
        marker, end = content[found.start() + 1], found.end()
        if marker not in _ALONE:
            end += int.from_bytes(content[end : end + 2], "big")
        yield marker, found.start(), end


def first_jpeg_end(content: bytes) -> int | None:
    """Where the first picture's EOI marker is, or None: what follows it belongs to other pictures, or is a video."""
    return next((start for marker, start, _ in jpeg_segments(content) if marker == EOI), None)


def jpeg2000_boxes(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Kind and place of each box up to `jp2c`, and last the place of the codestream in it, unless that is not found.

    Other boxes may hold thumbnails with codestreams of their own; a file without boxes is a codestream itself.
    """
    place = 0
    while not content.startswith(_CODESTREAM, place):
        if len(content) < place + 16:
            return
        size, kind = struct.unpack_from(">I4s", content, place)
        header = 16 if size == 1 else 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", content, place + 8)
        if kind == b"jp2c":
            place += header
            if not content.startswith(_CODESTREAM, place):
                return
        elif size < header:
            return
        else:
            yield kind, place
            place += size
    yield b"jp2c", place


def jpeg2000_samples(content: bytes) -> list[tuple[int, bool]]:
    """Bits of each component of a JPEG 2000, and whether it has a sign; empty where that cannot be found."""
    start = next((place for kind, place in jpeg2000_boxes(content) if kind == b"jp2c"), None)
    if start is None or len(content) < start + 42:
        return []
    (count,) = struct.unpack_from(">H", content, start + 40)
    return [((one & 0x7F) + 1, bool(one & 0x80)) for one in content[start + 42 : start + 42 + 3 * count : 3]]
