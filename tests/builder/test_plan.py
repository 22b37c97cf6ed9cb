"""What a plan's ranges hold, and how much memory TensorRT's own layers would take for the logits."""

from __future__ import annotations

import pytest
from nets import nchw, nhwc, save

from trtpost.builder.build import build
from trtpost.builder.plan import _interpolated, _profile


def passport(tmp_path, model=None, **settings):
    source = save(model or nchw(batch="N"), tmp_path / "net.onnx")
    return build(source, tmp_path / "a.trtpost", flavour="none", normalize="unit", **settings).passport


def test_ranges_hold_what_the_passport_promises(tmp_path):
    profile = _profile(passport(tmp_path, max_batch=3, max_size=(40, 50)))
    assert (profile.max_batch, profile.max_size, profile.logits_size) == (3, (40, 50), (8, 12))
    fixed = _profile(passport(tmp_path, nchw(), max_batch=3, size=(20, 30)))
    assert (fixed.max_batch, fixed.max_size) == (1, (20, 30))


@pytest.mark.parametrize(
    ("settings", "values", "width"),
    [
        ({}, 0, 0),
        ({"resize": "bilinear"}, 4, 4),
        ({"resize": "bilinear", "precision": "fp16"}, 4, 2),
        ({"resize": "bilinear", "model": nhwc(1, "out = Sigmoid (logits)")}, 1, 4),
    ],
    ids=["nearest", "float32", "float16", "one channel"],
)
def test_memory_for_interpolated_logits(tmp_path, settings, values, width):
    found = passport(tmp_path, max_batch=2, max_size=(40, 50), **settings)
    assert _interpolated(found) == found.max_batch * values * 40 * 50 * width
