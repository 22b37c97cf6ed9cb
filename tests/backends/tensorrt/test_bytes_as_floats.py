"""TensorRT takes floats out of a photo, and they are the bytes that other runtimes take out of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from nets import nchw

from trtpost.backends.tensorrt.bytes_as_floats import with_float_photo
from trtpost.graph.baking.bake import bake
from trtpost.graph.head.locate import locate
from trtpost.spec import Post, Pre


def baked(size) -> onnx.ModelProto:
    model = nchw()
    return bake(model, locate(model), Pre(8, 12), Post(classes=4, size=size))


def test_the_photo_becomes_floats_first():
    model = baked("image")
    changed = with_float_photo(model)
    onnx.checker.check_model(changed, full_check=True)
    assert {node.op_type for node in changed.graph.node if "image" in node.input} == {"Shape", "Cast"}
    photo = np.random.default_rng(0).integers(0, 256, (1, 33, 50, 3), np.uint8)
    masks = [
        onnxruntime.InferenceSession(one.SerializeToString()).run(["mask"], {"image": photo})[0]
        for one in (model, changed)
    ]
    np.testing.assert_array_equal(*masks)


def test_a_graph_that_takes_no_bytes_out_of_the_photo_is_left_alone():
    model = baked((20, 30))
    assert with_float_photo(model) is model
