"""Locks on folders that are there anyway, so that no lock file is left beside anybody's files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[bool | None]:
    """Lock a folder: False where somebody else has it, None where the system or the file system has no such locks.

    The system frees the lock of a process that ends, however it ends.

    Args:
        folder: to lock; a link is not followed.
        wait: until it is free, instead of False.

    Raises:
        OSError: it cannot be opened.
    """
    if os.name == "nt":  # which opens no folders
        yield None
        return
    from filelock import lock_descriptor

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            is_ours = lock_descriptor(descriptor, blocking=wait)
        except OSError:
            is_ours = None
        yield is_ours
    finally:
        os.close(descriptor)
