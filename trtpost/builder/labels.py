"""Files of class names: read, and found beside a model."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trtpost.errors import SpecError, reason
from trtpost.spec import parse_labels
from trtpost.storage.files import open_regular, read_limited

MAX_BYTES = 16 << 20
"""Of a label file: 65,536 names of 256 bytes."""


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


def labels_hash(path: Path) -> str:
    """SHA-256 of a label file, of a longer one than is read its beginning; empty where it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.sha256(file.read(MAX_BYTES + 1)).hexdigest()
    except OSError:  # who reads the names says so
        return ""


def labels_beside(model: Path) -> Path | None:
    """The label file of a model: `MODEL.labels.txt`, else `labels.txt`, beside it or in its folder; or None."""
    folders = [model, model.parent] if model.is_dir() else [model.parent]
    name = model.name if model.is_dir() else model.stem
    places = [folder / file for file in (f"{name}.labels.txt", "labels.txt") for folder in folders]
    return next((place for place in places if place.is_file()), None)
