"""What differs between the two flavours of TensorRT and between their versions, and nothing else.

`tensorrt` (data centre, Jetson; 10 and 11) and `tensorrt_rtx` (TensorRT for RTX) have nearly the same Python API.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from trtpost import cuda
from trtpost.errors import BackendError, SpecError
from trtpost.packages import INDEXES, installation, installed_version, packages_of, pip_here, require

if TYPE_CHECKING:
    from trtpost.backends.tensorrt.settings import Settings

FLAVOURS = {"tensorrt": "tensorrt", "tensorrt_rtx": "rtx"}
"""Module name to the extra that installs it, the preferred one first."""

RTX_TARGETS = ("8.0", "8.6", "8.9", "12.0")
"""Compute capabilities that a TensorRT for RTX plan runs on when none is chosen: it compiles for the GPU at load."""

TURING = "7.5"
"""The one that TensorRT for RTX also knows, and leaves out of a plan unless it is asked for."""

OLDEST_CAPABILITY = 7.5
"""Of the GPUs that TensorRT knows, in both flavours, since 10.5."""

OLDEST_CUDA, NEWEST_CUDA = 12, 13
"""CUDA versions that there are TensorRT packages for; a driver runs what is made for its own or an older one."""

NAME_LIMIT = 4095
"""Bytes that the name of a network may have, in every version."""


def builder_here() -> tuple[str | None, str]:
    """The flavour that can build a plan on this machine, and why.

    The full TensorRT times its kernels while it builds, so it needs the GPU; TensorRT for RTX does not.
    """
    driver = cuda.driver()
    gpu = driver.devices[0] if driver and driver.devices else None
    if installed_version("tensorrt") and gpu:
        return "tensorrt", f"tensorrt {installed_version('tensorrt')} is installed and there is a GPU ({gpu.name})"
    if installed_version("tensorrt_rtx"):
        return (
            "tensorrt_rtx",
            f"TensorRT for RTX {installed_version('tensorrt_rtx')} is installed and builds without a GPU",
        )
    if installed_version("tensorrt"):
        return (
            None,
            "tensorrt is installed, but it builds only on a machine with an NVIDIA GPU, and there is none here",
        )
    return (
        None,
        f"no TensorRT is installed: {command_for('tensorrt_rtx', driver)} (or, on a machine with a GPU, the full one)",
    )


def newest_cuda(driver: cuda.Driver) -> int:
    """The newest CUDA version that a driver runs packages of."""
    return int(driver.cuda.split(".", maxsplit=1)[0])


def cuda_of(flavour: str) -> int:
    """The CUDA version that the installed package of a flavour is made for; 0 where its name does not tell."""
    found = [re.search(r"cu(\d+)", package.name) for package in packages_of(flavour)]
    return max((int(one.group(1)) for one in found if one), default=0)


def package_for(flavour: str, driver: cuda.Driver) -> str:
    """The package of a flavour whose libraries a driver runs."""
    series = min(newest_cuda(driver), NEWEST_CUDA)
    return f"tensorrt{'-rtx' if flavour == 'tensorrt_rtx' else ''}-cu{series}"


def command_for(flavour: str, driver: cuda.Driver | None) -> str:
    """The command that installs a flavour, in the package that this machine's driver runs where there is one."""
    if driver is None:
        return installation(FLAVOURS[flavour])
    return f"{pip_here()} install {package_for(flavour, driver)}{INDEXES.get(FLAVOURS[flavour], '')}"


def too_old(driver: cuda.Driver) -> str | None:
    """Why no TensorRT runs on the first GPU, whatever is installed; None: one does."""
    gpu = driver.devices[0]
    if newest_cuda(driver) < OLDEST_CUDA:
        return f"the driver supports CUDA {driver.cuda}, and TensorRT needs {OLDEST_CUDA} or later: update the driver"
    if float(gpu.compute_capability) < OLDEST_CAPABILITY:
        return (
            f"{gpu.name} has compute capability {gpu.compute_capability}, and TensorRT needs {OLDEST_CAPABILITY} or "
            "later"
        )
    return None


def beyond_rtx(driver: cuda.Driver) -> str | None:
    """That TensorRT for RTX does not know the first GPU, and the command that installs the one that does.

    None where it knows it: by its support matrix 7.5, 8.0, 8.6, 8.9, and 12.0 and later.
    """
    if old := too_old(driver):
        return old
    gpu = driver.devices[0]
    if gpu.compute_capability in (TURING, *RTX_TARGETS) or float(gpu.compute_capability) >= 12:
        return None
    return (
        f"TensorRT for RTX does not know {gpu.name}, compute capability {gpu.compute_capability}; the full TensorRT "
        f"does: {command_for('tensorrt', driver)}"
    )


def capabilities_here(flavour: str | None, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """The compute capabilities that a plan is built for: those chosen, or what lets it run on the GPU of this machine.

    Empty: the flavour's default, among which every GPU is that it knows, but for one in TensorRT for RTX.
    """
    driver = cuda.driver() if flavour == "tensorrt_rtx" and not chosen else None
    if driver and driver.devices and driver.devices[0].compute_capability == TURING:
        return (TURING,)
    return chosen


def check_settings(flavour: str, settings: Settings) -> None:
    """Refuse what the flavour does not have, before any work is done; loads nothing.

    Args:
        flavour: `tensorrt`, `tensorrt_rtx` or `none`.
        settings: what is asked of it.

    Raises:
        SpecError: the message names the flavour, and what to do instead.
    """
    asked = {
        "--workspace": settings.workspace is not None,
        "--optimization-level": settings.optimization_level is not None,
        "--timing-cache": settings.timing_cache is not None,
        "--hardware-compatibility": settings.hardware_compatibility != "none",
        "--compute-capabilities": bool(settings.compute_capabilities),
        "--post": settings.post != "native",
    }
    given = [flag for flag, is_given in asked.items() if is_given]
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
    from trtpost.backends.tensorrt.settings import COMPATIBILITIES

    wanted = COMPATIBILITIES[settings.hardware_compatibility]
    member = trt.HardwareCompatibilityLevel.__members__.get(wanted)
    if member is None:
        raise BackendError(
            f"{flavour} {trt.__version__} has no hardware compatibility '{settings.hardware_compatibility}': "
            "update it, or leave --hardware-compatibility out"
        )
    return member


def strongly_typed(trt: Any) -> int:
    """TensorRT 10 has weakly typed networks too; TensorRT 11 keeps the flag, though it knows nothing else."""
    flags = trt.NetworkDefinitionCreationFlag
    flag = getattr(flags, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def targets(flavour: str, settings: Settings) -> tuple[str, ...]:
    """Compute capabilities that a plan is built for."""
    if flavour == "tensorrt_rtx":
        return settings.compute_capabilities or RTX_TARGETS
    driver = cuda.driver()
    return (driver.devices[0].compute_capability,) if driver and driver.devices else ()


@cache
def logger_of(flavour: str) -> Any:
    """One logger a process: TensorRT keeps the first that it is given and ignores the others."""
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = load(flavour)

    class Collector(trt.ILogger):
        """Keeps warnings and errors for our own messages; prints nothing."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: deque[str] = deque(maxlen=100)
            self.warnings: deque[str] = deque(maxlen=100)

        def clear(self) -> None:
            """Forget what earlier builds have said."""
            self.messages.clear()
            self.warnings.clear()

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.messages.append(text.strip())
            elif severity == trt.ILogger.WARNING:
                self.warnings.append(text.strip())

        def last(self) -> str:
            """The last error on one line."""
            # where there is no driver, TensorRT for RTX follows every error with one about that
            errors = [text for text in self.messages if "catchCudaError" not in text] or self.messages
            return errors[-1].splitlines()[0] if errors else "it gives no reason"

    return Collector()


def flavour_of(network: Any) -> str:
    """The flavour that a network was made with.

    Raises:
        SpecError: it is no network of TensorRT's.
    """
    package = type(network).__module__.split(".", maxsplit=1)[0]  # tensorrt_rtx_bindings, tensorrt_bindings, tensorrt
    if not package.startswith("tensorrt"):
        raise SpecError(f"the network must be a TensorRT INetworkDefinition, not {type(network).__name__}")
    return "tensorrt_rtx" if package.startswith("tensorrt_rtx") else "tensorrt"


def load(flavour: str) -> Any:
    """The module of a flavour.

    Raises:
        MissingPackageError: it is not installed.
    """
    return require(flavour, FLAVOURS[flavour], "TensorRT")


def load_plugins(flavour: str) -> Any:
    """The module `tensorrt.plugin`, in a version whose plans carry their plugins' kernels.

    Raises:
        BackendError: the flavour or version takes no such plugins.
        MissingPackageError: the flavour is not installed.
    """
    trt = load(flavour)
    if flavour == "tensorrt_rtx":
        raise BackendError("tensorrt_rtx takes no plugins: use lowering 'native', or our kernel after the plan")
    if not hasattr(trt, "QuickPluginCreationRequest"):
        raise BackendError(
            f"tensorrt {trt.__version__} has no plugins that are compiled ahead of time: "
            "update it to 10.8 or later, or use lowering 'native'"
        )
    return require("tensorrt.plugin", FLAVOURS[flavour], "the plugin")


class ContextMaker:
    """Makes the execution contexts of an engine, whose scratch memory is the caller's."""

    def __init__(self, flavour: str, engine: Any) -> None:
        self._trt, self._flavour, self._engine = load(flavour), flavour, engine
        self._cache: Any = None

    def make(self, *, settled: bool = False) -> Any:
        """A new context; `settled`: its shapes will not change again.

        Raises:
            BackendError: there is not enough memory for it.
        """
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if self._flavour == "tensorrt_rtx":
            # TensorRT for RTX compiles for the GPU here. Contexts share what was compiled. Kernels for one shape alone
            # are worth the wait where the shape stays, and a recorded graph would never see those that come later.
            config = self._engine.create_runtime_config()
            config.set_execution_context_allocation_strategy(strategy)
            kinds = self._trt.DynamicShapesKernelSpecializationStrategy
            config.dynamic_shapes_kernel_specialization_strategy = kinds.EAGER if settled else kinds.LAZY
            self._cache = self._cache or config.create_runtime_cache()
            config.set_runtime_cache(self._cache)
            context = self._engine.create_execution_context(config)
        else:
            context = self._engine.create_execution_context(strategy)
        if context is None:
            raise BackendError(f"{self._flavour} cannot prepare the plan to run: {logger_of(self._flavour).last()}")
        return context

    def close(self) -> None:
        """Let go of the engine."""
        self._engine = self._cache = None


def set_device_memory(context: Any, address: int, size: int) -> None:
    """Give a context its scratch memory; TensorRT 10.0 does not ask for its size."""
    if hasattr(context, "set_device_memory"):
        context.set_device_memory(address, size)
    else:
        context.device_memory = address


def is_capturable(context: Any, stream: int) -> bool:
    """Whether a CUDA graph can be recorded of a context now; TensorRT for RTX alone knows it before one tries."""
    ask = getattr(context, "is_stream_capturable", None)
    return ask is None or bool(ask(stream))


def layer_clock(flavour: str) -> Any:
    """An `IProfiler` that keeps name and milliseconds of each layer in `layers`."""
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = load(flavour)

    class Clock(trt.IProfiler):
        """Keeps what it is told."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.layers: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.layers.append((layer_name, ms))

    return Clock()
