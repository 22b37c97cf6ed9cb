"""What is being written lies hidden beside its target until it is whole: how it is called, and when it is abandoned.

There is one rule for what killed processes leave. A folder is locked by whoever writes it, so one that is not locked is
abandoned; where the file system has no locks, it stays. A file is written in too short a time for a lock, so one that
is old is abandoned. What other file systems hold (`trtpost.ray.remote_files`) has the names alone, and stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from trtpost.storage.locks import locked

ABANDONED_SECONDS = 3600
"""Age at which a hidden file belongs to a process that was killed."""

_PART = ".part"
"""What the names of hidden folders end in, so that they are told from anybody else's."""

_HIDDEN = re.compile(rf"\.(.+)\.(?:[0-9a-f]{{8}}|([a-z0-9_]{{8}}\{_PART}(?:\.old\d+)?))", re.DOTALL)
"""Names of hidden files, and of hidden folders, which have the second group."""


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
            folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_PART))
            with contextlib.suppress(FileNotFoundError):  # another process took it for abandoned, just before the lock
                if stack.enter_context(locked(folder)) is not False and folder.exists():
                    break
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def hidden_in(above: Path, names: Container[str]) -> Iterator[os.DirEntry[str]]:
    """The hidden files and folders of those who are writing these names, or were killed over them."""
    with contextlib.suppress(OSError, ValueError), os.scandir(above) as entries:
        for entry in entries:
            found = _HIDDEN.fullmatch(entry.name)
            if found and found[1] in names:
                is_that = entry.is_dir if found[2] else entry.is_file
                if is_that(follow_symlinks=False):
                    yield entry


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
