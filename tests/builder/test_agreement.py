"""The accuracy gate finds what goes wrong, where it begins, and nothing where nothing is."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from nets import kernel, net

from trtpost.builder import agreement
from trtpost.builder.agreement import Agreement, check, compare
from trtpost.errors import ModelError
from trtpost.graph.baking.bake import bake
from trtpost.graph.head.locate import locate
from trtpost.graph.precision.reduce import network_inputs, reduced
from trtpost.spec import Post, Pre


def baked(model: onnx.ModelProto, precision="fp32", photos=(), change=None, **post) -> onnx.ModelProto:
    """Baked in a precision; `change` is made to the network before."""
    found = locate(model)
    pre = Pre(*found.input_size, mean=(127.5,))
    inputs = network_inputs(photos, pre, found)

    def reduce(network: onnx.ModelProto) -> onnx.ModelProto:
        if change is not None:
            change(network)
        return reduced(network, precision, inputs)

    spec = Post(head=found.head, layout=found.layout, classes=found.classes, **post)
    return bake(model, found, pre, spec, reduce=reduce)


def photos(count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (8, 12, 3), np.uint8) for _ in range(count)]


def chain(**changes: np.ndarray) -> onnx.ModelProto:
    """Four convolutions in a row."""
    weights = {f"k{index}": kernel(6, 3 if index == 0 else 6, seed=index) / 3 for index in range(4)}
    return net(
        """a = Conv (image, k0)
           b = LeakyRelu <alpha = 0.5> (a)
           c = Conv (b, k1)
           d = LeakyRelu <alpha = 0.5> (c)
           e = Conv (d, k2)
           logits = Conv (e, k3)""",
        "float[1,3,8,12] image",
        "float[1,6,8,12] logits",
        **(weights | changes),
    )


def spoil(name: str, network: onnx.ModelProto) -> None:
    """Noise, as large as they are, on the weights of that name."""
    (tensor,) = (one for one in network.graph.initializer if one.name == f"network/{name}")
    values = onnx.numpy_helper.to_array(tensor)
    noise = np.random.default_rng(99).normal(0, np.abs(values).mean(), values.shape).astype(np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values + noise, tensor.name))


def test_an_overflow_is_found_that_the_mask_does_not_show():
    model = net(
        "x = Conv (image, first)\n y = Clip (x, low, high)\n logits = Conv (y, second)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        first=np.full((3, 3, 1, 1), 300, np.float32),
        low=np.float32(-1),
        high=np.float32(1),
        second=kernel(4),
    )
    found = compare(baked(model), baked(model, "fp16"), photos())
    assert found.share == 1
    assert found.wrong.tensor == "x"
    assert found.non_finite == 1


def test_infinities_of_the_reference_are_its_own():
    model = net(
        "x = Conv (image, k)\n zero = Sub (x, x)\n y = Div (one, zero)\n z = Min (y, one)\n logits = Mul (x, z)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
        one=np.float32(1),
    )
    found = compare(baked(model), baked(model, "fp16"), photos())
    assert found.non_finite == 0


def test_a_network_agrees_with_itself():
    found = compare(baked(chain()), baked(chain()), photos(), minimum=1)
    assert found == Agreement(photos=3, share=1.0, mean_iou=1.0, non_finite=0, wrong=None)
    check(found, "fp16", 1.0)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_share_and_mean_iou_are_those_of_the_masks(layout):
    def model(weights: list[float]) -> onnx.ModelProto:
        k = np.array(weights, np.float32).reshape(2, 1, 1, 1)
        if layout == "NCHW":
            return net("logits = Conv (image, k)", "float[1,1,8,12] image", "float[1,2,8,12] logits", k=k)
        return net(
            """x = Transpose <perm = [0, 3, 1, 2]> (image)
               y = Conv (x, k)
               logits = Transpose <perm = [0, 2, 3, 1]> (y)""",
            "float[1,8,12,1] image",
            "float[1,8,12,2] logits",
            k=k,
        )

    def of(weights: list[float]) -> onnx.ModelProto:
        found = locate(model(weights), layout=layout)
        post = Post(head="argmax", layout=layout, classes=2)
        return bake(model(weights), found, Pre(8, 12, channels="gray"), post)

    photo = np.zeros((8, 12, 1), np.uint8)
    photo[:6] = 1  # class 1 where the pixel is not 0 and the second weight is larger: 72 of 96 pixels
    found = compare(of([0, 1]), of([1, 0]), [photo, photo[None] * 0], minimum=0.5)
    # all 24 zeros of the first and 96 of the second photo are class 0 in both; 72 are class 1 in the reference alone
    assert found.share == pytest.approx(120 / 192)
    assert found.mean_iou == pytest.approx((120 / 192 + 0) / 2)
    assert found.photos == 2


@pytest.mark.parametrize(("weights", "tensor"), [("k0", "a"), ("k1", "c"), ("k2", "e"), ("k3", "logits")])
@pytest.mark.parametrize("group_bytes", [1 << 28, 1])
def test_the_first_tensor_that_goes_wrong_is_where_the_error_begins(monkeypatch, weights, tensor, group_bytes):
    monkeypatch.setattr(agreement, "GROUP_BYTES", group_bytes)
    found = compare(baked(chain()), baked(chain(), "fp16", change=partial(spoil, weights)), photos(), minimum=0.999)
    assert found.share < 0.999
    assert found.wrong.tensor == tensor
    assert found.wrong.op == "Conv"
    assert found.wrong.error > 0.1 > found.wrong.before
    with pytest.raises(
        ModelError, match=rf"keeps the class of \d+\.\d+% of the pixels of 3 photos.*'{tensor}' \(Conv\)"
    ):
        check(found, "int8", 0.999)


def test_int8_with_calibration_for_other_photos_is_told_to_take_more():
    flat = [np.full((8, 12, 3), 127, np.uint8)]
    found = compare(baked(chain()), baked(chain(), "int8", flat), photos(), minimum=0.9)
    with pytest.raises(ModelError, match="calibrate with more photos"):
        check(found, "int8", 0.9)
    well = compare(baked(chain()), baked(chain(), "int8", photos()), photos(), minimum=0.9)
    check(well, "int8", 0.9)


def test_thresholds_labels_and_fixed_batches():
    threshold = net("logits = Conv (image, k)", "float[1,3,8,12] image", "float[1,1,8,12] logits", k=kernel(1))
    labels = net(
        "x = Conv (image, k)\n out = ArgMax <axis = 1, keepdims = 0> (x)",
        "float[2,3,8,12] image",
        "int64[2,8,12] out",
        k=kernel(4),
    )
    for model in (threshold, labels):
        for precision in ("fp16", "bf16", "int8"):
            found = compare(baked(model), baked(model, precision, photos()), photos(), minimum=0.9)
            assert 0.9 < found.share <= 1
            assert found.photos == 3


def test_every_photo_is_told_and_read_once():
    told = []
    compare(baked(chain()), baked(chain(), "fp16"), iter(photos()), on_photo=lambda: told.append(1))
    assert len(told) == 3
