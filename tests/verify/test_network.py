"""A network's answer in the layout of the mask, whatever it ends in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nets import kernel, nchw, net, nhwc, save

from trtpost.builder.decide import decide
from trtpost.builder.options import BuildOptions
from trtpost.graph.head.locate import locate
from trtpost.progress import Progress
from trtpost.verify.network import load_network, output_layout, with_background

IMAGE = np.random.default_rng(0).standard_normal((1, 3, 8, 12)).astype(np.float32)
LOCATED = locate(nchw())


@pytest.mark.parametrize(
    ("layout", "dropped", "seen"),
    [
        ("NCHW", (), "NCHW"),
        ("NCHW", ("Transpose",), "NHWC"),
        ("NHWC", ("Softmax", "Transpose"), "NCHW"),
        ("NHWC", ("Transpose", "Softmax", "Transpose"), "NHWC"),
    ],
)
def test_a_transpose_behind_the_logits_turns_the_layout_that_people_see(layout, dropped, seen):
    assert output_layout(replace(LOCATED, layout=layout, dropped=dropped)) == seen


def test_a_background_is_the_first_class():
    scores = np.ones((2, 3, 4), np.float32)
    assert with_background(scores, LOCATED) is scores
    assert with_background(scores, replace(LOCATED, background=0.5))[0, 0].tolist() == [0.5, 1, 1, 1, 1]


def answered(model, tmp_path, image, **options):
    path = save(model, tmp_path / "net.onnx")
    decided = decide(path, "onnx", BuildOptions(normalize="none", flavour="none", **options), Progress())
    network = load_network(path, "onnx", decided, None)
    return network, network.run(image)


@pytest.mark.parametrize(("model", "image"), [(nchw(), IMAGE), (nhwc(), IMAGE.transpose(0, 2, 3, 1))])
def test_classes_come_last_in_either_layout(model, image, tmp_path):
    network, answer = answered(model, tmp_path, image)
    expected = np.einsum("nchw,kc->hwk", IMAGE, kernel(4)[:, :, 0, 0])
    np.testing.assert_allclose(answer.scores, expected, atol=1e-4)
    assert answer.labels is None
    assert network.name.startswith("ONNX Runtime ")
    assert network.squashed == ""


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_labels_come_with_what_they_are_the_argmax_of(resize, tmp_path):
    model = net(
        "x = Conv (image, k)\n out = ArgMax <axis = 1, keepdims = 0> (x)",
        "float[1,3,8,12] image",
        "int64[1,8,12] out",
        k=kernel(4),
    )
    _, answer = answered(model, tmp_path, IMAGE, resize=resize)
    assert answer.scores.shape == (8, 12, 4)
    if resize == "nearest":
        np.testing.assert_array_equal(answer.labels, answer.scores.argmax(-1))
    else:
        assert answer.labels is None


def test_a_softmax_is_told(tmp_path):
    model = net(
        "x = Conv (image, k)\n out = Softmax <axis = 1> (x)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] out",
        k=kernel(4),
    )
    network, answer = answered(model, tmp_path, IMAGE)
    assert network.squashed == "Softmax"
    np.testing.assert_allclose(answer.scores.sum(-1), 1, atol=1e-5)
