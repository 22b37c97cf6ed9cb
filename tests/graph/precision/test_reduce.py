"""Lower precision as typed ONNX: what becomes of the types, what stays float32, what is refused."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package
from nets import kernel, nchw, net, nhwc

from trtpost.errors import ModelError, SpecError
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.cut_at_logits import network_of
from trtpost.graph.baking.seam import split
from trtpost.graph.emulate import rounded, runnable, session
from trtpost.graph.head.locate import locate
from trtpost.graph.precision.reduce import network_inputs, reduced
from trtpost.spec import Post, Pre

FLOAT, FLOAT16, BFLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
SIXTEEN = [("fp16", FLOAT16), ("bf16", BFLOAT16)]


def network(model: onnx.ModelProto) -> onnx.ModelProto:
    found = locate(model)
    return network_of(model, found, Pre(*found.input_size))


def deep(**weights: np.ndarray) -> onnx.ModelProto:
    """Two convolutions, a depthwise one between them, and a Resize."""
    return net(
        """a = Conv (image, k)
           b = Relu (a)
           c = Conv <group = 4> (b, depthwise)
           d = Conv (c, last)
           logits = Resize <mode = "linear"> (d, , scales)""",
        "float[1,3,8,12] image",
        "float[1,5,16,24] logits",
        k=weights.get("k", kernel(4)),
        depthwise=kernel(4, 1, seed=1),
        last=kernel(5, 4, seed=2),
        scales=np.array([1, 1, 2, 2], np.float32),
    )


def images(count: int = 3, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 1, (1, 3, 8, 12)).astype(np.float32) for _ in range(count)]


def types(model: onnx.ModelProto) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values} | {
        one.name: one.data_type for one in model.graph.initializer
    }


def logits_of(model: onnx.ModelProto, image: np.ndarray) -> np.ndarray:
    return session(model).run(None, {model.graph.input[0].name: image})[0]


def relative_error(model: onnx.ModelProto, reference: onnx.ModelProto) -> float:
    found, expected = (logits_of(one, images(1, seed=9)[0]).astype(np.float32) for one in (model, reference))
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


def test_fp32_is_the_network_itself():
    whole = network(deep())
    assert reduced(whole, "fp32") is whole


@pytest.mark.parametrize(("precision", "kind"), SIXTEEN)
def test_everything_but_input_and_scales_becomes_16_bits(precision, kind):
    whole = network(deep())
    before = whole.SerializeToString()
    half = reduced(whole, precision)
    assert whole.SerializeToString() == before
    onnx.checker.check_model(half, full_check=True)
    found = types(half)
    assert half.graph.input[0].name == "network/image"
    assert half.graph.output[0].name == "network/logits"
    assert found.pop("network/image") == FLOAT
    assert found.pop("network/scales") == FLOAT
    assert set(found.values()) == {kind}
    assert relative_error(half, whole) < (2e-3 if precision == "fp16" else 2e-2)


def test_bfloat16_weights_are_rounded_once_from_float32():
    # by way of float16 the second would be infinite, the third 0, and the last a tie
    weights = np.array([1.1, 3e38, -1e-30, 1 + 2**-8, 1 + 2**-8 + 2**-20], np.float32)
    half = reduced(net("logits = Mul (image, k)", "float[1,5] image", "float[1,5] logits", k=weights), "bf16")
    (found,) = (onnx.numpy_helper.to_array(one) for one in half.graph.initializer)
    np.testing.assert_array_equal(found.astype(np.float32), weights.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize(("precision", "kind"), SIXTEEN)
def test_what_overflows_or_makes_coordinates_stays_float32(precision, kind):
    model = net(
        """x = Conv (image, k)
           p = Softmax <axis = 1> (x)
           shape = Shape (x)
           sizes = Cast <to = 1> (shape)
           scales = Div (sizes, sizes)
           logits = Resize <mode = "linear"> (p, , scales)""",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
    )
    half = reduced(network(model), precision)
    onnx.checker.check_model(half, full_check=True)
    found = types(half)
    assert found["network/x"] == found["network/logits"] == kind
    assert found["network/sizes"] == found["network/scales"] == FLOAT
    (softmax,) = (node for node in half.graph.node if node.op_type == "Softmax")
    assert found[softmax.input[0]] == found[softmax.output[0]] == FLOAT


def test_bounds_beyond_float16_are_bounds_still():
    model = net(
        "x = Conv (image, k)\n logits = Clip (x, low, high)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
        low=np.float32(0),
        high=np.float32(3.4e38),
    )
    assert relative_error(reduced(network(model), "fp16"), network(model)) < 2e-3


def test_weights_beyond_float16_are_refused_and_named():
    large = kernel(4)
    large[2, 1] = 1e5
    with pytest.raises(ModelError, match=r"weight 100000 in 'k', an input of Conv.*bf16"):
        reduced(network(nchw(k=large)), "fp16")
    assert relative_error(reduced(network(nchw(k=large)), "bf16"), network(nchw(k=large))) < 2e-2


def test_a_float16_network_is_left_or_refused():
    half = reduced(network(nchw()), "fp16")
    assert reduced(half, "fp32") is half
    assert reduced(half, "fp16") is half
    for precision in ("bf16", "int8"):
        with pytest.raises(ModelError, match="16-bit floating point already"):
            reduced(half, precision, images())


def test_int8_surrounds_convolutions_and_leaves_depthwise_ones():
    whole, told = network(deep()), []
    quantized = reduced(whole, "int8", iter(images()), on_photo=lambda: told.append(1))
    onnx.checker.check_model(quantized, full_check=True)
    assert len(told) == 3
    made = {name: node for node in quantized.graph.node for name in node.output}
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in quantized.graph.initializer}
    assert Counter(node.op_type for node in quantized.graph.node) == {
        "QuantizeLinear": 2,
        "DequantizeLinear": 4,
        "Conv": 3,
        "Relu": 1,
        "Resize": 1,
    }
    for name in ("network/a", "network/d"):
        for source in made[name].input[:2]:
            assert made[source].op_type == "DequantizeLinear"
            assert constants[made[source].input[2]].dtype == np.int8
            assert not constants[made[source].input[2]].any()  # TensorRT takes no zero points
        assert (
            constants[made[made[name].input[1]].input[1]].shape
            == constants[made[made[name].input[1]].input[0]].shape[:1]
        )
    assert made["network/c"].input[0] == "network/b"
    assert relative_error(quantized, whole) < 0.03
    assert not quantized.metadata_props


def test_int8_ranges_hold_nearly_all_of_the_magnitudes():
    photos = images()
    photos[1][0, 0, 0, 0] = 1000  # one of 288 values, more than are left out
    (scale,) = _input_scales(reduced(network(nchw()), "int8", photos))
    assert scale == pytest.approx(1000 / 127, rel=0.01)
    wide = np.zeros((1, 3, 200, 200), np.float32)
    wide[...] = np.linspace(-1, 1, 200)
    wide[0, 0, 0, 0] = 1000  # one of 120,000 values
    (scale,) = _input_scales(reduced(network(nchw(size="200,200")), "int8", [wide]))
    assert scale == pytest.approx(1 / 127, rel=0.01)


def _input_scales(quantized: onnx.ModelProto) -> list[float]:
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in quantized.graph.initializer}
    return [float(constants[node.input[1]]) for node in quantized.graph.node if node.op_type == "QuantizeLinear"]


def test_int8_of_all_black_photos_is_a_network_still():
    black = [np.zeros((1, 3, 8, 12), np.float32)]
    assert np.isfinite(logits_of(reduced(network(deep()), "int8", black), images()[0])).all()


def test_int8_needs_photos_and_finite_values_and_something_to_quantise():
    with pytest.raises(SpecError, match="photos to calibrate with"):
        reduced(network(nchw()), "int8")
    with pytest.raises(ModelError, match="'image' is not finite on a calibration photo"):
        reduced(network(nchw()), "int8", [np.full((1, 3, 8, 12), np.nan, np.float32)])
    plain = net("logits = Add (image, image)", "float[1,3,8,12] image", "float[1,3,8,12] logits")
    with pytest.raises(ModelError, match="no convolution or matrix product"):
        reduced(network(plain), "int8", images())
    with pytest.raises(SpecError, match="precision must be one of"):
        reduced(network(nchw()), "fp8")


def test_quantised_networks():
    symmetric = reduced(network(nchw()), "int8", images())
    assert reduced(symmetric, "int8", images()) is symmetric
    with pytest.raises(ModelError, match="quantised to int8 already"):
        reduced(symmetric, "fp16")
    asymmetric = onnx.ModelProto()
    asymmetric.CopyFrom(symmetric)
    for one in asymmetric.graph.initializer:
        if one.name == "network/image_zero_point":
            one.CopyFrom(onnx.numpy_helper.from_array(np.int8(-3), one.name))
    with pytest.raises(ModelError, match="as TFLite does it"):
        reduced(asymmetric, "int8", images())
    assert relative_error(reduced(asymmetric, "fp16"), asymmetric) < 0.02


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("make", [nchw, nhwc, deep])
def test_baked_graphs_are_valid_and_run_on_the_cpu(make, resize, precision):
    model = make()
    found = locate(model)
    pre = Pre(*found.input_size, mean=(127.5,), std=(127.5,))
    photos = [np.random.default_rng(seed).integers(0, 256, (8, 12, 3), np.uint8) for seed in range(4)]
    inputs = network_inputs(photos, pre, found)
    post = Post(head=found.head, layout=found.layout, classes=found.classes, resize=resize)
    baked = bake(model, found, pre, post, reduce=partial(reduced, precision=precision, calibration=inputs))
    feeds = {"image": photos[0][None], "output_size": np.array((21, 17))}
    plain = bake(model, found, pre, post)
    expected, mask = (
        onnxruntime.InferenceSession(one.SerializeToString()).run(["mask"], feeds)[0]
        for one in (plain, runnable(baked))
    )
    assert (mask == expected).mean() > 0.95


def test_network_inputs_are_what_the_baked_graph_feeds():
    found, pre = locate(nchw()), Pre(8, 12, mean=(127.5,), std=(127.5,), channels="bgr")
    photo = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    (given,) = network_inputs([photo], pre, found)
    np.testing.assert_allclose(given, (photo[None, ..., ::-1].transpose(0, 3, 1, 2) - 127.5) / 127.5, rtol=1e-6)


@pytest.mark.parametrize(("precision", "largest"), [("fp16", np.inf), ("bf16", 180000)])
def test_the_cpu_rounds_between_layers_as_a_gpu_does(precision, largest):
    model = net(
        "x = Conv (image, k)\n logits = Conv (x, small)",
        "float[1,3,8,12] image",
        "float[1,1,8,12] logits",
        k=np.full((1, 3, 1, 1), 300, np.float32),
        small=np.full((1, 1, 1, 1), 1e-3, np.float32),
    )
    found = logits_of(reduced(network(model), precision), np.full((1, 3, 8, 12), 200, np.float32))
    assert found[0, 0, 0, 0] == pytest.approx(largest * 1e-3, rel=1e-2)


def test_rounding_is_exact_and_leaves_other_graphs_alone():
    half = reduced(network(deep()), "bf16")
    values = logits_of(half, images()[0])
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, values.astype(ml_dtypes.bfloat16).astype(np.float32))
    whole, float16 = network(deep()), reduced(network(deep()), "fp16")
    assert rounded(whole) is whole
    assert runnable(float16) is float16
    assert set(types(rounded(half)).values()) <= {FLOAT, BFLOAT16}


def test_a_float16_input_stays_one():
    model = net(
        "logits = Conv (image, k)",
        "float16[1,3,8,12] image",
        "float16[1,4,8,12] logits",
        k=kernel(4).astype(np.float16),
    )
    assert logits_of(model, images()[0].astype(np.float16)).dtype == np.float32


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_layers_of_the_tensorrt_network_are_of_the_type(precision):
    package("tensorrt_rtx")
    from trtpost.backends.tensorrt.build import Profile, build_plan

    model = net(
        """a = Conv (image, k)
           b = HardSwish (a)
           c = ConvTranspose <strides = [2, 2]> (b, up)
           d = Softmax <axis = 1> (c)
           logits = Conv (d, last)""",
        "float[1,3,8,12] image",
        "float[1,5,16,24] logits",
        k=kernel(4),
        up=np.random.default_rng(0).normal(size=(4, 4, 2, 2)).astype(np.float32),
        last=kernel(5, 4),
    )
    found = locate(model)
    for resize in ("nearest", "bilinear"):
        post = Post(head=found.head, layout=found.layout, classes=found.classes, resize=resize)
        reduce = partial(reduced, precision=precision, calibration=images())
        _, facts = build_plan(
            bake(model, found, Pre(8, 12), post, reduce=reduce), Profile(1, (4096, 4096)), "tensorrt_rtx"
        )
        # TensorRT has no deconvolution in bfloat16
        assert facts.precisions == ({"bf16": 2, "fp32": 1} if precision == "bf16" else {precision: 3})


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_network_of_uint8_pixels_builds(precision):
    package("tensorrt_rtx")
    from trtpost.backends.tensorrt.build import Profile, build_plan

    model = net(
        "x = Cast <to = 1> (image)\n logits = Conv (x, k)",
        "uint8[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
    )
    found, photo = locate(model), np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    inputs = network_inputs([photo], Pre(8, 12), found)
    reduce = partial(reduced, precision=precision, calibration=inputs)
    baked = bake(model, found, Pre(8, 12), Post(classes=4), reduce=reduce)
    _, facts = build_plan(baked, Profile(1, (4096, 4096)), "tensorrt_rtx")
    assert facts.precisions == {precision: 1}


LEAST = {
    "deeplabv3_257.tflite": {"fp16": 0.995, "bf16": 0.98, "int8": 0.96},
    "portrait_256.tflite": {"fp16": 0.99, "bf16": 0.95, "int8": 0.92},
    "selfie_256.tflite": {"fp16": 0.999, "bf16": 0.99, "int8": 0.97},
    "deeplabv3_513_uint8.tflite": {"fp16": 0.98, "bf16": 0.98},
}
"""Shares of pixels of the shared photos that keep their class, rounded down from what was measured."""


@pytest.mark.slow
@pytest.mark.parametrize("model", LEAST)
def test_real_models_keep_their_masks(built, converted, shared: Path, model, record_property):
    from trtpost.builder.agreement import check, compare
    from trtpost.graph.reading.model import load_model
    from trtpost.photos.read import read_photo
    from trtpost.photos.scale import scaled

    bundle = built(model, flavour="none", resize="bilinear")
    source, passport = load_model(converted(model)), bundle.passport
    size = (passport.pre.height, passport.pre.width)
    photos = [
        scaled(read_photo(path), size)
        for path in sorted((shared / "photos").iterdir())
        if path.suffix in (".jpg", ".bmp") and "mask" not in path.name
    ]
    if size > (500, 500):
        photos = photos[:2]  # rounding between layers takes its time
    parts = source, passport.located, passport.pre, passport.post
    plain = bake(*parts)
    for precision, least in LEAST[model].items():
        inputs = network_inputs(photos, passport.pre, passport.located)
        baked = bake(*parts, reduce=partial(reduced, precision=precision, calibration=inputs))
        agreement = compare(plain, baked, photos, minimum=least)
        print(f"{model} {precision}: {agreement}")
        record_property(precision, agreement.share)
        check(agreement, precision, least)


def test_the_network_half_of_a_baked_graph_is_what_was_reduced():
    model, found = nchw(), locate(nchw())
    baked = bake(model, found, Pre(8, 12), Post(classes=4), reduce=partial(reduced, precision="fp16"))
    assert split(baked)[0].graph.output[0].type.tensor_type.elem_type == FLOAT16
