"""What is written lies hidden beside its target, and takes the target's name in one step once it is whole.

There is one rule for what killed processes leave. A folder is locked by whoever writes it, so one that is not locked is
abandoned; where the file system has no locks, it stays. A file is written in too short a time for a lock, so one that
is old is abandoned. What other file systems hold (`trtpost.ray.remote_files`) has the names alone, and stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from trtpost.storage.folders import PART, hidden_in

ABANDONED_SECONDS = 3600
"""Age at which a hidden file belongs to a process that was killed."""

NO_REPLACE, EXCHANGE = 1, 2
"""RENAME_NOREPLACE and RENAME_EXCHANGE of Linux."""

HERE = -100
"""AT_FDCWD of Linux: paths are of the working directory."""


def hidden_name(name: str) -> str:
    """A name for a file that is to be called `name` once it is whole; nobody can guess it."""
    return f".{name}.{secrets.token_hex(4)}"


@contextlib.contextmanager
def hidden_folder(path: Path) -> Iterator[Path]:
    """A folder that lies beside `path` to take its name once it is whole: locked while it is in use, then removed.

    What killed processes have left there goes first.

    Raises:
        OSError: it cannot be made.
    """
    remove_abandoned([path])
    with contextlib.ExitStack() as stack:
        while True:
            folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART))
            with contextlib.suppress(FileNotFoundError):  # another process took it for abandoned, just before the lock
                if stack.enter_context(locked(folder)) is not False and folder.exists():
                    break
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def remove_abandoned(targets: Iterable[Path]) -> None:
    """Remove what is hidden of processes that were killed while they wrote these; each folder is read once."""
    names: dict[Path, set[str]] = {}
    for target in targets:
        names.setdefault(target.parent, set()).add(target.name)
    for above, wanted in names.items():
        for entry in hidden_in(above, wanted):
            with contextlib.suppress(OSError):
                if entry.is_dir():
                    with locked(Path(entry.path)) as is_free:
                        if is_free:
                            shutil.rmtree(entry.path, ignore_errors=True)
                elif time.time() - entry.stat().st_mtime > ABANDONED_SECONDS:
                    Path(entry.path).unlink()


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
