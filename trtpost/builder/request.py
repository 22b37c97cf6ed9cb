"""What decides a bundle, and its hash: where that has not changed, there is nothing to build, and no need of `onnx`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trtpost import __version__
from trtpost.backends.tensorrt import configuration, suitable
from trtpost.builder.labels import MAX_BYTES, labels_beside
from trtpost.builder.options import BuildOptions
from trtpost.bundle.folder import Bundle, load_bundle, sha256
from trtpost.convert.formats import saved_model_folder
from trtpost.errors import BundleError, ModelError, SpecError
from trtpost.graph.wire import LARGEST
from trtpost.packages import installed_version
from trtpost.storage.files import open_regular


@dataclass(frozen=True)
class Request:
    """What is asked of a build.

    Attributes:
        source, kind: the model, and its format.
        options: what to build, for the GPU of this machine.
        flavour: TensorRT that builds the plan; `none`, or None where none can.
        photos: what a lower precision is calibrated on and measured with.
        source_sha256: of the model's content.
        sha256: of everything that decides the bundle.
    """

    source: Path
    kind: str
    options: BuildOptions
    flavour: str | None
    photos: tuple[Path, ...]
    source_sha256: str
    sha256: str


def request_for(source: Path, kind: str, options: BuildOptions) -> Request:
    """Settle what decides a bundle, and refuse what cannot be built of such a model or on this machine.

    Raises:
        TrtpostError: the options do not fit; a file cannot be read.
    """
    flavour, _ = suitable.builder_here() if options.flavour == "auto" else (options.flavour, "")
    if flavour is not None:
        configuration.check_settings(flavour, options)
    photos: tuple[Path, ...] = ()
    if options.calibration is not None:
        from trtpost.photos.find import photos_in

        photos = photos_in(options.calibration)
    content = content_of(source, kind)
    if kind == "onnx" and options.signature is not None:
        raise SpecError("--signature is for SavedModels; an ONNX model has none")
    # with those the plan runs on the GPU of this machine, where there is one that it can be made for
    capabilities = suitable.capabilities_here(flavour, options.compute_capabilities)
    options = replace(options, compute_capabilities=capabilities)
    names = labels_hash(None if options.labels else labels_beside(source))
    sha = request_hash(content, options, flavour, photos, names)
    return Request(source, kind, options, flavour, photos, content, sha)


def content_of(source: Path, kind: str) -> str:
    """SHA-256 of all that the model consists of: external data of ONNX files too.

    Raises:
        ModelError: the file is longer than one of its format can be.
    """
    if kind == "saved_model":
        return sha256(saved_model_folder(source))
    if kind != "keras" and (size := source.stat().st_size) > LARGEST:  # before a sparse file is read for an hour
        raise ModelError(f"{source} has {size / 1e9:.1f} GB, and a file of its format can have {LARGEST / 1e9:.1f} GB")
    hashes = [sha256(source)]
    if kind == "onnx" and _may_have_more(source):
        from trtpost.graph.reading.model import external_files

        hashes += [sha256(file) for file in external_files(source)]
    return hashes[0] if len(hashes) == 1 else _joined(hashes)


def _may_have_more(model: Path) -> bool:
    """False where an ONNX file holds all of its weights: each that lies elsewhere has an entry of this name."""
    with open_regular(model) as file:
        return b"location" in file.read()


def photos_hash(photos: tuple[Path, ...]) -> str:
    """SHA-256 of the names and contents of photos."""
    return _joined(f"{path.name}\n{sha256(path)}\n" for path in photos)


def labels_hash(path: Path | None) -> str:
    """SHA-256 of a label file, or of what is read of one that is too long; empty where none can be read."""
    try:
        if path is not None:
            with open_regular(path) as file:
                return hashlib.sha256(file.read(MAX_BYTES + 1)).hexdigest()
    except OSError:  # who reads the names says so
        pass
    return ""


def request_hash(
    source_hash: str, options: BuildOptions, flavour: str | None, photos: tuple[Path, ...], names_hash: str
) -> str:
    """SHA-256 of everything that decides the bundle."""
    toolchain = {"trtpost": __version__, "onnx": installed_version("onnx")}
    if flavour in suitable.FLAVOURS:
        toolchain["tensorrt"] = f"{flavour} {installed_version(flavour)}"
    decisive = asdict(options)
    del decisive["timing_cache"]  # it saves time and decides nothing
    decisive["calibration"] = photos_hash(photos)
    request = {"source": source_hash, "labels": names_hash, "options": decisive, "toolchain": toolchain}
    return _joined([json.dumps(request, sort_keys=True)])


def up_to_date(path: Path, request: Request) -> Bundle | None:
    """The bundle that is there, if it is what the request would build; None where something has to be built."""
    if not path.exists():
        return None
    try:
        bundle = load_bundle(path)
    except BundleError:
        return None  # damaged, of another version, or something else: writing the new one will tell
    if request.flavour in suitable.FLAVOURS and bundle.passport.plan is None:
        return None  # it failed the last time; whoever asks again wants it tried again, or at least to be told why
    return bundle if bundle.passport.request == request.sha256 else None


def _joined(texts: Iterable[str]) -> str:
    return hashlib.sha256("".join(texts).encode("utf-8", "replace")).hexdigest()
