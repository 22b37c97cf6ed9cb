"""Which engine a bundle gets here, and what is said where it is not the GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtpost.backends import choice
from trtpost.backends.choice import choose, may_run_plans
from trtpost.cuda import Device, Driver
from trtpost.errors import BackendError

GPU = Driver("13.0", (Device("Some GPU", "8.9", 8 << 30),))
NONE = Driver("13.0", ())


@pytest.fixture
def here(monkeypatch):
    """A machine on which the CPU and the GPU make engines of nothing."""

    def set_up(driver=GPU, obstacle=None, fault=None, plan="plan"):
        def on_the_gpu(_):
            if fault:
                raise BackendError(fault)
            return "gpu"

        monkeypatch.setattr(choice, "this_machine", lambda: SimpleNamespace(driver=driver))
        monkeypatch.setattr(choice, "obstacle", lambda *_: obstacle)
        monkeypatch.setattr(choice, "_on_the_gpu", on_the_gpu)
        monkeypatch.setattr(choice, "OnnxRuntimeEngine", lambda *_: "cpu")
        return SimpleNamespace(bundle=SimpleNamespace(plan=plan), baked=None)

    return set_up


@pytest.mark.parametrize(
    ("machine", "backend", "chosen"),
    [
        ({}, "auto", ("gpu", None)),
        ({}, "onnxruntime", ("cpu", None)),
        ({}, "tensorrt", ("gpu", None)),
        ({"plan": None}, "auto", ("cpu", None)),
        ({"obstacle": "too old"}, "auto", ("cpu", "too old")),
        ({"obstacle": "too old"}, "onnxruntime", ("cpu", None)),
        ({"fault": "no memory"}, "auto", ("cpu", "no memory")),
        ({"driver": None, "obstacle": "no driver"}, "auto", ("cpu", None)),
        ({"driver": NONE, "obstacle": "no GPU"}, "auto", ("cpu", None)),
    ],
)
def test_the_first_that_can_is_chosen_and_a_gpu_that_cannot_is_explained(here, machine, backend, chosen):
    assert choose(here(**machine), backend) == chosen


def test_a_gpu_that_was_asked_for_is_not_replaced(here):
    with pytest.raises(BackendError, match="no memory"):
        choose(here(fault="no memory"), "tensorrt")


@pytest.mark.parametrize(
    ("driver", "backend", "may"),
    [
        (GPU, "auto", True),
        (NONE, "auto", False),
        (None, "auto", False),
        (None, "tensorrt", True),
        (GPU, "onnxruntime", False),
    ],
)
def test_plans_are_read_where_they_may_run(monkeypatch, driver, backend, may):
    monkeypatch.setattr(choice.cuda, "driver", lambda: driver)
    assert may_run_plans(backend) == may
