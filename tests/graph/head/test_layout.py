"""Where the channels stand: what the graph tells, and the shape where that tells nothing."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import ending, kernel, net

from trtpost.errors import ModelError
from trtpost.graph.head.layout import channel_axis, input_layout, layout_of, layout_or_ask

NHWC = "perm = [0, 2, 3, 1]"
NCHW = "perm = [0, 3, 1, 2]"


def test_the_axis_of_the_channels():
    assert (channel_axis("NCHW"), channel_axis("NHWC")) == (1, 3)


@pytest.mark.parametrize(
    ("body", "shape", "layout"),
    [
        ("out = Conv (image, k)", "1,3,3,3", "NCHW"),
        ("m = Mul (image, c)\n t = Identity (m)\n out = Conv (t, k)", "1,3,3,3", "NCHW"),
        ("out = MaxPool <kernel_shape = [2, 2]> (image)", "1,4,8,3", "NCHW"),  # whatever the shape says
        (f"t = Transpose <{NCHW}> (image)\n out = Conv (t, k)", "1,8,8,3", "NHWC"),
        (f"out = Transpose <{NHWC}> (image)", "1,3,3,3", "NCHW"),
        # another Transpose tells nothing, nor does what comes after other axes
        ("t = Transpose <perm = [0, 1, 3, 2]> (image)\n out = GlobalMaxPool (t)", "1,8,12,3", "NHWC"),
        ("t = Reshape (image, s)\n out = GlobalMaxPool (t)", "1,8,12,3", "NHWC"),
        ("out = Relu (image)", "1,8,12,3", "NHWC"),
        ("out = Relu (image)", "1,1,8,12", "NCHW"),
        ("out = Relu (image)", "1,3,8,3", None),
        ("out = Relu (image)", "1,8,12,4", None),
        # the nearest operator tells
        (f"a = Abs (image)\n b = Relu (a)\n out = Conv (b, k)\n o = Transpose <{NCHW}> (image)", "1,3,3,3", "NHWC"),
    ],
)
def test_the_image(body, shape, layout):
    weights = {"k": kernel(4), "c": np.float32(2), "s": np.array([1, 1, -1, 1])}
    (image,) = gs.import_onnx(net(body, f"float[{shape}] image", "float[] out", **weights)).inputs
    if layout is None:
        with pytest.raises(ModelError, match="cannot tell where the channels are"):
            input_layout(image)
    else:
        assert input_layout(image) == layout


@pytest.mark.parametrize(
    ("body", "layout"),
    [
        ("out = Relu (y)", "NCHW"),
        (f"out = Transpose <{NHWC}> (y)", "NHWC"),
        (f"t = Transpose <{NHWC}> (y)\n r = Relu (t)\n out = Transpose <{NCHW}> (r)", "NCHW"),
        (f"t = Transpose <{NHWC}> (y)\n out = Mul (c, t)", "NHWC"),
        ("out = Transpose <perm = [0, 1, 3, 2]> (y)", None),  # neither
        ("out = Reshape (y, square)", None),  # axes that are lost, and a shape that fits nothing
        ("out = Reshape (y, last)", "NHWC"),  # a shape in proportion to [8, 12]
        ("out = Reshape (y, first)", "NCHW"),
        ("t = Transpose (y)\n out = Transpose (t)", "NCHW"),
    ],
)
def test_logits(body, layout):
    shapes = {"square": np.array([1, 4, 4, 24]), "last": np.array([1, 4, 6, 16]), "first": np.array([1, 16, 4, 6])}
    logits = ending(body, "float[] out", c=np.float32(2), **shapes)
    assert layout_of(logits, (8, 12)) == layout
    assert layout_or_ask(logits, "NHWC", (8, 12)) == "NHWC"
    if layout is None:
        with pytest.raises(ModelError, match="say --layout NHWC or --layout NCHW"):
            layout_or_ask(logits, None, (8, 12))


@pytest.mark.parametrize(
    ("shape", "size", "layout"),
    [
        ((1, 4, 8, 12), (8, 12), "NCHW"),
        ((1, 4, 6, 16), (8, 12), "NHWC"),
        ((1, 8, 12, 4), (16, 24), "NHWC"),
        ((1, 19, 5, 7), (10, 13), "NCHW"),  # rounded up by a stride
        ((1, 19, 5, 9), (10, 13), None),
        ((1, 19, 4, 7), (8, 12), "NCHW"),
        ((1, 19, 4, 8), (8, 12), None),
        ((1, 8, 12, 18), (8, 12), None),  # both
        ((1, 4, "h", "w"), (8, 12), None),
        ((1, 4, 8, 12), (0, 0), None),
        ((8, 12), (8, 12), None),
    ],
)
def test_shapes(shape, size, layout):
    assert layout_of(gs.Variable("x", np.float32, shape), size) == layout
