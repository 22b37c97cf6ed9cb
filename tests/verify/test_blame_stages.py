"""Faults are told by their names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from trtpost.spec import Post, Pre, parse_normalization
from trtpost.verify.blame_stages import preprocessing

LEVELS = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
LOCATED = SimpleNamespace(input_dtype="float32", input_layout="NHWC")


def told(ours, origin="given", normalization="unit", channels="rgb"):
    mean, std = parse_normalization(normalization, channels)
    reference = SimpleNamespace(
        pre=Pre(6, 7, mean=mean, std=std, channels=channels),
        post=Post(classes=2),
        located=LOCATED,
        decided=SimpleNamespace(origin=origin),
    )
    bundle = SimpleNamespace(passport=SimpleNamespace(pre=SimpleNamespace(fit="stretch")))
    return preprocessing(bundle, reference, ours, LEVELS)


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (LEVELS / 255, None),
        (LEVELS[..., ::-1] / 255, "the channels are swapped, bgr where the reference has rgb"),
        (LEVELS.astype(float), "another scale and offset, 'none' where the reference has 'unit'"),
        ((LEVELS - 127.5) / 127.5, "another scale and offset, 'signed' where the reference has 'unit'"),
        ((LEVELS - 3.0) / 99, "another scale and offset, '3/99' where the reference has 'unit'"),
        (LEVELS[::-1] / 255, "it looks like another resize or another photo"),
        (LEVELS[:3] / 255, "the bundle's network gets 3x7x3 values, the reference's 6x7x3"),
    ],
)
def test_what_was_done_to_the_pixels_is_named(ours, words):
    found = told(ours)
    assert found.differs == (words is not None)
    assert (words or "the same input tensor") in found.text


MEAN, STD = (np.array(values) for values in parse_normalization("imagenet"))
RIGHT = (LEVELS - MEAN) / STD


@pytest.mark.parametrize(
    ("ours", "channels", "said"),
    [
        (RIGHT, "rgb", "the same input tensor"),
        (RIGHT[..., ::-1], "bgr", "the same input tensor"),
        (RIGHT[..., ::-1], "rgb", "the channels are swapped, bgr where the reference has rgb ("),
        (RIGHT, "bgr", "the channels are swapped, rgb where the reference has bgr ("),
        ((LEVELS[..., ::-1] - MEAN) / STD, "rgb", "the channels are swapped, bgr where the reference has rgb ("),
        (
            (LEVELS[..., ::-1] - MEAN) / STD,
            "bgr",
            "another scale and offset, '123.7,116.3,103.5/58.39,57.12,57.38' where the reference has 'imagenet' (",
        ),
        (
            LEVELS[..., ::-1] / 255,
            "rgb",
            "swapped, bgr where the reference has rgb and another scale and offset, 'unit' where the reference has "
            "'imagenet' (",
        ),
    ],
)
def test_a_normalisation_is_named_by_its_colours(ours, channels, said):
    assert said in told(ours, normalization="imagenet", channels=channels).text


def test_a_normalisation_that_is_only_assumed_is_doubted():
    assert "--normalize" in told(LEVELS.astype(float), "assumed").text
    assert "--normalize" not in told(LEVELS.astype(float)).text
