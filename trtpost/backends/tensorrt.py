"""Both flavours of TensorRT behind one adapter: `tensorrt`, and `tensorrt_rtx` (TensorRT for RTX).

Everything that differs between flavours and versions is in this file.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

from trtpost import cuda
from trtpost.bundle import Plan
from trtpost.errors import BackendError
from trtpost.graph.precision import is_asymmetric, with_float_quantization
from trtpost.packages import installed_version, require

FLAVOURS = {"tensorrt": "tensorrt", "tensorrt_rtx": "rtx"}
"""Module name to the extra that installs it, the preferred one first."""

RTX_TARGETS = ("8.0", "8.6", "8.9", "12.0")
"""Compute capabilities that a TensorRT for RTX plan runs on when none is chosen: it compiles for the GPU at load."""


@dataclass(frozen=True)
class Profile:
    """Ranges of a plan's dynamic dimensions.

    Attributes:
        max_batch: images in one call; 1 where the network's batch is fixed.
        max_size: (H, W), the largest mask, or photo with size `image`.
        typical_size: (H, W), the one that TensorRT tunes for.
    """

    max_batch: int
    max_size: tuple[int, int]
    typical_size: tuple[int, int] = (1080, 1920)


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
        "no TensorRT is installed: pip install 'trtpost[rtx]' (or 'trtpost[tensorrt]' on a machine with a GPU)",
    )


def check_builder(flavour: str) -> None:
    """Refuse a flavour that cannot build here, before any work is done.

    Raises:
        MissingPackageError: it is not installed.
        BackendError: it needs a GPU, and there is none.
    """
    require(flavour, FLAVOURS[flavour], "building a TensorRT plan")
    driver = cuda.driver()
    if flavour == "tensorrt" and not (driver and driver.devices):
        raise BackendError(
            "tensorrt builds only on a machine with an NVIDIA GPU, and there is none here: "
            "use --flavour tensorrt_rtx, or none for the portable engine alone"
        )


def build_plan(model: onnx.ModelProto, profile: Profile, flavour: str) -> tuple[bytes, Plan]:
    """Build a plan from a baked graph.

    Args:
        model: the baked graph; its types are the plan's (strongly typed network).
        profile: ranges of batch and sizes.
        flavour: `tensorrt` or `tensorrt_rtx`.

    Returns:
        The serialized plan, and what is to be known of it.

    Raises:
        BackendError: the parser or builder refuses the graph; the message names node and operator.
        MissingPackageError: the flavour is not installed.
    """
    trt = require(flavour, FLAVOURS[flavour], "building a TensorRT plan")
    if is_asymmetric(model):
        model = with_float_quantization(model)
    logger = _logger(flavour)
    logger.messages.clear()
    builder = trt.Builder(logger)
    if builder is None:
        raise BackendError(f"{flavour} cannot start its builder: {logger.last()}")
    network = builder.create_network(_strongly_typed(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model.SerializeToString()):
        raise BackendError(_parser_error(parser, flavour))
    config = builder.create_builder_config()
    dynamic = _optimization_profile(builder, network, profile)
    if dynamic is not None and config.add_optimization_profile(dynamic) < 0:
        raise BackendError(f"{flavour} refuses the optimization profile: {logger.last()}")
    layers = Counter(network.get_layer(index).type.name for index in range(network.num_layers))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BackendError(f"{flavour} cannot build the plan: {logger.last()}")
    return bytes(plan), Plan(flavour, str(trt.__version__), _targets(flavour), dict(sorted(layers.items())))


def _strongly_typed(trt: Any) -> int:
    """TensorRT 10 has weakly typed networks too; TensorRT 11 keeps the flag, though it knows nothing else."""
    flags = trt.NetworkDefinitionCreationFlag
    flag = getattr(flags, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _targets(flavour: str) -> tuple[str, ...]:
    if flavour == "tensorrt_rtx":
        return RTX_TARGETS
    driver = cuda.driver()
    return (driver.devices[0].compute_capability,) if driver and driver.devices else ()


def _optimization_profile(builder: Any, network: Any, profile: Profile) -> Any:
    """Ranges for every dynamic input; None where all are fixed."""
    result, used = builder.create_optimization_profile(), False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        shape = tuple(tensor.shape)
        if tensor.name == "output_size":
            result.set_shape_input(tensor.name, (1, 1), profile.typical_size, profile.max_size)
        elif tensor.name == "region":
            largest = max(profile.max_size)  # logits are no larger than masks
            result.set_shape_input(tensor.name, (0, 0, 1, 1), (0, 0, 64, 64), (largest,) * 4)
        elif tensor.name in ("rows", "cols"):
            side = 0 if tensor.name == "rows" else 1
            result.set_shape(tensor.name, (1,), (profile.typical_size[side],), (profile.max_size[side],))
        elif -1 in shape:
            result.set_shape(
                tensor.name,
                _shape(shape, 1, (1, 1)),
                _shape(shape, 1, profile.typical_size),
                _shape(shape, profile.max_batch, profile.max_size),
            )
        else:
            continue
        used = True
    return result if used else None


def _shape(shape: tuple[int, ...], batch: int, size: tuple[int, int]) -> tuple[int, ...]:
    """An image input [N, H, W, C] with the dynamic dimensions filled in."""
    return tuple(dim if dim >= 0 else known for dim, known in zip(shape, (batch, *size, shape[3]), strict=True))


def _parser_error(parser: Any, flavour: str) -> str:
    error = parser.get_error(0)
    described = error.desc().strip().splitlines()
    what = described[-1] if described else "no reason given"
    return (
        f"{flavour} does not take the operator {error.node_operator()} (node '{error.node_name()}'): {what}; "
        "build without a plan (--flavour none), or replace the operator in the model"
    )


@cache
def _logger(flavour: str) -> Any:
    """One logger a process: TensorRT keeps the first that it is given and ignores the others."""
    trt = require(flavour, FLAVOURS[flavour], "TensorRT")

    class Collector(trt.ILogger):  # type: ignore[misc, name-defined]
        """Keeps warnings and errors for our own messages; prints nothing."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.messages.append(text.strip())

        def last(self) -> str:
            """The last error on one line."""
            return self.messages[-1].splitlines()[0] if self.messages else "it gives no reason"

    return Collector()
