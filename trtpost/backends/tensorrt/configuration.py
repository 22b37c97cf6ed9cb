"""Refuses settings that a flavour of TensorRT lacks, and writes the others into its configuration."""

from __future__ import annotations

from typing import Any

from trtpost import cuda
from trtpost.backends.tensorrt.flavour import logger_of
from trtpost.backends.tensorrt.settings import COMPATIBILITIES, Settings
from trtpost.backends.tensorrt.suitable import FLAVOURS, RTX_TARGETS
from trtpost.errors import BackendError, SpecError
from trtpost.packages import require


def check_settings(flavour: str, settings: Settings) -> None:
    """Refuse what the flavour does not have, before any work is done; loads nothing.

    Args:
        flavour: `tensorrt`, `tensorrt_rtx` or `none`.
        settings: what is asked of it.

    Raises:
        SpecError: the message names the flavour, and what to do instead.
    """
    names = (
        "workspace",
        "optimization_level",
        "timing_cache",
        "hardware_compatibility",
        "compute_capabilities",
        "post",
    )
    asked = [name for name in names if getattr(settings, name) != getattr(Settings, name)]
    given = [f"--{name.replace('_', '-')}" for name in asked]
    if flavour == "none" and given:
        raise SpecError(f"flavour none builds no TensorRT plan, so {', '.join(given)} would do nothing: leave it out")
    if flavour == "tensorrt_rtx":
        if settings.timing_cache is not None:
            raise SpecError("tensorrt_rtx measures nothing while it builds, so it has no timing cache: leave it out")
        if settings.hardware_compatibility != "none":
            raise SpecError(
                "tensorrt_rtx has no hardware compatibility levels: "
                "its plans run on all GPUs of the compute capabilities given with --compute-capabilities"
            )
        if settings.post == "plugin":
            raise SpecError("tensorrt_rtx takes no plugins: use --post kernel, the same code after the plan")
    if flavour == "tensorrt" and settings.compute_capabilities:
        raise SpecError(
            "tensorrt builds for the GPU of this machine, so compute capabilities cannot be chosen: "
            "--hardware-compatibility lets the plan run on other GPUs"
        )


def check_builder(flavour: str, settings: Settings) -> None:
    """Refuse a flavour that cannot build here, before any work is done.

    Raises:
        MissingPackageError: it is not installed.
        BackendError: it needs a GPU, and there is none, or its version lacks what is asked.
    """
    trt = require(flavour, FLAVOURS[flavour], "building a TensorRT plan")
    driver = cuda.driver()
    if flavour == "tensorrt" and not (driver and driver.devices):
        raise BackendError(
            "tensorrt builds only on a machine with an NVIDIA GPU, and there is none here: "
            "use --flavour tensorrt_rtx, or none for the portable engine alone"
        )
    _compute_capabilities(trt, flavour, settings)
    _compatibility(trt, flavour, settings)


def configure(trt: Any, config: Any, flavour: str, settings: Settings) -> None:
    """Write the settings into TensorRT's `IBuilderConfig`; the timing cache has a module of its own.

    Raises:
        BackendError: TensorRT does not take one of them.
    """
    # layer names and types for --profile; costs nothing at run time
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if settings.workspace is not None:
        limit = settings.workspace << 20
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, limit)
        if config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) != limit:  # it only logs that it refuses
            raise BackendError(
                f"{flavour} does not take a workspace of {settings.workspace} MiB: {logger_of(flavour).last()}"
            )
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.hardware_compatibility != "none":
        config.hardware_compatibility_level = _compatibility(trt, flavour, settings)
    if settings.compute_capabilities:
        capabilities = _compute_capabilities(trt, flavour, settings)
        config.num_compute_capabilities = len(capabilities)
        for index, (name, capability) in enumerate(capabilities.items()):
            if not config.set_compute_capability(capability, index):
                raise BackendError(f"{flavour} does not compile for {name}: {logger_of(flavour).last()}")


def _compute_capabilities(trt: Any, flavour: str, settings: Settings) -> dict[str, Any]:
    """The members of TensorRT for RTX's enumeration, by our names such as `8.9`."""
    if not settings.compute_capabilities:
        return {}  # the full TensorRT has no such enumeration
    known = {
        f"{name[2:-1]}.{name[-1]}": member
        for name, member in trt.ComputeCapability.__members__.items()
        if name.startswith("SM")
    }
    for one in settings.compute_capabilities:
        if one not in known:
            raise BackendError(
                f"{flavour} {trt.__version__} does not compile for compute capability {one}: "
                f"choose from {', '.join(known)}, or build with the full TensorRT on such a GPU"
            )
    return {one: known[one] for one in settings.compute_capabilities}


def _compatibility(trt: Any, flavour: str, settings: Settings) -> Any:
    """The member of `HardwareCompatibilityLevel`; the first versions of TensorRT 10 lack one."""
    wanted = COMPATIBILITIES[settings.hardware_compatibility]
    member = trt.HardwareCompatibilityLevel.__members__.get(wanted)
    if member is None:
        raise BackendError(
            f"{flavour} {trt.__version__} has no hardware compatibility '{settings.hardware_compatibility}': "
            "update it, or leave --hardware-compatibility out"
        )
    return member


def targets(flavour: str, settings: Settings) -> tuple[str, ...]:
    """Compute capabilities that a plan is built for."""
    if flavour == "tensorrt_rtx":
        return settings.compute_capabilities or RTX_TARGETS
    driver = cuda.driver()
    return (driver.devices[0].compute_capability,) if driver and driver.devices else ()
