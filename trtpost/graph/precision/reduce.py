"""The network in fewer bits: precision is a property of the typed graph, and an engine computes in its types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.errors import ModelError, SpecError
from trtpost.graph import ops
from trtpost.graph.baked import source_name
from trtpost.graph.baking.preprocess import pixel_model
from trtpost.graph.emulate import BFLOAT16, FLOAT, FLOAT16, session
from trtpost.graph.precision.float_quantization import is_asymmetric, with_float_quantization
from trtpost.graph.precision.int8 import quantized
from trtpost.graph.precision.sixteen_bits import in_16_bits
from trtpost.graph.precision.tidy import finished, tidied
from trtpost.graph.proto import element_types
from trtpost.spec import PRECISIONS, Located, Pre, Precision


def reduced(
    network: onnx.ModelProto,
    precision: Precision,
    calibration: Iterable[NDArray[Any]] = (),
    *,
    on_photo: Callable[[], None] | None = None,
) -> onnx.ModelProto:
    """The network in another precision; its names stay, and its input stays as it is (uint8 pixels become float32).

    Args:
        network: as `network_of` gives it, in float32. Quantised as TFLite does it, it becomes fp16 or bf16 with its
            own quantisation kept; of float16, it stays as it is for fp32 and fp16.
        precision: `fp32` gives the network itself. With `fp16` and `bf16` the logits are of that type, but the
            probabilities of a Sigmoid that ends the network float32; `int8` is quantised by `QuantizeLinear` and
            `DequantizeLinear` pairs around convolutions, with float32 between them.
        calibration: for int8, photos as the network takes them (`network_inputs`), each read once.
        on_photo: is called after each of them.

    Raises:
        ModelError: this network cannot be had in this precision.
        SpecError: int8 without photos, or no such precision.
    """
    if precision not in PRECISIONS:
        raise SpecError(f"precision must be one of {', '.join(PRECISIONS)}, not '{precision}'")
    if precision == "fp32":
        return network
    if spoilt := spoilt_weights(network):
        raise ModelError(
            f"weight '{spoilt[0]}' holds NaN or infinities, which no other precision mends: export the network anew"
        )
    types = element_types(network.graph).values()
    operators = {node.op_type for node in network.graph.node}
    if FLOAT16 in types or BFLOAT16 in types:
        if precision == "fp16" and BFLOAT16 not in types:
            return network
        raise ModelError(
            f"the network is in 16-bit floating point already, and --precision {precision} would round it once more: "
            "leave --precision out, or export the network in float32"
        )
    if "QuantizeLinear" in operators or "DequantizeLinear" in operators:
        if not is_asymmetric(network):
            if precision == "int8":
                return network
            raise ModelError(
                f"the network is quantised to int8 already, which is faster than {precision}: leave --precision out"
            )
        if precision == "int8":
            raise ModelError(
                "the network is quantised already, as TFLite does it (uint8, or zero points), which TensorRT does not "
                "take: use --precision fp16, or give the float model it was made from and --precision int8"
            )
        network = with_float_quantization(network)
        # TensorRT has UINT8 at the edges of an engine alone, and whole numbers are exact in float32
        network.graph.input[0].type.tensor_type.elem_type = FLOAT
    model = tidied(network)
    result = quantized(model, calibration, on_photo) if precision == "int8" else in_16_bits(model, precision)
    return finished(result, network)


def network_inputs(photos: Iterable[NDArray[np.uint8]], pre: Pre, located: Located) -> Iterator[NDArray[Any]]:
    """Turn photos, uint8 [h, w, C] at network resolution, into what the network takes: its layout, type and batch."""
    model = pixel_model(pre, layout=located.input_layout, dtype=located.input_dtype, batch="N", resize=False, opset=17)
    run = session(model).run
    for photo in photos:
        batch = np.repeat(photo[None], located.batch or 1, axis=0)
        yield run(None, {"image": batch})[0]


def spoilt_weights(model: onnx.ModelProto) -> list[str]:
    """Names of weights of convolutions and matrix products that hold NaN or infinities."""
    used = {name for node in model.graph.node if node.op_type in ops.WEIGHTED for name in node.input}
    return [
        source_name(one.name)
        for one in model.graph.initializer
        if one.name in used and not np.isfinite(onnx.numpy_helper.to_array(one).astype(np.float32)).all()
    ]
