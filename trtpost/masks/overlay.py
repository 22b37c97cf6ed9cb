"""Draws the overlay: the photo with its mask over it, and the legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.photos.decode import Photo


def overlay(photo: Photo, mask: NDArray[Any], classes: Sequence[str], colours: NDArray[np.uint8]) -> Image.Image:
    """The photo with each class in its colour over it, and a legend of the classes that occur.

    Args:
        photo: uint8 [H, W, 3].
        mask: class ids [H, W].
        classes: name of each class; `background` is left as it is.
        colours: uint8 [classes, 3].
    """
    tint = np.full(len(colours), 0.55, np.float32)
    tint[[not colour.any() for colour in colours]] = 0
    # a table of tinted levels for each class and channel makes the blend one look-up
    levels = np.arange(256, dtype=np.float32)[None, :, None]
    table = (levels * (1 - tint[:, None, None]) + colours[:, None, :] * tint[:, None, None]).astype(np.uint8)
    ids = np.clip(mask, 0, len(colours) - 1)
    blended = np.empty_like(photo)
    for channel in range(3):
        blended[..., channel] = table[:, :, channel][ids, photo[..., channel]]
    image = Image.fromarray(blended)
    present = [int(index) for index in np.unique(ids) if tint[index]]
    if present:
        _draw_legend(image, [classes[index] for index in present], [tuple(colours[index]) for index in present])
    return image


def _draw_legend(image: Image.Image, names: list[str], colours: list[tuple[int, ...]]) -> None:
    from PIL import ImageDraw, ImageFont

    size = max(min(image.size) // 28, 10)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(image, "RGBA")
    line, pad = round(size * 1.5), size // 2
    width = max(draw.textlength(name, font) for name in names) + line + 2 * pad
    if width > image.width or line > image.height:
        return  # a picture too small to hold it is better without
    shown = names[: max((image.height - 2 * pad) // line, 1)]
    draw.rectangle((0, 0, width, len(shown) * line + 2 * pad), fill=(0, 0, 0, 150))
    for row, (name, colour) in enumerate(zip(shown, colours, strict=False)):
        top = pad + row * line
        draw.rectangle((pad, top + size // 4, pad + size, top + size // 4 + size), fill=(*colour[:3], 255))
        draw.text((pad + line, top), name, fill=(255, 255, 255, 255), font=font)
