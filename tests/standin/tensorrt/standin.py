"""For tests only, and in no real TensorRT: how to make a plan, faults, and what was done wrong."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import onnx

METADATA = "standin"

_counts: Counter[str] = Counter()
_lock = threading.Lock()
_failures: list[str | None] = []

MISTAKES = ("shared_contexts", "dead_contexts")
"""Two threads used one context at once; a graph was launched after the context that it was captured from had gone."""


def plan(
    model: onnx.ModelProto | bytes,
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None,
    values: Mapping[str, Sequence[Sequence[int]]] | None = None,
    version: str | None = None,
    compute_capability: str | None = None,
) -> bytes:
    """A plan of an ONNX model.

    Args:
        model: the model or its bytes.
        shapes: minimum, optimum and maximum of each dynamic input's shape; None: from 1 to 65535.
        values: the same for the values of shape tensors; None: any.
        version: the TensorRT that built it; None: this one.
        compute_capability: what it was built for, such as `8.9`; None: the GPU here.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(onnx.load_from_string(model) if isinstance(model, bytes) else model)
    facts = {"version": version, "compute_capability": compute_capability}
    facts["shapes"] = {name: [list(shape) for shape in limits] for name, limits in (shapes or {}).items()}
    facts["values"] = {name: [list(value) for value in limits] for name, limits in (values or {}).items()}
    onnx.helper.set_model_props(
        copy, {entry.key: entry.value for entry in copy.metadata_props} | {METADATA: json.dumps(facts)}
    )
    return copy.SerializeToString()


def fail_enqueue(after: int = 0, reason: str = "the test wants this enqueue to fail") -> None:
    """The enqueue after the next `after` ones, on whichever context, returns False."""
    with _lock:
        _failures.extend([None] * (after + 1 - len(_failures)))
        _failures[after] = reason


def take_failure() -> str | None:
    with _lock:
        return _failures.pop(0) if _failures else None


def count(what: str) -> None:
    with _lock:
        _counts[what] += 1


def inferences() -> int:
    """How many were computed since the last reset, graph launches among them."""
    return _counts["inferences"]


def mistakes() -> dict[str, int]:
    """What was done wrong since the last reset; empty where nothing was."""
    return {what: _counts[what] for what in MISTAKES if _counts[what]}


def reset() -> None:
    with _lock:
        _counts.clear()
        _failures.clear()
