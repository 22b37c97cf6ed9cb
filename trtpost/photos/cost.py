"""What decoding a small file may cost, seen in its headers before a decoder begins: sentences instead of minutes."""

from __future__ import annotations

import io
import itertools
import math
import re
import struct
from typing import IO

from trtpost.photos.headers import EOI, jpeg2000_boxes, jpeg_segments

HEADER_BYTES = 1 << 16
"""Most bytes before the pixels, in formats that state nothing large there."""

MAX_SCANS = 200
"""Most scans of a progressive JPEG; encoders write about ten."""

MAX_SCANNED = 6_000_000_000
"""Most pixels times scans of a JPEG: thirty scans of the largest photo."""

MAX_SEGMENTS = 10_000
"""Most segments of a JPEG, chunks of a PNG before its pixels, or boxes of a JPEG 2000."""

MAX_CHUNKS = 1 << 18
"""Most chunks of a PNG: pieces of 8 KB of 2 GB."""

MAX_RLE = 1 << 24
"""Most pixels of a BMP with run lengths: they are decoded in Python."""

MAX_PLAIN = 1 << 24
"""Most bytes of a PNM whose samples are text: they are decoded in Python."""

MAX_STRIPS = 1 << 16
"""Most strips or tiles of a TIFF, and tiles of a JPEG 2000."""

MAX_VALUES = 1 << 18
"""Most numbers in one tag of a TIFF; the longest that a photo needs is a colour map of 3 x 65,536."""

MAX_TAGS = 1 << 12
"""Most tags in the first directory of a TIFF."""

MAX_LAYERS = 200
"""Most quality layers of a JPEG 2000."""

MAX_GIF_HEADER = 1 << 20
"""Most bytes of comments and the like before the first frame of a GIF."""

MAX_SCALED = 1 << 26
"""Most samples of a PNM whose largest is not 255: they are decoded in Python, about three million a second."""


class RefusedError(Exception):
    """A file that is not decoded, by its fault or not; the message lacks its subject, and says what to do."""


def check_cost(content: bytes, *, whole: bool = True) -> bool:
    """Refuse a file whose headers promise more work than a photo is.

    Args:
        content: all of the file, or its beginning.
        whole: False where it is the beginning; the rest of a TIFF is `check_tiff`'s to read.

    Returns:
        Whether all that comes before the pixels was seen.

    Raises:
        RefusedError: with a sentence without its subject.
    """
    if content.startswith(b"\xff\xd8\xff"):
        return _check_jpeg(content, whole)
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return _check_png(content, whole)
    if content.startswith(b"GIF8"):
        return _check_gif(content)
    if content.startswith((b"\0\0\0\x0cjP", b"\xffO\xffQ")):
        return _check_jpeg2000(content)
    if content.startswith(b"BM"):
        _check_bmp(content)
    elif re.match(rb"P[0-9fFyY]", content):
        _check_pnm(content)
    elif whole and content.startswith((b"II", b"MM")):
        check_tiff(io.BytesIO(content))
    return True


_SOS = 0xDA
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


def _check_jpeg(content: bytes, whole: bool) -> bool:
    place, scans, pixels, filled = 2, 0, 0, 0
    for number, (marker, start, end) in enumerate(jpeg_segments(content), start=1):
        if not scans:
            filled += start - place
            if filled > HEADER_BYTES:
                break
        if number > MAX_SEGMENTS:
            raise RefusedError(f"has more than {MAX_SEGMENTS} segments before its end: save it anew")
        if marker == EOI:
            return True
        if marker in _FRAMES and len(content) >= start + 9:
            height, width = struct.unpack_from(">HH", content, start + 5)
            pixels = height * width
        if marker == _SOS:
            if not whole:
                return True
            scans += 1
            if scans > MAX_SCANS or (scans > 1 and scans * pixels > MAX_SCANNED):
                raise RefusedError(f"is a JPEG of {scans} scans or more, which is no photo's way: save it anew")
        place = end
    if not scans and (filled > HEADER_BYTES or (whole and len(content) - place > HEADER_BYTES)):
        raise RefusedError(f"has more than {HEADER_BYTES} bytes that mean nothing before its pixels: save it anew")
    return scans > 0


def _check_png(content: bytes, whole: bool) -> bool:
    place, chunks, pixels_begun = 8, 0, False
    while place + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        pixels_begun |= kind == b"IDAT"
        chunks += 1
        if chunks > (MAX_CHUNKS if pixels_begun else MAX_SEGMENTS):
            raise RefusedError(f"is a PNG in more than {chunks - 1} pieces: save it anew")
        if kind == b"IEND" or (pixels_begun and not whole):
            return True
        place += 12 + length
    return pixels_begun


def _check_bmp(content: bytes) -> None:
    if len(content) < 34 or struct.unpack_from("<I", content, 14)[0] < 40:
        return
    width, height = struct.unpack_from("<ii", content, 18)
    if struct.unpack_from("<I", content, 30)[0] in (1, 2) and abs(width * height) > MAX_RLE:
        raise RefusedError(
            f"is a BMP of {abs(width * height) / 1e6:.1f} million pixels in run lengths, of which "
            f"{MAX_RLE / 1e6:.1f} million are decoded: save it as PNG"
        )


def _check_pnm(content: bytes) -> None:
    # a comment may stand before each number, and is read a byte at a time
    header = re.sub(rb"#[^\r\n]*", b" ", content[:HEADER_BYTES])
    numbers = 3 if content[1:2] in (b"1", b"4") else 4
    if len(content) > HEADER_BYTES and len(header.split(None, numbers)) < numbers:
        raise RefusedError(f"has more than {HEADER_BYTES} bytes before its pixels: save it anew")
    if content[1:2] in (b"1", b"2", b"3") and len(content) > MAX_PLAIN:
        raise RefusedError(f"has its pixels as text, of which {MAX_PLAIN >> 20} MiB are read: save it as PNG")
    kind, *sides, largest = (header.split(None, 4) + [b""] * 4)[:4]
    is_native = largest == b"255" or (kind == b"P5" and largest == b"65535")
    if kind in (b"P5", b"P6") and not is_native and all(side.isdigit() for side in sides):
        samples = math.prod(int(side[:9]) for side in sides) * (3 if kind == b"P6" else 1)
        if samples > MAX_SCALED:
            raise RefusedError(f"has {samples / 1e6:.0f} million samples that are no bytes; save it as PNG or TIFF")


_NUMBERS = (3, 4, 5, 8, 9, 10, 11, 12, 13, 16, 17, 18)
"""Types of TIFF whose values become numbers one by one."""


def check_tiff(stream: IO[bytes]) -> None:
    """Refuse a TIFF whose first directory has more pieces or numbers than a photo's; see `check_cost`.

    Raises:
        RefusedError: it has.
    """
    head = stream.read(16)
    if len(head) < 16:
        return
    order = "<" if head.startswith(b"II") else ">"
    big = struct.unpack_from(order + "H", head, 2)[0] == 43
    stream.seek(struct.unpack_from(order + ("Q" if big else "I"), head, 8 if big else 4)[0])
    number, entry = struct.Struct(order + ("Q" if big else "H")), struct.Struct(order + ("HHQ8x" if big else "HHI4x"))
    start = stream.read(number.size)
    if len(start) < number.size:
        return
    (count,) = number.unpack(start)
    if count > MAX_TAGS:
        raise RefusedError(f"is a TIFF of {count} tags, of which {MAX_TAGS} are read: save it anew")
    directory = stream.read(count * entry.size)
    for tag, kind, values in entry.iter_unpack(directory[: len(directory) // entry.size * entry.size]):
        if tag in (273, 279, 324, 325) and values > MAX_STRIPS:
            raise RefusedError(f"is a TIFF of {values} strips or tiles, of which {MAX_STRIPS} are read: save it anew")
        if kind in _NUMBERS and values > MAX_VALUES:
            raise RefusedError(f"has {values} numbers in tag {tag}, of which {MAX_VALUES} are read: save it anew")


def _check_gif(content: bytes) -> bool:
    if len(content) < 13:
        return False
    place = 13 + (3 << ((content[10] & 7) + 1) if content[10] & 0x80 else 0)
    while place < len(content) and content[place] == 0x21:
        place += 2
        while place <= MAX_GIF_HEADER and place < len(content) and content[place]:
            place += 1 + content[place]
        if place > MAX_GIF_HEADER:
            raise RefusedError(f"has more than {MAX_GIF_HEADER >> 20} MiB before its first frame: save it as PNG")
        place += 1
    return place < len(content)


def _check_jpeg2000(content: bytes) -> bool:
    boxes = list(itertools.islice(jpeg2000_boxes(content), MAX_SEGMENTS + 1))
    if len(boxes) > MAX_SEGMENTS:
        raise RefusedError(f"has more than {MAX_SEGMENTS} boxes before its pixels: save it anew")
    kind, place = boxes[-1] if boxes else (b"", 0)
    if kind != b"jp2c" or len(content) < place + 42:
        return False
    right, bottom, _, _, width, height, left, top = struct.unpack_from(">8I", content, place + 8)
    tiles = -(-max(right - left, 0) // max(width, 1)) * -(-max(bottom - top, 0) // max(height, 1))
    if tiles > MAX_STRIPS:
        raise RefusedError(f"is a JPEG 2000 of {tiles} tiles, of which {MAX_STRIPS} are read: save it anew")
    place += 4 + struct.unpack_from(">H", content, place + 4)[0]
    for _ in range(64):  # the main header's other segments, of which there are few
        if len(content) < place + 10 or content[place] != 0xFF or content[place + 1] == 0x90:
            return True
        if content[place + 1] == 0x52 and (layers := struct.unpack_from(">H", content, place + 6)[0]) > MAX_LAYERS:
            raise RefusedError(f"is a JPEG 2000 of {layers} layers, of which {MAX_LAYERS} are read: save it anew")
        place += 2 + max(struct.unpack_from(">H", content, place + 2)[0], 2)
    return True
