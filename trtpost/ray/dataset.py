"""Archives: the photos of a Ray dataset to masks, by all machines of a cluster.

Ray distributes, restarts and scales; this module says what one actor does with a batch of photos. An actor holds one
`Segmenter`; while a photo is in its engine, others are read, decoded, encoded and written by threads beside it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import logging
import operator
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, SupportsIndex, get_args

from trtpost.bundle.folder import MODEL, Bundle, load_bundle, read_again
from trtpost.errors import ImageError, SpecError, TrtpostError, printable, reason
from trtpost.jobs import Job, Outcome, mask_names
from trtpost.kernels.cpu import MAX_THREADS
from trtpost.machine import default_threads
from trtpost.masks.colours import palette
from trtpost.masks.marks import ends_of, head_says, marked_size, source_of
from trtpost.masks.png import END, HEAD, written_as
from trtpost.masks.write import encode_mask, is_ours
from trtpost.packages import require
from trtpost.photos.admission import Admission
from trtpost.photos.decode import SUFFIXES
from trtpost.photos.find import MASK_ENDING, OVERLAY_ENDING, PhotoFile
from trtpost.photos.limits import MAX_BYTES, MAX_PIXELS
from trtpost.segment import Segmenter
from trtpost.spec import Backend, Encoding
from trtpost.storage.files import existing_file, open_regular, write_whole

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Dataset = Any
"""`ray.data.Dataset`, which has no types of its own."""

BATCH = 32
"""Photos that an actor takes at once, and loses with its process: their masks are found, or made again, by another."""

AHEAD = 2
"""Photos that an actor has on their way beyond one a core: one waits for the disk, one for the engine."""

WHOLE_WHEN_CLOSED = ("s3", "gcs", "abfs")
"""File systems where a file appears when it has been written; moving one there is copying it."""

RESULTS = ("height", "width", "mask", "skipped", "error")
"""Columns that are added."""

COLUMNS = {"path": (str, "string"), "bytes": (bytes, "binary"), "target": (str, "string")}
"""Columns that are read, and what they hold, for Python and for Arrow."""

ARROW = r"null|(?:large_|fixed_size_)?{}(?:_view)?(?:\[\d+\])?"
"""The types of Arrow that hold one of these."""


@dataclass(frozen=True)
class Row:
    """What became of a photo: `size` (H, W) and where its mask is, or an error; `skipped` where the mask was there."""

    path: str
    size: tuple[int, int] = (0, 0)
    mask: str | bytes | None = None
    skipped: bool = False
    error: str | None = None


def segment_dataset(
    dataset: Dataset,
    bundle: Bundle | str | Path,
    *,
    output: str | Path | None = None,
    resume: bool = True,
    encoding: Encoding = "palette",
    fast_decode: bool = False,
    backend: Backend = "auto",
    cores: int | None = None,
    actors: int | None = None,
    max_pixels: int | None = None,
    filesystem: FileSystem | None = None,
    output_filesystem: FileSystem | None = None,
) -> Dataset:
    """The masks of a dataset's photos, lazily: as files, or as a column of PNGs for `write_parquet`.

    An actor runs on each GPU, where there are GPUs and the bundle has a plan, or else on each group of `cores` cores.
    The bundle travels with the job. A photo that fails becomes a row with the error. An actor that dies is started
    again, and its batch with it.

    Args:
        dataset: rows with a column `path` (a file, or a URI that pyarrow reads) and, where the photos are not to be
            read by the actors, `bytes`; perhaps `target`, the path of the mask below `output`. Other columns stay.
            Relative paths are of the folder that the caller is in.
        bundle: what to run.
        output: folder or URI for the masks, which all machines must see. Nothing is replaced but masks of ours, and
            links in it are not followed. Without `target`, a mask is called like its photo's absolute path, or the
            scheme of its URI and what follows, and `.mask.png`: so rows with `bytes` need paths that differ. None gives
            their content as column `mask`.
        resume: leave masks that are there, of this bundle and of the photo as it is now, as they are: its name, length
            and date, and its first and last 64 kB; where rows have `bytes`, exactly these.
        encoding: of the masks, as for `Result.save_mask`.
        fast_decode, backend: as for `Segmenter`.
        cores: of each actor, and threads; default 1, or on GPUs its share of the cluster's.
        actors: how many; default as many as the cluster has room for.
        max_pixels: of all photos that an actor has in memory at once; one that is larger alone is an error; default
            `MAX_PIXELS`.
        filesystem: where the photos are; default by the URI, with the credentials of the environment.
        output_filesystem: where the masks go; likewise.

    Returns:
        The dataset without `bytes` and `target`, with int32 `height` and `width`, string or binary `mask`, bool
        `skipped`, and string `error`, null where all went well. The order of the rows is lost.

    Raises:
        SpecError: columns are missing, taken or of other types, settings have no meaning, or the cluster has no room
            for an actor.
        TrtpostError: the bundle cannot be read.
        MissingPackageError: Ray is not installed.
    """
    ray = _ray()
    _check_whole("cores", cores, MAX_THREADS)
    _check_whole("actors", actors)
    _check_whole("max_pixels", max_pixels)
    for name, value, choices in (("backend", backend, get_args(Backend)), ("encoding", encoding, get_args(Encoding))):
        if value not in choices:
            raise SpecError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r:.60}")
    bundle = bundle if isinstance(bundle, Bundle) else load_bundle(Path(bundle))
    schema = _checked_schema(dataset)
    cpus, gpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("CPU", "GPU"))
    gpus = 0 if backend == "onnxruntime" or bundle.plan is None else gpus
    if backend == "tensorrt" and not gpus:
        missing = "the bundle has no plan" if bundle.plan is None else "the cluster has no GPU"
        raise SpecError(f"backend tensorrt cannot run, because {missing}: leave it to auto")
    cores = cores or (max(1, cpus // gpus) if gpus else 1)
    # where the dataset is still to be read, the tasks that read it need a core, or all would wait for them
    free = cpus if isinstance(dataset, ray.data.dataset.MaterializedDataset) else cpus - 1
    room = gpus or max(free, 0) // max(cores, 1)
    if (actors or 1) > room:
        raise SpecError(
            f"the cluster has no room for {actors or 1} actors on "
            + (f"{gpus} GPUs" if gpus else f"{cores} of its {cpus} cores each, of which {free} are free")
            + ": set actors and cores, or materialize() the dataset, so that no core has to read it"
        )
    if schema is None:  # of no rows, Ray knows no columns
        return ray.data.from_arrow(_schema(path="string", **_results(output)).empty_table())
    strategy = ray.data.ActorPoolStrategy
    return dataset.map_batches(
        _Actor,
        fn_constructor_kwargs={
            "files": ray.put(_files(bundle)),
            "settings": _Settings(
                str(Path.cwd()),
                None if output is None else _absolute(str(output), str(Path.cwd()), output_filesystem),
                resume,
                encoding,
                fast_decode,
                backend if gpus else "onnxruntime",
                cores,
                max_pixels or MAX_PIXELS,
                filesystem,
                output_filesystem,
            ),
        },
        batch_size=BATCH,
        batch_format="pyarrow",
        compute=strategy(size=actors) if actors else strategy(min_size=1, max_size=room),
        **({"num_gpus": 1} if gpus else {"num_cpus": cores}),
    )


def photos_in(folder: str | Path, *, filesystem: FileSystem | None = None) -> Dataset:
    """A dataset of the photos in a folder or below a URI: as `dataset_of`; masks keep the folders in it.

    Raises:
        SpecError: it cannot be read, or holds no photo.
        MissingPackageError: Ray is not installed.
    """
    _ray()
    from pyarrow.fs import FileSelector, FileType

    prefix = str(folder).partition("://")[0] + "://" if "://" in str(folder) else ""
    files, root = _place(str(folder).rstrip("/") or "/", filesystem)
    try:
        found = files.get_file_info(FileSelector(root, recursive=True))
    except _faults() as error:
        raise SpecError(f"{folder} cannot be read: {reason(error)}") from None
    places = [
        Path(info.path).relative_to(root)
        for info in sorted(found, key=lambda info: str(info.path))
        if info.type == FileType.File
        and Path(info.path).suffix.lower() in SUFFIXES
        and not info.path.lower().endswith((MASK_ENDING, OVERLAY_ENDING))
    ]
    places = [place for place in places if not any(part.startswith(".") for part in place.parts)]
    if not places:
        raise SpecError(f"{folder} holds no photo; in folders they are known by their endings: .jpg, .png, .webp")
    names = mask_names([PhotoFile(place, place, searched=True) for place in places])
    return dataset_of([f"{prefix}{root}/{place.as_posix()}" for place in places], [name.as_posix() for name in names])


def dataset_of(paths: Sequence[str], targets: Sequence[str]) -> Dataset:
    """A dataset of photos by their paths, of their masks by their paths below the output, and of their `number`.

    Raises:
        SpecError: a name that is no text.
    """
    ray = _ray()
    import pyarrow

    schema = _schema(path="string", target="string", number="int64")
    try:
        table = pyarrow.table([paths, targets, range(len(paths))], schema)
    except UnicodeEncodeError as error:
        raise SpecError(f"{printable(error.object)} is no UTF-8, which Ray's tables hold: rename it") from None
    return ray.data.from_arrow([table.slice(start, BATCH) for start in range(0, len(table), BATCH)])


def segment_jobs(
    jobs: Sequence[Job],
    bundle: Bundle,
    *,
    address: str,
    done: Callable[[], None] = lambda: None,
    **settings: Any,
) -> list[Outcome]:
    """`trtpost.jobs.run_all` on a cluster: the outcomes in order, without times and shares of classes.

    Args:
        jobs: photos that are files, without overlays; all machines must see them and the folder of the masks.
        bundle: what to run.
        address: of the cluster, or `local` to start one on this machine for as long as it takes.
        done: is called after each job.
        settings: as for `segment_dataset`.

    Raises:
        TrtpostError: as `segment_dataset`, or there is no cluster.
    """
    outcomes: dict[int, Outcome] = {}
    paths = [str(job.photo.path.absolute()) for job in jobs]
    with cluster(address):
        dataset = dataset_of(paths, [str(_real(job))[1:] for job in jobs])
        for entry in segment_dataset(dataset, bundle, output="/", **settings).iter_rows():
            row, job, path = row_of(entry), jobs[entry["number"]], paths[entry["number"]]
            error = row.error and (row.error if path in row.error else f"{job.photo.path}: {row.error}")
            outcomes[entry["number"]] = Outcome(job, row.size, error=error, skipped=row.skipped)
            done()
    return [outcome for _, outcome in sorted(outcomes.items())]


def _real(job: Job) -> Path:
    """Where a job's mask lies; a link that was named is followed, and another one is not."""
    return job.mask.resolve() if job.below is None else job.mask.parent.resolve() / job.mask.name


def row_of(entry: dict[str, Any]) -> Row:
    """A row of the dataset that `segment_dataset` gives."""
    size = (entry["height"] or 0, entry["width"] or 0)
    return Row(entry["path"], size, entry["mask"], entry["skipped"], entry["error"])


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine (`local`) that goes with all its files.

    A connection that the process has already is used, and stays.

    Raises:
        TrtpostError: there is no cluster at that address.
        MissingPackageError: Ray is not installed.
    """
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    _check_address(address)
    temporary = None
    settings: dict[str, Any] = {"address": address}
    if address == "local":
        temporary = tempfile.mkdtemp(prefix="trtpost-")  # a short path: sockets lie in it
        settings |= {"num_cpus": default_threads(), "include_dashboard": False, "_temp_dir": temporary}
    try:
        try:
            ray.init(**settings, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # of several kinds
            raise TrtpostError(f"there is no Ray cluster at {address}: {reason(error)}") from None
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # the caller shows what is done
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
    finally:
        ray.shutdown()
        if temporary is not None:
            _remove(Path(temporary))


def _check_address(address: str) -> None:
    """Is there anybody at HOST:PORT? Ray would try for minutes."""
    host, separator, port = address.rpartition("://")[2].rpartition(":")
    if address in ("local", "auto"):
        return
    if not (separator and host and port.isdigit()):
        raise SpecError(
            f"a Ray cluster is given as HOST:PORT, auto (of this machine) or local (a new one), not {address}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise TrtpostError(f"there is no Ray cluster at {address}: {reason(error)}") from None


def _remove(folder: Path) -> None:
    """Remove a folder that processes on their way out may still write to."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


@dataclass(frozen=True)
class _Settings:
    """What an actor is told; as in `segment_dataset`. `folder` is the one that relative paths are of: the caller's."""

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


class _Actor:
    """One `Segmenter`, and threads that feed it."""

    def __init__(self, files: Any, settings: _Settings) -> None:
        with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
            path = _unpacked(_ray().get(files), Path(folder))
            self._segmenter = Segmenter(
                path, backend=settings.backend, threads=settings.cores, fast_decode=settings.fast_decode
            )
        self._settings = settings
        self._found_as = written_as(settings.encoding, len(self._segmenter.bundle.passport.classes))
        self._pool = ThreadPoolExecutor(settings.cores + AHEAD)
        self._admission = Admission(settings.max_pixels)  # of all threads together

    def __call__(self, table: Any) -> Any:
        """A batch of photos, as a table, to its rows."""
        import pyarrow

        columns = [table[name].to_pylist() if name in table.column_names else [None] * len(table) for name in COLUMNS]
        rows = list(self._pool.map(self._row, *columns))
        for name in ("bytes", "target"):
            if name in table.column_names:
                table = table.drop_columns([name])
        schema = _schema(**_results(self._settings.output))
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

    def _row(self, path: Any, content: Any, target: Any) -> Row:
        try:
            for name, value, (kind, _) in zip(COLUMNS, (path, content, target), COLUMNS.values(), strict=True):
                if not isinstance(value, kind | None):
                    raise SpecError(f"{name} is of type {type(value).__name__}, and has to be {kind.__name__} or null")
            return self._segment(path or "", content, target)
        except _faults(TrtpostError, MemoryError) as error:
            return Row(str(path or ""), error=str(error) if isinstance(error, TrtpostError) else reason(error))

    def _segment(self, given: str, content: bytes | None, target: str | None) -> Row:
        settings = self._settings
        if not given and content is None:
            raise SpecError("the row has neither a path nor bytes")
        path = _absolute(given, settings.folder, settings.filesystem)
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
            source = _source_of_content(content)
            if (size := self._done(there, lambda: source)) is not None:
                return Row(given, size, mask, skipped=True)
        else:
            with _opened(path, settings.filesystem) as photo:
                if (size := self._done(there, photo.source)) is not None:
                    return Row(given, size, mask, skipped=True)
                content = photo.read()
                source = photo.source(content)
        with self._admission(content):
            result = self._segmenter(content)
            mark = f"{result.fingerprint} {source}"
            png = encode_mask(result.mask, palette(result.classes), settings.encoding, mark=mark)
        if mask is not None:
            self._there(mask)
            files, place = _real_place(mask, settings.output_filesystem)
            _write_whole(files, place, png, _real_place(str(settings.output), settings.output_filesystem)[1])
        return Row(given, (result.mask.shape[0], result.mask.shape[1]), png if mask is None else mask)

    def _there(self, mask: str) -> tuple[bytes, bytes] | None:
        """The first and last bytes of a mask that is there already; None where there is none.

        Raises:
            SpecError: another file is there, or what is there cannot be read.
        """
        files, place = _real_place(mask, self._settings.output_filesystem)
        try:
            with _open(files, place) as (file, status):
                head = file.read(HEAD)
                file.seek(max(status.length - len(END), 0))
                tail = file.read(len(END))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SpecError(f"{mask} cannot be read, so it is not replaced: {reason(error)}") from None
        if head and not is_ours(io.BytesIO(head)):
            raise SpecError(f"{mask} exists and is no mask that trtpost wrote, so it is not replaced")
        return head, tail

    def _done(self, there: tuple[bytes, bytes] | None, source: Callable[[], str]) -> tuple[int, int] | None:
        """The size of a mask that need not be made again: `trtpost.masks.marks.is_done`, on any file system."""
        if there is None or not self._settings.resume:
            return None
        size = marked_size(*there, self._segmenter.fingerprint, encoding=self._found_as)
        return size if size is not None and head_says(there[0], source()) else None


def _check_whole(name: str, value: int | None, most: int | None = None) -> None:
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if value is not None and not (whole and 1 <= operator.index(value) <= (most or operator.index(value))):
        raise SpecError(
            f"{name} must be a whole number from 1{f' to {most}' if most else ''}, or None, not {value!r:.60}"
        )


def _checked_schema(dataset: Dataset) -> Any:
    """The schema of a dataset whose columns fit; None where it has no rows.

    Columns of pandas may hold anything, which only their rows tell.
    """
    import pyarrow

    schema = dataset.schema()
    if schema is None:
        return None
    columns = dict(zip(schema.names, schema.types, strict=True))
    if "path" not in columns:
        raise SpecError(
            f"the dataset needs a column 'path' (files, or URIs), and has {', '.join(map(str, columns)) or 'none'}: "
            "make it with trtpost.ray.photos_in, or ray.data.read_binary_files(..., include_paths=True)"
        )
    if taken := [name for name in RESULTS if name in columns]:
        raise SpecError(f"the dataset has a column '{taken[0]}' already, which is one of the results: rename it")
    for name, (_, kind) in COLUMNS.items():
        found = columns.get(name)
        if isinstance(found, pyarrow.DictionaryType):
            found = found.value_type
        if isinstance(found, pyarrow.DataType) and not re.fullmatch(ARROW.format(kind), str(found)):
            raise SpecError(f"the dataset's column '{name}' is of type {found}, and has to be {kind}")
    return schema


def _results(output: str | Path | None) -> dict[str, str]:
    """Types of the columns that are added."""
    kinds = ("int32", "int32", "binary" if output is None else "string", "bool_", "string")
    return dict(zip(RESULTS, kinds, strict=True))


def _files(bundle: Bundle) -> dict[str, bytes]:
    """The files that belong to a bundle, by name; of a baked model that stands alone the one file."""
    return read_again(bundle).files


def _unpacked(files: dict[str, bytes], folder: Path) -> Path:
    """The bundle that `_files` gave, written into a folder."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder if len(files) > 1 else folder / MODEL


def _source_of_content(content: bytes) -> str:
    """`trtpost.masks.marks.source_of` of a photo that is no file: SHA-256 of its content."""
    return hashlib.sha256(content).hexdigest()


def _below_output(target: str) -> str:
    """A target that is a file below the output."""
    first, last = os.path.normpath(target).partition("/")[0], target.rpartition("/")[2]
    if first in ("", ".", "..") or last in ("", ".", ".."):
        raise SpecError(f"target {target} is no path of a file below the output")
    return os.path.normpath(target)


def _whole_name(path: str, filesystem: FileSystem | None) -> str:
    """A name below the output that no other photo has: its whole path, and before it the scheme of its URI.

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


def _absolute(path: str, folder: str, filesystem: FileSystem | None) -> str:
    """A path of a machine's own files below a folder; of other file systems, which know no such folder, as it is."""
    if "://" in path or (filesystem is not None and filesystem.type_name != "local"):
        return path
    return str(Path(folder) / path) if path else path


@dataclass(frozen=True)
class _Status:
    """Of a file: its length, and when it was changed, in nanoseconds; 0 where that is not known."""

    length: int
    date: int


@dataclass(frozen=True)
class _Photo:
    """A photo's open file."""

    name: str
    file: IO[bytes]
    status: _Status

    def read(self) -> bytes:
        if self.status.length > MAX_BYTES:
            raise ImageError(f"the image has more than {MAX_BYTES >> 30} GiB: cut it into tiles")
        self.file.seek(0)
        return self.file.read()

    def source(self, content: bytes | None = None) -> str:
        """See `trtpost.masks.marks.source_of`; `content` where it has been read already."""
        file = self.file if content is None else io.BytesIO(content)
        return source_of(self.name, self.status.length, self.status.date, ends_of(file, self.status.length))


@contextlib.contextmanager
def _opened(path: str, filesystem: FileSystem | None) -> Iterator[_Photo]:
    """A photo.

    Raises:
        ImageError: there is no such file, or it is none.
    """
    files, place = _real_place(path, filesystem)
    try:
        if files.type_name == "local":
            existing_file(Path(place), "image", ImageError)
        with _open(files, place) as (file, status):
            yield _Photo(PurePosixPath(path).name, file, status)
    except FileNotFoundError:
        raise ImageError(f"no such image: {path}") from None


@contextlib.contextmanager
def _open(files: FileSystem, place: str) -> Iterator[tuple[IO[bytes], _Status]]:
    """A regular file, to read.

    Raises:
        OSError: it is another kind of file, or cannot be read.
    """
    if files.type_name == "local":
        with open_regular(place) as file:
            status = os.fstat(file.fileno())
            yield file, _Status(status.st_size, status.st_mtime_ns)
        return
    from pyarrow.fs import FileType

    info = files.get_file_info(place)
    if info.type == FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if info.type != FileType.File:
        raise OSError(errno.EINVAL, "it is not a regular file")
    with files.open_input_file(place) as file:
        yield file, _Status(file.size(), info.mtime_ns or 0)


def _place(path: str, filesystem: FileSystem | None) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    scheme, separator, rest = path.partition("://")
    if filesystem is not None:
        return filesystem, rest if separator else path
    if not separator:
        return _filesystem("file", ""), str(Path(path).absolute())
    return _filesystem(scheme, rest.partition("/")[0]), rest


def _real_place(path: str, filesystem: FileSystem | None) -> tuple[FileSystem, str]:
    """`_place`, where a part of a file system is the whole one, and fsspec's name for this machine's files is ours.

    So this machine's own files are looked at as such, with their links and pipes, whatever they are reached by.

    Raises:
        SpecError: the path leads out of the part.
    """
    from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem, SubTreeFileSystem

    files, place = _place(path, filesystem)
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
    except _faults(ValueError) as error:
        raise SpecError(f"{scheme}://{host} is no file system that pyarrow knows: {reason(error)}") from None


def _write_whole(files: FileSystem, path: str, content: bytes, output: str) -> None:
    """Write a mask so that it is there whole or not at all; `output` is the folder it lies below, in the same files."""
    if files.type_name == "local":
        write_whole(Path(path), lambda file: file.write(content), ImageError, below=Path(output), replaces=is_ours)
        return
    if files.type_name in WHOLE_WHEN_CLOSED:
        with files.open_output_stream(path, compression=None) as stream:
            stream.write(content)
        return
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{secrets.token_hex(4)}"
    try:
        files.create_dir(folder, recursive=True)
        with files.open_output_stream(temporary, compression=None) as stream:
            stream.write(content)
        files.move(temporary, path)
    except BaseException:
        with contextlib.suppress(*_faults()):
            files.delete_file(temporary)
        raise


def _schema(**types: str) -> Any:
    import pyarrow

    return pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in types.items()])


def _faults(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What reading and writing by pyarrow raise, and others."""
    import pyarrow

    return (OSError, pyarrow.ArrowException, *others)


def _ray() -> Any:
    ray = require("ray", "ray", "segmenting archives")
    require("ray.data", "ray", "segmenting archives")
    return ray
