"""Masks and overlays to files: as PNGs that say what they were made with."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from trtpost.errors import ImageError, SpecError
from trtpost.masks.png import HEAD, gray_png, palette_png, size_and_text, with_text
from trtpost.spec import Encoding
from trtpost.storage.whole_file import Replaces, write_whole

PNG_LEVEL = 1
"""zlib level of overlays and 16-bit masks: the fastest."""


MARK = "trtpost"
"""Keyword of the text in our masks and overlays that says what they were made with: see `trtpost.masks.marks`."""


def encode_mask(
    mask: NDArray[Any], colours: NDArray[np.uint8], encoding: Encoding = "palette", *, mark: str = ""
) -> bytes:
    """A PNG whose pixel values are the class ids; int32 masks become 16-bit grayscale, whatever the encoding.

    Args:
        mask: uint8 or int32 [H, W].
        colours: uint8 [classes, 3].
        encoding: of uint8 masks; `packed` has 1, 2 or 4 bits a pixel for up to 2, 4 or 16 classes, instead of 8.
        mark: text of ASCII that `trtpost.masks.marks` finds again; empty for none.

    Raises:
        ImageError: class ids that 16 bits do not hold.
        SpecError: there is no such encoding.
    """
    if encoding not in get_args(Encoding):
        raise SpecError(f"the encoding of a mask must be one of {', '.join(get_args(Encoding))}, not {encoding!r:.60}")
    if mask.dtype == np.uint8:
        content = gray_png(mask) if encoding == "gray" else palette_png(mask, colours[:256], pack=encoding == "packed")
    elif mask.min() < 0 or mask.max() > 65535:
        raise ImageError(f"the class ids from {mask.min()} to {mask.max()} do not fit a 16-bit PNG")
    else:
        stream = io.BytesIO()
        Image.fromarray(mask.astype(np.uint16)).save(stream, "PNG", compress_level=PNG_LEVEL)
        content = stream.getvalue()
    return with_text(content, MARK, mark) if mark else content


def is_ours(file: BinaryIO) -> bool:
    """Does a file begin as the masks and overlays do that trtpost writes?"""
    return size_and_text(file.read(HEAD), MARK) is not None


def write_mask(
    mask: NDArray[Any],
    path: Path,
    colours: NDArray[np.uint8],
    encoding: Encoding = "palette",
    *,
    mark: str = "",
    below: Path | None = None,
    replaces: Replaces | None = None,
) -> None:
    """Write a mask as `encode_mask` gives it; `below` and `replaces` as for `trtpost.storage.whole_file.write_whole`.

    Raises:
        ImageError: the path does not end in `.png`, class ids that 16 bits do not hold, or the file cannot be written;
            nothing is left behind.
    """
    if path.suffix.lower() != ".png":
        raise ImageError(f"cannot write {path}: masks are PNG, so give a name that ends in .png")
    try:
        content = encode_mask(mask, colours, encoding, mark=mark)
    except ImageError as error:
        raise ImageError(f"cannot write {path}: {error}") from None
    write_whole(path, lambda file: file.write(content), ImageError, below=below, replaces=replaces)


def write_picture(
    image: Image.Image, path: Path, *, mark: str = "", below: Path | None = None, replaces: Replaces | None = None
) -> None:
    """Write a picture in the format of its suffix; in a PNG, `mark` is the text that `trtpost.masks.marks` finds again.

    `below` and `replaces` are as for `trtpost.storage.whole_file.write_whole`.

    Raises:
        ImageError: unknown suffix, or the file cannot be written; nothing is left behind.
    """
    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind is None:
        raise ImageError(f"cannot write {path}: unknown picture format '{path.suffix}', use .png or .jpg")
    options: dict[str, Any] = {}
    if kind == "PNG":
        text = PngInfo()
        if mark:
            text.add_text(MARK, mark)  # Pillow writes it right behind the size, as `png.with_text` does
        options = {"compress_level": PNG_LEVEL, "pnginfo": text}
    write_whole(path, lambda file: image.save(file, kind, **options), ImageError, below=below, replaces=replaces)
