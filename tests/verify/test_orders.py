"""Which order of resize and ArgMax draws the truth's boundaries."""

from __future__ import annotations

import numpy as np
from nets import nchw, save
from PIL import Image

from trtpost.builder.options import BuildOptions
from trtpost.verify.orders import compare_orders


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
