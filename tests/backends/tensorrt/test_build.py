"""TensorRT for RTX really builds the plans, without a GPU."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from conftest import in_threads, package
from nets import kernel, nchw, net, nhwc, save

from trtpost.backends.tensorrt import build as building
from trtpost.backends.tensorrt.append import append_postprocess
from trtpost.backends.tensorrt.build import Profile, Range, build_plan, name_parts, ranges_of
from trtpost.backends.tensorrt.flavour import NAME_LIMIT, logger_of, strongly_typed
from trtpost.backends.tensorrt.settings import Settings
from trtpost.builder.build import build
from trtpost.builder.options import MIN_AGREEMENT
from trtpost.bundle.folder import load_bundle
from trtpost.describe import describe_precision
from trtpost.errors import BackendError, ModelError, PrecisionError
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.seam import inlined
from trtpost.graph.head.locate import locate
from trtpost.graph.precision.reduce import PRECISIONS, reduced
from trtpost.graph.reading.model import load_model
from trtpost.letterbox import Region
from trtpost.progress import Step
from trtpost.spec import MATCHES, Post, Pre

PROFILE = Profile(max_batch=1, max_size=(4096, 4096))
SIZES = ["runtime", "image", (300, 400)]


@pytest.fixture(autouse=True)
def _rtx():
    package("tensorrt_rtx")


def plan_of(model, profile=PROFILE, settings=None, *, inline=False, fit="stretch", step=None, **post):
    found = locate(model)
    pre = Pre(*found.input_size, mean=(127.5,), std=(127.5,), fit=fit)
    post = Post(
        head=found.head,
        layout=found.layout,
        classes=found.classes,
        region="runtime" if fit == "letterbox" else "whole",
        **post,
    )
    baked = bake(model, found, pre, post)
    graph = inlined(baked) if inline else baked
    return build_plan(graph, profile, "tensorrt_rtx", settings, spec=(pre, post), step=step)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_every_convention_builds(resize, size):
    for match in MATCHES[resize]:
        for model in (nchw(), nhwc(1)):
            if size == "image" and match in ("opencv", "pil"):
                continue  # has no meaning; test_spec covers the refusal
            plan, facts = plan_of(model, resize=resize, match=match, size=size)
            assert len(plan) > 1000
            assert facts.flavour == "tensorrt_rtx"
            assert facts.layers["CONVOLUTION"] == 1
            assert ("TOPK" in facts.layers) == (model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 4)


def test_inlined_and_batched_graphs_build():
    assert plan_of(nchw(), inline=True, size="image")[0]
    assert plan_of(nchw(batch="N"), Profile(8, (2000, 2000)), resize="bilinear")[0]


def test_letterboxed_engines_build(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    for number, settings in enumerate([{}, {"resize": "bilinear"}, {"match": "pil"}, {"size": (300, 400)}]):
        target = tmp_path / f"{number}.trtpost"
        assert build(source, target, fit="letterbox", flavour="tensorrt_rtx", **settings).plan is not None


def test_operators_it_does_not_take_are_named():
    # sequence ops have no TensorRT form in any version
    model = net(
        """a = Conv (image, k)
           s = SequenceConstruct (a, a)
           i = Constant <value_int = 0> ()
           b = SequenceAt (s, i)
           out = Relu (b)""",
        "float[1,3,8,12] image",
        "float[1,4,8,12] out",
        k=kernel(4),
    )
    with pytest.raises(BackendError) as caught:
        plan_of(model)
    said = str(caught.value)
    assert "does not take the operator SequenceConstruct (node" in said
    assert "it has no such layer, and 1 more nodes (SequenceAt)" in said
    assert "--flavour none" in said


def test_ranges_hold_all_that_the_passport_promises():
    profile = Profile(max_batch=4, max_size=(50, 3000), logits_size=(65, 129))
    inputs = {
        "image": (-1, 8, 12, 3),
        "output_size": (2,),
        "region": (4,),
        "rows": (-1,),
        "cols": (-1,),
    }
    assert ranges_of(inputs, profile) == {
        "image": Range((1, 8, 12, 3), (1, 8, 12, 3), (4, 8, 12, 3)),
        "output_size": Range((1, 1), (50, 1920), (50, 3000), is_value=True),
        "region": Range((0, 0, 1, 1), (0, 0, 65, 129), (64, 128, 65, 129), is_value=True),
        "rows": Range((1,), (50,), (50,)),
        "cols": Range((1,), (1920,), (3000,)),
    }
    assert ranges_of({"image": (-1, -1, -1, 3)}, profile) == {
        "image": Range((1, 1, 1, 3), (1, 50, 1920, 3), (4, 50, 3000, 3))
    }
    assert ranges_of({"image": (1, 8, 12, 3)}, profile) == {}


@pytest.mark.parametrize(
    ("settings", "post"),
    [
        ({}, {}),
        ({"max_batch": 3, "max_size": (1, 1)}, {}),
        ({"max_batch": 3, "max_size": (20, 5000)}, {"size": "image"}),
        ({"max_size": (7, 7)}, {"match": "pil"}),
        ({"max_size": (7, 7)}, {"fit": "letterbox", "resize": "bilinear"}),
        ({}, {"size": (30, 40)}),
    ],
)
def test_the_profile_that_tensorrt_gets(tmp_path, monkeypatch, settings, post):
    profiles = []

    def spy(builder, ranges):
        result = make(builder, ranges)
        assert result  # TensorRT finds least <= typical <= most
        profiles.append((ranges, result))
        return result

    make = building._optimization_profile
    monkeypatch.setattr(building, "_optimization_profile", spy)
    source = save(nchw(batch="N"), tmp_path / "net.onnx")
    passport = build(source, tmp_path / "a.trtpost", flavour="tensorrt_rtx", **settings, **post).passport
    ((ranges, profile),) = profiles
    for name, one in ranges.items():
        get = profile.get_shape_input if one.is_value else profile.get_shape
        assert [tuple(shape) for shape in get(name)] == [one.least, one.typical, one.most]
    most = ranges["image"].most
    assert (ranges["image"].least[0], most[0]) == (1, passport.max_batch)
    if passport.post.size == "image":
        assert ranges["image"].least[1:3] == (1, 1)
        assert most[1:3] == passport.max_size
    if "output_size" in ranges:
        assert (ranges["output_size"].least, ranges["output_size"].most) == ((1, 1), passport.max_size)
    if "rows" in ranges:
        assert (ranges["rows"].most, ranges["cols"].most) == ((7,), (7,))
    if "region" in ranges:
        assert ranges["region"].most == (7, 11, 8, 12)  # of the logits, though masks are smaller


def quantized(weights: bool = True, pixels: bool = True) -> onnx.ModelProto:
    """One convolution of int8 weights and pixels, or of one of them, beside one of float32."""
    return net(
        f"""q = QuantizeLinear (image, s, z)
            d = DequantizeLinear (q, s, z)
            kd = DequantizeLinear <axis = 0> (kq, ks, kz)
            a = Conv ({"d" if pixels else "image"}, {"kd" if weights else "k"})
            out = Add (a, a)""",
        "float[1,3,8,12] image",
        "float[1,4,8,12] out",
        s=np.float32(0.1),
        z=np.int8(0),
        kq=np.ones((4, 3, 1, 1), np.int8),
        ks=np.full(4, 0.1, np.float32),
        kz=np.zeros(4, np.int8),
        k=kernel(4),
    )


def half(element: str, both: bool = True) -> onnx.ModelProto:
    """Two convolutions, both of a 16-bit type or one of it and one of float32."""
    code = {"float16": 10, "bfloat16": 16}[element]
    return net(
        f"""x = Cast <to = {code}> (image)
            w = Cast <to = {code}> (k)
            a = Conv (x, w)
            b = Conv ({"x, w" if both else "image, k"})
            c = Cast <to = 1> (a)
            d = Cast <to = 1> (b)
            out = Add (c, d)""",
        "float[1,3,8,12] image",
        "float[1,4,8,12] out",
        opset=22,
        k=kernel(4),
    )


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        (nchw(), {"fp32": 1}),
        (half("float16"), {"fp16": 2}),
        (half("bfloat16"), {"bf16": 2}),
        (half("float16", both=False), {"fp16": 1, "fp32": 1}),
        (quantized(), {"int8": 1}),
        (quantized(weights=False), {"fp32": 1}),
        (quantized(pixels=False), {"fp32": 1}),
        (net("out = Relu (image)", "float[1,3,8,12] image", "float[1,3,8,12] out"), {}),
    ],
    ids=["fp32", "fp16", "bf16", "mixed", "int8", "int8 pixels", "int8 weights", "no compute layers"],
)
def test_the_precision_that_layers_really_compute_in(model, counts):
    assert plan_of(model)[1].precisions == counts


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_a_precision_that_is_not_there_fails(precision):
    with pytest.raises(PrecisionError, match=rf"{precision} was asked for, but only 0 of 1 .* \(1 in fp32\)"):
        plan_of(nchw(), settings=Settings(precision=precision))
    with pytest.raises(PrecisionError, match="only 1 of 2 compute layers"):  # half is not most
        plan_of(half("float16", both=False), settings=Settings(precision="fp16"))
    assert plan_of(half("float16"), settings=Settings(precision="fp16"))[1].precisions == {"fp16": 2}


@pytest.mark.parametrize("size", SIZES)
def test_a_plan_for_the_kernel_ends_in_logits(size):
    plan, facts = plan_of(nchw(), settings=Settings(post="kernel"), resize="bilinear", size=size)
    assert facts.post == "kernel"
    assert "TOPK" not in facts.layers
    assert b"network/logits" in plan
    assert b"output_size" not in plan


@pytest.mark.parametrize(
    ("post", "given"),
    [
        ({}, {}),
        ({"size": "image"}, {"image": "image"}),
        ({"fit": "letterbox", "size": (300, 400)}, {"region": Region(0, 0, 8, 11)}),
        ({"fit": "letterbox"}, {}),
        ({"match": "pil"}, {}),
    ],
)
def test_a_plan_with_the_plugin_goes_through_append_postprocess(monkeypatch, post, given):
    calls = []

    def native(network, logits, post, *, lowering, **sizes):
        """TensorRT for RTX takes no plugin: its native layers show that the network fits."""
        calls.append({key: getattr(value, "name", value) for key, value in sizes.items() if value is not None})
        assert lowering == "plugin"
        return append_postprocess(network, logits, post, lowering="native", **sizes)

    monkeypatch.setattr(building, "append_postprocess", native)
    _, facts = plan_of(nchw(), Profile(1, (500, 500), logits_size=(8, 12)), Settings(post="plugin"), **post)
    assert facts.post == "plugin"
    assert facts.layers["TOPK"] == 1
    assert calls == [given]


def test_settings_reach_the_plan(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    asked = {"compute_capabilities": ["8.9", "12.0"], "optimization_level": 0, "workspace": 256}
    bundle = build(source, tmp_path / "a.trtpost", flavour="tensorrt_rtx", **asked)
    assert bundle.passport.plan.target == ("8.9", "12.0")
    wide = net(
        "a = Conv <pads = [3, 3, 3, 3]> (image, k)\n out = Relu (a)",
        "float[1,3,512,512] image",
        "float[1,64,512,512] out",
        k=np.ones((64, 3, 7, 7), np.float32),
    )
    with pytest.raises(BackendError, match="workspace"):
        plan_of(wide, settings=Settings(workspace=1), resize="bilinear")


def test_a_bare_plan_says_what_it_is(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    bundle = build(source, tmp_path / "a.trtpost", flavour="tensorrt_rtx")
    plan = bundle.plan.read_bytes()
    assert load_bundle(bundle.path).passport.to_name(NAME_LIMIT).encode() in plan  # what the runtime compares with
    start = plan.index(b'{"trtpost":')
    said = json.JSONDecoder().raw_decode(plan[start : start + 4096].decode("latin-1"))[0]["trtpost"]
    assert said["classes"] == list(bundle.passport.classes)
    assert said["post"]["size"] == "runtime"
    assert said["source_sha256"] == bundle.passport.source_sha256


def test_the_build_tells_how_far_it_is():
    class Heard(Step):
        told: list[float]

        def advance(self, fraction, what=""):
            self.told.append(fraction)
            assert what

    step = Heard()
    step.told = []
    plan_of(nchw(), step=step)
    assert len(step.told) > 20
    assert step.told == sorted(step.told)
    assert 0.5 < step.told[-1] <= 1


def test_a_fault_in_the_display_is_raised_on():
    class Broken(Step):
        def advance(self, *_):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        plan_of(nchw(), step=Broken())


@pytest.fixture(scope="session")
def photos(shared, tmp_path_factory):
    """Three photos to calibrate on and to compare with."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("bird.bmp", "portrait.bmp", "riders_257.jpg"):
        (folder / name).symlink_to(shared / "photos" / name)
    return folder


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("model", "normalize"),
    [
        ("deeplabv3_257.tflite", None),
        ("deeplabv3_257_saved_model", "signed"),
        ("deeplabv3_513_uint8.tflite", None),
        ("portrait_256.tflite", "signed"),
        ("selfie_256.tflite", None),
    ],
)
def test_real_models_build(converted, photos, tmp_path, monkeypatch, model, normalize, precision):
    """Every precision, resize and size: one as users build it, the others from its network, lowered once."""
    lowered = []
    monkeypatch.setattr(
        "trtpost.builder.precision.reduced", lambda *a, **b: lowered.append(reduced(*a, **b)) or lowered[0]
    )
    options = {"normalize": normalize, "precision": precision, "flavour": "tensorrt_rtx", "resize": "bilinear"}
    if precision != "fp32":
        options["calibration"] = photos
    if (model, precision) == ("deeplabv3_513_uint8.tflite", "int8"):
        with pytest.raises(ModelError, match="quantised already"):
            build(converted(model), tmp_path / "a.trtpost", **options)
        return
    bundle = build(converted(model), tmp_path / "a.trtpost", **options)
    passport = bundle.passport
    assert bundle.plan.stat().st_size > 1_000_000
    check_plan(passport.plan, precision)
    if precision != "fp32":
        assert passport.agreement >= MIN_AGREEMENT[precision]
        assert passport.photos == 3
        print(f"{model} {describe_precision(passport)}")

    source = load_model(converted(model))
    variants = [(resize, size) for size in SIZES for resize in ("bilinear", "nearest")][1:]
    if precision != "fp32":  # the mask's part of the graph is the same in each: one more will do
        variants = variants[-1:]

    def build_variant(number):
        resize, size = variants[number]
        post = replace(passport.post, resize=resize, size=size)
        baked = bake(source, passport.located, passport.pre, post, reduce=lambda network: (lowered or [network])[0])
        plan, facts = build_plan(baked, PROFILE, "tensorrt_rtx", Settings(precision=precision))
        assert len(plan) > 1_000_000
        check_plan(facts, precision)

    in_threads(len(variants), build_variant)


def check_plan(plan, precision):
    assert plan.layers["CONVOLUTION"] >= 50
    assert plan.precisions[precision] > sum(plan.precisions.values()) / 2


def test_a_matrix_product_in_int8_is_seen_as_such():
    model = net(
        """t = Transpose <perm = [0, 2, 3, 1]> (image)
           logits = MatMul (t, k)""",
        "float[1,3,8,12] image",
        "float[1,8,12,5] logits",
        k=np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32),
    )
    found = locate(model)
    pre = Pre(*found.input_size, mean=(127.5,), std=(127.5,))
    inputs = [np.random.default_rng(seed).standard_normal((1, 3, 8, 12)).astype(np.float32) for seed in range(3)]
    baked = bake(
        model, found, pre, Post(classes=5, layout="NHWC"), reduce=lambda one: reduced(one, "int8", iter(inputs))
    )
    _, facts = build_plan(baked, PROFILE, "tensorrt_rtx", Settings(precision="int8"))
    assert facts.precisions == {"int8": 1}


def test_layers_tell_which_part_they_are_of():
    trt = package("tensorrt_rtx")
    model = nchw()
    found = locate(model)
    baked = bake(model, found, Pre(*found.input_size, mean=(1.0,)), Post(classes=4, layout=found.layout))
    builder = trt.Builder(logger_of("tensorrt_rtx"))
    network = builder.create_network(strongly_typed(trt))
    parser = trt.OnnxParser(network, logger_of("tensorrt_rtx"))
    assert parser.parse(baked.SerializeToString())
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    name_parts(layers)
    parts = [next(part for part in ("pre/", "network/", "post/") if part in layer.name) for layer in layers]
    assert parts == sorted(parts, key=("pre/", "network/", "post/").index)
    kinds = {part: {layer.type.name for layer, one in zip(layers, parts, strict=True) if one == part} for part in parts}
    assert "CONVOLUTION" in kinds["network/"]
    assert {"TOPK", "GATHER"} <= kinds["post/"]
    assert len({layer.name for layer in layers}) == len(layers)
