"""From a baked graph to a serialized TensorRT plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import onnx

from trtpost.backends.tensorrt.flavour import FLAVOURS, logger_of, strongly_typed, targets
from trtpost.bundle import Plan
from trtpost.errors import BackendError
from trtpost.graph.quantization import is_asymmetric, with_float_quantization
from trtpost.packages import require


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
    logger = logger_of(flavour)
    logger.messages.clear()
    builder = trt.Builder(logger)
    if builder is None:
        raise BackendError(f"{flavour} cannot start its builder: {logger.last()}")
    network = builder.create_network(strongly_typed(trt))
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
    return bytes(plan), Plan(flavour, str(trt.__version__), targets(flavour), dict(sorted(layers.items())))


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
