"""What a machine with a GPU lacks, decided by the driver and the GPU; nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from trtpost.backends.tensorrt import suitable
from trtpost.cli import gpu_setup
from trtpost.cli.gpu_setup import Needs, SetupError, check_compiler, install_pycuda, needs, pip, said, satisfy
from trtpost.cuda import Device, Driver
from trtpost.errors import MissingPackageError


def driver(capability="8.9", cuda="13.0"):
    return Driver(cuda, (Device("Some GPU", capability, 16 << 30),))


@pytest.fixture
def installed(monkeypatch):
    """Sets which packages there are, by module."""

    def install(**packages):
        def packages_of(module):
            return tuple(SimpleNamespace(name=name) for name in packages.get(module, ()))

        for module in (gpu_setup, suitable):
            monkeypatch.setattr(module, "installed_version", lambda module: "1.7" if module in packages else None)
            monkeypatch.setattr(module, "packages_of", packages_of)
        monkeypatch.setattr(gpu_setup, "pycuda_fault", lambda: None)

    install()
    return install


def test_without_a_gpu_nothing_is_needed(monkeypatch):
    monkeypatch.setattr("trtpost.cuda.driver", lambda: None)
    assert needs() is None
    assert needs(Driver("13.0", ())) is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("cuda", ["12.2", "12.9", "13.0", "14.1"])
@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.6", "8.9", "12.0", "12.1"])
def test_tensorrt_for_rtx_where_it_knows_the_gpu(capability, cuda):
    missing = needs(driver(capability, cuda))
    assert missing.package == f"tensorrt-rtx-cu{12 if cuda < '13' else 13}"
    assert (missing.pycuda, missing.by_hand) == (True, ())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("cuda", "series"), [("12.4", 12), ("13.0", 13), ("14.0", 13)])
@pytest.mark.parametrize("capability", ["9.0", "8.7", "10.0", "10.3", "11.0"])
def test_the_full_tensorrt_is_named_where_only_it_knows_the_gpu(capability, cuda, series):
    missing = needs(driver(capability, cuda))
    assert missing.package is None
    (sentence,) = missing.by_hand
    assert f"does not know Some GPU, compute capability {capability}" in sentence
    assert sentence.endswith(f"-m pip install tensorrt-cu{series} --extra-index-url https://pypi.nvidia.com")


def test_where_the_full_tensorrt_is_there_none_is_missing(installed):
    installed(tensorrt=("tensorrt", "tensorrt_cu13"))
    missing = needs(driver("9.0", "13.0"))
    assert (missing.package, missing.pycuda, missing.by_hand) == (None, True, ())


def test_a_full_tensorrt_for_a_newer_driver_is_told(installed):
    installed(tensorrt=("tensorrt_cu13",))
    (sentence,) = needs(driver("9.0", "12.8")).by_hand
    assert sentence.startswith("tensorrt 1.7 is made for CUDA 13, and the driver supports CUDA 12.8: update the driver")
    assert "uninstall tensorrt-cu13 tensorrt-cu13-bindings tensorrt-cu13-libs, then" in sentence
    assert "install tensorrt-cu12 --extra-index-url" in sentence


@pytest.mark.parametrize(
    ("capability", "cuda", "why"),
    [
        ("8.9", "11.8", "the driver supports CUDA 11.8, and TensorRT needs 12 or later: update the driver"),
        ("7.0", "12.8", "Some GPU has compute capability 7.0, and TensorRT needs 7.5 or later"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_no_tensorrt_runs_on_is_told(capability, cuda, why):
    missing = needs(driver(capability, cuda))
    assert (missing.package, missing.steps, missing.by_hand) == (None, (), (why,))


@pytest.mark.parametrize(
    ("there", "cuda", "wanted"),
    [
        (("cu13",), "13.0", None),
        (("cu13",), "12.4", "tensorrt-rtx-cu12"),
        (("cu12", "cu13"), "12.4", "tensorrt-rtx-cu12"),
        (("cu12",), "12.4", None),
        (("cu12",), "13.0", None),
    ],
)
def test_what_is_there_and_fits_the_driver_stays(installed, there, cuda, wanted):
    installed(pycuda=(), tensorrt_rtx=tuple(f"tensorrt_rtx_{one}" for one in there))
    missing = needs(driver(cuda=cuda))
    assert (missing.package, missing.pycuda, missing.by_hand) == (wanted, False, ())
    parts = [f"tensorrt-rtx-{one}{part}" for part in ("", "-bindings", "-libs") for one in there]
    assert missing.replaces == (tuple(parts) if wanted else ())


def test_a_pycuda_that_does_not_run_is_compiled_again(installed, monkeypatch):
    installed(pycuda=(), tensorrt_rtx=("tensorrt_rtx_cu13",))
    monkeypatch.setattr(gpu_setup, "pycuda_fault", lambda: "undefined symbol: cuCtxCreate_v4")
    assert needs(driver()).steps == ("compile pycuda from its sources, with header files of CUDA 13.0",)


@pytest.mark.usefixtures("installed")
def test_elsewhere_than_on_linux_pycuda_is_the_users(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    missing = needs(driver())
    assert not missing.pycuda
    assert missing.by_hand == (
        "pycuda is compiled here on Linux only: install the CUDA toolkit, then pip install pycuda",
    )


def test_what_is_replaced_goes_when_the_other_is_here(monkeypatch):
    calls = []
    monkeypatch.setattr(gpu_setup, "pip", lambda *arguments, **_: calls.append((arguments[0], arguments[-1])))
    satisfy(Needs(driver().devices[0], "12.4", "new", ("old", "old-libs"), False, ()), lambda _: None)
    assert calls == [("wheel", "new"), ("uninstall", "old-libs"), ("install", "new")]


def test_without_a_compiler_nothing_is_begun(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(gpu_setup, "pip", lambda *_, **__: pytest.fail("pip was run"))
    with pytest.raises(MissingPackageError, match=r"there is no C\+\+ compiler: install g\+\+"):
        satisfy(Needs(driver().devices[0], "13.0", "some-package", (), True, ()), lambda _: None)


def test_python_without_header_files(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/g++")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(MissingPackageError, match=r"header files are not there \(.*Python\.h\): apt-get install"):
        check_compiler()


def test_what_is_compiled_and_does_not_run_goes_again(monkeypatch, tmp_path):
    calls = []

    def fake_pip(*arguments, doing):
        calls.append(doing)
        if arguments[0] == "download":
            folder = Path(arguments[arguments.index("--dest") + 1])
            (folder / "pycuda-1").mkdir()
            (folder / "pycuda-1" / "setup.py").write_text("")
            shutil.make_archive(str(folder / "pycuda-1"), "gztar", folder, "pycuda-1")

    monkeypatch.setattr(gpu_setup, "check_compiler", lambda: None)
    monkeypatch.setattr(gpu_setup, "pip", fake_pip)
    monkeypatch.setattr(gpu_setup, "pycuda_fault", lambda _: "ImportError: undefined symbol")
    with pytest.raises(SetupError, match=r"does not run on .*libcuda\.so\.1, so it was removed again: ImportError"):
        install_pycuda("13.0", tmp_path / "libcuda.so.1", tmp_path)
    assert calls == ["fetching pycuda", "compiling pycuda", "removing pycuda again"]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "  error: subprocess-exited-with-error\n   src/x.cpp:1:2: error: no such thing\nERROR: Failed\n",
            "src/x.cpp:1:2: error: no such thing",
        ),
        (
            "gcc: fatal error: cannot execute 'cc1plus'\nerror: command '/usr/bin/gcc' failed\n",
            "gcc: fatal error: cannot execute 'cc1plus'",
        ),
        (
            "error: subprocess-exited-with-error\n  error: command 'g++' failed: No such file\nERROR: Failed\n",
            "error: command 'g++' failed: No such file",
        ),
        ("/usr/bin/ld: cannot find -lcuda\nERROR: Failed building wheel\n", "/usr/bin/ld: cannot find -lcuda"),
        (
            "WARNING: retrying\nERROR: Could not find a version\nERROR: No matching distribution found for x\n",
            "No matching distribution found for x",
        ),
        ("/x/bin/python: No module named pip\n", "/x/bin/python: No module named pip"),
        ("", "it says nothing"),
    ],
)
def test_the_line_that_says_why(output, line):
    assert said(output) == line


def test_pip_fails_in_a_sentence(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found for x\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SetupError, match=r"^fetching x failed: No matching distribution found for x$"):
        pip("download", "x", doing="fetching x")


def test_fix_asks_first(monkeypatch, command_line, tmp_path, installed):
    installed()
    monkeypatch.setattr("trtpost.cuda.driver", driver)
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
    assert (status, output) == (0, "there is no NVIDIA driver on this machine, so there is nothing to fix\n")
    monkeypatch.setattr("trtpost.cuda.driver", lambda: Driver("13.0", ()))
    status, output, _ = command_line("doctor", "--fix", cwd=tmp_path)
    assert status == 0
    assert output.startswith("the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)")


def test_yes_alone_does_nothing_and_says_so(command_line, tmp_path):
    status, _, errors = command_line("doctor", "--yes", cwd=tmp_path)
    assert status == 1
    assert "--yes answers what --fix asks" in errors
