"""Archives: the photos of a Ray dataset to masks, by all machines of a cluster.

Ray distributes, restarts and scales; `trtpost.ray.actor` says what each worker does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from trtpost.bundle.folder import Bundle, load_bundle, read_again
from trtpost.errors import SpecError, printable, reason
from trtpost.jobs.paths import PhotoJob, mask_names
from trtpost.jobs.report import Outcome
from trtpost.kernels.cpu import MAX_THREADS
from trtpost.photos.find import MASK_ENDING, OVERLAY_ENDING, SUFFIXES, PhotoFile
from trtpost.photos.limits import MAX_PIXELS
from trtpost.ray.actor import COLUMNS, RESULTS, Actor, PhotoRow, Settings, arrow_schema, result_types
from trtpost.ray.cluster import cluster, ray_package
from trtpost.ray.remote_files import absolute, faults, place_of
from trtpost.spec import Backend, Encoding, whole_or_none

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Dataset = Any
"""`ray.data.Dataset`, which has no types of its own."""

BATCH = 32
"""Photos that an actor takes at once, and loses with its process: their masks are found, or made again, by another."""

ARROW = r"null|(?:large_|fixed_size_)?{}(?:_view)?(?:\[\d+\])?"
"""The types of Arrow that hold one of these."""


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
    """Make the masks of a dataset's photos, lazily: as files, or as a column of PNGs for `write_parquet`.

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
    ray = ray_package()
    whole_or_none("cores", cores, MAX_THREADS)
    whole_or_none("actors", actors)
    whole_or_none("max_pixels", max_pixels)
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
        return ray.data.from_arrow(arrow_schema(path="string", **result_types(output)).empty_table())
    strategy = ray.data.ActorPoolStrategy
    return dataset.map_batches(
        Actor,
        fn_constructor_kwargs={
            "files": ray.put(read_again(bundle).files),
            "settings": Settings(
                str(Path.cwd()),
                None if output is None else absolute(str(output), str(Path.cwd()), output_filesystem),
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
    """Make a dataset of the photos in a folder or below a URI, as `dataset_of` does; masks keep the folders in it.

    Raises:
        SpecError: it cannot be read, or holds no photo.
        MissingPackageError: Ray is not installed.
    """
    ray_package()
    from pyarrow.fs import FileSelector, FileType

    prefix = str(folder).partition("://")[0] + "://" if "://" in str(folder) else ""
    files, root = place_of(str(folder).rstrip("/") or "/", filesystem)
    try:
        found = files.get_file_info(FileSelector(root, recursive=True))
    except faults() as error:
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
    """Make a dataset of photos by their paths, of their masks by their paths below the output, and of their `number`.

    Raises:
        SpecError: a name that is no text.
    """
    ray = ray_package()
    import pyarrow

    schema = arrow_schema(path="string", target="string", number="int64")
    try:
        table = pyarrow.table([paths, targets, range(len(paths))], schema)
    except UnicodeEncodeError as error:
        raise SpecError(f"{printable(error.object)} is no UTF-8, which Ray's tables hold: rename it") from None
    return ray.data.from_arrow([table.slice(start, BATCH) for start in range(0, len(table), BATCH)])


def segment_jobs(
    jobs: Sequence[PhotoJob],
    bundle: Bundle,
    *,
    address: str,
    done: Callable[[], None] = lambda: None,
    **settings: Any,
) -> list[Outcome]:
    """Run all jobs on a cluster, as `jobs.run.run_all` does: the outcomes in order, without times and class shares.

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


def _real(job: PhotoJob) -> Path:
    """Where a job's mask lies; a link that was named is followed, and another one is not."""
    return job.mask.resolve() if job.below is None else job.mask.parent.resolve() / job.mask.name


def row_of(entry: dict[str, Any]) -> PhotoRow:
    """What a row of the dataset says that `segment_dataset` gives."""
    size = (entry["height"] or 0, entry["width"] or 0)
    return PhotoRow(entry["path"], size, entry["mask"], entry["skipped"], entry["error"])


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
