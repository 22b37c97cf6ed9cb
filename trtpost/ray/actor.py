"""What runs on a worker: an actor that makes the masks of a batch of photos.

It holds one `Segmenter`; while a photo is in the engine, threads read, decode, encode and write others.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trtpost.bundle.folder import MODEL
from trtpost.errors import ImageError, SpecError, TrtpostError, reason
from trtpost.masks.finished import ends_of, head_says, is_ours, marked_size, source_of
from trtpost.masks.png import END, HEAD, encode_mask, palette, written_as
from trtpost.photos.admission import Admission
from trtpost.photos.find import MASK_ENDING
from trtpost.photos.limits import MAX_BYTES
from trtpost.ray.cluster import ray_package
from trtpost.ray.remote_files import OpenFile, absolute, faults, open_file, real_place, write_mask
from trtpost.segment import Segmenter
from trtpost.spec import Backend, Encoding
from trtpost.storage.files import existing_file

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

AHEAD = 2
"""Photos that an actor has on their way beyond one a core: one waits for the disk, one for the engine."""

RESULTS = ("height", "width", "mask", "skipped", "error")
"""Columns that are added to those of a dataset."""

COLUMNS = {"path": (str, "string"), "bytes": (bytes, "binary"), "target": (str, "string")}
"""Columns that are read, and what they hold, for Python and for Arrow."""


@dataclass(frozen=True)
class PhotoRow:
    """What became of a photo: `size` (H, W) and where its mask is, or an error; `skipped` where the mask was there."""

    path: str
    size: tuple[int, int] = (0, 0)
    mask: str | bytes | None = None
    skipped: bool = False
    error: str | None = None


@dataclass(frozen=True)
class Settings:
    """What an actor is told, as in `segment_dataset`; relative paths are of `folder`, which is the caller's."""

    folder: str
    output: str | None
    resume: bool
    encoding: Encoding
    fast_decode: bool
    backend: Backend
    cores: int
    max_pixels: int
    filesystem: FileSystem | None
    output_filesystem: FileSystem | None


class Actor:
    """One `Segmenter`, and threads that feed it; `files` is where Ray holds those of the bundle, by name."""

    def __init__(self, files: Any, settings: Settings) -> None:
        with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
            contents: dict[str, bytes] = ray_package().get(files)
            for name, content in contents.items():
                (Path(folder) / name).write_bytes(content)
            path = Path(folder) if len(contents) > 1 else Path(folder) / MODEL
            self._segmenter = Segmenter(
                path, backend=settings.backend, threads=settings.cores, fast_decode=settings.fast_decode
            )
        self._settings = settings
        self._found_as = written_as(settings.encoding, len(self._segmenter.bundle.passport.classes))
        self._pool = ThreadPoolExecutor(settings.cores + AHEAD)
        self._admission = Admission(settings.max_pixels)  # of all threads together

    def __call__(self, table: Any) -> Any:
        """Make of a table with a batch of photos the table of their rows."""
        import pyarrow

        columns = [table[name].to_pylist() if name in table.column_names else [None] * len(table) for name in COLUMNS]
        rows = list(self._pool.map(self._row, *columns))
        for name in ("bytes", "target"):
            if name in table.column_names:
                table = table.drop_columns([name])
        schema = arrow_schema(**result_types(self._settings.output))
        values = [
            [row.size[0] or None for row in rows],
            [row.size[1] or None for row in rows],
            [row.mask for row in rows],
            [row.skipped for row in rows],
            [row.error for row in rows],
        ]
        for field, column in zip(schema, values, strict=True):
            table = table.append_column(field, pyarrow.array(column, field.type))
        return table

    def _row(self, path: Any, content: Any, target: Any) -> PhotoRow:
        try:
            for name, value, (kind, _) in zip(COLUMNS, (path, content, target), COLUMNS.values(), strict=True):
                if not isinstance(value, kind | None):
                    raise SpecError(f"{name} is of type {type(value).__name__}, and has to be {kind.__name__} or null")
            return self._segment(path or "", content, target)
        except faults(TrtpostError, MemoryError) as error:
            return PhotoRow(str(path or ""), error=str(error) if isinstance(error, TrtpostError) else reason(error))

    def _segment(self, given: str, content: bytes | None, target: str | None) -> PhotoRow:
        settings = self._settings
        if not given and content is None:
            raise SpecError("the row has neither a path nor bytes")
        path = absolute(given, settings.folder, settings.filesystem)
        mask = None
        if settings.output is not None:
            if not given and not target:
                raise SpecError("the row has neither a path, after which its mask could be called, nor a target")
            name = _below_output(target) if target else _whole_name(path, settings.filesystem)
            if "\0" in name:
                raise SpecError(f"{name} is no name of a file: name the mask in a column 'target'")
            mask = f"{settings.output.rstrip('/')}/{name}"
        there = None if mask is None else self._there(mask)
        if content is not None:
            source = hashlib.sha256(content).hexdigest()  # a photo that is no file is known by all of it
            if (size := self._done(there, lambda: source)) is not None:
                return PhotoRow(given, size, mask, skipped=True)
        else:
            with _opened(path, settings.filesystem) as photo:
                if (size := self._done(there, lambda: _source(photo, photo.file))) is not None:
                    return PhotoRow(given, size, mask, skipped=True)
                content = _content(photo)
                source = _source(photo, io.BytesIO(content))
        with self._admission(content):
            result = self._segmenter(content)
            mark = f"{result.fingerprint} {source}"
            png = encode_mask(result.mask, palette(result.classes), settings.encoding, mark=mark)
        if mask is not None:
            self._there(mask)
            files, place = real_place(mask, settings.output_filesystem)
            write_mask(files, place, png, real_place(str(settings.output), settings.output_filesystem)[1])
        return PhotoRow(given, (result.mask.shape[0], result.mask.shape[1]), png if mask is None else mask)

    def _there(self, mask: str) -> tuple[bytes, bytes] | None:
        """The first and last bytes of a mask that is there already; None where there is none.

        Raises:
            SpecError: another file is there, or what is there cannot be read.
        """
        files, place = real_place(mask, self._settings.output_filesystem)
        try:
            with open_file(files, place) as found:
                head = found.file.read(HEAD)
                found.file.seek(max(found.length - len(END), 0))
                tail = found.file.read(len(END))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SpecError(f"{mask} cannot be read, so it is not replaced: {reason(error)}") from None
        if head and not is_ours(io.BytesIO(head)):
            raise SpecError(f"{mask} exists and is no mask that trtpost wrote, so it is not replaced")
        return head, tail

    def _done(self, there: tuple[bytes, bytes] | None, source: Callable[[], str]) -> tuple[int, int] | None:
        """The size of a mask that need not be made again, as `trtpost.masks.finished.is_done` finds on this machine."""
        if there is None or not self._settings.resume:
            return None
        size = marked_size(*there, self._segmenter.fingerprint, encoding=self._found_as)
        return size if size is not None and head_says(there[0], source()) else None


def result_types(output: str | Path | None) -> dict[str, str]:
    """Types of Arrow of the columns that are added, by name."""
    kinds = ("int32", "int32", "binary" if output is None else "string", "bool_", "string")
    return dict(zip(RESULTS, kinds, strict=True))


def arrow_schema(**types: str) -> Any:
    """A schema of Arrow, of the names of its types."""
    import pyarrow

    return pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in types.items()])


@contextlib.contextmanager
def _opened(path: str, filesystem: FileSystem | None) -> Iterator[OpenFile]:
    """Open a photo.

    Raises:
        ImageError: there is no such file, or it is none.
    """
    files, place = real_place(path, filesystem)
    try:
        if files.type_name == "local":
            existing_file(Path(place), "image", ImageError)
        with open_file(files, place) as photo:
            yield photo
    except FileNotFoundError:
        raise ImageError(f"no such image: {path}") from None


def _content(photo: OpenFile) -> bytes:
    """All of a photo's file."""
    if photo.length > MAX_BYTES:
        raise ImageError(f"the image has more than {MAX_BYTES >> 30} GiB: cut it into tiles")
    photo.file.seek(0)
    return photo.file.read()


def _source(photo: OpenFile, file: IO[bytes]) -> str:
    """What `trtpost.masks.finished.source_of` says of a photo, whose content is read from `file`."""
    return source_of(photo.name, photo.length, photo.date, ends_of(file, photo.length))


def _below_output(target: str) -> str:
    """The target, if it is the path of a file below the output."""
    first, last = os.path.normpath(target).partition("/")[0], target.rpartition("/")[2]
    if first in ("", ".", "..") or last in ("", ".", ".."):
        raise SpecError(f"target {target} is no path of a file below the output")
    return os.path.normpath(target)


def _whole_name(path: str, filesystem: FileSystem | None) -> str:
    """The name of a mask below the output that no other photo's has: its whole path, after the scheme of its URI.

    Args:
        path: absolute, where it is of this machine.
        filesystem: that all paths are of, whatever their schemes.
    """
    scheme, separator, rest = path.partition("://")
    if not separator or scheme == "file":
        return os.path.normpath(rest or path).lstrip("/") + MASK_ENDING
    if any(part in ("", ".", "..") for part in rest.split("/")):
        raise SpecError(f"{path} gives no name for a mask: name it in a column 'target'")
    return f"{rest if filesystem is not None else f'{scheme}/{rest}'}{MASK_ENDING}"
