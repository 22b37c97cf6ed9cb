"""Can this machine run a plan, and if not, why: told before anything large is loaded."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib.util import find_spec

from trtpost import cuda
from trtpost.backends.tensorrt.suitable import FLAVOURS, beyond_rtx, command_for, cuda_of, newest_cuda, too_old
from trtpost.bundle.folder import Bundle
from trtpost.bundle.passport import Plan
from trtpost.packages import installed_version


@dataclass(frozen=True)
class Machine:
    """What decides whether a plan runs.

    Attributes:
        driver: of the GPU; None: there is none.
        versions: of the TensorRT flavours that are installed, by module name. This and what follows only where there
            is a GPU.
        cuda_major: CUDA version that each installed flavour was built with; 0 where its package's name does not tell.
        pycuda: is it installed.
    """

    driver: cuda.Driver | None
    versions: dict[str, str]
    cuda_major: dict[str, int]
    pycuda: bool


def this_machine() -> Machine:
    """Look at this machine; imports none of the heavy packages. Without a GPU nothing else is looked for."""
    driver = cuda.driver()
    if driver is None or not driver.devices:
        return Machine(driver, {}, {}, False)
    versions = {flavour: version for flavour in FLAVOURS if (version := installed_version(flavour)) is not None}
    made_for = {flavour: cuda_of(flavour) for flavour in versions}
    return Machine(driver, versions, made_for, find_spec("pycuda") is not None)


def obstacle(bundle: Bundle, machine: Machine) -> str | None:
    """Why the machine cannot run the bundle's plan, and what to do about it; None: nothing stands in the way."""
    plan = bundle.passport.plan
    if plan is not None and bundle.plan is None:
        return f"{bundle.path} is the graph without its plan, which is in the bundle's folder: give the folder"
    if plan is None:
        return f"{bundle.path} holds no TensorRT plan: build it with TensorRT installed (trtpost doctor says how)"
    driver = machine.driver
    if driver is None:
        return "there is no NVIDIA driver on this machine"
    if not driver.devices:
        return "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)"
    gpu, again = driver.devices[0], _rebuild(bundle, plan.flavour)
    if old := too_old(driver):
        return old
    if plan.flavour == "tensorrt_rtx" and (other := beyond_rtx(driver)):
        again = _rebuild(bundle, "tensorrt")
        return f"{other}; then {again}" if "tensorrt" not in machine.versions else f"{_elsewhere(plan, gpu)}: {again}"
    if plan.flavour not in machine.versions:
        command = command_for(plan.flavour, driver)
        return f"the plan needs {plan.flavour} {plan.version}, which is not installed: {command}"
    installed = machine.versions[plan.flavour]
    if installed != plan.version:
        return (
            f"the plan was built by {plan.flavour} {plan.version}, and plans run only in the version that built them, "
            f"but {installed} is installed here: {again}"
        )
    if not _runs_on(plan, gpu.compute_capability):
        return f"{_elsewhere(plan, gpu)}: {again}"
    needed = machine.cuda_major.get(plan.flavour, 0)
    if newest_cuda(driver) < needed:
        return (
            f"the driver supports CUDA {driver.cuda}, but {plan.flavour} {installed} needs CUDA {needed}: "
            "update the NVIDIA driver, or see what trtpost doctor --fix would do"
        )
    if not machine.pycuda:
        return "plans are run by pycuda, which is not installed: trtpost doctor --fix compiles it"
    return None


def _runs_on(plan: Plan, capability: str) -> bool:
    """Whether a GPU of this compute capability is one of those that the plan is for."""
    if capability in plan.target:
        return True
    major = int(capability.split(".", maxsplit=1)[0])
    if plan.flavour == "tensorrt_rtx":
        return major >= 12 and "12.0" in plan.target  # what is built for 12.0 is compiled for newer ones at load
    return plan.hardware_compatibility == "ampere+" and major >= 8


def _elsewhere(plan: Plan, gpu: cuda.Device) -> str:
    return f"the plan is for compute capability {', '.join(plan.target)}, but {gpu.name} has {gpu.compute_capability}"


def _rebuild(bundle: Bundle, flavour: str) -> str:
    command = f"trtpost build {shlex.quote(bundle.passport.source)} -o {shlex.quote(str(bundle.path))}"
    return f"build it again here, with the flags of the first time: {command} --flavour {flavour} --force"
