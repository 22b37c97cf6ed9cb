"""Everything that can be said of a bundle or a model without running it."""

from __future__ import annotations

from pathlib import Path

from trtpost.bundle import MODEL, read_bundle
from trtpost.convert import convert, kind_of
from trtpost.convert.formats import is_saved_model
from trtpost.errors import ModelError
from trtpost.graph.locate import locate
from trtpost.graph.model import load_model, metadata, normalized, understood
from trtpost.located import Located
from trtpost.progress import Progress
from trtpost.report import bundle_facts, model_facts


def inspect_path(path: Path, progress: Progress) -> list[tuple[str, str]]:
    """Facts on a bundle, a baked `.onnx`, or a model in any format that `build` takes.

    Raises:
        TrtpostError: it cannot be read, or holds no segmentation head.
    """
    if path.is_dir() and not is_saved_model(path):
        return _facts_of_bundle(path)
    if kind_of(path) == "onnx":
        model = load_model(path)
        if "passport" in metadata(model):
            return _facts_of_bundle(path)
    else:
        with progress.step("convert") as step:
            model = normalized(convert(path), str(path))
            step.result = f"{path.name} to ONNX"
    try:
        with understood(path):
            located: Located | str = locate(model)
    except ModelError as error:
        located = f"no: {error}"
    return model_facts(path, model, located)


def _facts_of_bundle(path: Path) -> list[tuple[str, str]]:
    contents = read_bundle(path)  # the graph as it was written: `load_model` makes our node plain
    return [*bundle_facts(contents.bundle), *model_facts(path / MODEL if path.is_dir() else path, contents.model)]
