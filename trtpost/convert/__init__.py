"""TensorFlow in any of its file formats to ONNX.

TensorFlow works in a process of its own (`trtpost.convert.worker`): it is slow to import, talks a lot, and a damaged
file can crash it; none of that reaches the caller.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import onnx

from trtpost.convert.tflite import Metadata, is_tflite, read_metadata
from trtpost.errors import MissingPackageError, ModelError, printable, reason
from trtpost.files import existing_file
from trtpost.graph.model import set_metadata

SUFFIXES = (".keras", ".h5", ".hdf5", ".pb", ".tflite")
"""Files that `convert` takes, besides SavedModel folders."""

OPSET = 17
"""Of the models that we write."""


def convert(
    source: Path, *, signature: str | None = None, input_size: tuple[int, int] | None = None
) -> onnx.ModelProto:
    """Convert a TensorFlow model.

    Args:
        source: SavedModel folder (or the `saved_model.pb` inside), `.keras`, `.h5`, frozen `.pb`, `.tflite`.
        signature: of a SavedModel that has several; default `serving_default`, or the only one.
        input_size: (height, width) of a Keras model whose own is dynamic: some layers need to know it.

    Returns:
        The ONNX model; normalisation and class names that the file itself holds are in its metadata.

    Raises:
        ModelError: the file is missing, damaged, of an unknown format, or holds an operator that has no ONNX form.
        MissingPackageError: TensorFlow or tf2onnx is not installed.
    """
    kind = kind_of(source)
    missing = [name for name in ("tensorflow", "tf2onnx") if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"converting {source} needs {' and '.join(missing)}: pip install 'trtpost[tf]', "
            "or convert it elsewhere and give the ONNX file"
        )
    facts = read_metadata(source) if kind == "tflite" else Metadata()
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        result = Path(folder) / "converted.onnx"
        request = {
            "kind": kind,
            "source": str(source.resolve()),
            "result": str(result),
            "opset": OPSET,
            "signature": signature,
            "input_size": input_size,
        }
        finished = subprocess.run(
            [sys.executable, "-m", "trtpost.convert.worker"],
            cwd=folder,  # so that no tensorflow.py of the user's is imported by mistake
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=False,
        )
        answer = _answer(finished.stdout)
        if "error" in answer:
            raise ModelError(f"{source}: {answer['error']}")
        if finished.returncode or not result.is_file():
            tail = finished.stderr.strip().splitlines()[-1:] or [f"exit status {finished.returncode}"]
            raise ModelError(f"{source}: TensorFlow stopped while reading it ({tail[0]}); is the file damaged?")
        model = onnx.load(result)
    unsupported = sorted({(op, name) for op, name in _without_schema(model)})
    if unsupported:
        listing = ", ".join(f"{op.removeprefix('TFL_')} (node '{name}')" for op, name in unsupported)
        raise ModelError(
            f"{source}: no ONNX form is known for {listing}: replace the operator in the model, "
            "or export the part of the network before it"
        )
    set_metadata(model, facts.to_properties() | {"source": printable(source.name)})
    return model


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
        if (source / "saved_model.pb").is_file():
            return "saved_model"
        raise ModelError(f"{source} is a folder without saved_model.pb: not a SavedModel")
    existing_file(source, "model", ModelError)
    suffix = source.suffix.lower()
    if source.name == "saved_model.pb":
        return "saved_model"
    if suffix == ".onnx":
        return "onnx"
    if suffix in (".keras", ".h5", ".hdf5"):
        return "keras"
    if is_tflite(source):
        return "tflite"
    if suffix == ".tflite":
        raise ModelError(f"{source} is not a TFLite model: it lacks the identifier TFL3")
    if suffix == ".pb":
        return "graph_def"
    raise ModelError(
        f"{source}: unknown model format '{suffix}'; trtpost takes .onnx, SavedModel folders, {', '.join(SUFFIXES)}"
    )


def _answer(output: str) -> dict[str, str]:
    """The worker's last line, if it is an answer of ours."""
    try:
        answer = json.loads(output.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _without_schema(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Operators that no ONNX operator set defines: what tf2onnx leaves in the graph when it gives up on it."""
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        for node in graph.node:
            if node.domain in ("", "ai.onnx", "ai.onnx.ml") and not onnx.defs.has(node.op_type, node.domain):
                yield node.op_type, node.name
            pending.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
