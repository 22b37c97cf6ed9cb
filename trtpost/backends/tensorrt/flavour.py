"""What differs between the Python API of the two flavours of TensorRT and of their versions, and nothing else.

`tensorrt` (data centre, Jetson; 10 and 11) and `tensorrt_rtx` (TensorRT for RTX) have nearly the same one.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

from trtpost.backends.tensorrt.suitable import FLAVOURS
from trtpost.errors import BackendError, SpecError
from trtpost.packages import require

NAME_LIMIT = 4095
"""Bytes that the name of a network may have, in every version."""


def strongly_typed(trt: Any) -> int:
    """The flag of a strongly typed network: TensorRT 11 keeps it, though it knows nothing else."""
    flags = trt.NetworkDefinitionCreationFlag
    flag = getattr(flags, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


@cache
def logger_of(flavour: str) -> Any:
    """The one logger of a process: TensorRT keeps the first that it is given and ignores the others."""
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
    """Import the module of a flavour.

    Raises:
        MissingPackageError: it is not installed.
    """
    return require(flavour, FLAVOURS[flavour], "TensorRT")


def load_plugins(flavour: str) -> Any:
    """Import `tensorrt.plugin`, in a version whose plans carry their plugins' kernels.

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
        """Make a context; `settled` says that its shapes will not change again.

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
    """True where a CUDA graph can be recorded of a context now; TensorRT for RTX alone knows it before one tries."""
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
