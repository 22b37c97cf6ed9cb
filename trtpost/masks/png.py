"""Makes PNGs of class ids, and tells them: the container, and the two ways to fill it.

Both store the difference from the row above, in a mask nearly all zeros, and look for runs alone. The native one
(`plugins/cpu/deflate.cpp`) passes over rows like the one above; zlib has to look at every byte. docs/pipeline.md has
times and sizes of both, beside those of other settings.
"""

from __future__ import annotations

import colorsys
import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.errors import ImageError, SpecError
from trtpost.kernels import cpu
from trtpost.spec import Encoding, class_name

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, PALETTE = 0, 3
"""PNG's colour types of pixels that are levels of gray, and indices into a palette."""

HEADER = len(SIGNATURE) + 12 + 13
"""Bytes up to the end of the first chunk, which holds the size."""

HEAD = 256
"""Bytes of a mask that hold its size and its mark."""

END = b"\0\0\0\0IEND\xaeB`\x82"
"""The last chunk."""


PNG_LEVEL = 1
"""zlib level of overlays and 16-bit masks: the fastest."""

MARK = "trtpost"
"""Keyword of the text in our masks and overlays that says what they were made with: see `trtpost.masks.finished`."""


def encode_mask(
    mask: NDArray[Any], colours: NDArray[np.uint8], encoding: Encoding = "palette", *, mark: str = ""
) -> bytes:
    """A PNG whose pixel values are the class ids; int32 masks become 16-bit grayscale, whatever the encoding.

    Args:
        mask: uint8 or int32 [H, W].
        colours: uint8 [classes, 3].
        encoding: how uint8 masks are held; `packed` has 1, 2 or 4 bits a pixel, not 8, for up to 2, 4 or 16 classes.
        mark: text in ASCII that `trtpost.masks.finished` finds again; empty for none.

    Raises:
        ImageError: class ids that 16 bits do not hold.
        SpecError: there is no such encoding.
    """
    if encoding not in get_args(Encoding):
        raise SpecError(f"the encoding of a mask must be one of {', '.join(get_args(Encoding))}, not {encoding!r:.60}")
    if mask.dtype == np.uint8:
        content = gray_png(mask) if encoding == "gray" else palette_png(mask, colours[:256], pack=encoding == "packed")
    elif mask.min() < 0 or mask.max() > 65535:
        raise ImageError(f"the class ids from {mask.min()} to {mask.max()} do not fit a 16-bit PNG")
    else:
        stream = io.BytesIO()
        Image.fromarray(mask.astype(np.uint16)).save(stream, "PNG", compress_level=PNG_LEVEL)
        content = stream.getvalue()
    return with_text(content, MARK, mark) if mark else content


def palette(classes: Sequence[str]) -> NDArray[np.uint8]:
    """A colour for each class, uint8 [len(classes), 3]: black for the background, then bright ones.

    Hues step round the circle by the golden ratio, so that classes of neighbouring ids look different.
    """
    background = bool(classes) and classes[0] in ("background", class_name(0))
    colours = [
        colorsys.hsv_to_rgb(0.618034 * index % 1, (0.9, 0.5, 0.8)[index % 3], (1.0, 1.0, 0.7)[index % 3])
        for index in range(len(classes))
    ]
    if background:
        colours[0] = (0.0, 0.0, 0.0)
    return np.round(np.array(colours) * 255).astype(np.uint8)


def palette_png(mask: NDArray[np.uint8], colours: NDArray[np.uint8], *, pack: bool = False) -> bytes:
    """A PNG whose pixel values are those of the mask.

    Args:
        mask: uint8 [H, W].
        colours: uint8 [n, 3], for the first n values, at most 256; the others are black.
        pack: use 1, 2 or 4 bits a pixel where they hold n values and those of the mask; otherwise 8.
    """
    bits = bits_for(max(len(colours), int(mask.max()) + 1)) if pack else 8
    palette = np.zeros((1 << bits, 3), np.uint8)
    palette[: len(colours)] = colours
    return _png(mask, bits, PALETTE, (b"PLTE", palette.tobytes()))


def gray_png(mask: NDArray[np.uint8]) -> bytes:
    """A PNG of 8-bit gray levels that are the values of the mask, uint8 [H, W]."""
    return _png(mask, 8, GRAY)


def _png(mask: NDArray[np.uint8], bits: int, colour_type: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Header, the given chunks, and the pixels."""
    height, width = mask.shape
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    mask = np.ascontiguousarray(mask)
    if cpu.is_available():
        from trtpost import _cpu

        pixels = _cpu.deflate_mask(mask, bits)
    else:
        pixels = _deflate_with_zlib(mask if bits == 8 else _packed(mask, bits))
    written = ((b"IHDR", header), *chunks, (b"IDAT", pixels))
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in written) + END


def written_as(encoding: Encoding, classes: int) -> Encoding:
    """The encoding that a mask of so many classes is found in: more than 16 cannot be packed."""
    return "palette" if encoding == "packed" and bits_for(min(classes, 256)) == 8 else encoding


def bits_for(values: int) -> int:
    """The fewest bits of a pixel in a palette PNG that tell so many values apart."""
    return next(bits for bits in (1, 2, 4, 8) if values <= 1 << bits)


def with_text(png: bytes, keyword: str, text: str) -> bytes:
    """Put a text in ASCII into a PNG, right behind its size, where few bytes have to be read to find it."""
    chunk = _chunk(b"tEXt", keyword.encode("ascii") + b"\0" + text.encode("ascii"))
    return png[:HEADER] + chunk + png[HEADER:]


def size_and_text(head: bytes, keyword: str) -> tuple[tuple[int, int], str] | None:
    """(H, W) and text in the first bytes of a PNG that `with_text` made; None where they are something else's."""
    name = keyword.encode("ascii") + b"\0"
    start = HEADER + 8 + len(name)
    if len(head) < start or not head.startswith(SIGNATURE) or head[HEADER + 4 : start] != b"tEXt" + name:
        return None
    end = HEADER + 8 + int.from_bytes(head[HEADER : HEADER + 4], "big")
    width, height = struct.unpack_from(">II", head, len(SIGNATURE) + 8)
    return (height, width), head[start:end].decode("ascii", "replace")


def encoding_of(head: bytes) -> Encoding:
    """The encoding of a mask, by the first bytes of its PNG; 16 bits are gray."""
    bits, colour_type = head[HEADER - 9 : HEADER - 7]
    if colour_type == GRAY:
        return "gray"
    return "palette" if bits == 8 else "packed"


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


UP = 2
"""PNG's filter that stores each row as its difference from the one above."""


def _deflate_with_zlib(mask: NDArray[np.uint8]) -> bytes:
    """Compress rows as fast as level 1 with matches of every kind does, to a quarter of its size."""
    rows = np.empty((mask.shape[0], mask.shape[1] + 1), np.uint8)
    rows[:, 0] = UP
    rows[0, 1:] = mask[0]
    np.subtract(mask[1:], mask[:-1], out=rows[1:, 1:])
    compressor = zlib.compressobj(level=1, strategy=zlib.Z_RLE)
    return compressor.compress(rows.data) + compressor.flush()


def _packed(mask: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Pack pixels of 1, 2 or 4 bits into rows of whole bytes, the first of each byte in its upper bits."""
    height, width = mask.shape
    pixels = 8 // bits
    rows = np.zeros((height, -(-width // pixels), pixels), np.uint8)
    rows.reshape(height, -1)[:, :width] = mask
    packed = np.zeros(rows.shape[:2], np.uint8)
    for place in range(pixels):
        packed = packed << bits | rows[..., place]
    return packed
