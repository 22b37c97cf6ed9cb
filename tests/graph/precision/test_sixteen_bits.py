"""What stays float32 of a network in 16 bits, and why the rest may not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from nets import kernel, net

from trtpost.errors import ModelError
from trtpost.graph.precision.sixteen_bits import BFLOAT16_OPSET, in_16_bits
from trtpost.graph.precision.tidy import finished, tidied
from trtpost.graph.reading.model import opset_of

FLOAT, FLOAT16, BFLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
IO = ("float[1,3,8,12] image", "float[1,4,8,12] logits")
EITHER = """logits = If (on) <then_branch = one () => (float[1,4,8,12] p) {{ p = {} (y) }},
                              else_branch = two () => (float[1,4,8,12] q) {{ q = Neg (y) }}>"""


def halved(body: str, precision: str, **weights: np.ndarray) -> onnx.ModelProto:
    network = net(f"y = Conv (image, k)\n {body}", *IO, **{"k": kernel(4)} | weights)
    result = finished(in_16_bits(tidied(network), precision), network)
    onnx.checker.check_model(result, full_check=True)
    return result


def types(model: onnx.ModelProto) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


@pytest.mark.parametrize(("precision", "kind"), [("fp16", FLOAT16), ("bf16", BFLOAT16)])
@pytest.mark.parametrize(
    ("body", "wide"),
    [
        ("logits = Relu (y)", set()),
        ("logits = Sigmoid (y)", {"logits"}),
        ("x = Sigmoid (y)\n logits = Identity (x)", {"x", "logits"}),
        ("x = Sigmoid (y)\n logits = Mul (x, y)", set()),
        ("x = Exp (y)\n z = Log (x)\n logits = Relu (z)", {"x"}),
    ],
    ids=["all", "sigmoid at the end", "moved sigmoid", "sigmoid within", "sums and powers"],
)
def test_what_stays_float32(body, wide, precision, kind):
    found = types(halved(body, precision))
    assert {name for name in ("x", "y", "logits") if found.get(name, kind) == FLOAT} == wide
    assert found["y"] == kind
    assert found["image"] == FLOAT


@pytest.mark.parametrize("operator", ["Relu", "Exp"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_inside_of_an_if_is_of_one_type(operator, precision):
    model = halved(EITHER.format(operator), precision, on=np.array(True))
    (node,) = (one for one in model.graph.node if one.op_type == "If")
    assert len(node.input) == 1  # what was captured for the converter is gone again
    assert types(model)["logits"] in (FLOAT16, BFLOAT16)


def test_bfloat16_keeps_weights_that_float16_cannot_hold():
    large = np.full((4, 3, 1, 1), 1e30, np.float32)
    with pytest.raises(ModelError, match=r"weight 1e\+30 in 'k', an input of Conv"):
        halved("logits = Relu (y)", "fp16", k=large)
    model = halved("logits = Relu (y)", "bf16", k=large)
    assert opset_of(model) >= BFLOAT16_OPSET
    (weight,) = (onnx.numpy_helper.to_array(one) for one in model.graph.initializer if one.name == "k")
    np.testing.assert_array_equal(weight.astype(np.float32), large.astype(ml_dtypes.bfloat16).astype(np.float32))
