"""Reading, checking and writing ONNX models, with errors a person can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from trtpost.errors import ModelError, TrtpostError, reason
from trtpost.graph.baked import DOMAIN
from trtpost.graph.proto import attributes_of, check_calls, graphs_of, name_apart, replace, sort_nodes
from trtpost.graph.reading.canonical import (
    keep_computed,
    name_standard,
    refuse_endless_loops,
    without_functions,
    without_optionals,
    write_out_sparse,
)
from trtpost.graph.reading.channels import with_known_channels
from trtpost.graph.reading.integer_types import with_known_integers
from trtpost.graph.reading.opsets import raised
from trtpost.graph.reading.training import check_trained
from trtpost.graph.wire import LARGEST
from trtpost.storage.files import existing_file, open_regular
from trtpost.storage.whole_file import Replaces, write_whole

MIN_OPSET = 13
"""The opset that older models are raised to: before it, Softmax flattens and Squeeze has its axes as an attribute."""

FUNCTION_IR_VERSION = 8
"""The first IR version with model-local functions."""

MAX_IR_VERSION = 10
"""The last IR version that every ONNX Runtime takes that we allow: newer ones have types and records that it lacks."""


def load_model(path: Path) -> onnx.ModelProto:
    """Read an ONNX file, with external data, shapes inferred and the opset at least `MIN_OPSET`.

    Raises:
        ModelError: the file is missing, not an ONNX model, damaged, or cannot be raised to the opset.
    """
    existing_file(path, "ONNX model", ModelError)
    _check_external_files(path)
    try:
        with open_regular(path) as file:
            model = onnx.load(file, format="protobuf", load_external_data=False)  # whatever it is called
        onnx.load_external_data_for_model(model, str(path.parent))
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
    """A copy of a model in the form that everything after it can rely on.

    Its shapes are inferred, its opset is at least `MIN_OPSET`, its IR version from `FUNCTION_IR_VERSION` to
    `MAX_IR_VERSION`, and no initializers are among its inputs: they are constants here, also where a caller might
    replace them. An int8 image has become uint8, and nearest resizes of wide integers are done in int32. There are no
    model-local functions, no sparse weights, no inputs that nothing uses, and no outputs that are inputs or constants.
    The standard operators have the empty domain, and an image has the channels that its first convolution takes.

    Raises:
        ModelError: the model is not valid, newer than the libraries that are installed, or still being trained; `name`
            says which.
    """
    opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if opset > newest:
        raise ModelError(
            f"{name} has opset {opset}, and onnx {onnx.__version__} knows none after {newest}: export it with opset "
            f"{newest} or an earlier one, or update onnx"
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {one.name for one in copy.graph.initializer}
    constants |= {one.values.name for one in copy.graph.sparse_initializer}
    replace(copy.graph.input, [value for value in copy.graph.input if value.name not in constants])
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 1:  # how some exporters write a dynamic dimension
                dim.Clear()
    with understood(name):
        name_standard(copy)
        _check_types(copy, name)
        check_calls(copy, name)
        sort_nodes(copy)
        copy = without_functions(copy)
        write_out_sparse(copy, name)
        without_optionals(copy)
        refuse_endless_loops(copy, name)
        # first of all: before IR version 4 every initializer had to be an input as well
        copy.ir_version = min(max(copy.ir_version, FUNCTION_IR_VERSION), MAX_IR_VERSION)
        if opset < MIN_OPSET:
            copy = raised(onnx.shape_inference.infer_shapes(copy), opset, MIN_OPSET)
        # before the check, which wants outputs to state the shapes that some exporters leave out
        copy = with_known_channels(_inferred(copy))
        _check(copy)
        keep_computed(copy, name)
        check_trained(copy, name)
        name_apart(copy)
        copy = with_known_integers(copy)
        copy.ir_version = min(copy.ir_version, MAX_IR_VERSION)  # graphsurgeon writes the newest that onnx knows
        return copy


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with shapes; those that it states within are left out where its operators make others."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        if "existing" in str(error):  # `Inferred shape and existing shape differ`, and the like of types
            del model.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _check(model: onnx.ModelProto) -> None:
    """Run ONNX's own check without what nobody needs: the rank of every output, which an If may decide."""
    outputs = list(model.graph.output)
    replace(model.graph.output, [one for one in outputs if one.type.tensor_type.HasField("shape")])
    try:
        onnx.checker.check_model(model)
    finally:
        replace(model.graph.output, outputs)


def _check_types(model: onnx.ModelProto, name: str) -> None:
    """Refuse element types that came with an IR version after `MAX_IR_VERSION`."""
    last = onnx.TensorProto.INT4  # numbered as they came: IR version 10 brought it
    for graph in graphs_of(model):
        kinds = [(one.name, one.data_type) for one in graph.initializer]
        values = (*graph.input, *graph.output, *graph.value_info)
        kinds += [(value.name, value.type.tensor_type.elem_type) for value in values]
        casts = (node for node in graph.node if node.op_type == "Cast")
        kinds += [(node.output[0], attributes_of(node).get("to", 0)) for node in casts]
        for tensor, kind in kinds:
            if kind > last:
                known = kind in onnx.TensorProto.DataType.values()
                shown = onnx.TensorProto.DataType.Name(kind) if known else f"number {kind}"
                raise ModelError(
                    f"{name}: tensor '{tensor}' has the type {shown}, which is newer than IR version {MAX_IR_VERSION}, "
                    "the last that all runtimes take: export the network in float16 or float32"
                )


@contextmanager
def understood(name: str | Path) -> Iterator[None]:
    """Turn what ONNX's libraries raise over a model that they do not understand, which is anything, into one sentence.

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
    return sorted(file for file in _external_files(path) if file.is_file())


def _external_files(path: Path) -> set[Path]:
    """Files that the model names, whether they are there or not; folders of its own and no others."""
    with understood(path):
        with open_regular(path) as file:
            model = onnx.load(file, format="protobuf", load_external_data=False)
        tensors = [one for graph in graphs_of(model) for one in graph.initializer]
        tensors += [node.t for graph in graphs_of(model) for one in graph.node for node in one.attribute]
        names = {entry.value for one in tensors for entry in one.external_data if entry.key == "location"}
        return {path.parent / name for name in names}


def _check_external_files(path: Path) -> None:
    """Refuse what cannot be read before anything large is."""
    files = _external_files(path)
    if missing := sorted(file for file in files if not file.exists()):
        raise ModelError(
            f"{path} keeps its weights in {missing[0]}, which is missing: put it there, or export the model again "
            "as one file"
        )
    if others := sorted(file for file in files if not file.is_file()):
        raise ModelError(f"{path} keeps its weights in {others[0]}, which is not a regular file")
    size = path.stat().st_size + sum(file.stat().st_size for file in files if file.is_file())
    if size > LARGEST:
        raise ModelError(
            f"{path} has {size / 1e9:.1f} GB with its weights, and one ONNX file can have "
            f"{LARGEST / 1e9:.1f} GB: export the network in float16"
        )


def save_model(model: onnx.ModelProto, path: Path, *, replaces: Replaces | None = None) -> None:
    """Write an ONNX file, whole or not at all; `replaces` is what `trtpost.storage.whole_file.write_whole` takes.

    Raises:
        ModelError: it cannot be written, or is too large for a file.
    """
    data = serialized(model)
    write_whole(path, lambda file: file.write(data), ModelError, replaces=replaces)


def serialized(model: onnx.ModelProto) -> bytes:
    """The content of an ONNX file.

    Raises:
        ModelError: it is too large for one file.
    """
    size = model.ByteSize()
    if size > LARGEST:
        raise ModelError(f"the ONNX graph has {size / 1e9:.1f} GB, and one file can have {LARGEST / 1e9:.1f} GB")
    content: bytes = model.SerializeToString()
    return content


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard operator set that the model imports."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    """Our metadata entries, without the prefix."""
    prefix = DOMAIN + "."
    # texts that are not UTF-8 are bytes in Python
    entries = [(one.key, one.value) for one in model.metadata_props if {type(one.key), type(one.value)} == {str}]
    return {key.removeprefix(prefix): value for key, value in entries if key.startswith(prefix)}


def set_metadata(model: onnx.ModelProto, values: dict[str, str]) -> None:
    """Write our metadata entries into the model; entries of the same names are replaced."""
    new = {f"{DOMAIN}.{key}": value for key, value in values.items()}
    replace(model.metadata_props, [entry for entry in model.metadata_props if entry.key not in new])
    for key, value in new.items():
        model.metadata_props.add(key=key, value=value)
