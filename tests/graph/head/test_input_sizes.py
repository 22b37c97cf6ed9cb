"""Sizes that a network of dynamic height and width takes."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from nets import kernel, net

from trtpost.errors import ModelError
from trtpost.graph.head.input_sizes import refuse_size


def strided(stride: int, size: str, *, channels_last: bool = False) -> onnx.ModelProto:
    """Adds to a convolution's result that of a smaller plane: its sides must be multiples of `stride`."""
    image = f"1,{size},3" if channels_last else f"1,3,{size}"
    first = "Transpose <perm = [0, 3, 1, 2]>" if channels_last else "Identity"
    return net(
        f"""x = {first} (image)
            y = Conv (x, k)
            small = AveragePool <kernel_shape = [{stride}, {stride}], strides = [{stride}, {stride}]> (y)
            large = Resize (small, , scales)
            logits = Add (y, large)""",
        f"float[{image}] image",
        "float[1,4,H,W] logits",
        k=kernel(4),
        scales=np.array([1, 1, stride, stride], np.float32),
    )


@pytest.mark.parametrize(
    ("stride", "known", "size", "nearest"),
    [
        (4, "H,W", (8, 12), ""),
        (4, "H,W", (8, 13), "multiples of 4; .* --input-size 8x12 or 8x16$"),
        (4, "H,W", (9, 13), "multiples of 4; .* --input-size 8x12 or 12x16$"),
        (4, "H,W", (9, 3), "multiples of 4; .* --input-size 12x4$"),  # none below
        (128, "H,W", (128, 200), "multiples of 128; .* --input-size 128x128 or 128x256$"),
        (8, "16,W", (16, 9), "multiples of 8; .* --input-size 16x8 or 16x16$"),
        (256, "H,W", (8, 8), "cannot run at 8x8: nearest to it, by trying, is --input-size 256x256$"),
        (2000, "H,W", (8, 8), r"cannot run at 8x8, nor at multiples of up to 128 around it, .* \(.+\): give the size"),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_sizes_that_run_are_named(stride, known, size, nearest, channels_last):
    model = strided(stride, known, channels_last=channels_last)
    with pytest.raises(ModelError, match=nearest) if nearest else nullcontext():
        refuse_size(model, "image", "NHWC" if channels_last else "NCHW", size)


def up_to(limit: int) -> onnx.ModelProto:
    """Takes of a plane of `limit` pixels a side as many as the image has: indices beyond it are an error."""
    return net(
        """shape = Shape <start = 2> (image)
           rows = Slice (shape, a, b)
           columns = Slice (shape, b, c)
           row = Squeeze (rows)
           column = Squeeze (columns)
           down = Range (zero, row, one)
           across = Range (zero, column, one)
           band = Gather <axis = 2> (plane, down)
           piece = Gather <axis = 3> (band, across)
           y = Conv (image, k)
           logits = Add (y, piece)""",
        "float[1,3,H,W] image",
        "float[1,4,H,W] logits",
        k=kernel(4),
        plane=np.zeros((1, 1, limit, limit), np.float32),
        **{name: np.array([value]) for name, value in zip("abc", range(3), strict=True)},
        zero=np.array(0),
        one=np.array(1),
    )


@pytest.mark.parametrize(
    ("limit", "size", "nearest"),
    [
        (513, (600, 800), "513x513"),  # a frozen DeepLab
        (513, (1080, 500), "513x500"),
        (300, (301, 299), "300x299"),
        (100, (600, 800), "100x100"),
    ],
)
def test_sizes_up_to_a_limit(limit, size, nearest):
    with pytest.raises(ModelError, match=rf"cannot run at {size[0]}x{size[1]}: nearest to it, .* {nearest}$"):
        refuse_size(up_to(limit), "image", "NCHW", size)


def test_a_size_that_alone_is_taken():
    """A Reshape to the size of training."""
    model = net(
        "x = Reshape (image, s)\n logits = Conv (x, k)",
        "float[1,3,H,W] image",
        "float[1,4,320,320] logits",
        k=kernel(4),
        s=np.array([1, 3, 320, 320]),
    )
    with pytest.raises(ModelError, match=r"nearest to it, by trying, is --input-size 320x320$"):
        refuse_size(model, "image", "NCHW", (300, 400))


@pytest.mark.parametrize(
    "model",
    [
        strided(4, "8,12"),
        net(
            "logits = Conv (image, k)\n b = Add (logits, a)",
            "float[1,3,H,W] image, float[1,4,H,W] a",
            "float[1,4,H,W] b",
            k=kernel(4),
        ),
        net("logits = Relu (image)", "float[1,C,H,W] image", "float[1,C,H,W] logits"),
    ],
    ids=["fixed", "two inputs", "open channels"],
)
def test_what_is_not_tried(model, monkeypatch):
    monkeypatch.setattr("trtpost.graph.head.input_sizes.run_on_zeros", lambda *_: 1 / 0)
    refuse_size(model, "image", "NCHW", (9, 13))
