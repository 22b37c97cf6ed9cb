"""Which nodes become int8, and with which scales."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from nets import kernel, nchw, net

from trtpost.errors import ModelError, SpecError
from trtpost.graph.precision.int8 import quantized
from trtpost.graph.precision.tidy import tidied

PHOTO = np.linspace(-1, 1, 288, dtype=np.float32).reshape(1, 3, 8, 12)


def scales(model: onnx.ModelProto, photos: list[np.ndarray]) -> dict[str, float]:
    """Scales of the inputs that are quantised, by name."""
    result = quantized(tidied(model), photos, None)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in result.graph.initializer}
    nodes = [node for node in result.graph.node if node.op_type == "QuantizeLinear"]
    assert not any(constants[node.input[2]].any() for node in nodes)  # TensorRT takes no zero points
    return {node.input[0]: float(constants[node.input[1]]) for node in nodes}


IO = ("float[1,3,8,12] image", "float[1,C,H,W] logits")


@pytest.mark.parametrize(
    ("body", "weights", "chosen"),
    [
        ("logits = Conv (image, k)", kernel(4), {"image"}),
        ("logits = Conv <group = 3> (image, k)", kernel(3, 1), set()),
        ("x = Concat <axis = 1> (image, image)\n logits = Conv <group = 2> (x, k)", kernel(4), {"x"}),
        ("logits = ConvTranspose (image, k)", kernel(3, 4), {"image"}),
        ("logits = MatMul (image, k)", np.eye(12, dtype=np.float32), {"image"}),
        ("x = Relu (k)\n logits = Conv (image, x)", kernel(4), set()),
    ],
    ids=["convolution", "depthwise", "grouped", "transposed", "product", "computed weight"],
)
def test_what_is_quantised(body, weights, chosen):
    model = net(body, *IO, k=weights)
    if chosen:
        assert set(scales(model, [PHOTO])) == chosen
    else:
        with pytest.raises(ModelError, match="there is nothing to quantise"):
            scales(model, [PHOTO])


def test_the_largest_of_all_photos_counts():
    assert scales(nchw(), [PHOTO, 3 * PHOTO, PHOTO])["image"] == pytest.approx(3 / 127, rel=1e-3)


def test_photos_are_needed():
    with pytest.raises(SpecError, match="needs photos to calibrate with"):
        scales(nchw(), [])


def test_what_the_quantiser_logs_is_not_printed(monkeypatch, capsys):
    """Of a weight of one axis it logs, at the root, that there are no channels."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as outside of a test
    model = net("logits = MatMul (image, k)", IO[0], "float[1,C,H] logits", k=np.ones(12, np.float32))
    scales(model, [PHOTO])
    assert not logging.getLogger().handlers
    assert capsys.readouterr().err == ""
