"""TensorRT for RTX really builds the plans, without a GPU."""

from __future__ import annotations

import pytest
from conftest import package
from nets import kernel, nchw, net, nhwc, save

from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.builder import build
from trtpost.errors import BackendError
from trtpost.graph.bake import bake, inlined
from trtpost.graph.locate import locate
from trtpost.spec import MATCHES, Post, Pre

PROFILE = Profile(max_batch=1, max_size=(4096, 4096))
SIZES = ["runtime", "image", (300, 400)]


@pytest.fixture(autouse=True)
def _rtx():
    package("tensorrt_rtx")


def plan_of(model, profile=PROFILE, *, inline=False, **post):
    found = locate(model)
    spec = Post(head=found.head, layout=found.layout, classes=found.classes, **post)
    baked = bake(model, found, Pre(*found.input_size, mean=(127.5,), std=(127.5,)), spec)
    return build_plan(inlined(baked) if inline else baked, profile, "tensorrt_rtx")


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


def test_an_operator_it_does_not_take_is_named():
    # a sequence op has no TensorRT form in any version
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
    with pytest.raises(BackendError, match=r"SequenceConstruct.*--flavour none"):
        plan_of(model)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
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
def test_real_models_build(built, model, normalize, resize, size):
    bundle = built(model, normalize=normalize, resize=resize, size=size, flavour="tensorrt_rtx")
    assert bundle.plan is not None
    assert bundle.plan.stat().st_size > 1_000_000
    assert bundle.passport.plan.layers["CONVOLUTION"] >= 50
