"""Photos to measure with: drawn, or a file at another size."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

from trtpost.errors import SpecError
from trtpost.kernels import reference
from trtpost.photos.decode import Photo
from trtpost.photos.limits import MAX_PIXELS
from trtpost.photos.read import read_photo

QUALITY = 90
"""Quality of the JPEGs that are written: what cameras and phones use."""

TILE = 1024


def drawn(height: int, width: int) -> Photo:
    """A picture uint8 [H, W, 3] as full of detail as a photo, the same every time: colours that vary at every scale."""
    chance = np.random.default_rng(0)
    tile = np.zeros((TILE, TILE, 3), np.float32)
    for cells in (4, 16, 64, 256):
        coarse = chance.standard_normal((cells, cells, 3), np.float32)
        tile += reference.bilinear(coarse, (TILE, TILE)) * np.float32(150 / math.sqrt(cells))
    pixels = np.clip(tile + 128, 0, 255).astype(np.uint8)
    pixels = np.concatenate([pixels, pixels[::-1]])  # mirrored, so that no edge shows
    pixels = np.concatenate([pixels, pixels[:, ::-1]], axis=1)
    repeats = (-(-height // len(pixels)), -(-width // len(pixels)), 1)
    return np.ascontiguousarray(np.tile(pixels, repeats)[:height, :width])


def sides_of(megapixels: float) -> tuple[int, int]:
    """Sides (H, W), three to four, of a photo of about so many millions of pixels.

    Raises:
        SpecError: fewer than one pixel, or more than photos may have.
    """
    height = round(math.sqrt(megapixels * 1e6 * 3 / 4)) if 0 < megapixels < MAX_PIXELS / 1e6 else 0
    if height < 3:
        raise SpecError(f"photos have from 0.0001 to {MAX_PIXELS // 1_000_000} megapixels, not {megapixels:g}")
    return height, round(height * 4 / 3)


def write_photo(path: Path, size: tuple[int, int], image: Path | None) -> None:
    """Write a JPEG of (H, W) that shows a drawing, or `image` at that size.

    Raises:
        ImageError: the image cannot be read.
    """
    if image is None:
        picture = Image.fromarray(drawn(*size))
    else:
        picture = Image.fromarray(read_photo(image)).resize(size[::-1], Image.Resampling.BICUBIC)
    picture.save(path, "JPEG", quality=QUALITY)
