"""The stand-in GPU in place of the real one: loaded before pycuda is imported, reset and checked around every test."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before installed packages, for the stand-in tensorrt; after tests/, where what all tests share is also a conftest.
sys.path.insert(1, str(Path(__file__).parent))

import control
import prepare

from trtpost.cli import gpu_setup

prepare.driver()
if fault := gpu_setup.pycuda_fault(prepare.LIBRARY):
    raise pytest.UsageError(
        f"there is no pycuda ({fault}): run `make test-standin`, or once `python tests/standin/prepare.py`"
    )
control.driver()


@pytest.fixture(scope="module")
def our_kernels() -> None:
    """`plugins/cuda` as host code in place of the kernels, and the primary context that our runtime retains."""
    from trtpost import cuda

    control.kernels(prepare.kernels())
    cuda.gpu()  # until the process ends, so no test leaks it


class Gpu:
    """What a test may leave behind; everything else is in `control`."""

    def __init__(self) -> None:
        self.leaks_allowed = self.mistakes_allowed = False

    def allow_leaks(self) -> None:
        self.leaks_allowed = True

    def allow_mistakes(self) -> None:
        self.mistakes_allowed = True


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Gpu]:
    """A GPU without faults. Afterwards nothing may be left on it and nothing may have been used wrongly."""
    import pycuda.driver
    from tensorrt import standin

    gc.collect()
    control.reset()
    standin.reset()
    pycuda.driver.init()
    before = control.alive()
    gpu = Gpu()
    yield gpu
    gc.collect()
    after, wrong, wrong_enqueues = control.alive(), control.mistakes(), standin.mistakes()
    depth = control.pop_contexts()
    control.reset()
    if not gpu.leaks_allowed:
        assert after == before, "the test leaked"
        assert depth == 0, "the test left a context current"
    if not gpu.mistakes_allowed:
        assert not any(vars(wrong).values()), wrong
        assert not wrong_enqueues
