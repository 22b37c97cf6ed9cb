"""Enumerations, shapes and loggers, named as in TensorRT."""

from __future__ import annotations

import enum
import sys

import numpy as np


class _Enum(enum.Enum):
    def __int__(self) -> int:
        return self.value


class DataType(_Enum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10

    @property
    def itemsize(self) -> float:
        return np.dtype(NUMPY[self]).itemsize if self in NUMPY else {"BF16": 2, "FP8": 1}.get(self.name, 0.5)


NUMPY = {
    DataType.FLOAT: np.float32,
    DataType.HALF: np.float16,
    DataType.INT8: np.int8,
    DataType.INT32: np.int32,
    DataType.BOOL: np.bool_,
    DataType.UINT8: np.uint8,
    DataType.INT64: np.int64,
}


class TensorIOMode(_Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(_Enum):
    DEVICE = 0
    HOST = 1


class Dims(tuple):
    """A shape; -1 where a dimension is not known yet."""

    MAX_DIMS = 8

    __slots__ = ()


class ILogger:
    """Derive from it and override `log`."""

    class Severity(_Enum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3
        VERBOSE = 4

    INTERNAL_ERROR = Severity.INTERNAL_ERROR
    ERROR = Severity.ERROR
    WARNING = Severity.WARNING
    INFO = Severity.INFO
    VERBOSE = Severity.VERBOSE

    def log(self, severity: Severity, msg: str) -> None:
        raise NotImplementedError


class Logger(ILogger):
    """Prints what is at least as severe as `min_severity`."""

    def __init__(self, min_severity: ILogger.Severity = ILogger.WARNING) -> None:
        self.min_severity = min_severity

    def log(self, severity: ILogger.Severity, msg: str) -> None:
        if severity.value <= self.min_severity.value:
            print(f"[TRT] [{severity.name}] {msg}", file=sys.stderr)
