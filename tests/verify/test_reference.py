"""The replaced pipeline's own steps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from trtpost.photos.scale import PAD
from trtpost.spec import Post, Pre
from trtpost.verify.frameworks import resizer
from trtpost.verify.network import Answer
from trtpost.verify.reference import interpolable, levels_of, masked, tensor_of

PRE = Pre(4, 8, mean=(10.0, 20.0, 30.0), std=(2.0, 4.0, 8.0))
PHOTO = np.full((8, 16, 3), (110, 120, 130), np.uint8)


@pytest.mark.parametrize(
    ("pre", "layout", "shape", "first"),
    [
        (PRE, "NHWC", (1, 4, 8, 3), [50, 25, 12.5]),
        (PRE, "NCHW", (1, 3, 4, 8), [50, 25, 12.5]),
        (replace(PRE, channels="bgr"), "NHWC", (1, 4, 8, 3), [60, 25, 10]),
    ],
)
def test_the_tensor_has_the_networks_layout_order_and_scale(pre, layout, shape, first):
    tensor = tensor_of(levels_of(PHOTO, pre, (4, 8)), pre, SimpleNamespace(input_dtype="float32", input_layout=layout))
    assert tensor.shape == shape
    assert (tensor[0, :, 0, 0] if layout == "NCHW" else tensor[0, 0, 0]).tolist() == first


def test_a_letterbox_has_bars_and_a_gray_network_one_channel():
    tall = np.full((16, 8, 3), 200, np.uint8)
    levels = levels_of(tall, replace(PRE, fit="letterbox"), (4, 8))
    assert levels.shape == (4, 8, 3)
    assert sorted({int(one) for one in levels[0, :, 0]}) == [PAD, 200]
    assert levels_of(tall, Pre(4, 8, channels="gray"), (4, 8)).shape == (4, 8, 1)


@pytest.mark.parametrize("squashed", ["Softmax", "LogSoftmax", "Sigmoid", ""])
def test_scores_are_interpolated_as_logits(squashed):
    logits = np.array([[[0.5, -1.0, 2.0]]], np.float32)
    powers = np.exp(logits) / np.exp(logits).sum()
    scores = {"Softmax": powers, "LogSoftmax": np.log(powers), "Sigmoid": 1 / (1 + np.exp(-logits)), "": logits}
    found = interpolable(scores[squashed], squashed)
    np.testing.assert_allclose(found - found[..., :1], logits - logits[..., :1], atol=1e-5)


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize(
    ("post", "scores", "labels", "ties"),
    [
        (Post(classes=2), [[[0.0, 1.0]], [[1.0, 0.0]], [[0.5, 0.5]]], [[1], [0], [0]], [[0], [0], [1]]),
        (Post(head="threshold", threshold=0.5), [[[0.9]], [[0.1]], [[0.5]]], [[1], [0], [0]], [[0], [0], [1]]),
    ],
    ids=["argmax", "threshold"],
)
def test_masks_know_their_ties(post, scores, labels, ties, resize):
    reference = SimpleNamespace(
        pre=PRE, post=replace(post, resize=resize), resizer=resizer(resize, "tf"), network=SimpleNamespace(squashed="")
    )
    found = masked(Answer(np.array(scores, np.float32), None), (3, 1), reference)
    assert found.labels.tolist() == labels
    assert found.ties.tolist() == ties


def test_neighbouring_quantised_scores_are_a_tie():
    reference = SimpleNamespace(
        pre=PRE, post=Post(classes=2), resizer=resizer("nearest", "tf"), network=SimpleNamespace(squashed="")
    )
    scores = np.array([[[0.5, 0.75], [0.25, 1.0]]], np.float32)
    assert masked(Answer(scores, None, 0.25), (1, 2), reference).ties.tolist() == [[True, False]]
    assert masked(Answer(None, np.array([[0, 1]])), (1, 2), reference).ties is None
