"""Folders that are there whole or not at all, also for who reads one while it is replaced."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from trtpost.errors import TrtpostError
from trtpost.storage.files import EXCHANGE, NO_REPLACE, renamed

T = TypeVar("T")

_PART = ".part"
"""What the names of hidden folders end in, so that they are told from anybody else's."""

_BUSY_SECONDS = 10.0
"""For which others may be writing the same name, one after the other."""

_GAP_SECONDS = 1.0
"""For which a name may be missing while another process replaces its folder in two steps."""


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
    for leftover in _beside(path):
        _remove_abandoned(leftover)
    with _temporary_folder(path) as folder:
        for name, content in contents.items():
            with (folder / name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # else a power cut may leave the name without the content
        folder.chmod(0o755)
        _replace(folder, path, check)


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


def _beside(path: Path) -> Iterator[Path]:
    """The hidden folders of those who are writing `path`, or were killed over it."""
    with contextlib.suppress(OSError, ValueError), os.scandir(path.parent) as entries:
        for entry in entries:
            hidden = entry.name.startswith(f".{path.name}.") and entry.is_dir(follow_symlinks=False)
            if hidden and re.fullmatch(rf"\.[a-z0-9_]{{8}}\{_PART}(\.old\d+)?", entry.name[len(path.name) + 1 :]):
                yield Path(entry.path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Another one for each folder that has had this name; inode numbers alone are used again."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_ctime_ns


@contextlib.contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path`, locked while it is in use."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_PART))
        with contextlib.suppress(FileNotFoundError):  # another process took it for abandoned, just before the lock
            lock = os.open(folder, os.O_RDONLY)
            if _lock(lock) is not False and folder.exists():
                break
            os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    """Remove a temporary folder whose process has ended, and with it the lock."""
    with contextlib.suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if _lock(lock):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _lock(folder: int) -> bool | None:
    """Lock an open folder: False where another process has it, None where the file system has no locks."""
    try:
        import fcntl

        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


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
            with contextlib.suppress(FileNotFoundError), _held(path) as is_held:  # the other process has moved it
                if not is_held:  # it is somebody's who has just written it
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


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Lock a folder that is about to get a hidden name, so that nobody takes it for abandoned; False: it is locked.

    Raises:
        FileNotFoundError: it is not there any more.
    """
    if not folder.is_dir() or folder.is_symlink():
        yield True  # the check says what it is
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield _lock(descriptor) is not False
    finally:
        os.close(descriptor)


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
