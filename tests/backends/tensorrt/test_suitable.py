"""Which TensorRT a machine can have, by its driver, its GPU and what is installed."""

from __future__ import annotations

import pytest

from trtpost.backends.tensorrt import suitable
from trtpost.backends.tensorrt.suitable import beyond_rtx, builder_here, capabilities_here, package_for, too_old
from trtpost.cuda import Device, Driver


def driver(capability: str = "8.9", cuda: str = "13.0") -> Driver:
    return Driver(cuda, (Device("Some GPU", capability, 16 << 30),))


@pytest.mark.parametrize(
    ("installed", "gpu", "flavour", "why"),
    [
        ({"tensorrt": "11.4", "tensorrt_rtx": "1.7"}, driver(), "tensorrt", "there is a GPU (Some GPU)"),
        ({"tensorrt": "11.4", "tensorrt_rtx": "1.7"}, None, "tensorrt_rtx", "builds without a GPU"),
        ({"tensorrt_rtx": "1.7"}, driver(), "tensorrt_rtx", "1.7 is installed"),
        ({"tensorrt": "11.4"}, Driver("13.0", ()), None, "only on a machine with an NVIDIA GPU"),
        ({}, driver(), None, "tensorrt-rtx-cu13"),
    ],
)
def test_builders(monkeypatch, installed, gpu, flavour, why):
    monkeypatch.setattr(suitable, "installed_version", installed.get)
    monkeypatch.setattr(suitable.cuda, "driver", lambda: gpu)
    found, sentence = builder_here()
    assert found == flavour
    assert why in sentence


@pytest.mark.parametrize(
    ("flavour", "cuda", "package"),
    [
        ("tensorrt", "12.4", "tensorrt-cu12"),
        ("tensorrt_rtx", "13.0", "tensorrt-rtx-cu13"),
        ("tensorrt_rtx", "14.0", "tensorrt-rtx-cu13"),
    ],
)
def test_packages(flavour, cuda, package):
    assert package_for(flavour, driver(cuda=cuda)) == package


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (driver(cuda="11.8"), "supports CUDA 11.8, and TensorRT needs 12"),
        (driver("7.0"), "has compute capability 7.0, and TensorRT needs 7.5"),
        (driver("7.5"), None),
    ],
)
def test_what_is_too_old(gpu, says):
    assert (says is None and too_old(gpu) is None) or says in str(too_old(gpu))


@pytest.mark.parametrize(
    ("capability", "known"), [("7.5", True), ("8.6", True), ("8.7", False), ("9.0", False), ("12.1", True)]
)
def test_what_tensorrt_for_rtx_knows(capability, known):
    assert (beyond_rtx(driver(capability)) is None) == known


@pytest.mark.parametrize(
    ("flavour", "capability", "chosen", "result"),
    [
        ("tensorrt_rtx", "7.5", (), ("7.5",)),
        ("tensorrt_rtx", "7.5", ("8.9",), ("8.9",)),
        ("tensorrt_rtx", "8.9", (), ()),
        ("tensorrt", "7.5", (), ()),
    ],
)
def test_what_a_plan_is_built_for(monkeypatch, flavour, capability, chosen, result):
    monkeypatch.setattr(suitable.cuda, "driver", lambda: driver(capability))
    assert capabilities_here(flavour, chosen) == result
