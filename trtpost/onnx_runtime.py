"""ONNX Runtime on the CPU: the one module that makes its sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def version() -> str:
    """The installed ONNX Runtime's name and version, for people."""
    import onnxruntime

    return f"ONNX Runtime {onnxruntime.__version__}"


def session(
    model: bytes | Path, *, threads: int = 0, spin: bool = True, int8_kernels: bool = True, relayout: bool = True
) -> Any:
    """An `onnxruntime.InferenceSession` whose errors reach nobody but the caller.

    Args:
        model: content of a model file, or the file, whose weights may lie beside it.
        threads: how many share an operator; 0: all cores.
        spin: whether threads keep their cores between two runs.
        int8_kernels: whether quantised networks compute in integers. Those kernels saturate where the processor has
            no VNNI; without them the result does not depend on the processor.
        relayout: whether tensors may be kept in a layout of the processor's own.

    Raises:
        Exception: ONNX Runtime does not take the model; its errors have no common base.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if not spin:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not int8_kernels:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not relayout:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    content = str(model) if isinstance(model, Path) else model
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"], enable_fallback=0)
