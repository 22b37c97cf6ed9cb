"""2,000 mutated images: a photo or an `ImageError`, and nothing else."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases.fuzzing import check
from nets import nchw, save
from pictures import HEIC
from PIL import Image

from trtpost.builder.build import build
from trtpost.errors import ImageError
from trtpost.photos.given import check_photo
from trtpost.photos.read import read_photo, read_reduced
from trtpost.segment import Segmenter

SEEDS = range(2_000)
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 5, 3), np.uint8)).resize(
    (37, 29), Image.Resampling.BICUBIC
)


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "a camera"
    return exif


KINDS: dict[str, tuple[str, str, dict[str, object]]] = {
    "JPEG": ("RGB", "JPEG", {"exif": _exif()}),
    "JPEG progressive": ("RGB", "JPEG", {"progressive": True, "icc_profile": bytes(200)}),
    "JPEG restart markers": ("RGB", "JPEG", {"restart_marker_blocks": 2}),
    "JPEG gray": ("L", "JPEG", {}),
    "JPEG CMYK": ("CMYK", "JPEG", {}),
    "MPO": ("RGB", "MPO", {"save_all": True, "append_images": [PICTURE]}),
    "PNG RGB": ("RGB", "PNG", {"exif": _exif()}),
    "PNG RGBA": ("RGBA", "PNG", {}),
    "PNG gray": ("L", "PNG", {"transparency": 3}),
    "PNG palette": ("P", "PNG", {"transparency": bytes(range(256))}),
    "PNG 16 bit": ("I;16", "PNG", {}),
    "PNG 1 bit": ("1", "PNG", {}),
    "APNG": ("RGB", "PNG", {"save_all": True, "append_images": [PICTURE.rotate(90)]}),
    "GIF": ("P", "GIF", {}),
    "GIF animated": ("RGB", "GIF", {"save_all": True, "append_images": [PICTURE.rotate(90)]}),
    "BMP": ("RGB", "BMP", {}),
    "BMP palette": ("P", "BMP", {}),
    "WebP": ("RGB", "WEBP", {"exif": _exif()}),
    "WebP lossless": ("RGBA", "WEBP", {"lossless": True}),
    "WebP animated": ("RGB", "WEBP", {"save_all": True, "append_images": [PICTURE.rotate(90)]}),
    "TIFF": ("RGB", "TIFF", {"exif": _exif()}),
    "TIFF LZW": ("RGB", "TIFF", {"compression": "tiff_lzw"}),
    "TIFF deflate": ("RGBA", "TIFF", {"compression": "tiff_adobe_deflate"}),
    "TIFF packbits": ("L", "TIFF", {"compression": "packbits"}),
    "TIFF JPEG": ("RGB", "TIFF", {"compression": "jpeg"}),
    "TIFF fax": ("1", "TIFF", {"compression": "group4"}),
    "TIFF 16 bit": ("I;16", "TIFF", {"big_tiff": True}),
    "TIFF float": ("F", "TIFF", {}),
    "AVIF": ("RGB", "AVIF", {"exif": _exif()}),
    "JPEG 2000": ("RGB", "JPEG2000", {}),
    "JPEG 2000 codestream": ("L", "JPEG2000", {"no_jp2": True}),
    "PPM": ("RGB", "PPM", {}),
    "PBM": ("1", "PPM", {}),
    # not read at all, whatever is done to them
    "ICO": ("RGBA", "ICO", {}),
    "TGA": ("RGB", "TGA", {}),
    "EPS": ("RGB", "EPS", {}),
}


@functools.cache
def _whole() -> tuple[bytes, ...]:
    """An image of each kind that this Pillow writes, small."""
    Image.init()
    contents = []
    for mode, name, options in KINDS.values():
        if name in Image.SAVE or name in Image.SAVE_ALL:
            stream = io.BytesIO()
            gray = np.asarray(PICTURE.convert("L"))
            image = (
                Image.fromarray(gray.astype(np.uint16) * 257)
                if mode == "I;16"
                else Image.fromarray(gray.astype(np.float32))
                if mode == "F"
                else PICTURE.convert(mode)
            )
            image.save(stream, name, **options)
            contents.append(stream.getvalue())
    return (*contents, HEIC)


Mutation = Callable[[bytearray, np.random.Generator], bytes]
EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def _span(content: bytearray, rng: np.random.Generator, most: int = 40) -> slice:
    """A part; in half of all draws it lies in the header."""
    start = int(rng.integers(min(len(content), 80) if rng.random() < 0.4 else len(content)))
    return slice(start, start + int(rng.integers(1, most)))


def _flip(content: bytearray, rng: np.random.Generator) -> bytes:
    for _ in range(int(2 ** rng.integers(4))):
        content[_span(content, rng).start] ^= 1 << int(rng.integers(8))
    return bytes(content)


def _overwrite(content: bytearray, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    filling = rng.integers(0, 256, span.stop - span.start, np.uint8).tobytes()
    content[span] = filling if rng.random() < 0.5 else bytes([filling[0]]) * len(filling)
    return bytes(content)


def _cut(content: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(content[: int(rng.integers(len(content)))])


def _extreme(content: bytearray, rng: np.random.Generator) -> bytes:
    """Sizes, lengths, counts and offsets, in either byte order, as large or as small as they can be."""
    for _ in range(int(rng.integers(1, 4))):
        code = ("B", ">H", "<H", ">I", "<I")[int(rng.integers(5))]
        value = EXTREMES[int(rng.integers(len(EXTREMES)))] & (256 ** struct.calcsize(code) - 1)
        start = _span(content, rng).start
        content[start : start + struct.calcsize(code)] = struct.pack(code, value)
    return bytes(content)


def _dimensions(content: bytearray, rng: np.random.Generator) -> bytes:
    """The picture's own width and height, wherever and however they are written."""
    changed = bytes(content)
    for side in PICTURE.size:
        if rng.random() < 0.7:
            other = int(rng.choice([0, 1, 2, side + 1, 2 * side, 1000, 5000, 13_000, 20_000, 65535]))
            for code in (">I", "<I", ">H", "<H"):
                changed = changed.replace(struct.pack(code, side), struct.pack(code, other))
            if changed[:1] == b"P":
                changed = changed.replace(b"%d" % side, b"%d" % other)
    return changed


def _drop(content: bytearray, rng: np.random.Generator) -> bytes:
    del content[_span(content, rng)]
    return bytes(content)


def _double(content: bytearray, rng: np.random.Generator) -> bytes:
    span = _span(content, rng)
    at = _span(content, rng).start
    content[at:at] = content[span] * int(2 ** rng.integers(12))
    return bytes(content)


def _swap(content: bytearray, rng: np.random.Generator) -> bytes:
    one, other = _span(content, rng), _span(content, rng)
    content[one], content[other] = content[other], content[one]
    return bytes(content)


def _join(content: bytearray, rng: np.random.Generator) -> bytes:
    """Two files in one: the beginning of this, the rest of another."""
    others = _whole()
    other = others[int(rng.integers(len(others)))]
    return bytes(content[: int(rng.integers(len(content)))]) + other[int(rng.integers(len(other))) :]


MUTATIONS: tuple[Mutation, ...] = (_flip, _overwrite, _cut, _extreme, _dimensions, _drop, _double, _swap, _join)


def _with_checksums(content: bytes) -> bytes:
    """A PNG whose chunks are consistent again: otherwise none would get past its checksums."""
    at = 8
    while content.startswith(b"\x89PNG") and at + 12 <= len(content):
        end = at + 8 + int.from_bytes(content[at : at + 4], "big")
        content = content[:end] + struct.pack(">I", zlib.crc32(content[at + 4 : end])) + content[end + 4 :]
        at = end + 4
    return content


def mutated(seed: int) -> bytes:
    """Each kind in turn; one, seldom several mutations."""
    rng = np.random.default_rng(seed)
    contents = _whole()
    content = contents[seed % len(contents)]
    for _ in range(1 if rng.random() < 0.7 else 3):
        if content:
            content = MUTATIONS[int(rng.integers(len(MUTATIONS)))](bytearray(content), rng)
    return _with_checksums(content) if rng.random() < 0.8 else content


@functools.cache
def _segmenter(home: Path) -> Segmenter:
    return Segmenter(build(save(nchw(), home / "net.onnx"), home / "net.trtpost", flavour="none", normalize="unit"))


def image_case(seed: int, folder: Path) -> None:
    """One image through both readers; every eighth on to its mask's file."""
    content = mutated(seed)
    photo, reduced = _or_refusal(read_photo, content), _or_refusal(lambda one: read_reduced(one, (3, 4)), content)
    assert isinstance(photo, ImageError) == isinstance(reduced, ImageError), f"{photo!r}, at a fraction {reduced!r}"
    if seed % 8 == 0:
        mask = folder / "mask.png"
        masked = _or_refusal(lambda one: _segmenter(folder.parent)(one).save_mask(mask), content)
        assert isinstance(photo, ImageError) == isinstance(masked, ImageError) == (not mask.exists())
    if isinstance(photo, ImageError):
        raise photo
    assert check_photo(photo).shape[:2] == reduced[1]


def _or_refusal(read: Callable[[bytes], Any], content: bytes) -> Any:
    try:
        return read(content)
    except ImageError as refusal:
        return refusal


def test_mutated_images():
    """Everything that a disk, a network or an attacker can do to a file: each image within 20 seconds and 4 GB, no
    crash, no other exception, not a word on stderr, no mask where there is no photo."""
    outcomes = check(image_case, SEEDS)
    assert set(outcomes) == {"accepted", "ImageError"}
    assert min(outcomes.values()) > len(SEEDS) // 10, "neither all sound nor all hopeless"
