"""Files of class names: read, and found beside a model."""

from __future__ import annotations

from pathlib import Path

from trtpost.convert.formats import saved_model_folder
from trtpost.errors import SpecError, reason
from trtpost.spec import parse_labels
from trtpost.storage.files import read_limited

MAX_BYTES = 16 << 20
"""Longest label file that is read: 65,536 names of 256 bytes."""


def read_labels(path: Path) -> tuple[str, ...]:
    """The class names of a text file, one a line.

    Raises:
        SpecError: it is missing, no text, too large, or holds no names.
    """
    try:
        names = parse_labels(read_limited(path, "label file", MAX_BYTES, SpecError).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not a text file with a class name a line: {reason(error)}") from None
    if not names:
        raise SpecError(f"{path} holds no class names: write one a line")
    return names


def labels_beside(model: Path) -> Path | None:
    """The label file of a model: `MODEL.labels.txt`, else `labels.txt`, beside it or in its folder; or None."""
    model = saved_model_folder(model)
    folders = [model, model.parent] if model.is_dir() else [model.parent]
    name = model.name if model.is_dir() else model.stem
    places = [folder / file for file in (f"{name}.labels.txt", "labels.txt") for folder in folders]
    return next((place for place in places if place.is_file()), None)
