"""What is settled from a model and options, and what is said of it."""

from __future__ import annotations

import json

import pytest
from nets import kernel, nchw, net, nhwc, save

from trtpost.builder.decide import decide, doubts
from trtpost.builder.options import BuildOptions
from trtpost.errors import ModelError, SpecError
from trtpost.graph.reading.model import set_metadata
from trtpost.progress import Progress


def decided(model, tmp_path, **settings):
    return decide(save(model, tmp_path / "net.onnx"), "onnx", BuildOptions(**settings), Progress())


def sigmoids():
    return nhwc(4, "out = Sigmoid (logits)")


@pytest.mark.parametrize(
    ("model", "settings", "classes", "head"),
    [
        (nchw, {}, ("class 0", "class 1", "class 2", "class 3"), "argmax"),
        (sigmoids, {"head": "multilabel"}, ("background", "class 1", "class 2", "class 3", "class 4"), "argmax"),
        (sigmoids, {"head": "multilabel", "labels": tuple("abcd")}, ("background", *"abcd"), "argmax"),
        (lambda: nhwc(1, "out = Sigmoid (logits)"), {}, ("background", "foreground"), "threshold"),
    ],
)
def test_names_of_classes(tmp_path, model, settings, classes, head):
    found = decided(model(), tmp_path, **settings)
    assert (found.classes, found.post.head, found.post.classes) == (classes, head, len(classes))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, True),
        ({"head": "argmax"}, False),
        ({"labels": ("_Background_", "b", "c", "d")}, False),
        ({"labels": ("a", "b", "c", "d")}, True),
    ],
)
def test_a_choice_is_said_unless_somebody_has_made_it(tmp_path, settings, says):
    options = BuildOptions(normalize="unit", **settings)
    source = save(sigmoids(), tmp_path / "net.onnx")
    found = doubts(decide(source, "onnx", options, Progress()), options)
    assert any("has a Sigmoid of its own" in one for one in found) == says


def test_a_threshold_fits_the_scores(tmp_path):
    one = nhwc(1, "out = Sigmoid (logits)")
    assert decided(one, tmp_path).post.threshold == 0.5
    assert decided(one, tmp_path, threshold=0.25).post.threshold == 0.25
    for model, threshold, says in ((one, 1.0, "no sense for a probability"), (nchw(), 0.5, "networks of one channel")):
        with pytest.raises(SpecError, match=says):
            decided(model, tmp_path, threshold=threshold)


def test_a_named_normalisation_is_of_colours_and_numbers_are_of_the_networks_order(tmp_path):
    colours = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    numbers = "/".join(",".join(map(str, values)) for values in colours)
    for channels, given, order in (
        ("rgb", "imagenet", 1),
        ("bgr", "imagenet", -1),
        ("rgb", numbers, 1),
        ("bgr", numbers, 1),
    ):
        pre = decided(nchw(), tmp_path, normalize=given, channels=channels).pre
        assert (pre.mean, pre.std) == tuple(values[::order] for values in colours)


@pytest.mark.parametrize("text", ["", "5", '{"mean": [1]}', '{"mean": [], "std": []}', '{"mean": ["1"], "std": [1]}'])
def test_metadata_that_are_no_normalisation(tmp_path, text):
    model = net("logits = Conv (image, k)", "float[1,3,8,12] image", "float[1,4,8,12] logits", k=kernel(4))
    set_metadata(model, {"normalization": text, "labels": json.dumps(list("abcd"))})
    assert decided(model, tmp_path, normalize="unit").classes == tuple("abcd")
    with pytest.raises(ModelError, match=r"metadata entry trtpost\.normalization is no JSON"):
        decided(model, tmp_path)
