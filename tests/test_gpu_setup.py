"""What a machine with a GPU lacks, decided by the driver and the GPU; nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from trtpost import gpu_setup
from trtpost.cuda import Device, Driver
from trtpost.errors import MissingPackageError
from trtpost.gpu_setup import SetupError, install_pycuda, needs, pip


def driver(capability="8.9", cuda="13.0"):
    return Driver(cuda, (Device("GPU", capability, 16 << 30),))


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(gpu_setup, "installed_version", lambda _: None)
    monkeypatch.setattr(gpu_setup, "packages_of", lambda _: ())


def test_without_a_gpu_nothing_is_needed(monkeypatch):
    monkeypatch.setattr("trtpost.cuda.driver", lambda: None)
    assert needs() is None
    assert needs(Driver("13.0", ())) is None


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("cuda", ["12.2", "12.9", "13.0", "14.1"])
@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.6", "8.9", "12.0", "12.1"])
def test_tensorrt_for_rtx_where_it_knows_the_gpu(capability, cuda):
    missing = needs(driver(capability, cuda))
    assert missing.packages == (f"tensorrt-rtx-cu{12 if cuda < '13' else 13}",)
    assert (missing.pycuda, missing.by_hand) == (True, ())


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(("cuda", "series"), [("12.4", 12), ("13.0", 13)])
@pytest.mark.parametrize("capability", ["9.0", "8.7", "10.0", "7.0"])
def test_the_full_tensorrt_is_named_where_only_it_knows_the_gpu(capability, cuda, series):
    missing = needs(driver(capability, cuda))
    assert missing.packages == ()
    (sentence,) = missing.by_hand
    assert f"does not know compute capability {capability}" in sentence
    assert sentence.endswith(f"-m pip install tensorrt-cu{series} --extra-index-url https://pypi.nvidia.com")


@pytest.mark.usefixtures("nothing_installed")
def test_a_driver_that_is_too_old_is_told():
    missing = needs(driver(cuda="11.8"))
    assert (missing.packages, missing.steps) == ((), ())
    assert "the driver supports CUDA 11.8, and TensorRT needs 12 or later" in missing.by_hand[0]


@pytest.mark.parametrize(
    ("there", "cuda", "wanted"),
    [("cu13", "13.0", ()), ("cu13", "12.4", ("tensorrt-rtx-cu12",)), ("cu12", "12.4", ()), ("cu12", "13.0", ())],
)
def test_what_is_there_and_fits_the_driver_stays(monkeypatch, there, cuda, wanted):
    class Package:
        name = f"tensorrt_rtx_{there}"

    monkeypatch.setattr(gpu_setup, "installed_version", lambda module: "1" if module == "pycuda" else None)
    monkeypatch.setattr(gpu_setup, "packages_of", lambda _: (Package,))
    missing = needs(driver(cuda=cuda))
    assert (missing.packages, missing.pycuda, missing.by_hand) == (wanted, False, ())


def test_without_a_compiler_nothing_is_begun(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(gpu_setup, "pip", lambda *_: pytest.fail("pip was run"))
    with pytest.raises(MissingPackageError, match=r"there is no C\+\+ compiler: install g\+\+"):
        install_pycuda("13.0")


def test_what_pip_says_is_a_sentence(monkeypatch):
    def failed(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "noise\n  src/x.cpp:1: error: no such thing\nmore noise\n")

    monkeypatch.setattr(subprocess, "run", failed)
    with pytest.raises(SetupError, match=r"pip install x failed: src/x\.cpp:1: error: no such thing$"):
        pip("install", "x")


def test_fix_asks_first(monkeypatch, command_line, tmp_path):
    monkeypatch.setattr("trtpost.cuda.driver", driver)
    monkeypatch.setattr(gpu_setup, "installed_version", lambda _: None)
    monkeypatch.setattr(gpu_setup, "packages_of", lambda _: ())
    done = []
    monkeypatch.setattr(gpu_setup, "satisfy", lambda missing, _: done.append(missing.steps))
    status, output, errors = command_line("doctor", "--fix", cwd=tmp_path)
    assert (status, done) == (1, [])
    assert sys.prefix in output
    assert "trtpost doctor --fix --yes does it without asking" in errors
    assert command_line("doctor", "--fix", "--yes", cwd=tmp_path)[0] == 0
    assert done == [
        (
            "install tensorrt-rtx-cu13 (TensorRT for RTX)",
            "compile pycuda from its sources, with header files of CUDA 13.0",
        )
    ]


def test_fix_without_a_gpu(monkeypatch, command_line, tmp_path):
    monkeypatch.setattr("trtpost.cuda.driver", lambda: None)
    status, output, _ = command_line("doctor", "--fix", cwd=tmp_path)
    assert (status, output) == (0, "there is no NVIDIA GPU on this machine, so there is nothing to fix\n")
