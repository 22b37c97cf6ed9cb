"""Reading, checking and writing ONNX models, with errors a person can act on."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError

from trtpost.errors import ModelError, reason
from trtpost.files import existing_file, write_whole

MIN_OPSET = 13
"""Older models are raised to this: before it, Softmax flattens and Squeeze takes its axes as an attribute."""

FUNCTION_IR_VERSION = 8
"""The first IR version with model-local functions."""

DOMAIN = "trtpost"
"""Operator domain of our node and prefix of our metadata keys."""


def load_model(path: Path) -> onnx.ModelProto:
    """Read an ONNX file, with external data, shapes inferred and the opset at least `MIN_OPSET`.

    Raises:
        ModelError: the file is missing, not an ONNX model, damaged, or cannot be raised to the opset.
    """
    existing_file(path, "ONNX model", ModelError)
    try:
        model = onnx.load(path)
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model: it does not parse as one") from None
    except (OSError, onnx.checker.ValidationError, ValueError) as error:
        raise ModelError(f"{path}: {reason(error)}; keep the external data files beside the model") from None
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{path} is not an ONNX model: it has no graph with nodes and outputs")
    return normalized(model, str(path))


def normalized(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """A copy with shapes inferred, the opset at least `MIN_OPSET` and no initializers among the inputs.

    Raises:
        ModelError: the model is not valid; `name` says which.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {initializer.name for initializer in copy.graph.initializer}
    inputs = [value for value in copy.graph.input if value.name not in constants]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    try:
        if opset_of(copy) < MIN_OPSET:
            copy = onnx.version_converter.convert_version(copy, MIN_OPSET)
        copy.ir_version = max(copy.ir_version, FUNCTION_IR_VERSION)
        onnx.checker.check_model(copy)
        return onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ) as error:
        raise ModelError(f"{name} is not a valid ONNX model: {reason(error)}") from None


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write an ONNX file, whole or not at all.

    Raises:
        ModelError: it cannot be written.
    """
    data = model.SerializeToString()
    write_whole(path, lambda file: file.write(data), ModelError)


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard operator set that the model imports."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    """Our metadata entries, without the prefix."""
    prefix = DOMAIN + "."
    return {
        entry.key.removeprefix(prefix): entry.value for entry in model.metadata_props if entry.key.startswith(prefix)
    }


def set_metadata(model: onnx.ModelProto, values: dict[str, str]) -> None:
    """Write our metadata entries into the model; entries of the same names are replaced."""
    new = {f"{DOMAIN}.{key}": value for key, value in values.items()}
    kept = [entry for entry in model.metadata_props if entry.key not in new]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    for key, value in new.items():
        model.metadata_props.add(key=key, value=value)
