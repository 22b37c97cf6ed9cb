"""Files that are written whole or not at all, and only over what may be replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from trtpost.errors import TrtpostError, reason
from trtpost.storage.files import check_regular, in_a_circle
from trtpost.storage.staging import EXCHANGE, HERE, NO_REPLACE, hidden_name, renamed

_unfinished: set[Path] = set()
"""Files that this process is writing under hidden names."""

_lock = threading.Lock()
"""Held while a hidden file is made; for ever, once the process ends."""

_CHANGES = 10
"""How often somebody else may put another file in the place of a target while it is written."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)

Replaces = Callable[[BinaryIO], bool]
"""A function that says of a file's content whether it may be replaced."""


def write_whole(
    path: Path,
    write: Callable[[Any], None],
    error_type: type[TrtpostError],
    *,
    below: Path | None = None,
    replaces: Replaces | None = None,
) -> None:
    """Write a file so that it is there whole or not at all, and nothing is lost that may not be replaced.

    What is at the target is looked at before the work, and again when the new file takes its place: what somebody has
    put there meanwhile is treated in the same way.

    Args:
        path: of the file; folders that are missing are made.
        write: writes the content into an open file.
        error_type: of what is raised.
        below: a folder, named by whoever calls, in which `path` lies. Links below it are not followed but refused.
            None: `path` itself was named, and where it is a link, what it points to is written.
        replaces: asked of a regular file that is there; None: any may be replaced.

    Raises:
        TrtpostError: of the given type, if it cannot be written.
    """
    if below is None and in_a_circle(path):
        raise error_type(f"cannot write {path}: it is a link in a circle")
    try:
        with _folder_of(path, below) as (folder, name):
            folder.look(name, replaces)
            temporary = hidden_name(name)
            try:
                with _lock:
                    _unfinished.add(folder.path / temporary)
                    file = folder.create(temporary)
                with file:
                    write(file)
                folder.put(temporary, name, replaces)
            finally:
                with contextlib.suppress(OSError):
                    folder.remove(temporary)
                _unfinished.discard(folder.path / temporary)
    except (OSError, ValueError) as error:  # names without meaning
        raise error_type(f"cannot write {path}: {reason(error)}") from None


class _Folder:
    """A folder that stays the same whatever its path leads to later; by an open file, where the system has that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0)) if _BY_DESCRIPTOR else None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def enter(self, name: str) -> None:
        """Go on to a folder in this one, made if it is missing, that is no link."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self._descriptor)
        if stat.S_ISLNK(self._status(name).st_mode):
            raise OSError(errno.ELOOP, f"{self.path / name} is a link, which is followed only where it is named")
        if self._descriptor is not None:
            inner = os.open(name, _FOLDER, dir_fd=self._descriptor)
            os.close(self._descriptor)
            self._descriptor = inner
        self.path /= name

    def look(self, name: str, replaces: Replaces | None) -> tuple[int, ...] | None:
        """What tells the file of this name from others; None if no file has it.

        Raises:
            OSError: something is there that may not be replaced.
        """
        try:
            status = self._status(name)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EEXIST, "a link is there, which is followed only where it is named")
        check_regular(status)
        if replaces is not None and status.st_size:
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            try:
                with os.fdopen(os.open(self._at(name), flags, dir_fd=self._descriptor), "rb") as file:
                    status = os.fstat(file.fileno())
                    check_regular(status)
                    replaceable = replaces(file)
            except PermissionError:
                replaceable = False
            if not replaceable:
                raise OSError(errno.EEXIST, "a file that trtpost did not write is there, and is not replaced")
        return _identity(status)

    def create(self, name: str) -> BinaryIO:
        """Make a new file, to write."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)  # neither there nor a link
        return os.fdopen(os.open(self._at(name), flags, 0o666, dir_fd=self._descriptor), "wb")

    def put(self, temporary: str, name: str, replaces: Replaces | None) -> None:
        """Rename a file to `name`.

        Raises:
            OSError: something is there that may not be replaced.
        """
        for _ in range(_CHANGES):
            there = self.look(name, replaces)
            if self._put_new(temporary, name) if there is None else self._put_over(temporary, name, there):
                return
        raise OSError(errno.EBUSY, "somebody else keeps on writing it")

    def _put_new(self, temporary: str, name: str) -> bool:
        """Rename to a name that is free; False if something has it by now."""
        try:
            if not self._renamed(temporary, name, NO_REPLACE):
                here = self._descriptor
                os.link(self._at(temporary), self._at(name), src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
                self.remove(temporary)
        except FileExistsError:
            return False
        except (OSError, NotImplementedError):  # file systems without links to files: what comes right now is lost
            self._replace(temporary, name)
        return True

    def _put_over(self, temporary: str, name: str, there: tuple[int, ...]) -> bool:
        """Rename to the name of the file that is `there`; False if something else has it by now, or nothing."""
        try:
            if not self._renamed(temporary, name, EXCHANGE):
                self._replace(temporary, name)
                return True
        except FileNotFoundError:
            return False
        if _identity(self._status(temporary)) == there:
            self.remove(temporary)
            return True
        try:
            self._renamed(temporary, name, EXCHANGE)
        except FileNotFoundError:  # then there is room to give it back
            self._renamed(temporary, name, NO_REPLACE)
        return False

    def remove(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._descriptor)

    def _renamed(self, old: str, new: str, how: int) -> bool:
        here = HERE if self._descriptor is None else self._descriptor
        return renamed(self._at(old), self._at(new), how, folder=here)

    def _replace(self, temporary: str, name: str) -> None:
        os.replace(self._at(temporary), self._at(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def _status(self, name: str) -> os.stat_result:
        return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else str(self.path / name)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from another one that has its name, also where that is the same file with other content."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_BY_DESCRIPTOR = {os.open, os.mkdir, os.stat, os.unlink, os.link, os.rename} <= os.supports_dir_fd


@contextlib.contextmanager
def _folder_of(path: Path, below: Path | None) -> Iterator[tuple[_Folder, str]]:
    """Open the folder of a file, made if it is missing: the folder, and the file's name in it.

    Raises:
        OSError: it cannot be made, or there are links below `below`.
        ValueError: names without meaning.
    """
    if below is None:
        path = Path(os.path.realpath(path))  # a link stays a link: what it points to is written
        below = path.parent
    steps = path.relative_to(below).parts
    if not steps or ".." in steps:
        raise ValueError(f"it is not a file below {below}")
    root = Path(os.path.realpath(below))
    missing = []
    while not root.exists():
        missing.append(root.name)
        root = root.parent
    folder = _Folder(root)
    try:
        for step in (*reversed(missing), *steps[:-1]):
            folder.enter(step)
        yield folder, steps[-1]
    finally:
        folder.close()


def remove_unfinished() -> None:
    """Remove what other threads are writing, and let them begin nothing more: for a process that ends at once."""
    _lock.acquire(timeout=1)
    for temporary in list(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
