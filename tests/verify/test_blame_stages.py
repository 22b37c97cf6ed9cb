"""Faults are told by their names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from trtpost.spec import NORMALIZATIONS, Post, Pre
from trtpost.verify.blame_stages import preprocessing

LEVELS = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
LOCATED = SimpleNamespace(input_dtype="float32", input_layout="NHWC")


def told(ours, origin="given"):
    mean, std = NORMALIZATIONS["unit"]
    reference = SimpleNamespace(
        pre=Pre(6, 7, mean=mean, std=std), post=Post(classes=2), located=LOCATED, decided=SimpleNamespace(origin=origin)
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
        ((LEVELS - 3.0) / 16050, "another scale and offset, '3/16050' where the reference has 'unit'"),
        (LEVELS[::-1] / 255, "it looks like another resize or another photo"),
        (LEVELS[:3] / 255, "the bundle's network gets 3x7x3 values, the reference's 6x7x3"),
    ],
)
def test_what_was_done_to_the_pixels_is_named(ours, words):
    found = told(ours)
    assert found.differs == (words is not None)
    assert (words or "the same input tensor") in found.text


def test_a_normalisation_that_is_only_assumed_is_doubted():
    assert "--normalize" in told(LEVELS.astype(float), "assumed").text
    assert "--normalize" not in told(LEVELS.astype(float)).text
