"""Execution contexts: shapes and addresses are set, and an enqueue takes them as they are at that moment."""

from __future__ import annotations

import ctypes
import enum
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import control
import numpy as np

from tensorrt import device, standin
from tensorrt.types import Dims, ILogger, TensorIOMode, TensorLocation

if TYPE_CHECKING:
    from tensorrt.engine import ICudaEngine

ALIGNMENT = 256  # bytes, of every address in device memory


class ExecutionContextAllocationStrategy(enum.Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class IProfiler:
    """Derive from it and override `report_layer_time`."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise NotImplementedError


class IExecutionContext:
    """For one thread at a time: where two use it at once, `tensorrt.standin.mistakes` counts it."""

    active_optimization_profile = 0

    def __init__(self, engine: ICudaEngine, memory: device.Memory | None, logger: ILogger) -> None:
        self.engine, self.name = engine, ""
        self.profiler: IProfiler | None = None
        self.enqueue_emits_profile = True
        self._memory, self._logger = memory, logger
        self._scratch = (memory.address.value, engine.device_memory_size_v2) if memory else (0, 0)
        self._shapes: dict[str, Dims] = {}
        self._addresses: dict[str, int] = {}
        self._busy = threading.Lock()
        self._times: list[tuple[str, float]] = []
        self._ran_with: dict[str, Dims] | None = None
        self._captured: list[int] = []
        weakref.finalize(self, _bury, self._captured)

    def set_input_shape(self, name: str, shape: Any) -> bool:
        with self._alone():
            if self.engine.get_tensor_mode(name) is not TensorIOMode.INPUT:
                return self._error(f"setInputShape: {name} is not an input")
            shape = Dims(int(size) for size in shape)
            fixed = self.engine.get_tensor_shape(name)
            if len(shape) != len(fixed) or any(want not in (-1, size) for want, size in zip(fixed, shape, strict=True)):
                return self._error(f"setInputShape: {name} has shape {fixed}, which {shape} does not fit")
            least, _, most = self.engine.get_tensor_profile_shape(name, 0)
            if not _within(shape, least, most):
                return self._error(f"setInputShape: {name} {shape} is outside of profile 0: {least} to {most}")
            self._shapes[name] = shape
            return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        with self._alone():
            if self.engine.get_tensor_mode(name) is TensorIOMode.NONE:
                return self._error(f"setTensorAddress: there is no tensor {name}")
            self._addresses[name] = int(memory)
            return True

    def get_tensor_address(self, name: str) -> int:
        return self._addresses.get(name, 0)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:  # noqa: ARG002
        if profile_index != 0:
            return self._error(f"setOptimizationProfileAsync: there is no profile {profile_index}")
        return True

    def update_device_memory_size_for_shapes(self) -> int:
        """Here as many bytes as the largest input has, so that it depends on shapes; 0 where they are not all set."""
        if self.infer_shapes():
            return 0
        sizes = (_bytes(self.engine, one, self.get_tensor_shape(one)) for one in self.engine._inputs)
        return max(ALIGNMENT, *sizes)

    def set_device_memory(self, memory: int, size: int) -> None:
        with self._alone():
            if self._memory is not None:
                self._error("setDeviceMemory: the context has memory of its own")
            else:
                self._scratch = int(memory), int(size)

    def infer_shapes(self) -> list[str]:
        return [name for name in self.engine._inputs if self._missing(name)]

    def get_tensor_shape(self, name: str) -> Dims:
        """With -1 where an output's shape is not known yet."""
        if self.engine.get_tensor_mode(name) is TensorIOMode.INPUT:
            return self._shapes.get(name, self.engine.get_tensor_shape(name))
        if self.infer_shapes():
            return self.engine.get_tensor_shape(name)
        feeds = {
            one: self._host_value(one)
            if self.engine.is_shape_inference_io(one)
            else np.zeros(self.get_tensor_shape(one), self.engine._numpy(one))
            for one in self.engine._inputs
        }
        return self.engine._shapes_of_outputs(feeds)[name]

    def execute_async_v3(self, stream_handle: int) -> bool:
        with self._alone():
            problem = standin.take_failure() or self._problem()
            capturing = device.capturing(stream_handle)
            if not problem and capturing and self._ran_with != self._shapes:
                # The first enqueue after a change of shapes allocates and synchronises, which no capture survives.
                device.synchronize(stream_handle)
                problem = "the first enqueue with these shapes cannot be captured: enqueue once before"
            if problem:
                return self._error(f"enqueueV3: {problem}")
            profiled = self.profiler is not None
            values = {
                one: self._host_value(one) for one in self.engine._inputs if self.engine.is_shape_inference_io(one)
            }
            shapes = {one: self.get_tensor_shape(one) for one in self.engine._inputs}
            owner = weakref.ref(self)
            job = partial(_run, self.engine, owner, shapes, values, dict(self._addresses), self._scratch, profiled)
            code, kept = device.enqueue(stream_handle, job)
            if code:
                return self._error(f"enqueueV3: cuda error {code}")
            if kept is not None:
                self._captured.append(kept)
                return True
            self._ran_with = dict(self._shapes)
            if profiled and self.enqueue_emits_profile:
                device.synchronize(stream_handle)
                self.report_to_profiler()
            return True

    def report_to_profiler(self) -> bool:
        if self.profiler is None or not self._times:
            return False
        for name, milliseconds in self._times:
            self.profiler.report_layer_time(name, milliseconds)
        self._times = []
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        mine = self._busy.acquire(blocking=False)
        if not mine:
            standin.count("shared_contexts")
        try:
            yield
        finally:
            if mine:
                self._busy.release()

    def _error(self, text: str) -> bool:
        self._logger.log(ILogger.ERROR, f"IExecutionContext::{text}")
        return False

    def _missing(self, name: str) -> bool:
        if -1 in self.get_tensor_shape(name):
            return True
        return self.engine.is_shape_inference_io(name) and not self._addresses.get(name)

    def _host_value(self, name: str) -> np.ndarray:
        return _view(self._addresses[name], self.get_tensor_shape(name), self.engine._numpy(name)).copy()

    def _problem(self) -> str | None:
        """Why an enqueue must fail."""
        if missing := self.infer_shapes():
            return f"shapes or addresses of {', '.join(missing)} are not set"
        for name in self.engine._tensors:
            address = self._addresses.get(name, 0)
            if not address:
                return f"the address of {name} is not set"
            on_host = self.engine.get_tensor_location(name) is TensorLocation.HOST
            if on_host and device.is_device_memory(address):
                return f"{name} is a shape tensor: its address must be in host memory"
            if not on_host and address % ALIGNMENT:
                return f"the address of {name} is not a multiple of {ALIGNMENT}"
        if self._memory is None and self._scratch[1] < self.update_device_memory_size_for_shapes():
            return "the context has no device memory, or too little: it is user managed"
        for name in filter(self.engine.is_shape_inference_io, self.engine._inputs):
            if limits := self.engine.get_tensor_profile_values(0, name):
                value = self._host_value(name).ravel().tolist()
                if not _within(value, limits[0], limits[2]):
                    return f"the values of {name}, {value}, are outside of profile 0: {limits[0]} to {limits[2]}"
        return None


def _within(value: Any, least: Any, most: Any) -> bool:
    return all(low <= one <= high for low, one, high in zip(least, value, most, strict=True))


def _view(address: int, shape: Dims, dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


def _run(
    engine: ICudaEngine,
    owner: Callable[[], IExecutionContext | None],
    shapes: dict[str, Dims],
    values: dict[str, np.ndarray],
    addresses: dict[str, int],
    scratch: tuple[int, int],
    profiled: bool,
) -> None:
    """One inference, in its turn in the stream. What goes wrong here is the device's fault and loses it."""
    context = owner()
    if context is None:
        standin.count("dead_contexts")
        return
    try:
        if not device.accessible(*scratch):
            return
        feeds = dict(values)
        for name in engine._inputs.keys() - values.keys():
            if not device.accessible(addresses[name], _bytes(engine, name, shapes[name])):
                return
            feeds[name] = _view(addresses[name], shapes[name], engine._numpy(name))
        if profiled:
            outputs, context._times = engine._compute_timed(feeds)
        else:
            outputs = engine._compute(feeds)
        for name, value in outputs.items():
            if not device.accessible(addresses[name], value.nbytes):
                return
            _view(addresses[name], Dims(value.shape), value.dtype)[...] = value
        standin.count("inferences")
    except Exception as error:  # nobody above could catch it: a driver's thread calls this
        context._error(f"enqueueV3: {error}")
        control.lose(control.LAUNCH_FAILED)


def _bytes(engine: ICudaEngine, name: str, shape: Dims) -> int:
    return int(np.prod(shape, dtype=np.int64)) * engine._numpy(name).itemsize


def _bury(captured: list[int]) -> None:
    """A graph may outlive the context whose enqueues it holds; launching it then is a mistake."""
    for key in captured:
        device.replace(key, partial(standin.count, "dead_contexts"))
