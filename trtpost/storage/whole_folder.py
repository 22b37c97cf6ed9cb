"""Folders that are written whole or not at all, and only over what may be replaced."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from trtpost.errors import TrtpostError
from trtpost.storage.staging import EXCHANGE, NO_REPLACE, hidden_folder, locked, renamed

_BUSY_SECONDS = 10.0
"""How long others may be writing the same name, one after the other."""


def write_folder(path: Path, contents: dict[str, bytes], check: Callable[[Path], None]) -> None:
    """Write a folder of files; an older one of that name is replaced in one step, where the file system knows how.

    What a killed process has left hidden beside it is removed by the next one that writes the same name.

    Args:
        path: of the folder; a link is not followed.
        contents: of the files, by name.
        check: raises a `TrtpostError` of a folder that may not be replaced. It is asked of what was there once that
            has been renamed, so that nothing can come in between.

    Raises:
        OSError: it cannot be written; an older one is as it was.
        TrtpostError: what `check` raises; what is there is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with hidden_folder(path) as folder:
        fill(folder, contents)
        _replace(folder, path, check)


def fill(folder: Path, contents: dict[str, bytes]) -> None:
    """Write files, by their paths, into a folder that only its owner sees so far, and let everybody read it.

    Raises:
        OSError: one cannot be written.
    """
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the name without the content
    folder.chmod(0o755)


def _replace(new: Path, path: Path, check: Callable[[Path], None]) -> None:
    """Rename `new` to `path`; what was there is then at `new`, or gone. Another process may be doing the same.

    Raises:
        OSError: that cannot be; `path` is as it was.
        TrtpostError: what `check` raises of what was there; it is there again.
    """
    aside: list[Path] = []
    try:
        deadline = time.monotonic() + _BUSY_SECONDS
        for attempt in itertools.count():
            with contextlib.suppress(FileExistsError):
                put_folder(new, path)  # works where nothing is there
                return
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "somebody else keeps on writing it")
            # what is about to get a hidden name must not be taken for abandoned; the check says what is no folder
            is_folder = path.is_dir() and not path.is_symlink()
            held = locked(path) if is_folder else contextlib.nullcontext()
            with contextlib.suppress(FileNotFoundError), held as is_free:  # the other process has moved it
                if is_free is False:  # it is somebody's who has just written it
                    time.sleep(0.001)
                    continue
                if renamed(new, path, EXCHANGE):
                    try:
                        _check_folder(new, check)
                    except BaseException:
                        renamed(new, path, EXCHANGE)
                        raise
                    return
                moved = new.with_name(f"{new.name}.old{attempt}")
                path.rename(moved)
                aside.append(moved)
                _check_folder(moved, check)
    except (OSError, TrtpostError):
        if aside:
            with contextlib.suppress(OSError):  # another one is there by now
                put_folder(aside[-1], path)
                aside.pop()
        raise
    finally:
        for old in aside:
            shutil.rmtree(old, ignore_errors=True)


def put_folder(folder: Path, path: Path) -> None:
    """Rename a folder to a name that is free.

    Raises:
        FileExistsError: it is not.
    """
    if not renamed(folder, path, NO_REPLACE):
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "File exists")
        folder.rename(path)


def _check_folder(path: Path, check: Callable[[Path], None]) -> None:
    if path.is_symlink() or not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "something that is no folder has come in its place")
    check(path)
