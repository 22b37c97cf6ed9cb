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
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import onnx

from trtpost.errors import BundleError, SpecError, reason
from trtpost.files import existing_file, write_whole
from trtpost.graph.locate import Located
from trtpost.graph.model import metadata, set_metadata
from trtpost.graph.reduce import Precision
from trtpost.spec import Post, Pre

Place = Literal["native", "kernel", "plugin"]
Compatibility = Literal["none", "ampere+", "same"]

FORMAT = 2
"""Version of the passport; a reader refuses what it does not know."""

SUFFIX = ".trtpost"
MODEL, PLAN, PASSPORT = "model.onnx", "engine.plan", "passport.json"


@dataclass(frozen=True)
class Plan:
    """How `engine.plan` was built.

    Attributes:
        flavour: `tensorrt` or `tensorrt_rtx`.
        version: of that TensorRT.
        target: compute capabilities that the plan is for.
        layers: number of layers of each type in the network that was built.
        precisions: number of compute layers (convolutions, matrix products) that compute in each precision.
        post: where the mask is made: `native` layers or our `plugin` in the plan, or our `kernel` after a plan that
            ends in logits.
        hardware_compatibility: GPUs beside those of `target` that may run the plan of the full TensorRT: `none` but
            the model that built it, `ampere+`, or all of the `same` compute capability.
    """

    flavour: str
    version: str
    target: tuple[str, ...]
    layers: dict[str, int]
    precisions: dict[str, int]
    post: Place = "native"
    hardware_compatibility: Compatibility = "none"

    def __post_init__(self) -> None:
        if self.flavour not in ("tensorrt", "tensorrt_rtx"):
            raise SpecError(f"there is no flavour '{self.flavour}' of TensorRT")


@dataclass(frozen=True)
class Verification:
    """How well a bundle's masks agreed with those of the pipeline that it replaces, at the photos' resolution.

    Attributes:
        against, against_sha256: name and content hash of the model that was run in its own framework.
        engine: what ran the bundle.
        photos, pixels: how many were compared.
        agreement: share of pixels with the same class.
        ties: pixels where the reference's two best classes are a tie; None where that cannot be told.
        real: pixels that differ where there is no tie.
        mean_iou: of the masks, the reference's as the truth.
    """

    against: str
    against_sha256: str
    engine: str
    photos: int
    pixels: int
    agreement: float
    ties: int | None
    real: int
    mean_iou: float


@dataclass(frozen=True)
class Passport:
    """Everything that is known of a bundle.

    Attributes:
        version: of trtpost.
        request: SHA-256 of all that went into the build; an equal request needs no rebuild.
        source, source_sha256: name and content hash of the source model.
        pre, post: every decision about a pixel.
        located: where the logits were found.
        normalization: where the normalisation comes from: `model`, `flag`, `inside the network` or `assumed`.
        classes: name of each class; at least one.
        max_batch: images that one call may hold.
        max_size: (H, W): largest mask, or photo with size `image`, that the plan's profile allows.
        precision: that was asked for; `fp32` leaves the source model's own types.
        agreement: share of pixels with the same class as before the precision was lowered, at the resolution of the
            logits; None where not measured.
        mean_iou: of the masks, those from before as the truth; None where not measured.
        photos: number of photos that these were measured with.
        plan: of `engine.plan`; None where there is none.
        files: SHA-256 of each file of the bundle.
        verification: the last one; None where there was none since the build.
        format: version of this passport.
    """

    version: str
    request: str
    source: str
    source_sha256: str
    pre: Pre
    post: Post
    located: Located
    normalization: str
    classes: tuple[str, ...]
    max_batch: int
    max_size: tuple[int, int]
    precision: Precision = "fp32"
    agreement: float | None = None
    mean_iou: float | None = None
    photos: int = 0
    plan: Plan | None = None
    files: dict[str, str] = field(default_factory=dict)
    verification: Verification | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.classes or min(*self.max_size, self.max_batch) < 1:
            raise SpecError("a passport needs classes, and sizes of at least 1")

    def to_json(self) -> str:
        """As text; `passport_from_json` reads it back."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    def to_name(self, limit: int) -> str:
        """As the name of a TensorRT network, so that a bare plan says what it is: JSON, its one key `trtpost`.

        Args:
            limit: bytes that the name may have. Where the whole passport is longer, version, source and spec stay, and
                the classes become their number and SHA-256.
        """
        names = json.dumps(self.classes).encode()
        kept = ("format", "version", "source", "source_sha256", "precision", "max_batch", "max_size", "pre", "post")
        everything = {key: value for key, value in asdict(self).items() if key not in ("plan", "files", "verification")}
        short = {key: everything[key] for key in kept}
        short |= {"class_count": len(self.classes), "classes_sha256": hashlib.sha256(names).hexdigest()}
        for content in (everything, short):
            name = json.dumps({"trtpost": content}, separators=(",", ":"))
            if len(name) <= limit:
                return name
        return json.dumps({"trtpost": {"format": self.format, "version": self.version, "request": self.request}})


@dataclass(frozen=True)
class Bundle:
    """A bundle that has been read: `path` is the folder, or a baked `.onnx` file that stands alone."""

    path: Path
    passport: Passport

    @property
    def model(self) -> Path:
        """The baked graph."""
        return self.path / MODEL if self.path.is_dir() else self.path

    @property
    def plan(self) -> Path | None:
        """The TensorRT plan, if there is one."""
        return self.path / PLAN if self.passport.plan is not None and self.path.is_dir() else None


def passport_from_json(text: str | bytes, name: str) -> Passport:
    """Read a passport.

    Raises:
        BundleError: damaged, or of another format version; `name` says which.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        version = json.loads(text)["format"]
        if version != FORMAT:
            raise BundleError(
                f"{name} has format {version!r}, this trtpost reads format {FORMAT}: build it again with this version"
            )
        return TypeAdapter(Passport).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "passport"
        raise BundleError(f"{name} is damaged ({where}: {first['msg']}): build the bundle again") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BundleError(f"{name} is damaged ({reason(error)}): build the bundle again") from None


def embed(model: onnx.ModelProto, passport: Passport) -> None:
    """Write the passport into the model's metadata."""
    set_metadata(model, {"passport": passport.to_json()})


def load_bundle(path: Path) -> Bundle:
    """Read a bundle and check that its files are the ones that were built.

    Args:
        path: the bundle's folder, or a baked `.onnx` file.

    Raises:
        BundleError: missing, incomplete, changed, or of another version.
    """
    try:
        if not path.exists():
            raise BundleError(f"no such engine bundle: {path}; build one with `trtpost build MODEL`")
    except OSError as error:
        raise BundleError(f"engine bundle {path} cannot be read: {reason(error)}") from None
    if not path.is_dir():
        return Bundle(path, _embedded_passport(path))
    card = path / PASSPORT
    if not card.is_file():
        raise BundleError(f"{path} is not an engine bundle: it has no {PASSPORT}; build one with `trtpost build MODEL`")
    try:
        passport = passport_from_json(card.read_bytes(), str(card))
    except OSError as error:
        raise BundleError(f"{card} cannot be read: {reason(error)}; build the bundle again") from None
    if MODEL not in passport.files or (passport.plan is not None) != (PLAN in passport.files):
        raise BundleError(f"{card} is damaged (its list of files is wrong): build the bundle again")
    for name, expected in passport.files.items():
        file = path / name
        if not file.is_file():
            raise BundleError(f"{path} is incomplete: {name} is missing; build the bundle again")
        try:
            found = sha256(file)
        except OSError as error:
            raise BundleError(f"{file} cannot be read: {reason(error)}") from None
        if found != expected:
            raise BundleError(f"{file} is not the file that was built (its hash differs): build the bundle again")
    if _comparable(_embedded_passport(path / MODEL)) != _comparable(passport):
        raise BundleError(f"{card} is not the passport that was built (the one in {MODEL} differs): build it again")
    return Bundle(path, passport)


def _comparable(passport: Passport) -> Passport:
    """Without what the passport inside the model cannot know: the plan, the model's own hash, what came later."""
    return replace(passport, plan=None, files={}, verification=None)


def _embedded_passport(path: Path) -> Passport:
    existing_file(path, "engine bundle", BundleError)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # protobuf raises its own types
        raise BundleError(f"{path} is neither an engine bundle (a folder) nor a baked ONNX model") from None
    text = metadata(model).get("passport")
    if text is None:
        raise BundleError(f"{path} was not baked by trtpost: run `trtpost build {path}` first")
    return passport_from_json(text, f"the passport in {path}")


def newest_bundle(folder: Path) -> Path:
    """The bundle in `folder` that was built last.

    Raises:
        BundleError: there is none.
    """
    bundles = [card.parent for card in folder.glob(f"*{SUFFIX}/{PASSPORT}")]
    if not bundles:
        raise BundleError(
            f"no engine bundle (*{SUFFIX}) in {folder.resolve()}: build one with `trtpost build MODEL`, "
            "or name one with --engine"
        )
    return max(bundles, key=lambda bundle: (bundle / PASSPORT).stat().st_mtime_ns)


def check_replaceable(path: Path) -> None:
    """A bundle may replace an older one, and nothing else.

    Raises:
        BundleError: something else has that name, or other files lie in it.
    """
    obstacle = None
    for _ in range(20):
        obstacle = _obstacle(path)
        if obstacle is None:
            return
        time.sleep(0.001)  # another process may be replacing it at this moment
    raise BundleError(f"{path} {obstacle}: choose another name with --output")


def _obstacle(path: Path) -> str | None:
    """Why `path` cannot be replaced by a bundle."""
    try:
        if not path.exists():
            return None
        strangers = sorted(file.name for file in path.iterdir() if file.name not in (MODEL, PLAN, PASSPORT))
        if strangers:
            return f"holds {strangers[0]}, which is no part of an engine bundle"
        ours = '"request"' in (path / PASSPORT).read_text("utf-8", "replace")
    except (NotADirectoryError, FileNotFoundError):
        ours = False
    except OSError as error:
        raise BundleError(f"cannot write the engine bundle {path}: {reason(error)}") from None
    return None if ours else "exists and is not an engine bundle"


def write_bundle(path: Path, model: onnx.ModelProto, plan: bytes | None, passport: Passport) -> Bundle:
    """Write a bundle so that it is there whole or not at all; an older one of that name is replaced.

    Raises:
        BundleError: the folder cannot be written, or something that is not a bundle is in the way.
    """
    path = path.resolve() if path.is_symlink() else path
    check_replaceable(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        contents = {MODEL: model.SerializeToString()} | ({PLAN: plan} if plan is not None else {})
        for name, content in contents.items():
            (temporary / name).write_bytes(content)
        files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        passport = replace(passport, files=files)
        (temporary / PASSPORT).write_text(passport.to_json(), encoding="utf-8")
        temporary.chmod(0o755)
        _replace_folder(temporary, path)
    except OSError as error:
        raise BundleError(f"cannot write the engine bundle {path}: {reason(error)}") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return Bundle(path, passport)


def record_verification(bundle: Bundle, verification: Verification) -> Bundle:
    """Write the score into the bundle's `passport.json`; the baked graph keeps the passport that it was built with.

    Raises:
        BundleError: a bare `.onnx`, another build in its place by now, or the file cannot be written.
    """
    if not bundle.path.is_dir():
        raise BundleError(f"{bundle.path} is a bare model without {PASSPORT}, so the score is not kept")
    current = load_bundle(bundle.path)
    if current.passport.files != bundle.passport.files:
        raise BundleError(f"{bundle.path} was built again meanwhile, so the score is not kept: verify it again")
    passport = replace(current.passport, verification=verification)
    card = bundle.path / PASSPORT
    built = card.stat().st_mtime_ns
    write_whole(card, lambda file: file.write(passport.to_json().encode()), BundleError)
    os.utime(card, ns=(built, built))  # the newest bundle is the one that was built last
    return Bundle(bundle.path, passport)


def _replace_folder(new: Path, path: Path) -> None:
    """Rename `new` to `path`, moving an older bundle aside; another process may be doing the same."""
    aside: list[Path] = []
    try:
        for attempt in range(100):
            with contextlib.suppress(OSError):
                new.rename(path)  # works where nothing is there
                return
            moved = new.with_name(f"{new.name}.old{attempt}")
            with contextlib.suppress(FileNotFoundError):  # the other process moved it first
                path.rename(moved)
                aside.append(moved)
        new.rename(path)
    except OSError:
        if aside and not path.exists():
            aside.pop().rename(path)
        raise
    finally:
        for old in aside:
            shutil.rmtree(old, ignore_errors=True)


def sha256(path: Path) -> str:
    """Of a file's content, or of all files below a folder with their names."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if path.is_dir():
            digest.update(os.fsencode(file.relative_to(path)) + b"\0")
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
