"""What is known of a bundle as JSON: read back as it was, and refused where it means something else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from nets import nchw

from trtpost.bundle.passport import FORMAT, Passport, Plan, Verification, passport_from_json
from trtpost.errors import BundleError, SpecError
from trtpost.graph.head.locate import locate
from trtpost.spec import Post, Pre

PASSPORT = Passport(
    version="1",
    request="r",
    source="net.onnx",
    source_sha256="s",
    pre=Pre(8, 12),
    post=Post(classes=4),
    located=locate(nchw()),
    normalization="flag",
    classes=("a", "b", "c", "d"),
    max_batch=1,
    max_size=(40, 50),
    plan=Plan("tensorrt", "10.9", ("8.9",), {"CAST": 1}, {}),
    verification=Verification("net.onnx", "", "x", 1, 2, 1.0, None, 0, 1.0),
)


def changed(**values):
    return json.dumps(json.loads(PASSPORT.to_json()) | values)


def test_it_is_read_back_as_it_was():
    assert passport_from_json(PASSPORT.to_json(), "it") == PASSPORT


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"normalization": "normalised inside the network"}, "damaged .normalization"),  # as in format 3
        ({"more": 1}, "there is no entry 'more'"),
        ({"classes": ["a"]}, "1 class names do not fit 4 classes"),
        ({"max_batch": "1"}, "damaged .max_batch"),
        ({"format": FORMAT - 1}, f"has format {FORMAT - 1}, this trtpost reads format {FORMAT}: build it again"),
        ({"format": FORMAT + 1}, "update trtpost, or build it again"),
    ],
)
def test_what_is_refused(values, says):
    with pytest.raises(BundleError, match=f"^it .*{says}"):
        passport_from_json(changed(**values), "it")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_size": (0, 5)}, "sizes are from 1"),
        ({"agreement": 1.5}, "shares are from 0 to 1"),
        ({"pre": Pre(8192, 8193)}, "choose a smaller --input-size"),
    ],
)
def test_what_cannot_be(change, says):
    with pytest.raises(SpecError, match=says):
        replace(PASSPORT, **change)


def test_a_name_is_as_long_as_it_may_be():
    longest = PASSPORT.to_name(4095)
    shorter = PASSPORT.to_name(len(longest) - 1)
    assert len(shorter) < len(longest)
    whole, short, least = (json.loads(name)["trtpost"] for name in (longest, shorter, PASSPORT.to_name(0)))
    assert whole["classes"] == ["a", "b", "c", "d"]
    assert (short["class_count"], "classes" in short, "request" in short) == (4, False, False)
    assert least == {"format": FORMAT, "version": "1", "request": "r"}
