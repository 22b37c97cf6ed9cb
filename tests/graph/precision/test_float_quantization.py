"""Quantisation in float arithmetic is the quantisation of the ONNX standard."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from nets import kernel, net
from quantised import drawn, from_text

from trtpost.errors import ModelError
from trtpost.graph.precision.float_quantization import (
    dequantized_for_tensorrt,
    is_asymmetric,
    with_float_quantization,
)
from trtpost.graph.reading.model import normalized


def quantized(zero: np.generic, weight_zero: np.ndarray, axis_scale: np.ndarray) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    info = np.iinfo(weight_zero.dtype)
    return net(
        """q = QuantizeLinear (image, s, z)
           x = DequantizeLinear (q, s, z)
           k = DequantizeLinear <axis = 0> (kq, ks, kz)
           y = Conv (x, k)
           yq = QuantizeLinear (y, s2, z)
           logits = DequantizeLinear (yq, s2, z)""",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        s=np.float32(0.013),
        s2=np.float32(0.21),
        z=np.array(zero),
        kq=rng.integers(info.min, info.max, (4, 3, 1, 1)).astype(weight_zero.dtype),
        ks=axis_scale,
        kz=weight_zero,
    )


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(quantized(np.uint8(131), np.uint8(120), np.float32(0.02)), id="uint8-per-tensor"),
        pytest.param(
            quantized(np.int8(-7), np.zeros(4, np.int8), np.array([0.1, 0.02, 0.3, 0.04], np.float32)),
            id="int8-per-channel",
        ),
    ],
)
def test_values_stay_equal(model):
    assert is_asymmetric(model)
    plain = with_float_quantization(model)
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in plain.graph.node}
    np.testing.assert_array_equal(result_of(model), result_of(plain))


def result_of(model: onnx.ModelProto) -> np.ndarray:
    """Its first output for one image, by ONNX Runtime as it stands there."""
    image = np.random.default_rng(1).normal(0, 1.5, (1, 3, 8, 12)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"image": image})[0]


@pytest.mark.parametrize("seed", range(30))
def test_every_form_of_quantisation(seed):
    """Scalars, channels with scales of their own, the axis and the type where none is said: the same values."""
    model = normalized(drawn(random.Random(seed)), "net")
    if any(node.op_type == "QLinearConv" for node in model.graph.node):
        with pytest.raises(ModelError, match=r"operator QLinearConv \(node 'c'\) computes with quantised numbers"):
            dequantized_for_tensorrt(model)
        return
    plain = dequantized_for_tensorrt(model)
    left = [node for node in plain.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert bool(left) != is_asymmetric(model)
    weights = {one.name: one for one in plain.graph.initializer}
    assert all(len(weights[node.input[0]].dims) > 1 for node in left if node.input[0] in weights)
    np.testing.assert_allclose(result_of(model), result_of(plain), atol=1e-5)


ROUND = "q = QuantizeLinear {} (image, s{})\n x = DequantizeLinear {} (q, s{})\n logits = Conv (x, k)"


@pytest.mark.parametrize(
    ("given", "opset", "taken", "more"),
    [
        ("", 17, True, {}),  # no type: uint8
        ("<output_dtype = 2>", 21, True, {}),
        ("<output_dtype = 4>", 21, True, {}),
        ("<output_dtype = 3>", 21, False, {}),
        ("", 17, True, {"z": np.int8(5)}),
        ("", 17, False, {"z": np.int8(0)}),
    ],
)
def test_types_that_nothing_or_an_attribute_says(given, opset, taken, more):
    zero = ", z" if more else ""
    body = ROUND.format(given, zero, "", zero)
    model = normalized(from_text(body, opset=opset, s=np.float32(0.02), k=kernel(4), **more), "net")
    assert is_asymmetric(model) == taken
    np.testing.assert_array_equal(result_of(model), result_of(dequantized_for_tensorrt(model)))


def test_a_uint8_image_without_a_zero_point_is_not_symmetric():
    body = "x = DequantizeLinear (image, s)\n logits = Conv (x, k)"
    assert is_asymmetric(
        normalized(from_text(body, image="uint8[1,3,8,12] image", s=np.float32(1), k=kernel(4)), "net")
    )


@pytest.mark.parametrize(
    ("body", "more", "says"),
    [
        (
            "m = ReduceMax <keepdims = 0> (image)\n s = Div (m, t)\n" + ROUND.format("", ", z", "", ", z"),
            {},
            "computed",
        ),
        (
            "q = QuantizeLinear <axis = 2, block_size = 4> (image, s, z)\n"
            "x = DequantizeLinear <axis = 2, block_size = 4> (q, s, z)\n logits = Conv (x, k)",
            {"s": np.full((1, 3, 2, 12), 0.02, np.float32), "z": np.full((1, 3, 2, 12), 3, np.uint8)},
            "block",
        ),
    ],
)
def test_what_is_not_known_is_refused_by_name(body, more, says):
    opset = 21 if "block_size" in body else 17
    weights = {"k": kernel(4), "z": np.uint8(3)} | ({} if more else {"t": np.float32(100)}) | more
    with pytest.raises(ModelError, match=rf"node 'q' \(QuantizeLinear\) quantises .*{says}"):
        dequantized_for_tensorrt(normalized(from_text(body, opset=opset, **weights), "net"))


def test_a_tensor_without_a_shape_is_quantised_by_one_scale():
    """After an operator of ONNX Runtime's own nobody knows the shape."""
    body = "r = ms.Gelu (image)\n" + ROUND.replace("image", "r").format("", ", z", "", ", z")
    model = normalized(from_text(body, s=np.float32(0.02), z=np.uint8(9), k=kernel(4)), "net")
    np.testing.assert_allclose(result_of(model), result_of(dequantized_for_tensorrt(model)), atol=1e-5)


def test_symmetric_int8_is_left_alone():
    assert not is_asymmetric(quantized(np.int8(0), np.zeros(4, np.int8), np.full(4, 0.1, np.float32)))
