"""Plans and engines. A plan is an ONNX file whose metadata says what a real plan would know beside the network."""

from __future__ import annotations

import json
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from tensorrt import device, standin
from tensorrt.context import ExecutionContextAllocationStrategy, IExecutionContext
from tensorrt.types import NUMPY, DataType, Dims, ILogger, TensorIOMode, TensorLocation

VERSION = "11.4.0"
CONTEXT_MEMORY = 1 << 20  # bytes of device memory for activations: any number will do

_DATA_TYPES = {
    "tensor(float)": DataType.FLOAT,
    "tensor(float16)": DataType.HALF,
    "tensor(int8)": DataType.INT8,
    "tensor(int32)": DataType.INT32,
    "tensor(bool)": DataType.BOOL,
    "tensor(uint8)": DataType.UINT8,
    "tensor(int64)": DataType.INT64,
}


class Runtime:
    """Reads plans."""

    _version = VERSION

    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        plan = bytes(serialized_engine)
        try:
            facts = _facts_of(plan)
            session = onnxruntime.InferenceSession(plan, _options(), providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's and protobuf's errors have no common class
            self.logger.log(ILogger.ERROR, f"IRuntime::deserializeCudaEngine: Error Code 1: Serialization ({error})")
            return None
        if facts.version not in (None, self._version):
            text = f"expecting library version {self._version} got {facts.version}"
            self.logger.log(ILogger.ERROR, f"The engine plan file is not compatible with this TensorRT: {text}")
            return None
        here = device.compute_capability()
        if facts.compute_capability not in (None, here):
            text = f"expecting compute {here} got compute {facts.compute_capability}"
            self.logger.log(ILogger.ERROR, f"The engine plan file is generated on an incompatible device: {text}")
            return None
        weights = device.Memory(len(plan))
        if weights.error:
            self.logger.log(ILogger.ERROR, f"deserializeCudaEngine: cuda error {weights.error} allocating weights")
            return None
        return self._engine(plan, facts, session, weights, self.logger)

    def _engine(self, *parts: Any) -> ICudaEngine:
        return ICudaEngine(*parts)


@dataclass(frozen=True)
class _Facts:
    """What the plan's metadata says; made by `tensorrt.standin.plan`."""

    name: str
    shapes: dict[str, list[list[int]]]
    values: dict[str, list[list[int]]]
    version: str | None
    compute_capability: str | None


def _facts_of(plan: bytes) -> _Facts:
    model = onnx.load_from_string(plan)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    facts = {"shapes": {}, "values": {}, "version": None, "compute_capability": None}
    return _Facts(name=model.graph.name, **facts | json.loads(metadata.get(standin.METADATA, "{}")))


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


class ICudaEngine:
    """One optimisation profile. Inputs that are integers, of rank 0 or 1 and of fixed size are shape tensors."""

    num_optimization_profiles = 1
    device_memory_size_v2 = CONTEXT_MEMORY

    def __init__(self, plan: bytes, facts: _Facts, session: Any, weights: device.Memory, logger: ILogger) -> None:
        self._plan, self._facts, self._session, self._weights, self._logger = plan, facts, session, weights, logger
        self._inputs = {tensor.name: tensor for tensor in session.get_inputs()}
        self._outputs = {tensor.name: tensor for tensor in session.get_outputs()}
        self._tensors = self._inputs | self._outputs
        self._output_shapes: dict[Any, dict[str, Dims]] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._facts.name

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    @property
    def num_layers(self) -> int:
        return len(onnx.load_from_string(self._plan).graph.node)

    def __getitem__(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_name(self, index: int) -> str:
        return self[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        if name in self._inputs:
            return TensorIOMode.INPUT
        return TensorIOMode.OUTPUT if name in self._outputs else TensorIOMode.NONE

    def get_tensor_dtype(self, name: str) -> DataType:
        return _DATA_TYPES[self._tensors[name].type]

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(size if isinstance(size, int) else -1 for size in self._tensors[name].shape)

    def is_shape_inference_io(self, name: str) -> bool:
        shape = self.get_tensor_shape(name)
        integers = self.get_tensor_dtype(name) in (DataType.INT32, DataType.INT64)
        return name in self._inputs and integers and len(shape) <= 1 and -1 not in shape

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if self.is_shape_inference_io(name) else TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        self._check_profile(profile_index)
        if name in self._facts.shapes:
            return [Dims(shape) for shape in self._facts.shapes[name]]
        shape = self.get_tensor_shape(name)
        return [Dims(free if size == -1 else size for size in shape) for free in (1, 1, 65535)]

    def get_tensor_profile_values(self, name: int, profile_index: str) -> list[list[int]]:
        """The real bindings take the profile's index first and then the tensor's name; their keywords are swapped."""
        index, tensor = name, profile_index
        if not isinstance(index, int) or not isinstance(tensor, str):
            raise TypeError("get_tensor_profile_values(): incompatible function arguments: (int, str)")
        self._check_profile(index)
        if not self.is_shape_inference_io(tensor):
            raise ValueError(f"{tensor} is not an input shape binding")
        return self._facts.values.get(tensor, [])

    def create_execution_context(
        self, strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC
    ) -> IExecutionContext | None:
        own = strategy is not ExecutionContextAllocationStrategy.USER_MANAGED
        memory = device.Memory(CONTEXT_MEMORY) if own else None
        if memory and memory.error:
            self._logger.log(ILogger.ERROR, f"createExecutionContext: cuda error {memory.error} (out of memory?)")
            return None
        return self._context(memory)

    def _context(self, memory: device.Memory | None) -> IExecutionContext:
        return IExecutionContext(self, memory, self._logger)

    @staticmethod
    def _check_profile(index: int) -> None:
        if index != 0:
            raise ValueError(f"no optimization profile {index}")

    def _numpy(self, name: str) -> np.dtype:
        return np.dtype(NUMPY[self.get_tensor_dtype(name)])

    def _shapes_of_outputs(self, feeds: dict[str, np.ndarray]) -> dict[str, Dims]:
        """The shapes for these inputs, of which only those of shape tensors matter by value."""
        key = tuple(
            (name, value.shape, value.tobytes() if self.is_shape_inference_io(name) else None)
            for name, value in sorted(feeds.items())
        )
        with self._lock:
            known = self._output_shapes.get(key)
        if known is None:
            known = {name: Dims(value.shape) for name, value in self._compute(feeds).items()}
            with self._lock:
                self._output_shapes[key] = known
        return known

    def _compute(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self._outputs, self._session.run(None, feeds), strict=True))

    def _compute_timed(self, feeds: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[tuple[str, float]]]:
        """The outputs, and the milliseconds of each of ONNX Runtime's nodes."""
        options = _options()
        options.enable_profiling = True
        with tempfile.TemporaryDirectory() as folder:
            options.profile_file_prefix = str(Path(folder) / "layers")
            session = onnxruntime.InferenceSession(self._plan, options, providers=["CPUExecutionProvider"])
            outputs = dict(zip(self._outputs, session.run(None, feeds), strict=True))
            records = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        kind = "_kernel_time"
        times = [(one["name"], one["dur"] / 1000) for one in records if one.get("cat") == "Node"]
        return outputs, [(name.removesuffix(kind), time) for name, time in times if name.endswith(kind)]
