"""The folder of photos that a lower precision is calibrated on and measured with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtpost.bundle.folder import sha256
from trtpost.errors import ImageError
from trtpost.photos.pixels import pixels_of
from trtpost.photos.read import read_photo
from trtpost.spec import Pre


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
