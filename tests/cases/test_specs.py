"""`Pre` and `Post` over all their fields: what is valid builds, runs and equals the reference, the rest is refused."""

from __future__ import annotations

import decimal
import json
import math
from dataclasses import asdict, fields
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nets import net
from pydantic import TypeAdapter

from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.builder.build import embed
from trtpost.bundle.folder import write_bundle
from trtpost.bundle.passport import Passport
from trtpost.errors import SpecError
from trtpost.graph.baking.bake import bake
from trtpost.graph.head.locate import locate
from trtpost.kernels import reference
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region, region_of
from trtpost.photos.pixels import pixels_of
from trtpost.segment import Segmenter
from trtpost.spec import MATCHES, MAX_CLASSES, MAX_SIDE, Located, Post, Pre

ADAPTERS = {kind: TypeAdapter(kind) for kind in (Pre, Post, Passport)}
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

sides = st.integers(4, 9)
means = st.one_of(st.sampled_from([0.0, 127.5, -0.0, 123.675, 1e-30, 255.0]), st.floats(-1e3, 1e3, width=32))
deviations = st.one_of(st.sampled_from([1.0, 255.0, 58.395, -127.5, 1e-3]), st.floats(0.125, 1e4, width=32))


@st.composite
def pres(draw, fit):
    channels = draw(st.sampled_from(["rgb", "bgr", "gray"]))
    depth = 1 if channels == "gray" else 3

    def numbers(each):
        return tuple(draw(st.lists(each, min_size=1, max_size=1) | st.lists(each, min_size=depth, max_size=depth)))

    return Pre(draw(sides), draw(sides), numbers(means), numbers(deviations), channels, fit)


@st.composite
def specs(draw):
    """A `Pre` and a `Post` that go together; a photo's size that they allow."""
    head = draw(st.sampled_from(["argmax", "threshold", "labels"]))
    resize = "nearest" if head == "labels" else draw(st.sampled_from(["nearest", "bilinear"]))
    match = draw(st.sampled_from(MATCHES[resize]))
    fit = draw(st.sampled_from(["stretch", "letterbox"]))
    pre = draw(pres(fit))
    photo = (draw(st.integers(1, 40)), draw(st.integers(1, 40)))
    # an engine that takes whole photos resizes them itself; an odd multiple has a pixel in the middle: no rounding
    whole = (pre.height * draw(st.sampled_from([1, 3, 5])), pre.width * draw(st.sampled_from([1, 3])))
    kinds = ["runtime", "fixed"]
    if fit == "stretch" and not (resize == "nearest" and match in ("opencv", "pil")):
        kinds.append("image")
    size = draw(st.sampled_from(kinds))
    post = Post(
        head=head,
        layout=draw(st.sampled_from(["NCHW", "NHWC"])),
        # of one class kernels make a mask too (tests/kernels/test_cpu.py), but a network that has only one is refused
        classes=2 if head == "threshold" else draw(st.sampled_from([2, 5, 19, 256, 257])),
        resize=resize,
        match=match,
        size=photo if size == "fixed" else size,
        threshold=draw(st.one_of(st.just(0.5), st.floats(-300, 300), st.floats(-4e37, 4e37))),
        region="runtime" if fit == "letterbox" else "whole",
    )
    return pre, post, whole if size == "image" else photo


def network(pre: Pre, post: Post) -> tuple[onnx.ModelProto, Located, np.ndarray, np.ndarray]:
    """Channels picked and weighted, which numpy computes to the last bit; with what it picks and weighs."""
    channels = 1 if post.head == "threshold" else post.classes
    picked = np.arange(channels) % pre.depth
    weights = np.random.default_rng(channels).uniform(-2, 2, channels).astype(np.float32)
    size = (pre.height, pre.width)
    if post.layout == "NCHW":
        axis, shapes, weights = (
            1,
            [f"1,{depth},{size[0]},{size[1]}" for depth in (pre.depth, channels)],
            weights[:, None],
        )
        weights = weights[..., None]
    else:
        axis, shapes = 3, [f"1,{size[0]},{size[1]},{depth}" for depth in (pre.depth, channels)]
    body = f"picked = Gather <axis = {axis}> (image, picks)\n logits = Mul (picked, weights)"
    output = f"float[{shapes[1]}] logits"
    if post.head == "labels":
        body += f"\n out = ArgMax <axis = {axis}, keepdims = 0> (logits)"
        output = f"int64[1,{size[0]},{size[1]}] out"
    model = net(body, f"float[{shapes[0]}] image", output, picks=picked, weights=weights)
    head = {"logits": "out"} if post.head == "labels" else {"logits": "logits"}
    located = locate(model, layout=post.layout, head=post.head, **head)
    return model, located, picked, weights


def logits_of(pixels: np.ndarray, pre: Pre, post: Post, picked: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What the network says of uint8 [h, w, C], by numpy, in float32."""
    values = pixels.astype(np.float32)
    if pre.channels == "bgr":
        values = values[..., ::-1]
    if not pre.is_identity:
        values = (values - np.array(pre.mean, np.float32)) / np.array(pre.std, np.float32)
    if post.layout == "NCHW":
        return (values.transpose(2, 0, 1)[picked] * weights)[None]
    return (values[..., picked] * weights)[None]


def expected_of(logits: np.ndarray, size: tuple[int, int], post: Post, region: Region | None):
    """The mask by `trtpost.kernels.reference`, and where it is no matter of rounding."""
    rows = slice(None) if region is None else slice(region.top, region.top + region.height)
    columns = slice(None) if region is None else slice(region.left, region.left + region.width)
    inside = logits[:, :, rows, columns] if post.layout == "NCHW" else logits[:, rows, columns]
    if post.head == "labels":
        inside = logits.argmax(1 if post.layout == "NCHW" else 3)[:, rows, columns]
    mask = reference.argmax_resize(inside, size, post)[0]
    if post.resize == "nearest":
        return mask, np.ones(mask.shape, bool)
    planes = inside[0].transpose(1, 2, 0) if post.layout == "NCHW" else inside[0]
    values = reference.bilinear(planes.astype(np.float64), size, post.match)
    slack = 1e-4 * max(float(np.abs(planes).max()), 1e-30)
    if post.head == "threshold":
        return mask, np.abs(values[..., 0] - np.float32(post.threshold)) > slack
    best = np.sort(values, axis=-1)
    return mask, best[..., -1] - best[..., -2] > slack if best.shape[-1] > 1 else np.ones(mask.shape, bool)


def passport_of(pre: Pre, post: Post, located: Located) -> Passport:
    names = tuple(f"class {index}" for index in range(post.classes))
    size = post.size if isinstance(post.size, tuple) else (64, 64)
    return Passport("0", "0", "net.onnx", "0", pre, post, located, "flag", names, 1, size)


@QUICK
@given(specs(), st.integers(0, 2**31))
def test_every_valid_spec_builds_runs_and_equals_the_reference(tmp_path_factory, spec, seed):
    """Any combination of fields: one mask from numpy, ONNX Runtime, and the kernel through `Segmenter`."""
    pre, post, size = spec
    model, located, picked, weights = network(pre, post)
    baked = bake(model, located, pre, post)
    photo = np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)
    if pre.channels == "gray":
        photo = np.repeat(photo[..., :1], 3, axis=2)
    network_size = (pre.height, pre.width)
    given_pixels = pixels_of(photo, pre, network_size, resized=post.size != "image")
    pixels = given_pixels
    if post.size == "image":
        pixels = reference.bilinear(given_pixels, network_size).astype(np.uint8)
    region = region_of(size, network_size, network_size) if pre.fit == "letterbox" else None
    expected, clear = expected_of(logits_of(pixels, pre, post, picked, weights), size, post, region)

    feeds = {"image": given_pixels[None]}
    if post.size == "runtime":
        feeds |= size_inputs(post, region or Region(0, 0, *network_size), size)
    session = onnxruntime.InferenceSession(baked.SerializeToString(), providers=["CPUExecutionProvider"])
    (mask,) = session.run(["mask"], feeds)
    assert mask.dtype == (np.int32 if post.classes > 256 else np.uint8)
    np.testing.assert_array_equal(mask[0][clear], expected[clear])

    passport = passport_of(pre, post, located)
    assert ADAPTERS[Passport].validate_json(passport.to_json(), strict=True) == passport
    embed(baked, passport)
    bundle = write_bundle(tmp_path_factory.mktemp("spec") / "net.trtpost", baked, None, passport)
    with Segmenter(bundle, backend="onnxruntime", threads=1) as segmenter:
        np.testing.assert_array_equal(segmenter(photo).mask[clear], expected[clear])


@settings(QUICK, max_examples=8)
@given(specs())
def test_every_valid_spec_becomes_a_plan(spec):
    """Any combination of fields, through TensorRT's parser and builder."""
    package("tensorrt_rtx")
    pre, post, _ = spec
    model, located, *_ = network(pre, post)
    plan, _ = build_plan(bake(model, located, pre, post), Profile(1, (64, 64), (pre.height, pre.width)), "tensorrt_rtx")
    assert plan


wrong_texts = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "NEAREST", "nchw ", "TF", "16x16", "none", "rgba"]),
    st.binary(max_size=3),
    st.just([]),
    st.just(np.zeros(3)),
)
wrong_counts = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(max_value=0),
    st.integers(min_value=MAX_CLASSES + 1),
    st.floats(),
    st.sampled_from(["4", "", b"4", 4.0, np.float32(4), np.array([4]), [4], (4,), Fraction(7, 2), 4j, math.nan]),
)
wrong_numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf"), 10**400, 1e39, -1e39]),
    st.sampled_from(["0.5", "", b"1", 1j, decimal.Decimal(1), [0.5], np.array([0.5])]),
)
wrong_normalizations = st.one_of(
    wrong_numbers.filter(lambda value: not isinstance(value, list)),  # which is as good as a tuple
    st.floats(0, 1),
    st.just(()),
    st.just((1.0, 2.0)),
    st.just((1.0,) * 4),
    st.just("127.5"),
    st.just({1.0: 2.0}),
    st.just(np.ones(3)),
    st.tuples(wrong_numbers),
    st.tuples(st.just(1.0), st.just(1.0), wrong_numbers),
)
wrong_sizes = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["1080x1920", "", "IMAGE", b"runtime"]),
    st.just(()),
    st.just((5,)),
    st.just((5, 5, 5)),
    st.just({5: 6, 7: 8}),
    st.just(np.array([5, 5])),
    st.tuples(st.integers(1, 9), wrong_counts),
    st.tuples(wrong_counts, st.integers(1, 9)),
    st.tuples(st.integers(1, 9), st.integers(min_value=MAX_SIDE + 1)),
)
WRONG = {
    Pre: {
        "height": wrong_counts,
        "width": wrong_counts,
        "mean": wrong_normalizations,
        "std": st.one_of(wrong_normalizations, st.sampled_from([(0.0,), (-0.0,), (1.0, 0.0, 1.0), (1e-45,), (1e-40,)])),
        "channels": wrong_texts,
        "fit": wrong_texts,
    },
    Post: {
        "head": wrong_texts,
        "layout": wrong_texts,
        "classes": wrong_counts,
        "resize": wrong_texts,
        "match": wrong_texts,
        "size": wrong_sizes,
        "threshold": st.one_of(wrong_numbers, st.floats(min_value=4.1e37), st.floats(max_value=-4.1e37)),
        "region": wrong_texts,
    },
}


def test_every_field_has_its_wrong_values():
    """Fields that come later are tested as well."""
    for kind, wrong in WRONG.items():
        assert set(wrong) == {field.name for field in fields(kind)}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, wrong in WRONG.items() for name in wrong])
def test_a_field_of_a_wrong_value_or_type_is_refused_when_the_spec_is_made(kind, name):
    """Numbers that are no numbers, other types, texts that nobody knows: `SpecError` and nothing else, at once."""

    @settings(max_examples=60, deadline=None)
    @given(WRONG[kind][name])
    def refused(value):
        valid = {"height": 4, "width": 5} if kind is Pre else {}
        with pytest.raises(SpecError) as caught:
            kind(**(valid | {name: value}))
        assert "\n" not in str(caught.value)

    refused()


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        (Post, {"head": "labels", "resize": "bilinear"}, "labels cannot be interpolated.*--logits"),
        (Post, {"head": "threshold", "classes": 3}, "has 2 classes, below and above it, not 3"),
        (Post, {"resize": "bilinear", "match": "pil"}, "tf, tf1, torch, opencv, align_corners; Pillow's.*antialiases"),
        (Post, {"resize": "nearest", "match": "align_corners"}, "no nearest convention: choose one of tf, tf1"),
        (Post, {"size": "image", "match": "opencv"}, "float64 index tables.*use size 'runtime'"),
        (Post, {"size": "image", "match": "pil"}, "float64 index tables.*use size 'runtime'"),
        (Post, {"size": "image", "region": "runtime"}, "letterbox is made before the engine.*use runtime or HxW"),
        (Pre, {"mean": (1.0, 2.0)}, "one number, or 3, one a channel"),
        (Pre, {"std": (1.0,) * 3, "channels": "gray"}, "one number, or 1, one a channel"),
        (Pre, {"std": (0.0,)}, "must not be zero"),
        (Pre, {"mean": (3e38,), "std": (1e-3,)}, "beyond what a float32 holds"),
    ],
)
def test_fields_that_do_not_go_together_are_refused_when_the_spec_is_made(kind, fields, says):
    """Valid each for itself, without a meaning together; the message says what to choose instead."""
    with pytest.raises(SpecError, match=says):
        kind(**({"height": 4, "width": 5} | fields if kind is Pre else fields))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_given_becomes_a_spec_of_plain_values_or_is_refused(data):
    """No third way out: what the constructor lets pass can be hashed, goes through JSON unchanged, is Python's own."""
    kind = data.draw(st.sampled_from([Pre, Post]))
    near = st.one_of(
        st.integers(-2, 300),
        st.floats(),
        st.sampled_from(
            [np.int64(7), np.uint8(7), np.float32(0.5), np.float64(3), Fraction(1, 3), [4, 5], (np.int32(6), 7)]
        ),
        st.sampled_from([[1.0], [1, 2, 3], (np.float32(1),), [np.float64(2)] * 3]),
        st.sampled_from(
            ["argmax", "labels", "NHWC", "bilinear", "tf1", "image", "letterbox", "bgr", "gray", "runtime"]
        ),
        st.text(max_size=3),
        st.none(),
    )
    valid = {"height": 4, "width": 5} if kind is Pre else {}
    chosen = data.draw(st.dictionaries(st.sampled_from([field.name for field in fields(kind)]), near, max_size=4))
    try:
        spec = kind(**(valid | chosen))
    except SpecError:
        return
    hash(spec)
    assert ADAPTERS[kind].validate_json(json.dumps(asdict(spec)), strict=True) == spec
    for value in asdict(spec).values():
        parts = value if isinstance(value, tuple) else (value,)
        assert {type(part) for part in parts} <= {int, float, str}
