"""Examines what is installed here, and what `build` and `infer` would do with it."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from trtpost import cuda
from trtpost.backends.tensorrt import suitable
from trtpost.backends.tensorrt.obstacle import this_machine
from trtpost.cli import gpu_setup
from trtpost.convert import fence
from trtpost.kernels import cpu
from trtpost.packages import installation, installed_version


@dataclass(frozen=True)
class Finding:
    """One line of what was found; `present` is None where it is neither good nor missing."""

    name: str
    text: str
    present: bool | None = None


def examine() -> list[Finding]:
    """Look at the machine; imports none of the heavy packages."""
    from trtpost import __version__

    driver = cuda.driver()
    there = "" if driver else " there"
    findings = [
        Finding("trtpost", f"{__version__} on Python {platform.python_version()}, {platform.platform()}", True),
        _package("onnxruntime", "runs the baked graph on the CPU", "pip install onnxruntime"),
        _kernel(),
        _package("tensorflow", "converts TensorFlow models", installation("tf")),
        _package("tf2onnx", "converts TensorFlow models", installation("tf")),
        _package(
            "tensorrt", "builds plans, on a machine with a GPU", f"{suitable.command_for('tensorrt', driver)}{there}"
        ),
        _package(
            "tensorrt_rtx",
            "builds plans for RTX GPUs, with or without one",
            suitable.command_for("tensorrt_rtx", driver),
        ),
        _package(
            "pycuda", "runs plans on the GPU", f"trtpost doctor --fix{there and ', on a machine with an NVIDIA GPU'}"
        ),
    ]
    if driver is None:
        findings.append(Finding("GPU driver", "no NVIDIA driver on this machine", False))
    else:
        findings.append(Finding("GPU driver", f"supports CUDA {driver.cuda}", True))
        findings += [
            Finding(
                "GPU",
                f"{one.name}, compute capability {one.compute_capability}, {one.memory / 2**30:.0f} GiB",
                True,
            )
            for one in driver.devices
        ] or [Finding("GPU", "the driver sees none", False)]
    if missing := gpu_setup.needs(driver):
        findings += [Finding("GPU", sentence, False) for sentence in missing.by_hand]
        findings += [Finding("GPU", f"trtpost doctor --fix would {step}", False) for step in missing.steps]
    walls = fence.kinds()
    kept = f"in a process that is kept to computing by {' and '.join(walls)} (docs/security.md)"
    free = "nothing keeps its process to computing, with neither Landlock nor seccomp: convert what you trust"
    findings.append(Finding("conversion", kept if walls else free, len(walls) == 2 or None))
    flavour, why = suitable.builder_here()
    findings.append(Finding("build", f"{'engine.plan with ' + flavour if flavour else 'no engine.plan'}: {why}"))
    findings.append(Finding("infer", _infer()))
    return findings


def _infer() -> str:
    """A sentence on what runs a bundle here."""
    machine = this_machine()
    on_cpu = f"ONNX Runtime and {'the fused kernel' if cpu.is_available() else 'the function body'} on the CPU"
    if machine.driver is None or not machine.driver.devices:
        return f"{on_cpu}: there is no NVIDIA GPU"
    missing = [] if machine.pycuda else ["pycuda"]
    versions = dict(machine.versions)
    if suitable.beyond_rtx(machine.driver):
        versions.pop("tensorrt_rtx", None)
    missing += [] if versions else ["a TensorRT that knows it"]
    if missing:
        return f"{on_cpu}: for the GPU, {' and '.join(missing)} must be installed"
    plans = " or ".join(f"{name} {version}" for name, version in versions.items())
    return f"plans that were built by {plans} for this GPU run on it; other bundles run in {on_cpu}"


def _kernel() -> Finding:
    if not cpu.is_available():
        return Finding(
            "fused kernel",
            "not built; masks come from the function body, several times slower: "
            "install a C++ compiler, then pip install --force-reinstall trtpost",
            False,
        )
    from trtpost import _cpu

    return Finding("fused kernel", f"built; runs with {_cpu.isas()[0]} on this processor", True)


def _package(module: str, purpose: str, installation: str) -> Finding:
    found = installed_version(module)
    if found is None:
        return Finding(module, f"not installed; {purpose} ({installation})", False)
    return Finding(module, f"{found}: {purpose}", True)
