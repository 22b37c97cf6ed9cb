"""Files: there and whole, or a sentence that says why not."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trtpost.errors import TrtpostError, reason


def existing_file(path: Path, kind: str, error: type[TrtpostError]) -> Path:
    """`path`, if it is a file that has content.

    Raises:
        TrtpostError: of the given type, if it is missing, a folder, or empty.
    """
    article = "an" if kind[0].lower() in "aeiou" else "a"
    try:
        if not path.exists():
            raise error(f"no such {kind}: {path}{', a link to what is not there' if path.is_symlink() else ''}")
        if path.is_dir():
            raise error(f"{path} is a folder, not {article} {kind}: name files in it")
        if not path.is_file():
            raise error(f"{path} is not a regular file, so it cannot be {article} {kind}")
        if path.stat().st_size == 0:
            raise error(f"{path} is empty (zero bytes), not {article} {kind}")
    except OSError as fault:
        raise error(f"{kind} {path} cannot be read: {reason(fault)}") from None
    return path


def check_page(path: Path, error_type: type[TrtpostError]) -> None:
    """Refuse a target for a page in HTML, before there is anything to write: pages replace pages, and nothing else.

    Raises:
        TrtpostError: of the given type.
    """
    if path.is_dir():
        raise error_type(f"--html {path} is a folder: name a file in it")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise error_type(f"--html {path}: {above} is a file, not a folder")
    if path.exists() and path.suffix.lower() not in (".html", ".htm"):
        raise error_type(f"--html {path} would replace a file that is no page: choose a name that ends in .html")


def write_whole(path: Path, write: Callable[[Any], None], error_type: type[TrtpostError]) -> None:
    """Write a file so that it is there whole or not at all.

    Raises:
        TrtpostError: of the given type, if it cannot be written.
    """
    temporary = None
    try:
        target = Path(os.path.realpath(path))  # a link stays a link: what it points to is written
    except ValueError as error:  # names without meaning
        raise error_type(f"cannot write {path}: {reason(error)}") from None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        with temporary.open("xb") as file:
            write(file)
        temporary.replace(target)
    except OSError as error:
        raise error_type(f"cannot write {path}: {reason(error)}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
