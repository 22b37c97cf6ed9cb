"""Everything that can be known of a bundle or a model without running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from trtpost.bundle.folder import MODEL, Bundle, read_bundle
from trtpost.convert import convert, kind_of
from trtpost.convert.formats import is_saved_model
from trtpost.errors import ModelError
from trtpost.graph.head.locate import locate
from trtpost.graph.reading.model import load_model, metadata, normalized, understood
from trtpost.progress import Progress
from trtpost.spec import Located


@dataclass(frozen=True)
class Inspected:
    """A bundle, or a model that is not built yet.

    Attributes:
        path: of the file that holds the graph; of a SavedModel the folder.
        model: the graph; of a bundle as it was written.
        bundle: None where it is none.
        located: where `build` would take the logits; None of a bundle, whose passport says it, and where there are
            none.
        problem: why there are none, as a sentence.
    """

    path: Path
    model: onnx.ModelProto
    bundle: Bundle | None = None
    located: Located | None = None
    problem: str | None = None


def inspect_path(path: Path, progress: Progress) -> Inspected:
    """Look at a bundle, a baked `.onnx`, or a model in any format that `build` takes.

    Raises:
        TrtpostError: it cannot be read.
    """
    if path.is_dir() and not is_saved_model(path):
        return _bundle(path)
    if kind_of(path) == "onnx":
        model = load_model(path)
        if "passport" in metadata(model):
            return _bundle(path)
    else:
        with progress.step("convert") as step:
            model = normalized(convert(path), str(path))
            step.result = f"{path.name} to ONNX"
    try:
        with understood(path):
            return Inspected(path, model, located=locate(model))
    except ModelError as error:
        return Inspected(path, model, problem=str(error))


def _bundle(path: Path) -> Inspected:
    contents = read_bundle(path)  # the graph as it was written: `load_model` makes our node plain
    return Inspected(path / MODEL if path.is_dir() else path, contents.model, contents.bundle)
