"""Builds a serialized TensorRT plan from a baked graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from trtpost.backends.tensorrt import timing_cache
from trtpost.backends.tensorrt.append import append_postprocess
from trtpost.backends.tensorrt.bytes_as_floats import with_float_photo
from trtpost.backends.tensorrt.configuration import configure, targets
from trtpost.backends.tensorrt.flavour import load, logger_of, strongly_typed
from trtpost.backends.tensorrt.monitor import Phases, interruptible, monitor_of
from trtpost.backends.tensorrt.resize_rewriting import for_tensorrt
from trtpost.backends.tensorrt.settings import Settings
from trtpost.bundle.passport import Plan
from trtpost.errors import BackendError, ModelError, PrecisionError
from trtpost.graph.baking.postprocess import spatial
from trtpost.graph.baking.seam import split
from trtpost.graph.precision.float_pixels import with_float_pixels
from trtpost.graph.precision.float_quantization import dequantized_for_tensorrt
from trtpost.letterbox import region_of
from trtpost.progress import Step
from trtpost.spec import Post, Pre

if TYPE_CHECKING:
    import tensorrt as trt

COMPUTE_LAYERS = ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "EINSUM")
"""Layers that do the network's arithmetic; what lies between them runs in the type that they leave."""

_PRECISIONS = {"FLOAT": "fp32", "HALF": "fp16"}
"""TensorRT's names of types that we call otherwise; the rest differ in case alone."""


@dataclass(frozen=True)
class Profile:
    """Ranges of a plan's dynamic dimensions.

    Attributes:
        max_batch: images in one call; 1 where the network's batch is fixed.
        max_size: (H, W), the largest mask, or photo with size `image`.
        logits_size: (h, w) of the network's output, in which a letterbox lies.
    """

    max_batch: int
    max_size: tuple[int, int]
    logits_size: tuple[int, int] = (1024, 1024)

    @property
    def typical_size(self) -> tuple[int, int]:
        """(H, W) that TensorRT tunes for: full HD, if it may be as large."""
        return min(1080, self.max_size[0]), min(1920, self.max_size[1])


@dataclass(frozen=True)
class Range:
    """What one input of a plan may be: its shape, or, where it holds sizes (`is_value`), its values."""

    least: tuple[int, ...]
    typical: tuple[int, ...]
    most: tuple[int, ...]
    is_value: bool = False


def build_plan(
    model: onnx.ModelProto,
    profile: Profile,
    flavour: str,
    settings: Settings | None = None,
    *,
    spec: tuple[Pre, Post] | None = None,
    name: str = "",
    step: Step | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> tuple[bytes, Plan]:
    """Build a plan from a baked graph.

    TensorRT works in a thread of its own: an interrupt (Ctrl-C) is raised at once, and TensorRT ends at its next step.

    Args:
        model: the baked graph; its types are the plan's (strongly typed network).
        profile: ranges of batch and sizes.
        flavour: `tensorrt` or `tensorrt_rtx`.
        settings: what the builder is told; None: the defaults.
        spec: what was baked; needed where `settings.post` is `plugin`.
        name: the network's, which the plan carries; at most `flavour.NAME_LIMIT` bytes.
        step: is told how far the build is, from the other thread.
        warn: takes a sentence on what may be wrong though the build goes on, from either thread.

    Returns:
        The serialized plan, and what is to be known of it.

    Raises:
        BackendError: the parser or builder refuses the graph; the message names node and operator.
        PrecisionError: what `settings` ask for is not what most of the network computes in.
        MissingPackageError: the flavour is not installed.
    """
    settings = settings or Settings()
    phases = Phases(step.advance if step is not None else lambda *_: None)
    plan, facts, measured = interruptible(
        lambda: _build(model, profile, flavour, settings, spec, name, phases, warn), phases.stop
    )
    if settings.timing_cache is not None and measured:
        timing_cache.save(measured, settings.timing_cache, warn)
    return plan, facts


def _build(
    model: onnx.ModelProto,
    profile: Profile,
    flavour: str,
    settings: Settings,
    spec: tuple[Pre, Post] | None,
    name: str,
    phases: Phases,
    warn: Callable[[str], None],
) -> tuple[bytes, Plan, bytes]:
    """The plan, what is to be known of it, and the content of the timing cache."""
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = load(flavour)
    logger = logger_of(flavour)
    logger.clear()
    builder = trt.Builder(logger)
    if builder is None:
        raise BackendError(f"{flavour} cannot start its builder: {logger.last()}")
    network = builder.create_network(strongly_typed(trt))
    parser = trt.OnnxParser(network, logger)  # lives as long as the network: it holds the weights
    graph = model if settings.post == "native" else split(model)[0]
    try:
        graph = with_float_pixels(dequantized_for_tensorrt(graph))
    except ModelError as error:
        raise BackendError(str(error)) from None
    if not parser.parse(with_float_photo(for_tensorrt(graph)).SerializeToString()):
        raise BackendError(_parser_errors(parser, flavour))
    if settings.post == "plugin" and spec is not None:
        _append_plugin(network, *spec)
    network.name = name
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    name_parts(layers)
    precisions = precisions_of(layers)
    check_precision(precisions, settings.precision, flavour)
    config = builder.create_builder_config()
    configure(trt, config, flavour, settings)
    if settings.timing_cache is not None:
        timing_cache.attach(config, settings.timing_cache, logger, warn)
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    ranges = ranges_of({tensor.name: tuple(tensor.shape) for tensor in inputs}, profile)
    if ranges and config.add_optimization_profile(_optimization_profile(builder, ranges)) < 0:
        raise BackendError(f"{flavour} refuses the optimization profile: {logger.last()}")
    config.progress_monitor = monitor = monitor_of(trt, phases)  # must outlive the build, and TensorRT does not hold it
    logger.clear()  # so that the last error is the builder's
    plan = builder.build_serialized_network(network, config)
    del monitor
    if phases.failure is not None:
        raise phases.failure
    if plan is None:
        raise BackendError(f"{flavour} cannot build the plan: {logger.last()}")
    facts = Plan(
        flavour=flavour,
        version=str(trt.__version__),
        target=targets(flavour, settings),
        layers=dict(sorted(Counter(layer.type.name for layer in layers).items())),
        precisions=precisions,
        post=settings.post,
        hardware_compatibility=settings.hardware_compatibility,
    )
    return bytes(plan), facts, timing_cache.content_of(config) if settings.timing_cache is not None else b""


def _append_plugin(network: trt.INetworkDefinition, pre: Pre, post: Post) -> None:
    """Make the mask of a network that ends in logits with our plugin; sizes become inputs as in the baked graph."""
    logits, image = network.get_output(0), network.get_input(0)
    network.unmark_output(logits)
    region = None
    if isinstance(post.size, tuple) and pre.fit == "letterbox":
        region = region_of(post.size, (pre.height, pre.width), spatial(post, tuple(logits.shape)))
    append_postprocess(
        network, logits, post, region=region, image=image if post.size == "image" else None, lowering="plugin"
    )


def name_parts(layers: list[trt.ILayer]) -> None:
    """Begin each layer's name with the part of the baked graph that it comes from: `pre/`, `network/` or `post/`.

    The parser calls the layers of a function's body after the tensors in it, and its own helpers after nothing; whoever
    times layers wants to know where they belong. Layers are in the order of the graph.
    """
    part = "pre/"
    for layer in layers:
        known = f"{layer.name} {layer.metadata}"  # metadata name the ONNX nodes, outermost last
        part = next((one for one in ("post/", "network/", "pre/") if one in known), part)
        if part not in layer.name:
            layer.name = part + layer.name


def precisions_of(layers: list[trt.ILayer]) -> dict[str, int]:
    """Number of compute layers in each precision that they really compute in, the commonest first.

    Args:
        layers: all `ILayer` of a strongly typed network.
    """
    producers = {layer.get_output(index).name: layer for layer in layers for index in range(layer.num_outputs)}
    found = Counter(_precision(layer, producers) for layer in layers if layer.type.name in COMPUTE_LAYERS)
    return dict(found.most_common())


def _precision(layer: trt.ILayer, producers: dict[str, trt.ILayer]) -> str:
    """What a layer computes in: the type of its inputs, or, where all are dequantised, the type before that."""
    operands = [layer.get_input(index) for index in range(min(layer.num_inputs, 2))]  # the third is a bias
    quantized = {_quantized(operand, producers) for operand in operands if operand is not None}
    kind = quantized.pop() if len(quantized) == 1 and len(operands) == 2 else None
    kind = kind or operands[0].dtype.name
    return _PRECISIONS.get(kind, kind.lower())


def _quantized(operand: trt.ITensor, producers: dict[str, trt.ILayer]) -> str | None:
    """Type of the integers that an operand was dequantised from; None where it was not."""
    producer = producers.get(operand.name)
    while producer is not None and producer.type.name in ("SHUFFLE", "IDENTITY"):  # the parser broadcasts with them
        producer = producers.get(producer.get_input(0).name)
    if producer is None or producer.type.name != "DEQUANTIZE":
        return None
    return str(producer.get_input(0).dtype.name)


def check_precision(precisions: dict[str, int], asked: str, flavour: str) -> None:
    """Refuse a plan most of whose compute layers do not do what was asked for; `fp32` asks for nothing.

    Raises:
        PrecisionError: it is not; the message gives the numbers.
    """
    total, found = sum(precisions.values()), precisions.get(asked, 0)
    if asked == "fp32" or not total or 2 * found > total:
        return
    others = ", ".join(f"{count} in {name}" for name, count in precisions.items() if name != asked)
    raise PrecisionError(
        f"precision {asked} was asked for, but only {found} of {total} compute layers of the {flavour} network have "
        f"it ({others}): choose another --precision"
    )


def ranges_of(inputs: dict[str, tuple[int, ...]], profile: Profile) -> dict[str, Range]:
    """Ranges of all inputs that are not fixed: everything that the passport promises, and no more.

    Args:
        inputs: shape of each input by name, -1 where dynamic.
        profile: what is promised.
    """
    result = {}
    for name, shape in inputs.items():
        if name == "output_size":
            result[name] = Range((1, 1), profile.typical_size, profile.max_size, is_value=True)
        elif name == "region":
            height, width = profile.logits_size  # which may be larger or smaller than the mask
            most = (height - 1, width - 1, height, width)
            result[name] = Range((0, 0, 1, 1), (0, 0, height, width), most, is_value=True)
        elif name in ("rows", "cols"):
            side = ("rows", "cols").index(name)
            result[name] = Range((1,), (profile.typical_size[side],), (profile.max_size[side],))
        elif -1 in shape:
            result[name] = Range(
                _filled(shape, 1, (1, 1)),
                _filled(shape, 1, profile.typical_size),
                _filled(shape, profile.max_batch, profile.max_size),
            )
    return result


def _filled(shape: tuple[int, ...], batch: int, size: tuple[int, int]) -> tuple[int, ...]:
    """The shape of an image input [N, H, W, C] with the dynamic dimensions filled in."""
    return tuple(dim if dim >= 0 else known for dim, known in zip(shape, (batch, *size, shape[3]), strict=True))


def _optimization_profile(builder: trt.Builder, ranges: dict[str, Range]) -> trt.IOptimizationProfile:
    result = builder.create_optimization_profile()
    for name, one in ranges.items():
        set_range = result.set_shape_input if one.is_value else result.set_shape
        set_range(name, one.least, one.typical, one.most)
    return result


def _parser_errors(parser: trt.OnnxParser, flavour: str) -> str:
    """A sentence on all that the parser does not take: the first in full, of the others the operators."""
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    if not errors:
        return f"{flavour} cannot read the graph, and gives no reason: build without a plan (--flavour none)"
    first, *others = errors
    described = first.desc().strip().splitlines()
    what = described[-1].removeprefix("Assertion failed: ") if described else "no reason given"
    if what == "false":  # the condition that its source says
        what = "it has no such layer"
    elif said := re.search(r'&& "(.+)"', what):  # a condition, and what it means
        what = said.group(1)
    where = f"node '{first.node_name()}'" if first.node_name() else f"node number {first.node()}"
    operators = ", ".join(sorted({error.node_operator() for error in others}))
    more = f", and {len(others)} more nodes ({operators})" if others else ""
    return (
        f"{flavour} does not take the operator {first.node_operator()} ({where}): {what}{more}; "
        "build without a plan (--flavour none), or replace the operator in the model"
    )
