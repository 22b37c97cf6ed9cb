"""The artefact: an engine bundle, a folder that holds the baked graph, the plan, and their passport.

- `model.onnx`: the baked graph, runnable anywhere; its metadata repeat the passport, so the file is enough by itself;
- `engine.plan`: a plain TensorRT plan (absent where no TensorRT built one);
- `passport.json`: everything that is known of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple

from trtpost.bundle.passport import OUR_ENTRIES, Passport, Verification, passport_from_json
from trtpost.errors import BundleError, ModelError, reason
from trtpost.graph.baked import INT32, UINT8, Baked, Value
from trtpost.graph.wire import WireError
from trtpost.storage.files import entries_under, existing_file, in_a_circle, open_regular, refuse_address
from trtpost.storage.folders import read_steadily

if TYPE_CHECKING:
    import onnx


SUFFIX = ".trtpost"
MODEL, PLAN, PASSPORT = "model.onnx", "engine.plan", "passport.json"

SOURCES = (".tflite", ".keras", ".h5", ".hdf5", ".pb", ".pbtxt", ".pt", ".pth")
"""Endings of models that people give where a bundle is wanted."""

MAX_BYTES = {MODEL: 2 << 30, PLAN: 16 << 30, PASSPORT: 16 << 20}
"""Larger files are refused before they are read: protobuf holds 2 GiB, and a passport of 64 K classes 2 MB."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that has been read.

    Attributes:
        path: the folder, or a baked `.onnx` file that stands alone; as it was given, for people.
        passport: everything that is known of it.
        place: `path` as it was when the bundle was read, whatever the working directory is later.
    """

    path: Path
    passport: Passport
    place: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.path.absolute())

    @property
    def model(self) -> Path:
        """The baked graph."""
        return self.place / MODEL if self.place.is_dir() else self.place

    @property
    def plan(self) -> Path | None:
        """The TensorRT plan, if there is one."""
        return self.place / PLAN if self.passport.plan is not None and self.place.is_dir() else None


Plans = Literal["kept", "checked", "left"]


class Contents(NamedTuple):
    """What was read of a bundle, all from one build: the baked graph, and the plan if there is one."""

    bundle: Bundle
    baked: Baked
    plan: bytes | None
    files: dict[str, bytes]
    """Content of each file that belongs to the bundle, by its name; of a baked model that stands alone, of that."""

    @property
    def model(self) -> onnx.ModelProto:
        """The baked graph, parsed anew, by `onnx`: for what builds or explains it."""
        import onnx

        return onnx.load_model_from_string(self.baked.content)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle and check that its files are the ones that were built.

    Args:
        path: the bundle's folder, or a baked `.onnx` file.

    Raises:
        BundleError: missing, incomplete, changed, or of another version.
    """
    return read_bundle(path, plan="checked").bundle


def read_again(bundle: Bundle, *, plan: Plans = "kept") -> Contents:
    """The files of a bundle, as they were when it was loaded, and no others; `plan` as for `read_bundle`.

    Raises:
        BundleError: missing, changed, or built again since.
    """
    contents = read_bundle(bundle.place, plan=plan)
    if contents.bundle.passport.files != bundle.passport.files:
        raise BundleError(f"{bundle.path} was built again after it was loaded: load it again")
    return contents


def read_bundle(path: str | os.PathLike[str], *, plan: Plans = "kept") -> Contents:
    """Read a bundle as `load_bundle` does, each file once; while it is built again, the old one or the new one.

    Args:
        path: the bundle's folder, or a baked `.onnx` file.
        plan: what becomes of the plan, which may have gigabytes: `kept` in memory, `checked` alone, or `left` unread.

    Raises:
        BundleError: missing, incomplete, changed, or of another version.
    """
    if not isinstance(path, str | os.PathLike):
        raise BundleError(f"an engine bundle is given by its path, not as a {type(path).__name__}")
    folder = Path(os.fsdecode(path))
    return read_steadily(folder, lambda: _read(folder, plan=plan))


def _read(path: Path, *, plan: Plans) -> Contents:
    try:
        if in_a_circle(path):
            raise BundleError(f"engine bundle {path} is a link in a circle")
        if not path.exists():
            refuse_address(path, "engine bundle", BundleError)
            raise BundleError(f"no such engine bundle: {path}; build one with `trtpost build MODEL`")
    except (OSError, ValueError) as error:
        raise BundleError(f"engine bundle {path} cannot be read: {reason(error)}") from None
    if not path.is_dir():
        existing_file(path, "engine bundle", BundleError)
        content = _content(path, MODEL)
        graph, passport = _baked(path, content)
        return Contents(Bundle(path, passport), graph, None, {MODEL: content})
    card = path / PASSPORT
    if not card.is_file():
        if (path / "saved_model.pb").is_file():
            raise BundleError(_not_built(path))
        raise BundleError(f"{path} is not an engine bundle: it has no {PASSPORT}; build one with `trtpost build MODEL`")
    text = _content(card, PASSPORT)
    passport = passport_from_json(text, str(card))
    if set(passport.files) != {MODEL, *([PLAN] if passport.plan is not None else [])}:
        raise BundleError(f"{card} is damaged (its list of files is wrong): build the bundle again")
    contents = {}
    for name, expected in passport.files.items():
        file = path / name
        if not file.is_file():
            raise BundleError(f"{path} is incomplete: {name} is missing; build the bundle again")
        if name == PLAN and plan == "left":
            continue
        if name == PLAN and plan == "checked":
            found = _hash_of(file)
        else:
            contents[name] = _content(file, name)
            found = hashlib.sha256(contents[name]).hexdigest()
        if found != expected:
            raise BundleError(f"{file} is not the file that was built (its hash differs): build the bundle again")
    graph, embedded = _baked(path / MODEL, contents[MODEL])
    if _comparable(embedded) != _comparable(passport):
        raise BundleError(f"{card} is not the passport that was built (the one in {MODEL} differs): build it again")
    return Contents(Bundle(path, passport), graph, contents.get(PLAN), contents | {PASSPORT: text})


def _not_built(model: Path) -> str:
    bundle = (model.name if model.is_dir() else model.stem) + SUFFIX
    command = f"trtpost build {shlex.quote(str(model))}"
    return f"{model} is a model, not an engine bundle: run `{command}` first, and give {bundle}"


def _content(file: Path, kind: str) -> bytes:
    """Read a file of a bundle whole; `kind` is `MODEL`, `PLAN` or `PASSPORT`."""
    try:
        with open_regular(file) as stream:
            if (size := os.fstat(stream.fileno()).st_size) > MAX_BYTES[kind]:
                raise BundleError(
                    f"{file} has {size} bytes, and a {kind} no more than {MAX_BYTES[kind]}: build the bundle again"
                )
            return stream.read()
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {reason(error)}; build the bundle again") from None


def _hash_of(file: Path) -> str:
    """SHA-256 of a file of a bundle, which is never in memory as a whole."""
    try:
        return sha256(file)
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {reason(error)}; build the bundle again") from None


def _comparable(passport: Passport) -> Passport:
    """The part of a passport that the one inside the model knows too: no plan, no hash of the model, no score."""
    return replace(passport, plan=None, files={}, verification=None)


def _baked(path: Path, content: bytes) -> tuple[Baked, Passport]:
    """A baked graph and the passport inside, which must fit it: it decides what is fed, and how much memory is made."""
    try:
        graph = Baked(content)
    except WireError:
        if path.suffix.lower() in SOURCES:
            raise BundleError(_not_built(path)) from None
        raise BundleError(f"{path} is neither an engine bundle (a folder) nor a baked ONNX model") from None
    try:
        if graph.passport is None:
            raise BundleError(_not_built(path))
        passport = passport_from_json(graph.passport, f"the passport in {path}")
        graph.check_calls(str(path))
        fits = _fits(graph, passport)
    except (WireError, ModelError) as error:
        raise BundleError(f"{error}" if isinstance(error, ModelError) else _damaged(path, error)) from None
    if not fits:
        raise BundleError(f"the passport in {path} does not fit the graph: build the bundle again")
    return graph, passport


def _damaged(path: Path, error: WireError) -> str:
    return f"{path} is damaged ({error}): build the bundle again"


def _fits(graph: Baked, passport: Passport) -> bool:
    """Do the graph's inputs and outputs have the names, types and shapes that the passport says?"""
    pre, post = passport.pre, passport.post
    sizes = post.size_inputs if post.size == "runtime" else ()
    inputs, outputs = graph.inputs, graph.outputs
    side = (0, 0) if post.size == "image" else (pre.height, pre.width)
    return (
        inputs.keys() == {"image", *sizes}
        and outputs.keys() == {"mask"}
        and inputs["image"] == Value(UINT8, (passport.located.batch, *side, pre.depth))
        and outputs["mask"].kind == (INT32 if post.wide else UINT8)
    )


def newest_bundle(folder: Path) -> Path:
    """The bundle in `folder` that was built last.

    Raises:
        BundleError: there is none.
    """
    ages = {}
    for card in folder.glob(f"*{SUFFIX}/{PASSPORT}"):
        with contextlib.suppress(OSError):  # it was removed just now
            ages[card.parent] = card.stat().st_mtime_ns
    if not ages:
        raise BundleError(
            f"no engine bundle (*{SUFFIX}) in {folder.resolve()}: build one with `trtpost build MODEL`, "
            "or name one with --engine"
        )
    return max(ages, key=ages.__getitem__)


def check_replaceable(path: Path) -> None:
    """A bundle may replace an older one, and nothing else; and there must be somewhere to write it.

    Raises:
        BundleError: something else has that name, other files lie in it, or its place is read-only.
    """
    read_steadily(path, lambda: _check_replaceable(path, path))
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise BundleError(f"{path} is a link in a circle: choose another name with --output")
    above = next(parent for parent in real.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        why = "may not be written to" if above.is_dir() else "is a file, not a folder"
        raise BundleError(f"cannot write the engine bundle {path}: {above} {why}; choose another place with --output")


def _check_replaceable(folder: Path, path: Path) -> None:
    """May what is in this folder be replaced? `path` is what the folder is called, or was."""
    try:
        if not folder.exists():
            return
        strangers = sorted(entry.name for entry in os.scandir(folder) if not _is_ours(entry))
        if strangers:
            obstacle = f"holds {strangers[0]}, which is no part of an engine bundle"
        elif is_bundle(folder) or (path.suffix == SUFFIX and not _is_foreign(folder / PASSPORT)):
            return
        else:
            obstacle = "exists and is not an engine bundle"
    except (NotADirectoryError, FileNotFoundError):
        obstacle = "exists and is not an engine bundle"
    except (OSError, ValueError) as error:
        raise BundleError(f"cannot write the engine bundle {path}: {reason(error)}") from None
    raise BundleError(f"{path} {obstacle}: choose another name with --output")


def is_bundle(folder: Path) -> bool:
    """Does a folder hold a passport of ours, be it damaged?"""
    try:
        with open_regular(folder / PASSPORT) as card:
            return _is_card(card)
    except (OSError, ValueError):
        return False


def _is_card(file: BinaryIO) -> bool:
    content = file.read(MAX_BYTES[PASSPORT] + 1)
    return len(content) <= MAX_BYTES[PASSPORT] and any(f'"{entry}"'.encode() in content for entry in OUR_ENTRIES)


def _is_foreign(card: Path) -> bool:
    """Is this a whole file of JSON, and no passport of ours? What is damaged may have been one."""
    if not card.is_file():
        return False
    if card.stat().st_size > MAX_BYTES[PASSPORT]:
        return True
    try:
        with open_regular(card) as file:
            content = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return False
    return (
        isinstance(content, dict)
        and bool(content)
        and not any(entry in content for entry in ("format", "request", *OUR_ENTRIES))
    )


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Is this called like a file of bundles, or like what a killed process leaves of a new passport?"""
    named = entry.name in (MODEL, PLAN, PASSPORT) or entry.name.startswith(f".{PASSPORT}.")
    return named and not entry.is_dir(follow_symlinks=False)


def write_bundle(path: Path, model: onnx.ModelProto, plan: bytes | None, passport: Passport) -> Bundle:
    """Write a bundle so that it is there whole or not at all; an older one of that name is replaced.

    Raises:
        BundleError: the folder cannot be written, or something that is not a bundle is in the way.
    """
    from trtpost.storage.whole_folder import write_folder  # who only reads bundles does without

    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    check_replaceable(target)
    contents = {MODEL: _serialized(model)} | ({PLAN: plan} if plan is not None else {})
    files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    passport = replace(passport, files=files)
    contents |= {PASSPORT: passport.to_json().encode()}
    try:
        write_folder(target, contents, lambda folder: _check_replaceable(folder, target))
    except OSError as error:
        raise BundleError(f"cannot write the engine bundle {path}: {reason(error)}") from None
    return Bundle(target, passport)


def _serialized(model: onnx.ModelProto) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf raises its own types
        raise BundleError(f"the baked graph does not go into one file, which holds 2 GiB: {reason(error)}") from None


def record_verification(bundle: Bundle, verification: Verification) -> Bundle:
    """Write the score into the bundle's `passport.json`; the baked graph keeps the passport that it was built with.

    Raises:
        BundleError: a bare `.onnx`, another build in its place by now, or the file cannot be written.
    """
    from trtpost.storage.whole_file import write_whole

    if not bundle.place.is_dir():
        raise BundleError(f"{bundle.path} is a bare model without {PASSPORT}, so the score is not kept")
    current = load_bundle(bundle.place)
    if current.passport.files != bundle.passport.files:
        raise BundleError(f"{bundle.path} was built again meanwhile, so the score is not kept: verify it again")
    passport = replace(current.passport, verification=verification)
    card = bundle.place / PASSPORT
    built = card.stat().st_mtime_ns
    data = passport.to_json().encode()
    write_whole(card, lambda file: file.write(data), BundleError, below=bundle.place, replaces=_is_card)
    os.utime(card, ns=(built, built))  # the newest bundle is the one that was built last
    return replace(bundle, passport=passport)


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, or of all files below a folder with their names."""
    digest = hashlib.sha256()
    files = sorted(file for file in entries_under(path) if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            digest.update(os.fsencode(file.relative_to(path)) + b"\0")
        with open_regular(file) as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
