"""Small pictures as the bytes of their files."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
from conftest import skip
from PIL import Image


def encoded(picture: Image.Image | np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    """As Pillow writes it; skips where it does not."""
    Image.init()
    if kind not in {*Image.SAVE, *Image.SAVE_ALL}:
        skip(f"this Pillow writes no {kind}")
    stream = io.BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(stream, kind, **options)
    return stream.getvalue()


def png(pixels: np.ndarray, colour: int, bits: int = 16, **chunks: bytes) -> bytes:
    """A PNG of big-endian samples, written by hand: [H, W] or [H, W, channels]."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(f">u{bits // 8}").tobytes() for row in pixels)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)),
        *((name.encode(), content) for name, content in chunks.items()),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


def tiff(samples: bytes, size: tuple[int, int], bits: int, *, photometric=1, sign=1, order="<", channels=1) -> bytes:
    """An uncompressed TIFF of (H, W) whose samples are given as they lie in the file."""
    fields = {256: size[1], 257: size[0], 259: 1, 262: photometric, 277: channels, 278: size[0], 279: len(samples)}
    offset = 8 + 2 + 12 * (len(fields) + 3) + 4
    fields |= {258: bits, 273: offset + 2 * channels, 339: sign}
    directory = b"".join(
        # of several channels the bits, which do not fit the field, lie behind the directory
        struct.pack(f"{order}HHII", tag, 3, channels, offset)
        if tag == 258 and channels > 2
        else struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0)
        if tag != 279
        else struct.pack(f"{order}HHII", tag, 4, 1, value)
        for tag, value in sorted(fields.items())
    )
    header = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8)
    behind = struct.pack(f"{order}{channels}H", *[bits] * channels)
    return header + struct.pack(f"{order}H", len(fields)) + directory + bytes(4) + behind + samples


HEIC = base64.b64decode(
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAaFtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAADRpbG9jAAAA"
    "AERAAAIAAQAAAAABxQABAAAAAAAAADMAAgAAAAAB+AABAAAAAAAAACQAAAA4aWluZgAAAAAAAgAAABVpbmZlAgAAAAABAABodmMxAAAAABVpbmZl"
    "AgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAAA4GlwcnAAAADAaXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH/"
    "/wNwAAADAJAAAAMAAAMAHroCQGEAAQArQgEBA3AAAAMAkAAAAwAAAwAeoDCBBZbqSSmubgIaDAgAAAMAyAAAAwAIQGIAAQAHRAHBcrAiQAAAABNj"
    "b2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABgAAAAQAAAABBwaXhpAAAAAAMICAgAAAAJaXJvdAMAAAAYaXBtYQAAAAAAAAABAAEFgQIDBIUA"
    "AAAaaXJlZgAAAAAAAAAOY2RzYwACAAEAAQAAAF9tZGF0AAAALygBrxmA/UIkv/caxGrDtBmEDgYEZ59iHjszWVl20rPGWIf6HsdtrwgY62j68mVM"
    "AAAABkV4aWYAAE1NACoAAAAIAAEBEgADAAAAAQAGAAAAAAAA"
)
"""64 x 96 pixels, red with a blue corner at the top left, on its side by EXIF; by libheif and x265."""
