"""The stand-in under the name of TensorRT for RTX: what only that has, added.

A test puts this module in place of `tensorrt_rtx` in `sys.modules`; the real one cannot run without a GPU.
"""

from __future__ import annotations

from typing import Any

from tensorrt import *  # noqa: F403
from tensorrt import context, device, engine, nptype, volume
from tensorrt.context import ExecutionContextAllocationStrategy, IProfiler
from tensorrt.types import DataType, Dims, ILogger, Logger, TensorIOMode, TensorLocation, _Enum

__version__ = "1.7.1.116"

__all__ = [
    "DataType",
    "Dims",
    "DynamicShapesKernelSpecializationStrategy",
    "ExecutionContextAllocationStrategy",
    "ICudaEngine",
    "IExecutionContext",
    "ILogger",
    "IProfiler",
    "IRuntimeConfig",
    "Logger",
    "Runtime",
    "TensorIOMode",
    "TensorLocation",
    "nptype",
    "volume",
]


class DynamicShapesKernelSpecializationStrategy(_Enum):
    LAZY = 0
    EAGER = 1
    NONE = 2


class IRuntimeConfig:
    """How a context is made."""

    dynamic_shapes_kernel_specialization_strategy = DynamicShapesKernelSpecializationStrategy.LAZY

    def __init__(self) -> None:
        self._strategy, self._cache = ExecutionContextAllocationStrategy.STATIC, None

    def set_execution_context_allocation_strategy(self, strategy: ExecutionContextAllocationStrategy) -> None:
        self._strategy = strategy

    def get_execution_context_allocation_strategy(self) -> ExecutionContextAllocationStrategy:
        return self._strategy

    def create_runtime_cache(self) -> object:
        return object()

    def set_runtime_cache(self, cache: object) -> bool:
        self._cache = cache
        return True


class IExecutionContext(context.IExecutionContext):
    def is_stream_capturable(self, stream: int) -> bool:  # noqa: ARG002
        """Not before the context has run with these shapes."""
        return self._ran_with == self._shapes


class ICudaEngine(engine.ICudaEngine):
    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig()

    def create_execution_context(
        self, strategy: ExecutionContextAllocationStrategy | IRuntimeConfig = ExecutionContextAllocationStrategy.STATIC
    ) -> context.IExecutionContext | None:
        if isinstance(strategy, IRuntimeConfig):
            strategy = strategy.get_execution_context_allocation_strategy()
        return super().create_execution_context(strategy)

    def _context(self, memory: device.Memory | None) -> context.IExecutionContext:
        return IExecutionContext(self, memory, self._logger)


class Runtime(engine.Runtime):
    _version = __version__

    def _engine(self, *parts: Any) -> engine.ICudaEngine:
        return ICudaEngine(*parts)
