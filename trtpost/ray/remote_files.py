"""Files wherever pyarrow reads and writes.

What is on this machine goes by `trtpost.storage`. Other file systems know no links, locks or swap of names: a file is
written under a hidden name and moved, or appears when it is whole; what a killed process leaves there stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trtpost.errors import ImageError, SpecError, reason
from trtpost.masks.finished import is_ours
from trtpost.storage.files import open_regular
from trtpost.storage.staging import hidden_name
from trtpost.storage.whole_file import write_whole

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

WHOLE_WHEN_CLOSED = ("s3", "gcs", "abfs")
"""File systems where a file appears when it has been written; moving one there is copying it."""


@dataclass(frozen=True)
class OpenFile:
    """A file to read; `name` is without folders, and `date` is the nanosecond of its last change, or 0."""

    file: IO[bytes]
    name: str
    length: int
    date: int


def absolute(path: str, folder: str, filesystem: FileSystem | None) -> str:
    """A path below a folder of this machine; in other file systems, which know no such folder, it stays as it is."""
    if "://" in path or (filesystem is not None and filesystem.type_name != "local"):
        return path
    return str(Path(folder) / path) if path else path


def place_of(path: str, filesystem: FileSystem | None) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    scheme, separator, rest = path.partition("://")
    if filesystem is not None:
        return filesystem, rest if separator else path
    if not separator:
        return _filesystem("file", ""), str(Path(path).absolute())
    return _filesystem(scheme, rest.partition("/")[0]), rest


def real_place(path: str, filesystem: FileSystem | None) -> tuple[FileSystem, str]:
    """`place_of`, where a part of a file system is the whole one, and fsspec's name for this machine's files is ours.

    So this machine's own files are looked at as such, with their links and pipes, whatever they are reached by.

    Raises:
        SpecError: the path leads out of the part.
    """
    from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem, SubTreeFileSystem

    files, place = place_of(path, filesystem)
    while True:
        if isinstance(files, SubTreeFileSystem):
            if ".." in place.split("/"):
                raise SpecError(f"{path} leads out of the file system that was given")
            files, place = files.base_fs, files.base_path + place.lstrip("/")
        elif (
            isinstance(files, PyFileSystem)
            and isinstance(files.handler, FSSpecHandler)
            and "file" in (protocol := files.handler.fs.protocol, *protocol)
        ):
            files = LocalFileSystem()
        else:
            return files, place


@lru_cache(maxsize=64)
def _filesystem(scheme: str, host: str) -> FileSystem:
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(f"{scheme}://{host}/")[0]
    except faults(ValueError) as error:
        raise SpecError(f"{scheme}://{host} is no file system that pyarrow knows: {reason(error)}") from None


@contextlib.contextmanager
def open_file(files: FileSystem, place: str) -> Iterator[OpenFile]:
    """Open a regular file, to read.

    Raises:
        OSError: it is another kind of file, or cannot be read.
    """
    if files.type_name == "local":
        with open_regular(place) as file:
            status = os.fstat(file.fileno())
            yield OpenFile(file, Path(place).name, status.st_size, status.st_mtime_ns)
        return
    from pyarrow.fs import FileType

    info = files.get_file_info(place)
    if info.type == FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if info.type != FileType.File:
        raise OSError(errno.EINVAL, "it is not a regular file")
    with files.open_input_file(place) as file:
        yield OpenFile(file, info.base_name, file.size(), info.mtime_ns or 0)


def write_mask(files: FileSystem, path: str, content: bytes, output: str) -> None:
    """Write a mask so that it is there whole or not at all; `output` is the folder it lies below, in the same files."""
    if files.type_name == "local":
        write_whole(Path(path), lambda file: file.write(content), ImageError, below=Path(output), replaces=is_ours)
        return
    if files.type_name in WHOLE_WHEN_CLOSED:
        with files.open_output_stream(path, compression=None) as stream:
            stream.write(content)
        return
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/{hidden_name(name)}"
    try:
        files.create_dir(folder, recursive=True)
        with files.open_output_stream(temporary, compression=None) as stream:
            stream.write(content)
        files.move(temporary, path)
    except BaseException:
        with contextlib.suppress(*faults()):
            files.delete_file(temporary)
        raise


def faults(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What reading and writing by pyarrow raise, and others besides."""
    import pyarrow

    return (OSError, pyarrow.ArrowException, *others)
