"""Which input takes the photo, and for which pixels it is made."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import kernel, nchw, net, nhwc

from trtpost.errors import ModelError
from trtpost.graph.head.image_input import expected_range, image_input


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nchw(), ("NCHW", 1, (8, 12), 3)),
        (nhwc(), ("NHWC", 1, (8, 12), 3)),
        (nchw(batch="N", size="H,W"), ("NCHW", "N", (0, 0), 3)),
        (nchw(batch="2", size="8,W"), ("NCHW", 2, (8, 0), 3)),
    ],
)
def test_what_an_image_has(model, expected):
    image = image_input(gs.import_onnx(model), None)
    assert (image.layout, image.batch, image.size, image.channels) == expected


def with_input(text: str, body: str = "", **weights: np.ndarray) -> gs.Graph:
    """A network of two outputs: one needs the image alone, the other what `text` adds too."""
    body = f"a = Conv (image, k)\n b = Add (a, extra)\n {body}"
    return gs.import_onnx(
        net(body, f"float[1,3,8,12] image, {text}", "float[1,4,8,12] a, float[1,4,8,12] b", k=kernel(4), **weights)
    )


@pytest.mark.parametrize(("extra", "is_image"), [("float[1,4,8,12] extra", True), ("float[4,1,1] extra", False)])
def test_the_image_alone_where_a_tensor_needs_no_more(extra, is_image):
    graph = with_input(extra)
    a, b = graph.outputs
    assert image_input(graph, a).tensor.name == "image"
    for tensor in (b, None) if is_image else (b,):
        with pytest.raises(ModelError, match=r"the model has 2 inputs, .*'extra' float32"):
            image_input(graph, tensor)
    if not is_image:
        assert image_input(graph, None).tensor.name == "image"


@pytest.mark.parametrize(
    ("inputs", "op", "message"),
    [
        ("float[1,3,96] image", "Relu (image)", "no image input: it needs one of four dimensions"),
        ("double[1,3,8,12] image", "Relu (image)", "type float16, float32, uint8, but has 'image' float64"),
        ("float[1,4,8,12] image", "MaxPool <kernel_shape = [1, 1]> (image)", "has 4 channels in layout NCHW"),
        ("float[1,C,8,12] image", "MaxPool <kernel_shape = [1, 1]> (image)", "has C channels in layout NCHW"),
        ("float[1,4,8,12] image", "Relu (image)", "cannot tell where the channels are"),
    ],
)
def test_refused(inputs, op, message):
    graph = gs.import_onnx(net(f"out = {op}", inputs, inputs.replace("image", "out")))
    with pytest.raises(ModelError, match=message):
        image_input(graph, None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = Relu (image)", ""),
        ("x = Div (image, c255)", "pixels"),
        ("x = Div (c255, image)", ""),  # no scale
        ("x = Mul (image, c0)", ""),
        ("h = Cast <to = 10> (image)\n f = Cast <to = 1> (h)\n x = Div (f, c255)", "pixels"),
        ("r = Relu (image)\n x = Div (r, c255)", ""),  # no normalisation of the input
        ("x = Sub (image, c2)", "unit"),
        ("x = Sub (image, c3)", "pixels"),  # no mean of values up to 1
        ("x = Mul (image, small)", "pixels"),  # 255 becomes less than 20
        ("x = Mul (image, large)", "unit"),
        ("p = Div (image, c255)\n s = Shape (image)\n x = Reshape (p, s)", ""),  # the second of two consumers
    ],
)
def test_expected_pixels(body, expected):
    numbers = {"c255": 255, "c0": 0, "c2": 2, "c3": 2.01, "small": 20 / 255 - 1e-6, "large": 20 / 255 + 1e-6}
    model = net(
        f"{body}\n out = Conv (x, k)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] out",
        k=kernel(4),
        **{name: np.float32(value) for name, value in numbers.items()},
    )
    assert expected_range(gs.import_onnx(model).inputs[0]) == expected
