"""Files to read: regular ones alone, of no more bytes than they may have, and in words where they are none."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trtpost.errors import TrtpostError, reason


def in_a_circle(path: Path) -> bool:
    """Is this a link that comes back to itself?"""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    except ValueError:  # names without meaning
        pass
    return False


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read, if it is a regular one: a pipe may wait for ever, a device has no end, or acts.

    Raises:
        OSError: it is another kind of file, or cannot be opened.
    """
    try:
        return open(path, "rb", opener=_regular)
    except ValueError as error:  # names without meaning
        raise OSError(errno.EINVAL, str(error)) from None


def _regular(path: str, flags: int) -> int:
    check_regular(Path(path).stat())  # opening a device may be enough to make it act
    # a pipe that somebody has put there meanwhile does not wait either
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    try:
        check_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def existing_file(path: Path, kind: str, error: type[TrtpostError]) -> Path:
    """Give `path` back, if it is a file that has content.

    Raises:
        TrtpostError: it is missing, a folder, or empty; of the given type.
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
    """Open a file that has content, to read.

    Raises:
        TrtpostError: of the given type: see `existing_file`.
    """
    try:
        return open_regular(existing_file(path, kind, error))
    except OSError as fault:
        raise error(f"{kind} {path} cannot be read: {reason(fault)}") from None


def read_limited(path: Path, kind: str, limit: int, error: type[TrtpostError]) -> bytes:
    """Read a file that has content, and not more than `limit` bytes; larger ones are not read.

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
    """Find all that lies in a folder and the folders in it but folders, in no order; links to folders are not followed.

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
