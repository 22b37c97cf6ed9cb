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
        (256, "H,W", (8, 8), r"cannot run at 8x8, nor at multiples of up to 128 around it \(.+\): give the size"),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_sizes_that_run_are_named(stride, known, size, nearest, channels_last):
    model = strided(stride, known, channels_last=channels_last)
    with pytest.raises(ModelError, match=nearest) if nearest else nullcontext():
        refuse_size(model, "image", "NHWC" if channels_last else "NCHW", size)


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
