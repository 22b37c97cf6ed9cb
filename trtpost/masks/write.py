"""Writes masks and overlays: as PNGs that say what they were made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from trtpost.errors import ImageError
from trtpost.masks.png import MARK, PNG_LEVEL, encode_mask
from trtpost.spec import Encoding
from trtpost.storage.whole_file import Replaces, write_whole


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
    """Write what `png.encode_mask` gives; `below` and `replaces` as for `trtpost.storage.whole_file.write_whole`.

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
    """Write a picture in the format of its suffix; in a PNG, `mark` is the text that `masks.finished` finds again.

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
