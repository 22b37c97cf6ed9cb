"""Folders to read while another process replaces them, and how those are called that are on their way."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import TypeVar

from trtpost.errors import TrtpostError

T = TypeVar("T")

PART = ".part"
"""What the names of hidden folders end in, so that they are told from anybody else's."""

_GAP_SECONDS = 1.0
"""How long a name may be missing while another process replaces its folder in two steps."""

_HIDDEN = re.compile(rf"\.(.+)\.(?:[0-9a-f]{{8}}|([a-z0-9_]{{8}}\{PART}(?:\.old\d+)?))", re.DOTALL)
"""Names of hidden files, and of hidden folders, which have the second group."""


def read_steadily(path: Path, read: Callable[[], T]) -> T:
    """What `read` gives; again, where it fails over a folder that another process has replaced meanwhile.

    Raises:
        TrtpostError: what `read` raises.
    """
    deadline = time.monotonic() + _GAP_SECONDS
    while True:
        before = _identity(path)
        try:
            return read()
        except TrtpostError:
            in_a_gap = before is None and time.monotonic() < deadline and any(_beside(path))
            if not in_a_gap and _identity(path) == before:
                raise
            time.sleep(0.001)


def hidden_in(above: Path, names: Container[str]) -> Iterator[os.DirEntry[str]]:
    """The hidden files and folders of those who are writing these names, or were killed over them."""
    with contextlib.suppress(OSError, ValueError), os.scandir(above) as entries:
        for entry in entries:
            found = _HIDDEN.fullmatch(entry.name)
            if found and found[1] in names:
                is_that = entry.is_dir if found[2] else entry.is_file
                if is_that(follow_symlinks=False):
                    yield entry


def _beside(path: Path) -> Iterator[os.DirEntry[str]]:
    """The hidden folders of those who are writing `path`, or were killed over it."""
    return (entry for entry in hidden_in(path.parent, (path.name,)) if entry.is_dir())


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells the folder of this name from all that had it before; inode numbers alone are used again."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_ctime_ns
