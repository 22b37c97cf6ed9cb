"""A bundle as models of a Triton repository."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import onnx

from trtpost.bundle.folder import MODEL, PASSPORT, Bundle, Contents, read_again
from trtpost.errors import SpecError, TrtpostError, one_line, reason
from trtpost.graph.baking.bake import inlined, is_inlined
from trtpost.graph.emulate import runnable
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region
from trtpost.photos.limits import SERVED_PIXELS
from trtpost.spec import Form
from trtpost.storage.files import open_regular, read_limited, write_whole
from trtpost.storage.folders import put_folder
from trtpost.triton import config as configs
from trtpost.triton.backend import BUNDLE
from trtpost.triton.config import OWNER, Tensor, Warmup

MAX_BATCH = 65_536

MAX_VERSION = (1 << 63) - 1
"""The largest that Triton counts."""

MAX_CONFIG = 64 << 20
"""Bytes of a configuration that is read: those that are written here have a few thousand."""

_CONFIG, _LABELS = "config.pbtxt", "labels.txt"
_MODEL = '"""Runs inside Triton; written by trtpost."""\n\nfrom trtpost.triton.backend import {} as TritonPythonModel\n'


@dataclass(frozen=True)
class Part:
    """One model of the repository.

    Attributes:
        config: its `ModelConfig`.
        files: content of each path in the version's folder.
        beside: content of each path beside the versions.
    """

    config: Any
    files: dict[str, bytes]
    beside: dict[str, bytes]


def export_triton(
    bundle: Bundle,
    repository: Path,
    *,
    name: str | None = None,
    form: Form = "python",
    instances: int = 1,
    max_batch: int | None = None,
    max_pixels: int = SERVED_PIXELS,
) -> list[Path]:
    """Write a bundle into a model repository, as a new version where it is there already.

    A model appears in the repository whole, so a server that polls it never sees half of one.

    Args:
        bundle: what to serve.
        repository: folder of the models, made if it is missing.
        name: of the model that clients ask for; None: that of the bundle.
        form: what runs it: our `Segmenter` in Triton's `python` backend, or Triton's own backends, for which an
            ensemble decodes and scales the photos.
        instances: how many run at once, on each GPU or on the CPU.
        max_batch: photos that the server may join; None: what the bundle takes, where it takes several.
        max_pixels: of the photos that are in memory at once; a request of more is an error.

    Returns:
        The folder of each new version.

    Raises:
        SpecError: the bundle has no such form.
        TrtpostError: something else has that name, or the folder cannot be written.
        MissingPackageError: tritonclient is not installed.
    """
    if form not in get_args(Form):
        raise SpecError(f"form must be one of {', '.join(get_args(Form))}, not '{form}'")
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", bundle.path.resolve().stem)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise SpecError(f"the name of a model takes letters, digits, _, - and ., not '{name}': give one with --name")
    if instances < 1 or max_pixels < 1 or (max_batch is not None and not 1 <= max_batch <= MAX_BATCH):
        raise SpecError(f"a model needs at least one instance, a pixel, and batches of 1 to {MAX_BATCH}")
    contents = read_again(bundle)  # what lies in its folder besides is none of it
    if form == "python":
        parts = [_whole(contents, name, instances, max_batch or max(8, bundle.passport.max_batch), max_pixels)]
    else:
        parts = _engine_parts(contents, name, form, instances, max_batch, max_pixels)
    for part in parts:
        _check_owner(repository / part.config.name, part.config)
    try:
        repository.mkdir(parents=True, exist_ok=True)
        with _alone_in(repository):
            versions = [_number(path) for part in parts for path in (repository / part.config.name).glob("[0-9]*")]
            version = max(versions, default=0) + 1
            if version > MAX_VERSION:
                raise TrtpostError(
                    f"{repository} holds version {version - 1} of {name}, and Triton counts no further: remove it"
                )
            return [_write(repository, part, version) for part in parts]
    except OSError as error:
        raise TrtpostError(f"cannot write the model repository {repository}: {reason(error)}") from None


def next_step(repository: Path, versions: Iterable[Path]) -> str:
    """What to do with a repository into which `versions` were written, for people."""
    ours = any((folder / "model.py").is_file() for folder in versions)
    needs = "; the server's Python needs trtpost as well" if ours else ""
    return f"serve it: tritonserver --model-repository {shlex.quote(str(repository.resolve()))}{needs}"


def _whole(contents: Contents, name: str, instances: int, max_batch: int, max_pixels: int) -> Part:
    """The bundle behind our own `Segmenter`: everything in one model."""
    bundle = contents.bundle
    pre = bundle.passport.pre
    size = bundle.passport.post.size if isinstance(bundle.passport.post.size, tuple) else (pre.height, pre.width)
    config = configs.model_config(
        name,
        "photos to masks",
        "python",
        [Tensor("photo", "bytes", (1,), optional=True), Tensor("image", "uint8", (-1, -1, 3), optional=True)],
        [Tensor("mask", _mask_type(bundle), (-1, -1), labels=_LABELS), Tensor("png", "bytes", (1,))],
        max_batch=max_batch,
        instances=instances,
        on_gpu=bundle.plan is not None,
        warmup=[Warmup("image", "uint8", (*size, 3))],
        max_pixels=max_pixels,
    )
    files = {"model.py": _MODEL.format("MaskModel").encode()}
    if PASSPORT in contents.files:
        files |= {f"{BUNDLE}/{file}": content for file, content in contents.files.items()}
    else:
        files[BUNDLE] = contents.files[MODEL]
    return Part(config, files, _labels(bundle))


def _engine_parts(
    contents: Contents, name: str, form: Form, instances: int, max_batch: int | None, max_pixels: int
) -> list[Part]:
    """The engine in a backend of Triton's own; with an ensemble, where photos have to be scaled before it."""
    bundle, model = contents.bundle, contents.model
    passport = bundle.passport
    if form == "tensorrt_plan":
        content = _plan(contents)
    else:
        model = runnable(model)
        content = (model if is_inlined(model) else inlined(model)).SerializeToString()
    joined = 0 if passport.located.batch or passport.post.size == "runtime" else max_batch or passport.max_batch
    if max_batch is not None and max_batch > 1 and not joined:
        why = "the network's batch is fixed" if passport.located.batch else "its mask's size is a value of each request"
        raise SpecError(
            f"Triton cannot join requests for this engine, because {why}: leave --max-batch out, "
            "or build with --size image or HxW from a network whose batch is dynamic"
        )
    alone = passport.post.size == "image"
    inputs = [_tensor(value, bool(joined), form) for value in model.graph.input]
    (mask,) = [replace(_tensor(value, bool(joined), form), labels=_LABELS) for value in model.graph.output]
    image = next(one for one in inputs if one.name == "image")
    first, samples = _first(bundle, image, [one.name for one in inputs])
    engine = configs.model_config(
        name if alone else f"{name}_engine",
        "whole photos to masks" if alone else "engine",
        "tensorrt" if form == "tensorrt_plan" else "onnxruntime",
        inputs,
        [mask],
        platform=form,
        max_batch=joined,
        instances=instances,
        warmup=first,
    )
    engine_part = Part(
        engine, {"model.plan" if form == "tensorrt_plan" else "model.onnx": content}, samples | _labels(bundle)
    )
    if alone:
        return [engine_part]
    photo = configs.model_config(
        f"{name}_photo",
        "photos to pixels",
        "python",
        [Tensor("photo", "bytes", (1,))],
        [replace(one, shape=False) for one in inputs],
        max_batch=joined,
        on_gpu=False,
        max_pixels=max_pixels,
    )
    card = passport.to_json().encode()
    photo_part = Part(photo, {"model.py": _MODEL.format("PhotoModel").encode(), PASSPORT: card}, {})
    whole = configs.ensemble_config(name, [photo, engine], "mask", max_batch=joined)
    return [photo_part, engine_part, Part(whole, {}, _labels(bundle))]


def _plan(contents: Contents) -> bytes:
    bundle, plan = contents.bundle, contents.bundle.passport.plan
    if plan is None or contents.plan is None:
        raise SpecError(
            f"{bundle.path} holds no TensorRT plan: build it where the full TensorRT is, or export --form python"
        )
    if plan.flavour != "tensorrt":
        raise SpecError(
            f"the plan of {bundle.path} is for TensorRT for RTX, which Triton does not run: build with "
            "--flavour tensorrt, or export --form python"
        )
    if plan.post != "native":
        raise SpecError(
            f"the mask of {bundle.path} is made by our {plan.post}, not by TensorRT's own layers, which Triton runs: "
            "build with --post native, or export --form python"
        )
    return contents.plan


def _tensor(value: onnx.ValueInfoProto, joined: bool, form: Form) -> Tensor:
    """An input or output of the engine; without the batch where Triton counts it."""
    kind = value.type.tensor_type
    dims = [dim.dim_value or -1 for dim in kind.shape.dim]
    return Tensor(
        value.name,
        str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)),
        tuple(dims[1:] if joined else dims),
        shape=form == "tensorrt_plan" and value.name in ("output_size", "region"),
    )


def _first(bundle: Bundle, image: Tensor, names: Iterable[str]) -> tuple[list[Warmup], dict[str, bytes]]:
    """A request for a photo of the network's own size: its tensors, and the files that hold the sizes."""
    passport = bundle.passport
    size = (passport.pre.height, passport.pre.width)
    dims = (*image.dims[:-3], *size, passport.pre.depth)
    pixels = Warmup("image", "uint8", tuple(max(side, 1) for side in dims))
    sizes = size_inputs(passport.post, Region(0, 0, *passport.located.logits_size), size)
    files = {f"warmup/{name}": value.tobytes() for name, value in sizes.items() if name in names}
    return [pixels, *(Warmup(n, "int64", v.shape, file=n) for n, v in sizes.items() if n in names)], files


def _labels(bundle: Bundle) -> dict[str, bytes]:
    return {_LABELS: "".join(f"{one_line(name)}\n" for name in bundle.passport.classes).encode()}


def _check_owner(model: Path, config: Any) -> None:
    """A new version of a model of ours may come into the folder, if the same backend runs it, and nothing else.

    Raises:
        TrtpostError: it is somebody else's, or of another form.
    """
    card = model / _CONFIG
    try:
        if model.is_symlink():
            raise TrtpostError(f"{model} is a link, which is not followed: name the repository that it leads to")
        if not model.exists():
            return
        text = read_limited(card, "configuration", MAX_CONFIG, TrtpostError).decode() if card.exists() else ""
    except (OSError, UnicodeError) as error:
        raise TrtpostError(f"{card} cannot be read: {reason(error)}") from None
    known = configs.from_text(text, str(card))
    if OWNER not in known.parameters:
        raise TrtpostError(f"{model} is a model that trtpost did not write: choose another name with --name")
    if _kind(known) != _kind(config):
        raise TrtpostError(f"{model} is another kind of model: choose another name with --name, or delete it first")
    if config.backend != "python" and (list(known.input), list(known.output)) != (
        list(config.input),
        list(config.output),
    ):
        raise TrtpostError(
            f"{model} has other inputs or outputs than this bundle, so requests would fail while a server changes "
            "over: choose another name with --name"
        )


def _kind(config: Any) -> tuple[str, ...]:
    return config.backend, config.platform, config.parameters[OWNER].string_value


def _write(repository: Path, part: Part, version: int) -> Path:
    """Write a part as a version of its model: put together beside the repository, then renamed into it."""
    model: Path = repository / part.config.name
    text = configs.to_text(part.config)
    staging = _staging(repository, model)
    try:
        folder = staging / str(version)
        folder.mkdir()
        for name, content in part.files.items():
            _put(folder / name, content)
        beside = part.beside | {_CONFIG: text.encode()}
        for name, content in beside.items():
            _put(staging / name, content)
        staging.chmod(0o755)
        if not model.exists():
            put_folder(staging, model)
            return model / str(version)
        # the new version first: a server takes it with the old configuration, which for an equal spec is the same
        put_folder(folder, model / str(version))
        for name, data in beside.items():
            _update(model, name, data)
        return model / str(version)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _staging(repository: Path, model: Path) -> Path:
    """A folder to put a model together in: beside the repository, where no server looks.

    Where that is another file system, or may not be written, a hidden folder in that of the model.
    """
    above = repository.resolve().parent
    if above.stat().st_dev == repository.stat().st_dev and os.access(above, os.W_OK):
        return Path(tempfile.mkdtemp(dir=above, prefix=f".{repository.resolve().name}."))
    model.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=model, prefix="."))


@contextlib.contextmanager
def _alone_in(repository: Path) -> Iterator[None]:
    """One export at a time: they count versions."""
    try:
        import fcntl
    except ImportError:  # Windows, where Triton does not run
        yield
        return
    folder = os.open(repository, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _update(model: Path, name: str, content: bytes) -> None:
    """Replace a file beside the versions, unless it is the same: a server would load the model again."""
    with contextlib.suppress(FileNotFoundError), open_regular(model / name) as file:
        if file.read(len(content) + 1) == content:
            return
    write_whole(model / name, lambda file: file.write(content), TrtpostError, below=model)


def _number(folder: Path) -> int:
    """The version of a folder's name, as Triton counts; 0 of another name."""
    return int(folder.name) if re.fullmatch(r"[0-9]{1,19}", folder.name) else 0


def _mask_type(bundle: Bundle) -> str:
    return "int32" if bundle.passport.post.wide else "uint8"
