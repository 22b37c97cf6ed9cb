"""What Triton is told of a model: `config.pbtxt`, as its own protobuf messages.

Names of fields, and what they mean, are those of Triton's `model_config.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trtpost.errors import MissingPackageError, ModelError
from trtpost.packages import installation

OWNER = "trtpost"
"""Name of the parameter that every configuration of ours has, so that an export replaces nothing else."""

MAX_PIXELS = "max_pixels"
"""Name of the parameter that says how many pixels of photos a model of ours holds at once."""

_TYPES = {
    "bytes": "TYPE_STRING",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "uint8": "TYPE_UINT8",
}


@dataclass(frozen=True)
class Tensor:
    """An input or an output of a model.

    Attributes:
        name, dtype: `dtype` is NumPy's name, or `bytes`.
        dims: without the batch where the model has one; -1 where any.
        optional: of an input: a request may leave it out.
        shape: of an input of a plan: TensorRT reads it on the host, to know the shape of what comes out.
        labels: of an output: file with the names of the classes.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False
    shape: bool = False
    labels: str = ""


@dataclass(frozen=True)
class Warmup:
    """The first request, which Triton makes itself: `dims` of zeros, or the content of a file in `warmup/`."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    file: str = ""


def model_config(
    name: str,
    role: str,
    backend: str,
    inputs: Iterable[Tensor],
    outputs: Iterable[Tensor],
    *,
    platform: str = "",
    max_batch: int = 0,
    instances: int = 1,
    on_gpu: bool = True,
    warmup: Iterable[Warmup] = (),
    max_pixels: int | None = None,
) -> Any:
    """The `ModelConfig` of one model.

    Args:
        name: of the model.
        role: what it is among ours: a model is only replaced by one of the same.
        backend, platform: what runs it.
        inputs, outputs: its tensors.
        max_batch: of one execution; 0: tensors have their batch themselves, and Triton joins no requests.
        instances: how many run at once, on each GPU or on the CPU.
        on_gpu: False for work that needs none: it stays on the CPU where there are GPUs.
        warmup: tensors of the first request.
        max_pixels: of the photos that are in memory at once; None of a model that decodes none.
    """
    messages = _messages()
    config = messages.ModelConfig(name=name, backend=backend, platform=platform, max_batch_size=max_batch)
    for tensor in inputs:
        config.input.add(
            name=tensor.name,
            data_type=_TYPES[tensor.dtype],
            dims=tensor.dims,
            optional=tensor.optional,
            is_shape_tensor=tensor.shape,
            # photos of different sizes may be joined: each request is answered by itself
            allow_ragged_batch=tensor.optional and -1 in tensor.dims,
        )
    for tensor in outputs:
        config.output.add(
            name=tensor.name, data_type=_TYPES[tensor.dtype], dims=tensor.dims, label_filename=tensor.labels
        )
    config.parameters[OWNER].string_value = role
    if max_pixels is not None:
        config.parameters[MAX_PIXELS].string_value = str(max_pixels)
    config.version_policy.latest.num_versions = 1
    kind = messages.ModelInstanceGroup
    config.instance_group.add(count=instances, kind=kind.KIND_AUTO if on_gpu else kind.KIND_CPU)
    if max_batch:
        config.dynamic_batching.SetInParent()  # joins what waits, and waits for nothing
    first = list(warmup)
    if first:
        request = config.model_warmup.add(name="first", batch_size=1 if max_batch else 0)
        for value in first:
            entry = request.inputs[value.name]
            entry.data_type = messages.DataType.Value(_TYPES[value.dtype])
            entry.dims.extend(value.dims)
            if value.file:
                entry.input_data_file = value.file
            else:
                entry.zero_data = True
    return config


def ensemble_config(name: str, steps: Iterable[Any], output: str, *, max_batch: int = 0) -> Any:
    """The `ModelConfig` of models that run one after the other.

    Args:
        name: of the whole.
        steps: configurations of the models; every tensor has the same name everywhere.
        output: of the last one, and of the whole; the inputs of the whole are those of the first.
        max_batch: as for `model_config`.
    """
    models = list(steps)
    config = _messages().ModelConfig(name=name, platform="ensemble", max_batch_size=max_batch)
    config.input.extend(models[0].input)
    config.output.extend(one for one in models[-1].output if one.name == output)
    config.parameters[OWNER].string_value = "ensemble"
    config.version_policy.latest.num_versions = 1
    for model in models:
        step = config.ensemble_scheduling.step.add(model_name=model.name, model_version=-1)
        for tensor in model.input:
            step.input_map[tensor.name] = tensor.name
        for tensor in model.output:
            step.output_map[tensor.name] = tensor.name
    return config


def to_text(config: Any) -> str:
    """The content of `config.pbtxt` for a `ModelConfig`."""
    from google.protobuf import text_format

    return str(text_format.MessageToString(config))


def from_text(text: str, name: str) -> Any:
    """Read a `ModelConfig` out of the content of `config.pbtxt`.

    Raises:
        ModelError: it does not parse; `name` says which.
    """
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, _messages().ModelConfig())
    except text_format.ParseError as error:
        raise ModelError(f"{name} is not a configuration that Triton reads: {error}") from None


def _messages() -> Any:
    try:
        from tritonclient.grpc import model_config_pb2
    except ImportError:
        raise MissingPackageError(f"exporting for Triton needs tritonclient: {installation('triton')}") from None
    return model_config_pb2
