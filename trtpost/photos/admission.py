"""How many pixels may be on their way at once: memory is what they take, not how many photos they are."""

from __future__ import annotations

import contextlib
import io
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from trtpost.errors import ImageError
from trtpost.photos.decode import weight_in_header
from trtpost.photos.limits import MAX_PIXELS
from trtpost.storage.files import open_regular


class Admission:
    """Lets photos in while their pixels together are within a limit; the others wait, each for those before it.

    Args:
        limit: pixels at once; see `weight_of` for what counts more than once.
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


def weight_of(source: str | Path | bytes, unknown: int) -> int:
    """Pixels that the header of an image promises, times what its decoder needs; `unknown` where it does not tell, and
    0 of what cannot be read at all, of which the reader says what is wrong."""
    if isinstance(source, bytes):
        weight = weight_in_header(io.BytesIO(source))
        return unknown if weight is None else weight
    try:
        with open_regular(source) as file:
            weight = weight_in_header(file)
            return unknown if weight is None else weight
    except (OSError, ValueError):
        return 0


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
