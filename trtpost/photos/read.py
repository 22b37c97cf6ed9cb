"""Reads photos: from their files, or from the contents of these."""

from __future__ import annotations

import os
from pathlib import Path

from trtpost.errors import ImageError, reason
from trtpost.photos.decode import Photo, decode
from trtpost.photos.limits import MAX_BYTES
from trtpost.photos.strangers import START, stranger
from trtpost.storage.files import opened


def read_photo(source: str | Path | bytes) -> Photo:
    """Decode a photo, honouring its EXIF orientation.

    Args:
        source: path of a file, or its content. An animation is its first frame; transparency is dropped; of 16 bits
            the upper 8 are kept. Colour profiles are not applied: TensorFlow, PyTorch and OpenCV read photos like
            that, so networks were trained on the values in the file.

    Returns:
        uint8 [H, W, 3], RGB.

    Raises:
        ImageError: missing, empty, damaged, cut short, not an image in one of `formats.FORMATS`, of pixels that have no
            defined range (floating point, 32 bits), or larger than `limits.MAX_PIXELS`.
    """
    return read_reduced(source, None)[0]


def read_reduced(source: str | Path | bytes, needed: tuple[int, int] | None) -> tuple[Photo, tuple[int, int]]:
    """Decode a JPEG at a half, a quarter or an eighth, the smallest that has `needed` (h, w); other formats whole.

    The pixels are averages, made out of fewer coefficients; what is resized from them differs from what is resized
    from the whole photo.

    Args:
        source: what `read_photo` takes.
        needed: None: the whole.

    Returns:
        uint8 [h', w', 3], and (H, W) of the whole photo.

    Raises:
        ImageError: as for `read_photo`.
    """
    if isinstance(source, bytes):
        return decode(source, "the image", needed)
    path = Path(source)
    try:
        if path.is_fifo():
            raise ImageError(f"{path} is a pipe: give what comes out of it to trtpost infer -")
        with opened(path, "image", ImageError) as file:
            if said := stranger(file.read(START)):  # before gigabytes of a video are read
                raise ImageError(f"{path} {said}")
            file.seek(0)
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise ImageError(f"{path} has more than {MAX_BYTES >> 30} GiB: cut it into tiles")
            content = file.read()
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {reason(error)}") from None
    return decode(content, str(path), needed)
