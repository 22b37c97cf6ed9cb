"""Models of ours in a Triton repository: written whole, as new versions, and only beside what is ours."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from trtpost.bundle.folder import Bundle, read_again
from trtpost.errors import SpecError, TrtpostError, reason
from trtpost.photos.limits import SERVED_PIXELS
from trtpost.spec import Form
from trtpost.storage.files import open_regular, read_limited
from trtpost.storage.staging import hidden_folder, locked
from trtpost.storage.whole_file import write_whole
from trtpost.storage.whole_folder import fill, put_folder
from trtpost.triton.config import OWNER, from_text, to_text
from trtpost.triton.parts import Part, engine_parts, segmenter_part

MAX_BATCH = 65_536

MAX_VERSION = (1 << 63) - 1
"""The largest version that Triton counts."""

MAX_CONFIG = 64 << 20
"""Largest configuration that is read, in bytes: those that are written here have a few thousand."""

_CONFIG = "config.pbtxt"


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
        parts = [segmenter_part(contents, name, instances, max_batch or max(8, bundle.passport.max_batch), max_pixels)]
    else:
        parts = engine_parts(contents, name, form, instances, max_batch, max_pixels)
    for part in parts:
        _check_owner(repository / part.config.name, part.config)
    try:
        repository.mkdir(parents=True, exist_ok=True)
        with locked(repository.resolve(), wait=True):  # one export at a time: they count versions
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
    """Tell people what to do with a repository into which `versions` were written."""
    ours = any((folder / "model.py").is_file() for folder in versions)
    needs = "; the server's Python needs trtpost as well" if ours else ""
    return f"serve it: tritonserver --model-repository {shlex.quote(str(repository.resolve()))}{needs}"


def _check_owner(model: Path, config: Any) -> None:
    """Refuse a folder that holds no model of ours which the same backend runs: nothing else takes a new version.

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
    known = from_text(text, str(card))
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
    """Write a part as a version of its model: put together where no server looks, then renamed into the repository."""
    model: Path = repository / part.config.name
    beside = part.beside | {_CONFIG: to_text(part.config).encode()}
    with hidden_folder(_staged_beside(repository, model)) as folder:
        (folder / str(version)).mkdir()
        fill(folder, beside | {f"{version}/{name}": content for name, content in part.files.items()})
        if not model.exists():
            put_folder(folder, model)
            return model / str(version)
        # the new version first: a server takes it with the old configuration, which for an equal spec is the same
        put_folder(folder / str(version), model / str(version))
    for name, data in beside.items():
        _update(model, name, data)
    return model / str(version)


def _staged_beside(repository: Path, model: Path) -> Path:
    """What a model is put together beside: the repository, so that no server looks.

    Where that is another file system, or may not be written, it is a name in the folder of the model.
    """
    whole = repository.resolve()
    if whole.parent.stat().st_dev == whole.stat().st_dev and os.access(whole.parent, os.W_OK):
        return whole
    model.mkdir(exist_ok=True)
    return model / model.name


def _update(model: Path, name: str, content: bytes) -> None:
    """Replace a file beside the versions, unless it is the same: a server would load the model again."""
    with contextlib.suppress(FileNotFoundError), open_regular(model / name) as file:
        if file.read(len(content) + 1) == content:
            return
    write_whole(model / name, lambda file: file.write(content), TrtpostError, below=model)


def _number(folder: Path) -> int:
    """The version that Triton reads in a folder's name; 0 if it reads none."""
    return int(folder.name) if re.fullmatch(r"[0-9]{1,19}", folder.name) else 0
