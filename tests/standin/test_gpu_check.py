"""`make gpu-check` on the stand-in GPU, as far as a GPU without a clock worth its name goes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("our_kernels")
SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


@pytest.fixture
def gpu_check(monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RUNS", 2)
    monkeypatch.setattr(module, "CASES", (module.CASES[1],))
    return module


def test_device_and_kernel_stages_run(gpu_check):
    rows = [row.value for row in gpu_check.device()] + [row.value for row in gpu_check.kernel_stage()]
    assert "compute capability 8.9" in rows[0]
    assert rows.count("equal") >= 2
    assert not any(value.startswith("WRONG") for value in rows)


def test_a_wrong_kernel_is_told(gpu_check, monkeypatch):
    monkeypatch.setattr(gpu_check.kernels, "numbers", shifted(gpu_check.kernels.numbers))
    rows = [row.value for row in gpu_check.kernel_stage()]
    assert any(value.startswith("WRONG") for value in rows)


def shifted(numbers):
    """Claims one class fewer than there are."""

    def wrong(post, logits, size):
        right = numbers(post, logits, size)
        return right._replace(channels=max(1, right.channels - 1)) if not right.channels_last else right

    return wrong
