"""Ground truth of photos: PNG masks whose pixel values are class ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.errors import ImageError, reason
from trtpost.spec import IGNORED
from trtpost.storage.files import open_regular, refuse_address


def truths_in(folder: Path, photos: tuple[Path, ...]) -> dict[Path, Path]:
    """The ground truth of each photo: the PNG of the same stem.

    Raises:
        ImageError: the folder is missing, or lacks one.
    """
    if not folder.is_dir():
        refuse_address(folder, "--labels", ImageError)
        raise ImageError(f"--labels {folder} is not a folder: give one with a PNG mask of the same name for each photo")
    truths = {photo: folder / f"{photo.stem}.png" for photo in photos}
    missing = [truth for truth in truths.values() if not truth.is_file()]
    if missing:
        raise ImageError(
            f"--labels {folder} has no {missing[0].name}: each photo needs a PNG mask of its own name "
            f"({len(missing)} of {len(photos)} are missing)"
        )
    return truths


TRUTHS = ("PNG", "BMP", "GIF", "TIFF")
"""Kinds of image that hold class ids, by Pillow's names; of its others, one is a program that another program runs."""


def read_truth(path: Path, size: tuple[int, ...], classes: tuple[str, ...]) -> NDArray[Any]:
    """Class ids [H, W] of a PNG whose pixel values they are; `IGNORED` for none.

    Raises:
        ImageError: it cannot be read, has another size, or ids that are no classes.
    """
    try:
        with open_regular(path) as file, Image.open(file, formats=TRUTHS) as image:
            mask = np.asarray(image)
    except Exception as error:  # every decoder has errors of its own
        raise ImageError(f"{path} is not a mask that can be read: {reason(error)}") from None
    if mask.ndim != 2 or mask.dtype.kind not in "iub":
        raise ImageError(f"{path} is a picture in colours: labels are PNGs of one channel whose values are class ids")
    if mask.shape != size:
        raise ImageError(
            f"{path} has {mask.shape[0]}x{mask.shape[1]} pixels and its photo {size[0]}x{size[1]} (height x width): "
            "give labels at the photos' own sizes"
        )
    known = mask[mask != IGNORED]
    if not known.size:
        raise ImageError(f"{path} holds no class id, but 255 alone, which counts for nobody: leave its photo out")
    if known.size and int(known.max()) >= len(classes):
        raise ImageError(f"{path} holds class id {known.max()}, and there are {len(classes)} classes (255 is ignored)")
    return mask.astype(np.int32)
