"""Pixels that a network moves about as uint8 are float32 for TensorRT, and the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package
from nets import kernel, save
from quantised import from_text

from trtpost.builder.build import build
from trtpost.graph.precision.float_pixels import with_float_pixels

NHWC, NCHW = "uint8[1,8,12,3] image", "uint8[1,3,8,12] image"
ENDS = "f = Cast <to = 1> (t)\n logits = Conv (f, k)"
MOVED = {
    "transpose": (f"t = Transpose <perm = [0,3,1,2]> (image)\n {ENDS}", NHWC),
    "other order of colours": (
        f"i = Constant <value_ints = [2,1,0]> ()\n t = Gather <axis = 1> (image, i)\n {ENDS}",
        NCHW,
    ),
    "nearest resize": (
        f"s = Constant <value_floats = [1.0,1.0,0.5,0.5]> ()\n r = Resize (image, , s)\n t = Identity (r)\n {ENDS}",
        NCHW,
    ),
    "two ways": (
        "u = Transpose <perm = [0,3,1,2]> (image)\n g = Cast <to = 1> (image)\n h = Transpose <perm = [0,3,1,2]> (g)\n"
        "v = Cast <to = 1> (u)\n f = Add (v, h)\n logits = Conv (f, k)",
        NHWC,
    ),
}


def baked(tmp_path, body, image, **settings):
    logits = "float[1,4,4,6] logits" if "0.5,0.5" in body else "float[1,4,8,12] logits"
    source = save(from_text(body, logits, image, k=kernel(4)), tmp_path / "net.onnx")
    return build(source, tmp_path / "net.trtpost", **({"flavour": "none", "size": (8, 12)} | settings))


@pytest.mark.parametrize("size", [(8, 12), "image"])
@pytest.mark.parametrize("name", MOVED)
def test_the_same_mask(tmp_path, name, size):
    model = onnx.load(baked(tmp_path, *MOVED[name], size=size).model)
    floats = with_float_pixels(model)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 8, 12, 3), np.uint8)
    given = {"image": pixels} | ({"output_size": np.array([8, 12])} if size != "image" else {})
    masks = []
    for one in (model, floats):
        session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        masks.append(session.run(None, {key: value for key, value in given.items() if key in names})[0])
    np.testing.assert_array_equal(*masks)
    inside = [
        node
        for node in floats.graph.node
        if node.op_type == "Cast" and (node.name == "pre/pixels" or node.name.startswith("network/"))
    ]
    assert {onnx.helper.get_attribute_value(node.attribute[0]) for node in inside} == {onnx.TensorProto.FLOAT}


@pytest.mark.parametrize(
    ("body", "image"),
    [
        (  # what uint8 is rounded to is not what float32 gives
            f's = Constant <value_floats = [1.0,1.0,0.5,0.5]> ()\n t = Resize <mode = "linear"> (image, , s)\n {ENDS}',
            NCHW,
        ),
        (  # cast from real numbers
            "c = Cast <to = 1> (image)\n n = Mul (c, c)\n t = Cast <to = 2> (n)\n f = Cast <to = 1> (t)\n"
            "logits = Conv (f, k)",
            NCHW,
        ),
    ],
)
def test_what_is_not_moved_alone_stays(tmp_path, body, image):
    model = onnx.load(baked(tmp_path, body, image).model)
    assert with_float_pixels(model) is model


@pytest.mark.parametrize("size", [(8, 12), "image"])
@pytest.mark.parametrize("name", MOVED)
def test_tensorrt_takes_it(tmp_path, name, size):
    package("tensorrt_rtx")
    assert baked(tmp_path, *MOVED[name], flavour="tensorrt_rtx", size=size).plan is not None
