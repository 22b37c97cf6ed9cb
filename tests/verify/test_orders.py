"""Which order of resize and ArgMax draws the truth's boundaries."""

from __future__ import annotations

import numpy as np
import pytest
from nets import nchw, save
from PIL import Image

from trtpost.builder.options import BuildOptions
from trtpost.verify.orders import boundaries_of, compare_orders, reach_of


def test_boundaries_within_reach_count():
    truth = np.zeros((20, 20), np.int32)
    truth[:, 10:] = 1
    moved = np.zeros_like(truth)
    moved[:, 13:] = 1
    assert boundaries_of(truth, truth, 2, 1).score == 1
    assert boundaries_of(moved, truth, 2, 3).score == 1
    assert boundaries_of(moved, truth, 2, 2).score == 0
    ignored = np.where(np.arange(20) < 14, truth, 255)
    assert boundaries_of(truth, ignored, 2, 1).score == 1


@pytest.mark.parametrize(("shape", "reach"), [((3, 4), 1), ((300, 400), 1), ((3000, 4000), 5), ((6000, 8000), 10)])
def test_the_tolerance_is_a_thousandth_of_the_diagonal(shape, reach):
    assert reach_of(shape) == reach


def test_a_picture_of_one_class_has_no_boundary_to_miss():
    flat = np.zeros((5, 6), np.int32)
    assert boundaries_of(flat, flat, 2, 1).score == 1
    assert (boundaries_of(flat, flat, 2, 1) + boundaries_of(flat, flat, 2, 1)).truth.sum() == 0


def test_both_orders_are_scored(tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("photos", "labels"):
        (tmp_path / folder).mkdir()
    Image.fromarray(rng.integers(0, 256, (40, 61, 3), np.uint8)).save(tmp_path / "photos/a.png")
    Image.fromarray(rng.integers(0, 4, (40, 61), np.uint8)).save(tmp_path / "labels/a.png")
    model, options = save(nchw(), tmp_path / "net.onnx"), BuildOptions(normalize="signed")
    found = compare_orders(model, tmp_path / "photos", tmp_path / "labels", options, backend="onnxruntime")
    assert [order.resize for order in found.orders] == ["nearest", "bilinear"]
    assert all(0 < order.mean_iou < 1 and 0 < order.boundary <= 1 and order.milliseconds > 0 for order in found.orders)
