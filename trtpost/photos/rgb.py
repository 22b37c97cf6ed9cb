"""The pixels of Pillow's images, of whatever colours and depth, as RGB of 8 bits, with what only a TIFF's tags say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.photos.cost import RefusedError

STRIP_PIXELS = 1 << 22
"""Most pixels that are converted at once."""

NO_RANGE = "has pixels of 32 bits, or with a sign, which have no defined range: save it with 8 bits"

_SUBFILE_TYPE, _BITS_PER_SAMPLE, _COMPRESSION, _PHOTOMETRIC = 254, 258, 259, 262
_PLANAR_CONFIGURATION, _COLOUR_MAP, _SAMPLE_FORMAT = 284, 320, 339

_WHITE_IS_ZERO = 0
"""A photometric interpretation that Pillow heeds only up to 8 bits."""

_SEPARATE = 2
"""A planar configuration of which Pillow reads the lower bytes, where it is not compressed."""

_UNSIGNED, _VOID = 1, 4
"""Sample formats; the latter is not known to whoever wrote it."""

_UNCOMPRESSED = 1
_COMPRESSIONS = (_UNCOMPRESSED, 2, 3, 4, 5, 7, 8, 32773, 32946)
"""Those that every libtiff knows; an error of others may be that this one does not."""


def rgb(image: Image.Image) -> NDArray[np.uint8]:
    """The pixels of an image as it lies, uint8 [H, W, 3]; of 16 bits the upper 8.

    Raises:
        RefusedError: they have no defined range, or colours that are not converted here.
    """
    if image.mode in ("F", "LAB", "HSV"):
        kind = "floating-point pixels, which have no defined range" if image.mode == "F" else f"{image.mode} pixels"
        raise RefusedError(f"has {kind}: save it with 8 bits a channel in RGB")
    image.load()
    if image.width * image.height <= STRIP_PIXELS:
        return _rgb_strip(image, image)
    photo = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(STRIP_PIXELS // image.width, 1)
    for top in range(0, image.height, rows):  # whole, each step to the array would be one more copy in memory
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        photo[top : top + rows] = _rgb_strip(strip, image)
    return photo


def _rgb_strip(strip: Image.Image, image: Image.Image) -> NDArray[np.uint8]:
    if not strip.mode.startswith("I"):
        # `convert` copies even where there is nothing to convert
        return np.asarray(strip if strip.mode == "RGB" else strip.convert("RGB"))
    bits, inverted = 16, False
    if image.format == "TIFF":
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        if image.mode == "I":
            raise RefusedError(NO_RANGE)
        bits, inverted = tags[_BITS_PER_SAMPLE][0], tags[_PHOTOMETRIC] == _WHITE_IS_ZERO
    upper = (np.asarray(strip).clip(0, 65535) >> (bits - 8)).astype(np.uint8)
    return np.repeat((~upper if inverted else upper)[..., None], 3, axis=2)


def heed_tags(image: Image.Image) -> None:
    """Refuse an open TIFF that Pillow would decode wrongly, and mend a colour map of 8 bits.

    Raises:
        RefusedError: it holds a preview, planes of 16 bits, or pixels without a defined range.
    """
    tags: Any = image.tag_v2  # type: ignore[attr-defined]
    subfile = tags.get(_SUBFILE_TYPE, 0)
    if isinstance(subfile, int) and subfile & 1:
        raise RefusedError("holds a small preview first, as cameras' raw files do: develop it, or save it as PNG")
    if image.mode != "F" and set(_values(tags, _SAMPLE_FORMAT)) - {_UNSIGNED, _VOID}:
        raise RefusedError(NO_RANGE)
    separate = tags.get(_PLANAR_CONFIGURATION) == _SEPARATE and tags.get(_COMPRESSION, _UNCOMPRESSED) == _UNCOMPRESSED
    if separate and max(_values(tags, _BITS_PER_SAMPLE), default=1) > 8:
        raise RefusedError("has a plane for each colour, of 16 bits, which is not read here: save it with 8 bits")
    colours = _values(tags, _COLOUR_MAP)
    if image.mode == "P" and colours and max(colours) < 256:  # of 16 bits by the standard; some write 8, says libtiff
        image.putpalette(bytes(colours), "RGB;L")


def may_be_unknown(image: Image.Image) -> bool:
    """Is a TIFF compressed in a way that this libtiff need not know?"""
    return image.tag_v2.get(_COMPRESSION, _UNCOMPRESSED) not in _COMPRESSIONS  # type: ignore[attr-defined]


def _values(tags: Any, tag: int) -> tuple[int, ...]:
    """The values of a tag; Pillow gives a single one bare."""
    value = tags.get(tag, ())
    return value if isinstance(value, tuple) else (value,)
