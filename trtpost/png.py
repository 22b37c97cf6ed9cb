"""Masks as palette PNGs: the container, and the two ways to fill it.

Both store the difference from the row above, in a mask nearly all zeros, and look for runs alone. The native one
(`plugins/cpu/deflate.cpp`) passes over rows like the one above; zlib has to look at every byte. docs/pipeline.md has
times and sizes of both, beside those of other settings.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from trtpost import fused

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 3
"""PNG's colour type of pixels that are indices into a palette."""


def palette_png(mask: NDArray[np.uint8], colours: NDArray[np.uint8]) -> bytes:
    """A PNG whose pixel values are those of the mask.

    Args:
        mask: uint8 [H, W].
        colours: uint8 [n, 3] of the first n values, at most 256; the others are black.
    """
    height, width = mask.shape
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colours)] = colours
    header = struct.pack(">IIBBBBB", width, height, 8, PALETTE, 0, 0, 0)
    mask = np.ascontiguousarray(mask)
    if fused.is_available():
        from trtpost import _cpu

        pixels = _cpu.deflate_mask(mask)
    else:
        pixels = _deflate_with_zlib(mask)
    chunks = ((b"IHDR", header), (b"PLTE", palette.tobytes()), (b"IDAT", pixels), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


UP = 2
"""PNG's filter that stores each row as its difference from the one above."""


def _deflate_with_zlib(mask: NDArray[np.uint8]) -> bytes:
    """As fast as level 1 with matches of every kind, and a quarter of its size."""
    rows = np.empty((mask.shape[0], mask.shape[1] + 1), np.uint8)
    rows[:, 0] = UP
    rows[0, 1:] = mask[0]
    np.subtract(mask[1:], mask[:-1], out=rows[1:, 1:])
    compressor = zlib.compressobj(level=1, strategy=zlib.Z_RLE)
    return compressor.compress(rows.data) + compressor.flush()
