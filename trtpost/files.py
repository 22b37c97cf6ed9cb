"""Files: there and whole, or a sentence that says why not."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trtpost.errors import TrtpostError, reason

_unfinished: set[Path] = set()
"""Files that this process is writing under hidden names."""

_lock = threading.Lock()
"""Held while a hidden file is made; for ever, once the process ends."""

ABANDONED_SECONDS = 3600
"""After which a hidden file that nobody has finished belongs to a process that was killed."""


def in_a_circle(path: Path) -> bool:
    """Is this a link that comes back to itself?"""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    except ValueError:  # names without meaning
        pass
    return False


def existing_file(path: Path, kind: str, error: type[TrtpostError]) -> Path:
    """`path`, if it is a file that has content.

    Raises:
        TrtpostError: of the given type, if it is missing, a folder, or empty.
    """
    article = "an" if kind[0].lower() in "aeiou" else "a"
    try:
        if in_a_circle(path):
            raise error(f"{kind} {path} is a link in a circle")
        if not path.exists():
            raise error(_missing(path, kind))
        if path.is_dir():
            raise error(f"{path} is a folder, not {article} {kind}: name files in it")
        if not path.is_file():
            raise error(f"{path} is not a regular file, so it cannot be {article} {kind}")
        if path.stat().st_size == 0:
            raise error(f"{path} is empty (zero bytes), not {article} {kind}")
    except OSError as fault:
        raise error(f"{kind} {path} cannot be read: {reason(fault)}") from None
    return path


def _missing(path: Path, kind: str) -> str:
    """A sentence on a file that is not there, which may be an address; a `Path` keeps one of the slashes of `://`."""
    if found := re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/(?!$)", path.as_posix()):
        address = f"{found[1]}:/{path.as_posix()[found.end() - 1 :]}"
        archives = ", or see trtpost.ray for photos in object stores" if kind == "image" else ""
        return f"{kind} {address} is an address, not a file: download it first{archives}"
    return f"no such {kind}: {path}{', a link to what is not there' if path.is_symlink() else ''}"


def read_limited(path: Path, kind: str, limit: int, error: type[TrtpostError]) -> bytes:
    """The content of a file that has content, and not more than `limit` bytes; larger ones are not read.

    Raises:
        TrtpostError: of the given type.
    """
    try:
        with existing_file(path, kind, error).open("rb") as file:
            content = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    except OSError as fault:
        raise error(f"{kind} {path} cannot be read: {reason(fault)}") from None
    if content is None or len(content) > limit:
        raise error(f"{path} has more than {limit >> 20} MiB, and no {kind} is that long")
    return content


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
    if in_a_circle(path):
        raise error_type(f"cannot write {path}: it is a link in a circle")
    try:
        target = Path(os.path.realpath(path))  # a link stays a link: what it points to is written
    except ValueError as error:  # names without meaning
        raise error_type(f"cannot write {path}: {reason(error)}") from None
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock:
            _unfinished.add(temporary)
            file = temporary.open("xb")
        with file:
            write(file)
        temporary.replace(target)
    except OSError as error:
        raise error_type(f"cannot write {path}: {reason(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def remove_unfinished() -> None:
    """Remove what other threads are writing, and let them begin nothing more: for a process that ends at once."""
    _lock.acquire(timeout=1)
    for temporary in list(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_abandoned(targets: Iterable[Path]) -> None:
    """Remove hidden files of processes that were killed while they wrote these; each folder is read once."""
    names: dict[Path, set[str]] = {}
    for target in targets:
        names.setdefault(target.parent, set()).add(target.name)
    for folder, wanted in names.items():
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                hidden = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}", entry.name, re.DOTALL)
                if hidden and hidden[1] in wanted and time.time() - entry.stat().st_mtime > ABANDONED_SECONDS:
                    Path(entry.path).unlink(missing_ok=True)
