"""Renames in one step: to a name that is free, or with what has the name, where the system knows how."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any

NO_REPLACE, EXCHANGE = 1, 2
"""RENAME_NOREPLACE and RENAME_EXCHANGE of Linux."""

HERE = -100
"""AT_FDCWD of Linux: paths are of the working directory."""


@cache
def _renameat2() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # no Linux
        return None


def renamed(old: str | os.PathLike[str], new: str | os.PathLike[str], how: int, *, folder: int = HERE) -> bool:
    """Rename in one step, `NO_REPLACE` or `EXCHANGE`; False where the system or the file system cannot do that.

    Args:
        old, new: paths, of an open `folder` where one is given.
        how: fails where `new` is there, or swaps the two.
        folder: descriptor.

    Raises:
        FileExistsError: `new` is there, and may not be.
        FileNotFoundError: one of the two is missing.
    """
    rename = _renameat2()
    if rename is None:
        return False
    if rename(folder, os.fsencode(old), folder, os.fsencode(new), how) == 0:
        return True
    for fault in (FileExistsError(errno.EEXIST, "File exists"), FileNotFoundError(errno.ENOENT, "No such file")):
        if ctypes.get_errno() == fault.errno:
            raise fault
    return False
