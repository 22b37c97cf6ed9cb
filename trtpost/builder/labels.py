"""Files of class names: read, and found beside a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from trtpost.convert.formats import saved_model_folder
from trtpost.errors import SpecError, reason
from trtpost.spec import class_name, parse_labels
from trtpost.storage.files import read_limited

MAX_BYTES = 16 << 20
"""Longest label file that is read: 65,536 names of 256 bytes."""


MAX_ID = (1 << 16) - 1
"""Largest class id that JSON may name: names for those below it are made up where it has none."""


def read_labels(path: Path, warn: Callable[[str], None] = lambda _: None) -> tuple[str, ...]:
    """The class names of a text file, one a line, or of JSON: a list, a map of ids, or a file with one as `id2label`.

    Args:
        path: the file.
        warn: takes a sentence about lines that are left out.

    Raises:
        SpecError: it is missing, no text, too large, or holds no names.
    """
    try:
        text = read_limited(path, "label file", MAX_BYTES, SpecError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not a text file with a class name a line: {reason(error)}") from None
    if (stated := _json(text)) is not None:
        if not (names := _names_in(stated)):
            raise SpecError(
                f'{path} is JSON without class names: give a map of ids such as {{"0": "background", "1": "cat"}}, '
                "alone or as id2label, or a list of names"
            )
        return names
    names = parse_labels(text)
    if not names:
        raise SpecError(f"{path} holds no class names: write one a line")
    lines = [line.strip() for line in text.strip().splitlines()]
    if left := [line for line in lines[len(names) :] if line]:
        warn(
            f"{path} has a blank line after {len(names)} class names, so what follows is left out, from "
            f"'{left[0][:40]}' on: if those are classes too, take the blank line away"
        )
    return names


def _json(text: str) -> object:
    """What JSON says that is a list or an object; None: it is neither, but lines."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _names_in(stated: object) -> tuple[str, ...]:
    """The names in a list, in a map of ids, or in the map that an object has as `id2label`, as transformers' have."""
    if isinstance(stated, dict):
        stated = stated.get("id2label", stated)
    if isinstance(stated, dict):
        ids = {int(key): name for key, name in stated.items() if key.isascii() and key.isdigit() and len(key) <= 5}
        if len(ids) < len(stated) or max(ids, default=0) > MAX_ID:
            return ()
        stated = [ids.get(index, class_name(index)) for index in range(max(ids, default=-1) + 1)]
    if not isinstance(stated, list) or not all(isinstance(name, str) and name.strip() for name in stated):
        return ()
    return tuple(name.strip() for name in stated)


def labels_beside(model: Path) -> Path | None:
    """The label file of a model: `MODEL.labels.txt`, else `labels.txt`, beside it or in its folder; or None."""
    model = saved_model_folder(model)
    folders = [model, model.parent] if model.is_dir() else [model.parent]
    name = model.name if model.is_dir() else model.stem
    places = [folder / file for file in (f"{name}.labels.txt", "labels.txt") for folder in folders]
    return next((place for place in places if place.is_file()), None)
