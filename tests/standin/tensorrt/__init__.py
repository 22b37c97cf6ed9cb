"""Stand-in for the runtime half of TensorRT's Python API: the plan is an ONNX file, and ONNX Runtime computes it.

Names, signatures and what is refused follow the real API. Tensors are read and written at the addresses of the stand-in
driver's device memory, in the order of its streams; an enqueue on a capturing stream becomes part of the graph. What
only tests need is in `tensorrt.standin`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorrt.context import ExecutionContextAllocationStrategy, IExecutionContext, IProfiler
from tensorrt.engine import VERSION, ICudaEngine, Runtime
from tensorrt.types import DataType, Dims, ILogger, Logger, TensorIOMode, TensorLocation

__version__ = VERSION

float32, float16, bfloat16 = DataType.FLOAT, DataType.HALF, DataType.BF16
int8, int32, int64, uint8, bool = DataType.INT8, DataType.INT32, DataType.INT64, DataType.UINT8, DataType.BOOL

__all__ = [
    "DataType",
    "Dims",
    "ExecutionContextAllocationStrategy",
    "ICudaEngine",
    "IExecutionContext",
    "ILogger",
    "IProfiler",
    "Logger",
    "Runtime",
    "TensorIOMode",
    "TensorLocation",
    "nptype",
    "volume",
]


def nptype(trt_type: DataType) -> Any:
    """The numpy type of a DataType; TypeError where numpy has none."""
    from tensorrt.types import NUMPY

    if trt_type not in NUMPY:
        raise TypeError("Could not resolve TensorRT datatype to an equivalent numpy datatype.")
    return NUMPY[trt_type]


def volume(iterable: Any) -> int:
    """How many elements a shape has."""
    return int(np.prod(tuple(iterable), dtype=np.int64))
