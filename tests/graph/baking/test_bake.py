"""The baked graph: valid everywhere, and the same mask in every form of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from nets import nchw, nhwc

from trtpost.errors import SpecError
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.seam import inlined, split
from trtpost.graph.head.locate import locate
from trtpost.kernels import reference
from trtpost.spec import Post, Pre

SIZE = (21, 17)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["mask"], feeds)[0]


def baked(model: onnx.ModelProto, resize="nearest", size="runtime", **pre) -> tuple[onnx.ModelProto, Post]:
    found = locate(model)
    post = Post(head=found.head, layout=found.layout, classes=found.classes, resize=resize, size=size)
    return bake(model, found, Pre(*found.input_size, **pre), post), post


def photo(height: int = 8, width: int = 12, batch: int = 1) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (batch, height, width, 3), np.uint8)


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", ["runtime", "image", SIZE])
@pytest.mark.parametrize("make", [nchw, nhwc])
def test_every_form_gives_the_same_mask(make, size, resize):
    model, post = baked(make(), resize, size, mean=(127.5,), std=(127.5,))
    image = photo(*SIZE) if size == "image" else photo()
    feeds = {"image": image} | ({"output_size": np.array(SIZE)} if size == "runtime" else {})
    mask = run(model, **feeds)
    assert mask.shape == (1, *SIZE)
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(run(inlined(model), **feeds), mask)
    (by_reference,) = onnx.reference.ReferenceEvaluator(model).run(["mask"], feeds)
    assert (by_reference == mask).mean() > 0.99

    network, tail = split(model)
    session = onnxruntime.InferenceSession(network.SerializeToString())
    (logits,) = session.run(None, {"image": image})
    np.testing.assert_array_equal(reference.argmax_resize(logits, SIZE, post), mask)
    names = [value.name for value in tail.graph.input]
    np.testing.assert_array_equal(run(tail, **dict(zip(names, [logits, np.array(SIZE)], strict=False))), mask)


def test_channel_order_and_normalisation_live_in_the_graph():
    identity = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    image = np.array([[[[10, 200, 30], [90, 20, 30], [1, 2, 250]]]], np.uint8)
    plain, _ = baked(nchw(3, "1,3", k=identity))
    bgr, _ = baked(nchw(3, "1,3", k=identity), channels="bgr")
    weighted, _ = baked(nchw(3, "1,3", k=identity), mean=(0, 190, 0), std=(1, 1, 1000))
    feeds = {"image": image, "output_size": np.array((1, 3))}
    assert run(plain, **feeds).tolist() == [[[1, 0, 2]]]
    assert run(bgr, **feeds).tolist() == [[[1, 2, 0]]]
    # (10, 10, 0.03), (90, -170, 0.03), (1, -188, 0.25)
    assert run(weighted, **feeds).tolist() == [[[0, 0, 0]]]


def test_pixel_tables_for_conventions_in_float64():
    model, found = nchw(), locate(nchw())
    for match in ("opencv", "pil"):
        runtime = bake(model, found, Pre(8, 12), Post(classes=4, match=match))
        fixed = bake(model, found, Pre(8, 12), Post(classes=4, match=match, size=SIZE))
        tables = {
            "rows": reference.nearest_index(8, SIZE[0], match),
            "cols": reference.nearest_index(12, SIZE[1], match),
        }
        np.testing.assert_array_equal(run(fixed, image=photo()), run(runtime, image=photo(), **tables))


def test_channels_must_fit_the_network():
    with pytest.raises(SpecError, match="do not fit an input of 3 channels"):
        baked(nchw(), channels="gray")
