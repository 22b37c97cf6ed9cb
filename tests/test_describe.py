"""Words about models, bundles and plans."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from nets import nchw

from trtpost.bundle.passport import Plan, Verification
from trtpost.describe import (
    ORIGINS,
    counted,
    describe_built,
    describe_doubts,
    describe_plan,
    describe_spec,
    describe_verification,
    percent,
)
from trtpost.graph.head.locate import locate
from trtpost.spec import Origin, Post, Pre

PLAN = Plan("tensorrt", "10.9", ("8.9",), {"CONVOLUTION": 2, "CAST": 1}, {"fp16": 2}, "kernel", "ampere+")


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("flag", "--normalize"),
        ("quantised", "the input is uint8"),
        ("metadata", "the model's metadata"),
        ("inside", "normalised inside the network"),
        ("unit", "the network goes on from 0..1"),
        ("assumed", "assumed"),
    ],
)
def test_who_says_the_normalisation(origin, words):
    assert ORIGINS.keys() == set(get_args(Origin))
    assert f" ({words}); argmax" in describe_spec(Pre(1, 1), Post(), origin)


@pytest.mark.parametrize(
    ("origin", "expects", "mean", "says"),
    [
        ("assumed", "", 127.5, ["ASSUMED"]),
        ("flag", "pixels", 127.5, ["the second one"]),
        ("flag", "pixels", 0.0, []),
        ("flag", "", 127.5, []),
        ("unit", "unit", 0.0, ["pixels of 0..1"]),
        ("inside", "pixels", 0.0, []),
        ("metadata", "pixels", 127.5, []),
        ("metadata", "", 127.5, []),
        ("quantised", "", 0.0, []),
    ],
)
def test_what_may_be_wrong_of_a_normalisation(origin, expects, mean, says):
    located = replace(locate(nchw()), expects=expects, doubts=("first",), others=("aux",))
    first, *found, last = describe_doubts(located, Pre(8, 12, mean=(mean,)), origin)
    assert (first, "'aux'" in last) == ("first", True)
    assert len(found) == len(says)
    assert all(words in one for words, one in zip(says, found, strict=True))


def test_plans():
    assert describe_plan(PLAN) == (
        "tensorrt 10.9, compute capability 8.9 and all newer than 8.0; it ends in logits, our kernel makes the mask"
    )
    assert describe_built(replace(PLAN, post="native"), 1_500_000) == (
        "tensorrt 10.9: 3 layers; compute layers: 2 in fp16; TensorRT's own layers make the mask; "
        "1.5 MB plan for compute capability 8.9"
    )


def test_scores():
    assert describe_verification(None).startswith("not yet: trtpost verify")
    score = Verification("net.keras", "", "ONNX Runtime", 2, 5000, 0.9998, None, 1, 0.5)
    assert describe_verification(score) == (
        "99.9800% of the pixels of 2 photos have the class that net.keras gives, 1 really differ, "
        "ties cannot be told, mean IoU 0.5000; on ONNX Runtime"
    )


def test_numbers_are_never_rounded_up_to_all():
    assert [percent(one) for one in (0.5, 0.99999999, 1.0)] == ["50.00%", "99.9999%", "100.0000%"]
    assert [counted(one, "photo") for one in (0, 1, 2000)] == ["0 photos", "1 photo", "2,000 photos"]
