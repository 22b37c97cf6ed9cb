"""Quantisation in float arithmetic is the quantisation of the ONNX standard."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from nets import net

from trtpost.graph.precision.float_quantization import is_asymmetric, with_float_quantization


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
    image = np.random.default_rng(1).normal(0, 1.5, (1, 3, 8, 12)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    results = [
        onnxruntime.InferenceSession(one.SerializeToString(), options).run(None, {"image": image})[0]
        for one in (model, plain)
    ]
    np.testing.assert_array_equal(*results)


def test_symmetric_int8_is_left_alone():
    assert not is_asymmetric(quantized(np.int8(0), np.zeros(4, np.int8), np.full(4, 0.1, np.float32)))
