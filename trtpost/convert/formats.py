"""Which format a model file has: told by its content, because people name files as they like."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import BinaryIO

from trtpost.errors import ModelError, reason
from trtpost.storage.files import entries_under, existing_file, open_regular

SUFFIXES = (".keras", ".h5", ".hdf5", ".pb", ".pbtxt", ".tflite")
"""Usual names of the files that `convert` takes, besides SavedModel folders."""

_BY_SUFFIX = {
    ".onnx": "onnx",
    ".keras": "keras",
    ".h5": "keras",
    ".hdf5": "keras",
    ".pb": "graph_def",
    ".pbtxt": "graph_def",
}
"""Formats that files of unknown content are taken for: their readers say best what is wrong with them."""

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")

_FROM_TORCH = (
    "is a PyTorch file, which trtpost does not run: export the network in Python, "
    "torch.onnx.export(network.eval(), image, 'model.onnx'), and go on with `trtpost build model.onnx`"
)
_A_PART = (
    "is the saved_model.pb of a SavedModel under another name, and has no weights of its own: "
    "give the SavedModel folder, with the folder 'variables' in it"
)
_CHECKPOINT = "is a TensorFlow checkpoint, which holds weights without the network: export a SavedModel and give that"
_PLAN = "is a TensorRT plan already: give the model that it was built from"

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"


def kind_of(source: Path) -> str:
    """The format of a model: `saved_model`, `keras`, `graph_def`, `tflite` or `onnx`.

    Raises:
        ModelError: missing, or none of these.
    """
    try:
        is_folder = source.is_dir()
    except OSError as error:
        raise ModelError(f"model {source} cannot be read: {reason(error)}") from None
    if is_folder:
        return _kind_of_folder(source)
    existing_file(source, "model", ModelError)
    if source.name in _SAVED_MODEL:
        return "saved_model"
    suffix = source.suffix.lower()
    try:
        kind = _by_content(source)
    except OSError as error:
        raise ModelError(f"model {source} cannot be read: {reason(error)}") from None
    if kind is None and suffix == ".tflite":
        raise ModelError(f"{source} is not a TFLite model: it lacks the identifier TFL3")
    if kind is None and (suffix in (".index", ".meta") or ".data-" in suffix):
        raise ModelError(f"{source} {_CHECKPOINT}")
    kind = kind or _BY_SUFFIX.get(suffix)
    if kind is None:
        raise ModelError(
            f"{source}: unknown model format '{suffix}'; trtpost takes .onnx, SavedModel folders, {', '.join(SUFFIXES)}"
        )
    return kind


def _kind_of_folder(folder: Path) -> str:
    if is_saved_model(folder):
        _check_files(folder)
        return "saved_model"
    inside = sorted(path for path in folder.iterdir() if is_saved_model(path))
    hint = f"; did you mean {' or '.join(map(str, inside))}?" if inside else ""
    raise ModelError(f"{folder} is a folder without saved_model.pb: not a SavedModel{hint}")


def _check_files(folder: Path) -> None:
    """Refuse a pipe or the like in a SavedModel: TensorFlow opens what is there, and would wait for ever."""
    try:
        for file in entries_under(folder):
            if file.exists() and not (file.is_file() or file.is_dir()):
                raise ModelError(f"{file} is not a regular file, so {folder} cannot be a SavedModel")
    except OSError as error:
        raise ModelError(f"model {folder} cannot be read: {reason(error)}") from None


def is_saved_model(folder: Path) -> bool:
    """True for a SavedModel's folder."""
    return any((folder / name).is_file() for name in _SAVED_MODEL)


def saved_model_folder(source: Path) -> Path:
    """The folder of a SavedModel, of which `source` may be the file inside; any other path as it is."""
    return source.parent if source.name in _SAVED_MODEL else source


def _by_content(source: Path) -> str | None:
    """The format that the first bytes and the outermost structure tell, or None.

    Raises:
        ModelError: they tell something that is known and cannot be taken.
    """
    with open_regular(source) as file:
        start = file.read(4096)
        if start[4:8] == b"TFL3":
            return "tflite"
        if start.startswith(HDF5):
            return "keras"
        if start.startswith(ZIP):
            return _kind_of_archive(source)
        for magic, what in ((b"\x80\x02", _FROM_TORCH), (b"ftrt", _PLAN), (b"ptrt", _PLAN)):
            if start.startswith(magic):
                raise ModelError(f"{source} {what}")
        if text := re.match(rb"(?:\s|#[^\n]*\n)*([a-z_]+)\s*[{:]", start):
            return _kind_of_text(source, text.group(1))
        file.seek(0)
        return _kind_of_protobuf(source, _fields(file))


def _kind_of_archive(source: Path) -> str | None:
    try:
        with open_regular(source) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return "keras" if source.suffix.lower() == ".keras" else None
    if any(name.endswith("/data.pkl") for name in names):
        raise ModelError(f"{source} {_FROM_TORCH}")
    if any(name.endswith("saved_model.pb") for name in names):
        raise ModelError(f"{source} is an archive of a SavedModel: unpack it and give the folder")
    return "keras" if "config.json" in names or source.suffix.lower() == ".keras" else None


def _kind_of_text(source: Path, first: bytes) -> str | None:
    """The format of a file in protobuf's text form, told by the name of its first field."""
    if first == b"saved_model_schema_version":
        raise ModelError(f"{source} {_A_PART}")
    if first == b"ir_version":
        raise ModelError(f"{source} is an ONNX model as text: load it with onnx.load, and write it with onnx.save")
    return "graph_def" if first in (b"node", b"library", b"versions") else None


def _kind_of_protobuf(source: Path, fields: set[tuple[int, int]]) -> str | None:
    """The format of a protobuf file, told by its outermost fields: see onnx.proto, graph.proto and saved_model.proto.

    Raises:
        ModelError: a SavedModel, which is more than this file.
    """
    if (7, 2) in fields and (1, 2) not in fields:  # graph; ir_version is a number
        return "onnx"
    if fields == {(1, 0), (2, 2)}:  # saved_model_schema_version, meta_graphs
        raise ModelError(f"{source} {_A_PART}")
    if (1, 2) in fields and fields <= {(1, 2), (2, 2), (3, 0), (4, 2), (5, 2)}:  # node, library, version(s), debug_info
        return "graph_def"
    return None


def _fields(file: BinaryIO) -> set[tuple[int, int]]:
    """Number and wire type of the outermost fields of a protobuf message; none where it is not one.

    `trtpost.graph.wire` has its messages in memory; files of any size are stepped over here.
    """
    found = set()
    end = file.seek(0, 2)
    file.seek(0)
    while file.tell() < end:
        tag = _varint(file)
        wire = tag & 7
        length = {0: 0, 1: 8, 5: 4}.get(wire, -1)
        if wire == 2:
            length = _varint(file)
        elif wire == 0 and _varint(file) < 0:
            return set()
        if tag < 8 or length < 0 or file.seek(length, 1) > end:
            return set()
        found.add((tag >> 3, wire))
    return found


def _varint(file: BinaryIO) -> int:
    """The next variable-length integer; -1 where there is none."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return -1
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return -1
