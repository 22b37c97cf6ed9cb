"""Reading, checking and writing ONNX models, with errors a person can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError

from trtpost.errors import ModelError, TrtpostError, reason
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
    except PermissionError as error:
        raise ModelError(f"{path} cannot be read: {reason(error)}") from None
    except Exception as error:  # the external data of a damaged file leads anywhere
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
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 1:  # how some exporters write a dynamic dimension
                dim.Clear()
    # first of all: before IR version 4 every initializer had to be an input as well
    copy.ir_version = max(copy.ir_version, FUNCTION_IR_VERSION)
    with understood(name):
        if opset_of(copy) < MIN_OPSET:
            copy = onnx.version_converter.convert_version(copy, MIN_OPSET)
        onnx.checker.check_model(copy)
        return onnx.shape_inference.infer_shapes(copy, data_prop=True)


@contextmanager
def understood(name: str | Path) -> Iterator[None]:
    """What the ONNX libraries raise over a model that they cannot make sense of, which is anything, as one sentence.

    Raises:
        ModelError: instead of whatever was raised inside.
    """
    try:
        yield
    except TrtpostError:
        raise
    except DecodeError:
        raise ModelError(f"{name} is not an ONNX model: it does not parse as one") from None
    except Exception as error:
        raise ModelError(f"{name} is not a valid ONNX model: {reason(error)}") from error


def external_files(path: Path) -> list[Path]:
    """Files beside an ONNX model that hold its weights, where they are there.

    Raises:
        ModelError: the file does not parse.
    """
    with understood(path):
        model = onnx.load(path, load_external_data=False)
        names = {
            entry.value
            for tensor in model.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        return sorted(file for name in names if (file := path.parent / name).is_file())


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
