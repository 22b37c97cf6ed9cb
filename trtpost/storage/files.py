"""Files: read if they are regular ones, written whole or not at all, and only over what may be replaced."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from trtpost.errors import SpecError, TrtpostError, reason

_unfinished: set[Path] = set()
"""Files that this process is writing under hidden names."""

_lock = threading.Lock()
"""Held while a hidden file is made; for ever, once the process ends."""

ABANDONED_SECONDS = 3600
"""After which a hidden file that nobody has finished belongs to a process that was killed."""

NO_REPLACE, EXCHANGE = 1, 2
"""RENAME_NOREPLACE and RENAME_EXCHANGE of Linux."""

_HERE = -100
"""AT_FDCWD of Linux: paths are of the working directory."""

_CHANGES = 10
"""How often somebody else may put another file in the place of a target while it is written."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)

Replaces = Callable[[BinaryIO], bool]
"""Whether a file may be replaced, by its content."""


def in_a_circle(path: Path) -> bool:
    """Is this a link that comes back to itself?"""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    except ValueError:  # names without meaning
        pass
    return False


# --- reading


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A file to read, if it is a regular one: a pipe may wait for ever, a device has no end, or acts.

    Raises:
        OSError: it is another kind of file, or cannot be opened.
    """
    try:
        return open(path, "rb", opener=_regular)
    except ValueError as error:  # names without meaning
        raise OSError(errno.EINVAL, str(error)) from None


def _regular(path: str, flags: int) -> int:
    _check_regular(Path(path).stat())  # opening a device may be enough to make it act
    # a pipe that somebody has put there meanwhile does not wait either
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        _check_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


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
            refuse_address(path, kind, error, photos=kind == "image")
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


def refuse_address(
    path: Path, what: str, error: type[TrtpostError], *, photos: bool = False, written: bool = False
) -> None:
    """Refuse what is meant as an address, such as `s3://bucket/photos`; of its slashes a `Path` keeps one.

    Args:
        path: as it was given; below a folder that is called like the scheme, it is a path.
        what: it is for, at the beginning of the sentence.
        error: the type of what is raised.
        photos: whether it names photos or masks, for which there is another way.
        written: whether it is to be written.

    Raises:
        TrtpostError: of the given type.
    """
    found = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+:)/(?!$)", path.as_posix())
    if found is None or os.path.lexists(found[1]):
        return
    address = f"{found[1]}//{path.as_posix()[found.end() :]}"
    instead = "write to this machine and upload it" if written else "download it first"
    stores = ", or see trtpost.ray for photos in object stores" if photos else ""
    raise error(f"{what} {address} is an address, not a file: {instead}{stores}")


def opened(path: Path, kind: str, error: type[TrtpostError]) -> BinaryIO:
    """A file that has content, to read.

    Raises:
        TrtpostError: of the given type: see `existing_file`.
    """
    try:
        return open_regular(existing_file(path, kind, error))
    except OSError as fault:
        raise error(f"{kind} {path} cannot be read: {reason(fault)}") from None


def read_limited(path: Path, kind: str, limit: int, error: type[TrtpostError]) -> bytes:
    """The content of a file that has content, and not more than `limit` bytes; larger ones are not read.

    Raises:
        TrtpostError: of the given type.
    """
    try:
        with opened(path, kind, error) as file:
            content = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    except OSError as fault:
        raise error(f"{kind} {path} cannot be read: {reason(fault)}") from None
    if content is None or len(content) > limit:
        raise error(f"{path} has more than {limit >> 20} MiB, and no {kind} is that long")
    return content


def entries_under(folder: Path) -> Iterator[Path]:
    """All that lies in a folder and the folders in it but folders, in no order; links to folders are not followed.

    Raises:
        OSError: a folder cannot be read.
    """
    waiting = [folder]  # not by recursion, which ends at a thousand folders in each other
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    yield Path(entry.path)


# --- writing


def check_page(path: Path) -> None:
    """Refuse a target for a page in HTML, before there is anything to write: pages replace pages, and nothing else.

    Raises:
        SpecError: it is taken, or no place for a file.
    """
    refuse_address(path, "--html", SpecError, written=True)
    if path.is_dir():
        raise SpecError(f"--html {path} is a folder: name a file in it")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise SpecError(f"--html {path}: {above} is a file, not a folder")
    if path.exists() and not _is_page(path):
        raise SpecError(f"--html {path} would replace a file that is no page: choose a name that ends in .html")


def _is_page(path: Path) -> bool:
    return path.suffix.lower() in (".html", ".htm")


def write_page(path: Path, content: str) -> None:
    """Write a page in HTML, whole or not at all; pages replace pages, and nothing else.

    Raises:
        SpecError: it cannot be written.
    """
    data = content.encode("utf-8", "backslashreplace")
    write_whole(path, lambda file: file.write(data), SpecError, replaces=lambda _: _is_page(path))


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
            temporary = f".{name}.{secrets.token_hex(4)}"
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
    """A folder that stays the same one whatever its path leads to later; where the system has that, by an open file."""

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
        """What tells the file of this name from others; None where there is none.

        Raises:
            OSError: something is there that may not be replaced.
        """
        try:
            status = self._status(name)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EEXIST, "a link is there, which is followed only where it is named")
        _check_regular(status)
        if replaces is not None and status.st_size:
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            try:
                with os.fdopen(os.open(self._at(name), flags, dir_fd=self._descriptor), "rb") as file:
                    status = os.fstat(file.fileno())
                    _check_regular(status)
                    replaceable = replaces(file)
            except PermissionError:
                replaceable = False
            if not replaceable:
                raise OSError(errno.EEXIST, "a file that trtpost did not write is there, and is not replaced")
        return _identity(status)

    def create(self, name: str) -> BinaryIO:
        """A new file, to write."""
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
        """False where there is something by now."""
        try:
            if not self._renamed(temporary, name, NO_REPLACE):
                os.link(
                    self._at(temporary),
                    self._at(name),
                    src_dir_fd=self._descriptor,
                    dst_dir_fd=self._descriptor,
                    follow_symlinks=False,
                )
                self.remove(temporary)
        except FileExistsError:
            return False
        except (OSError, NotImplementedError):  # file systems without links to files: what comes right now is lost
            os.replace(self._at(temporary), self._at(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        return True

    def _put_over(self, temporary: str, name: str, there: tuple[int, ...]) -> bool:
        """False where there is something else by now, or nothing."""
        try:
            if not self._renamed(temporary, name, EXCHANGE):
                os.replace(
                    self._at(temporary), self._at(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor
                )
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
        here = _HERE if self._descriptor is None else self._descriptor
        return renamed(self._at(old), self._at(new), how, folder=here)

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
    """The folder of a file, made if it is missing, and the file's name in it.

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


@cache
def _renameat2() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # no Linux
        return None


def renamed(old: str | os.PathLike[str], new: str | os.PathLike[str], how: int, *, folder: int = _HERE) -> bool:
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
                if not hidden or hidden[1] not in wanted or not entry.is_file(follow_symlinks=False):
                    continue
                if time.time() - entry.stat().st_mtime > ABANDONED_SECONDS:
                    Path(entry.path).unlink(missing_ok=True)
