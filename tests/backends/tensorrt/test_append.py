"""Post-processing appended to a network by hand: what its layers compute, and that TensorRT for RTX builds them."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import onnx
import pytest
from conftest import package
from interpreter import evaluate

from trtpost.backends.tensorrt.append import append_postprocess
from trtpost.backends.tensorrt.flavour import logger_of, strongly_typed
from trtpost.errors import BackendError, SpecError
from trtpost.graph.baking.postprocess import node_model
from trtpost.kernels.reference import argmax_resize, size_inputs
from trtpost.letterbox import Region
from trtpost.spec import MATCHES, Post

SOURCE = (13, 17)
TARGETS = [(40, 29), (7, 11), (1, 1)]
REGION = Region(3, 2, 8, 13)
CONVENTIONS = [(resize, match) for resize, matches in MATCHES.items() for match in matches]
LETTERS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1)}


@pytest.fixture(name="trt")
def _trt():
    return package("tensorrt_rtx")


def network_of(trt):
    """A builder, which must outlive its network, and a network."""
    builder = trt.Builder(logger_of("tensorrt_rtx"))
    return builder, builder.create_network(strongly_typed(trt))


def specs():
    """Every Post that has a meaning, but for sizes that are the same to the code."""
    for resize, match in CONVENTIONS:
        for head, classes in (("argmax", 5), ("threshold", 2), ("labels", 5)):
            for layout in ("NCHW", "NHWC"):
                for size in ("runtime", "image", TARGETS[0]):
                    for region in ("whole", "runtime"):
                        with suppress(SpecError):  # has no meaning; test_spec covers the refusal
                            yield Post(head, layout, classes, resize, match, size, 0.25, region)


def logits_of(post, batch=2, dtype=np.float32):
    """Smooth enough that ties are rare; labels where the network ends in them."""
    random = np.random.default_rng(7)
    if post.head == "labels":
        return random.integers(0, post.classes, (batch, *SOURCE)).astype(np.int32)
    channels = 1 if post.head == "threshold" else post.classes
    return random.normal(size=(batch, channels, *SOURCE)).astype(dtype).transpose(LETTERS[post.layout])


def appended(trt, post, logits, *, dynamic=True, **settings):
    """A network that is the post-processing alone."""
    builder, network = network_of(trt)
    kinds = {"float32": trt.float32, "float16": trt.float16, "int32": trt.int32, "int64": trt.int64}
    shape = (-1, *logits.shape[1:]) if dynamic else logits.shape
    tensor = network.add_input("logits", kinds[logits.dtype.name], shape)
    image = network.add_input("image", trt.float32, (-1, -1, -1, 3)) if post.size == "image" else None
    mask = append_postprocess(network, tensor, post, image=image, **settings)
    return builder, network, mask


def fed(network, post, logits, size, region=REGION):
    """Arrays for the inputs that the network has."""
    known = {"logits": logits, "image": np.zeros((1, *size, 3), np.float32)}
    whole = Region(0, 0, *SOURCE)
    known |= size_inputs(post, region if post.region == "runtime" else whole, size)
    return {name: known[name] for name in (network.get_input(index).name for index in range(network.num_inputs))}


def cropped(logits, post, region=REGION):
    if post.region == "whole":
        return logits
    rows, cols = slice(region.top, region.top + region.height), slice(region.left, region.left + region.width)
    return logits[:, :, rows, cols] if logits.ndim == 4 and post.layout == "NCHW" else logits[:, rows, cols]


@pytest.mark.parametrize(("resize", "match"), CONVENTIONS)
def test_the_layers_mean_what_the_reference_says(trt, resize, match):
    for post in specs():
        if (post.resize, post.match) != (resize, match):
            continue
        logits = logits_of(post)
        tables = post.needs_tables and isinstance(post.size, tuple)
        region = {"region": REGION} if tables and post.region == "runtime" else {}
        _builder, network, mask = appended(trt, post, logits, **region)
        assert (network.num_outputs, network.get_output(0).name) == (1, "mask")
        for size in [post.size] if isinstance(post.size, tuple) else TARGETS:
            result = evaluate(trt, network, fed(network, post, logits, size))["mask"]
            assert result.dtype == np.uint8
            expected = argmax_resize(cropped(logits, post), size, post)
            np.testing.assert_array_equal(result, expected, err_msg=f"{post} {size}")
        assert mask.dtype == trt.uint8


def test_inputs_are_those_of_a_baked_graph(trt):
    def inputs(**settings):
        post = Post(classes=5, **settings)
        _builder, network, _mask = appended(trt, post, logits_of(post))
        tensors = [network.get_input(index) for index in range(network.num_inputs)]
        return {tensor.name: (tensor.dtype, tuple(tensor.shape)) for tensor in tensors[1:]}

    assert inputs() == {"output_size": (trt.int64, (2,))}
    assert inputs(region="runtime") == {"output_size": (trt.int64, (2,)), "region": (trt.int64, (4,))}
    assert inputs(match="pil") == {"rows": (trt.int64, (-1,)), "cols": (trt.int64, (-1,))}
    assert inputs(size=(30, 40)) == {}


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_given_tensors_are_used(trt, resize):
    post = Post(classes=5, resize=resize, region="runtime")
    _builder, network = network_of(trt)
    logits = network.add_input("net", trt.float32, (1, 5, *SOURCE))
    size = network.add_input("H and W", trt.int32, (2,))
    append_postprocess(network, logits, post, output_size=size, region=REGION)
    values = logits_of(post, batch=1)
    result = evaluate(trt, network, {"net": values, "H and W": np.array(TARGETS[0], np.int32)})["mask"]
    np.testing.assert_array_equal(result, argmax_resize(cropped(values, post), TARGETS[0], post))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_photo_may_be_in_either_layout(trt, layout):
    post = Post(classes=5, size="image")
    _builder, network = network_of(trt)
    logits = network.add_input("logits", trt.float32, (1, 5, *SOURCE))
    image = network.add_input("image", trt.float32, (1, 3, -1, -1) if layout == "NCHW" else (1, -1, -1, 3))
    append_postprocess(network, logits, post, image=image)
    values, photo = logits_of(post, batch=1), np.zeros((1, 3, 20, 30), np.float32).transpose(LETTERS[layout])
    result = evaluate(trt, network, {"logits": values, "image": photo})["mask"]
    np.testing.assert_array_equal(result, argmax_resize(values, (20, 30), post))


@pytest.mark.parametrize("head", ["argmax", "threshold"])
def test_half_precision_logits(trt, head):
    post = Post(head, classes=5 if head == "argmax" else 2)
    logits = logits_of(post, dtype=np.float16)
    _builder, network, _mask = appended(trt, post, logits)
    result = evaluate(trt, network, fed(network, post, logits, TARGETS[0]))["mask"]
    np.testing.assert_array_equal(result, argmax_resize(logits, TARGETS[0], post))


def test_many_classes_are_wide(trt):
    post = Post(classes=300)
    logits = logits_of(post)
    _builder, network, mask = appended(trt, post, logits)
    assert mask.dtype == trt.int32
    result = evaluate(trt, network, fed(network, post, logits, TARGETS[0]))["mask"]
    assert result.max() > 255
    np.testing.assert_array_equal(result, argmax_resize(logits, TARGETS[0], post))


def test_every_layer_says_that_it_is_postprocessing(trt):
    for post in (Post(classes=5), Post(classes=5, resize="bilinear", region="runtime"), Post("labels", match="pil")):
        _builder, network, _mask = appended(trt, post, logits_of(post))
        names = [network.get_layer(index).name for index in range(network.num_layers)]
        assert all(name.startswith("post/") for name in names)
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(("resize", "match"), CONVENTIONS)
def test_the_same_layers_compute_as_in_the_parsed_body(trt, resize, match):
    for layout in ("NCHW", "NHWC"):
        post = Post(classes=5, layout=layout, resize=resize, match=match)
        logits = logits_of(post)
        _builder, network, _mask = appended(trt, post, logits)
        _other_builder, parsed = network_of(trt)
        model = node_model(post, onnx.TensorProto.FLOAT, ("N", *logits.shape[1:]), 17)
        parser = trt.OnnxParser(parsed, logger_of("tensorrt_rtx"))
        assert parser.parse(model.SerializeToString())
        for kind in ("TOPK", "RESIZE", "FILL", "UNARY"):
            assert count(network, kind) == count(parsed, kind), kind
        # the function body as TensorRT's parser understands it, by the same interpreter
        feeds = fed(network, post, logits, TARGETS[0])
        for one in (network, parsed):
            mask = evaluate(trt, one, feeds)["mask"]
            np.testing.assert_array_equal(mask, argmax_resize(logits, TARGETS[0], post))


def count(network, kind):
    return sum(network.get_layer(index).type.name == kind for index in range(network.num_layers))


def test_every_convention_builds(trt):
    # alternating what does not depend on each other: half of the layouts and regions with each convention
    for number, post in enumerate(specs()):
        if (number // 2 + number) % 2 or (post.head == "labels" and post.layout == "NHWC"):
            continue
        builder, network, _mask = appended(trt, post, logits_of(post))
        logger_of("tensorrt_rtx").clear()
        config = builder.create_builder_config()
        config.add_optimization_profile(profile_of(builder, network))
        assert builder.build_serialized_network(network, config) is not None, (post, logger_of("tensorrt_rtx").last())


def test_more_numbers_than_int32_counts(trt):
    builder, network, _mask = appended(trt, Post(classes=33, resize="bilinear"), np.zeros((1, 33, 8, 8), np.float32))
    profile = profile_of(builder, network)
    profile.set_shape_input("output_size", (1, 1), (300, 400), (8192, 8192))  # 33 x 8192 x 8192 > 2^31
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    assert builder.build_serialized_network(network, config) is not None


def profile_of(builder, network):
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.name == "output_size":
            profile.set_shape_input(tensor.name, (1, 1), (300, 400), (4000, 4000))
        elif tensor.name == "region":
            profile.set_shape_input(tensor.name, (0, 0, 1, 1), (0, 0, *SOURCE), (*SOURCE, *SOURCE))
        elif -1 in tensor.shape:
            sizes = (1, 2, 4) if tensor.name == "logits" else (1, 300, 4000)
            ranges = [[dim if dim > 0 else size for dim in tensor.shape] for size in sizes]
            profile.set_shape(tensor.name, *ranges)
    return profile


MISTAKES = [
    ({}, (1, 5, 13), "float32", {}, r"head 'argmax' needs \[N, C, h, w\], not 'logits', FLOAT \[1, 5, 13\]"),
    ({}, (1, 13, 17, 5), "float32", {}, r"5 channels is expected .* check post.layout and post.classes"),
    ({}, (1, -1, 13, 17), "float32", {}, "5 channels is expected"),
    ({}, (1, 5, 13, 17), "int32", {}, "needs one of FLOAT, HALF, BF16, not 'logits', INT32"),
    ({"head": "labels"}, (1, 13, 17), "float32", {}, "needs one of INT32, INT64"),
    ({"head": "labels"}, (1, 1, 13, 17), "int32", {}, r"needs \[N, h, w\]"),
    ({"size": "image"}, (1, 5, 13, 17), "float32", {}, "give its tensor as image="),
    ({"size": "image"}, (1, 5, 13, 17), "float32", {"image": ("float32", (1, 7, 8, 9))}, "1, 3 or 4 channels"),
    ({}, (1, 5, 13, 17), "float32", {"image": ("float32", (1, 3, 8, 9))}, "image would not be used .* output_size"),
    ({"size": (3, 4)}, (1, 5, 13, 17), "float32", {"output_size": ("int64", (2,))}, "these take no tensors"),
    ({}, (1, 5, 13, 17), "float32", {"output_size": ("int64", (3,))}, "output_size must be one-dimensional of 2"),
    ({}, (1, 5, 13, 17), "float32", {"output_size": ("float32", (2,))}, "output_size must be int32 or int64"),
    ({"match": "pil"}, (1, 5, 13, 17), "float32", {"rows": ("int64", (2, 2))}, "rows must be one-dimensional, not"),
    ({"match": "pil", "size": (3, 4)}, (1, 5, -1, -1), "float32", {}, "needs the logits' height and width"),
    (
        {"match": "pil", "size": (3, 4), "region": "runtime"},
        (1, 5, 13, 17),
        "float32",
        {"region": ("int64", (4,))},
        "give the region as numbers",
    ),
]


@pytest.mark.parametrize(("settings", "shape", "kind", "given", "message"), MISTAKES)
def test_mistakes_are_explained(trt, settings, shape, kind, given, message):
    _builder, network = network_of(trt)
    logits = network.add_input("logits", getattr(trt, kind), shape)
    tensors = {name: network.add_input(name, getattr(trt, kind), dims) for name, (kind, dims) in given.items()}
    with pytest.raises(SpecError, match=message):
        append_postprocess(network, logits, Post(**{"classes": 5} | settings), **tensors)
    assert network.num_outputs == 0


def test_names_that_are_taken(trt):
    _builder, network = network_of(trt)
    logits = network.add_input("output_size", trt.float32, (1, 5, *SOURCE))
    with pytest.raises(SpecError, match="has an input 'output_size' already: if it is meant, give it as output_size="):
        append_postprocess(network, logits, Post(classes=5))
    append_postprocess(network, logits, Post(classes=5, size=(30, 40)))
    with pytest.raises(SpecError, match="has an output 'mask' already"):
        append_postprocess(network, logits, Post(classes=5, size=(30, 40)))


def test_what_is_no_network(trt):
    with pytest.raises(SpecError, match="must be a TensorRT INetworkDefinition, not dict"):
        append_postprocess({}, None, Post())
    _builder, network = network_of(trt)
    logits = network.add_input("logits", trt.float32, (1, 2, *SOURCE))
    with pytest.raises(BackendError, match="takes no plugins"):
        append_postprocess(network, logits, Post(), lowering="plugin")
