"""Which runtime runs a bundle here: the GPU where there is one that can run the plan, otherwise ONNX Runtime."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from trtpost import cuda
from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.backends.tensorrt.obstacle import obstacle, this_machine
from trtpost.bundle.folder import Contents
from trtpost.errors import SpecError, TrtpostError
from trtpost.spec import Backend
from trtpost.timing import Stopwatch


class Engine(Protocol):
    """A runtime that has loaded a bundle."""

    name: str
    backend: str

    def run(self, pixels: NDArray[np.uint8], size: tuple[int, int], watch: Stopwatch) -> NDArray[Any]:
        """Turn pixels uint8 [N, h, w, C] (any h, w with size `image`) into masks [N, H, W] of the given size."""

    def close(self) -> None:
        """Free everything."""


class Choice(NamedTuple):
    """An engine, and a sentence on why it is not the GPU, where one would expect that."""

    engine: Engine
    note: str | None


def may_run_plans(backend: Backend) -> bool:
    """True where `choose` may come to a plan: it was asked for, or there is a GPU."""
    driver = cuda.driver() if backend == "auto" else None
    return backend == "tensorrt" or (driver is not None and bool(driver.devices))


def choose(contents: Contents, backend: Backend = "auto", threads: int | None = None) -> Choice:
    """Make an engine of a bundle.

    Args:
        contents: what to run, as `read_bundle` gives it.
        backend: `tensorrt`, `onnxruntime`, or `auto`: the first of them that can.
        threads: CPU threads; None: all cores.

    Raises:
        BackendError: the backend cannot run the bundle; the message says why.
        SpecError: there is no such backend.
    """
    if backend not in get_args(Backend):
        raise SpecError(f"backend must be auto, tensorrt (the GPU) or onnxruntime (the CPU), not '{backend}'")
    bundle = contents.bundle
    if backend == "tensorrt":
        return Choice(_on_the_gpu(contents), None)
    note = None
    if backend == "auto" and bundle.plan is not None:
        machine = this_machine()
        note = obstacle(bundle, machine)
        if note is None:
            try:
                return Choice(_on_the_gpu(contents), None)
            except TrtpostError as error:
                note = str(error)
        elif machine.driver is None or not machine.driver.devices:
            note = None  # no GPU, nothing to explain
    return Choice(OnnxRuntimeEngine(bundle, threads, contents.baked), note)


def _on_the_gpu(contents: Contents) -> Engine:
    from trtpost.backends.tensorrt.run import TensorRTEngine

    return TensorRTEngine(contents.bundle, content=contents.plan)
