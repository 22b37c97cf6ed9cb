"""What Pillow does not say of a file: where the first picture of a JPEG ends, what the samples of JPEG 2000 are."""

from __future__ import annotations

import re
import struct

_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""Any but those within the data of a scan: stuffed zeros, fill bytes and restart markers."""

_END = 0xD9
_ALONE = (0x01, 0xD8)
"""Markers without a length behind them."""

_CODESTREAM = b"\xff\x4f\xff\x51"
"""The first two markers of JPEG 2000, SOC and SIZ (ISO/IEC 15444-1, A.4.1 and A.5.1)."""


def first_jpeg_end(content: bytes) -> int | None:
    """Where the first picture's EOI marker is; what follows belongs to other pictures, or is a video; None if nowhere.

    The segments are stepped over by their lengths, for thumbnails and depth maps in them end as well.
    """
    place = 2
    while found := _MARKER.search(content, place):
        marker, place = content[found.start() + 1], found.end()
        if marker == _END:
            return found.start()
        if marker not in _ALONE:
            place += int.from_bytes(content[place : place + 2], "big")
    return None


def jpeg2000_samples(content: bytes) -> list[tuple[int, bool]]:
    """Bits of each component of a JPEG 2000, and whether it has a sign; empty where that cannot be found."""
    start = _codestream(content)
    if start is None or len(content) < start + 42:
        return []
    (count,) = struct.unpack_from(">H", content, start + 40)
    return [((one & 0x7F) + 1, bool(one & 0x80)) for one in content[start + 42 : start + 42 + 3 * count : 3]]


def _codestream(content: bytes) -> int | None:
    """Where it begins: at once, or in the box `jp2c`; others may hold thumbnails."""
    place = 0
    while not content.startswith(_CODESTREAM, place):
        if len(content) < place + 16:
            return None
        size, kind = struct.unpack_from(">I4s", content, place)
        header = 16 if size == 1 else 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", content, place + 8)
        if kind == b"jp2c":
            place += header
            return place if content.startswith(_CODESTREAM, place) else None
        if size < header:
            return None
        place += size
    return place
