"""How many pixels may be on their way at once: memory is what they take, not how many photos they are."""

from __future__ import annotations

import contextlib
import io
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from PIL import Image

from trtpost.errors import ImageError
from trtpost.photos.cost import check_cost, check_tiff
from trtpost.photos.formats import TIFF_SIGNATURES, decoders, no_warnings
from trtpost.photos.limits import MAX_PIXELS
from trtpost.storage.files import open_regular


class Admission:
    """Lets photos in while their pixels together are within a limit; the others wait, each for those before it.

    Args:
        limit: most pixels at once; see `weight_of` for what counts more than once.
    """

    def __init__(self, limit: int = MAX_PIXELS) -> None:
        self.limit = limit
        self._inside = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def __call__(self, source: str | Path | bytes) -> Iterator[None]:
        """Wait until the photo fits; it counts until the block ends.

        Raises:
            ImageError: it never will.
        """
        weight = weight_of(source, self.limit)
        check_weight(weight, source, self.limit)
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._inside + weight <= self.limit)
                self._inside += weight
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._inside -= weight
                self._changed.notify_all()


_HEAD_BYTES = 4 << 20
"""The pixels of any photo begin within so many bytes."""

_HOLD_CANVASES = ("WEBP", "AVIF", "HEIF")
"""Formats whose decoders take up to 16 bytes a pixel beside ours; others take 8."""


def weight_of(source: str | Path | bytes, unknown: int) -> int:
    """Pixels that decoding a photo takes, by its header alone: three times its own where the decoder holds canvases.

    `unknown` where the header does not tell, and 0 for what cannot be read at all, of which the reader says what is
    wrong.
    """
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open_regular(source) as file:
            weight = _weight_in_header(file)
    except (OSError, ValueError):
        return 0
    return unknown if weight is None else weight


def _weight_in_header(stream: IO[bytes]) -> int | None:
    try:
        head = stream.read(_HEAD_BYTES)
        if not check_cost(head, whole=False):
            return None
        stream.seek(0)
        if head.startswith(TIFF_SIGNATURES):
            check_tiff(stream)
            stream.seek(0)
        with no_warnings, Image.open(stream, formats=decoders(head[:256])) as image:
            pixels: int = image.width * image.height
            return pixels * (3 if image.format in _HOLD_CANVASES else 1)
    except Exception:  # every decoder has errors of its own
        return None


def check_weight(weight: int, source: str | Path | bytes, limit: int) -> None:
    """Refuse a photo that alone is too large.

    Raises:
        ImageError: it is.
    """
    if weight > limit:
        name = "the image" if isinstance(source, bytes) else source
        raise ImageError(
            f"{name} counts {weight / 1e6:.1f} million pixels, and the limit is {limit / 1e6:.1f} million: "
            "cut it into tiles, or raise --max-pixels (WebP, AVIF and HEIC count three times)"
        )
