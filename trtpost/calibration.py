"""The folder of photos that a lower precision is calibrated on and measured with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtpost.bundle import sha256
from trtpost.errors import ImageError, SpecError
from trtpost.files import refuse_address
from trtpost.image import read_photo
from trtpost.photos import is_folder, photos_under
from trtpost.pixels import pixels_of
from trtpost.spec import Pre


def photos_in(folder: Path, flag: str = "--calibration") -> tuple[Path, ...]:
    """The photos of a folder, as `photos_under` finds them; folders in it are not searched: they may hold ground truth.

    Args:
        folder: where they lie.
        flag: that named it, for messages.

    Raises:
        SpecError: it is missing or no folder, or holds no photo that can be read.
    """
    if not is_folder(folder):
        refuse_address(folder, flag, SpecError)
        raise SpecError(f"{flag} {folder} is not a folder: give one with photos as the network will see them")
    photos = tuple(photos_under(folder, nested=False))
    if not photos:
        raise SpecError(f"{flag} {folder} holds no photo: give a folder with some as the network will see them")
    first = ""
    for path in photos:
        try:
            read_photo(path)
            return photos
        except ImageError as error:
            first = first or str(error)
    raise SpecError(f"{flag} {folder} holds no photo that can be read: {first}")


def content_hash(photos: tuple[Path, ...]) -> str:
    """SHA-256 of the photos' names and contents."""
    return hashlib.sha256(
        "".join(f"{path.name}\n{sha256(path)}\n" for path in photos).encode("utf-8", "replace")
    ).hexdigest()


def pixels_in(
    photos: tuple[Path, ...], pre: Pre, logits_size: tuple[int, int], skipped: Callable[[str], None]
) -> Iterator[NDArray[np.uint8]]:
    """Each photo as an engine takes it, uint8 [h, w, C]; `skipped` is told why where one cannot be read."""
    for path in photos:
        try:
            photo = read_photo(path)
        except ImageError as error:
            skipped(str(error))
            continue
        yield pixels_of(photo, pre, logits_size)
