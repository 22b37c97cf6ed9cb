"""Letterboxing and its undoing."""

from __future__ import annotations

import numpy as np
import pytest
from nets import nchw, nhwc, save

from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.builder.build import build
from trtpost.errors import SpecError
from trtpost.kernels import reference
from trtpost.letterbox import Region, grid_side, on_grid, placement, region_of
from trtpost.photos.scale import PAD, letterboxed
from trtpost.segment import Segmenter
from trtpost.spec import Post


def test_the_photo_is_centred_and_keeps_its_proportions():
    assert placement((480, 640), (640, 640), (640, 640)) == Region(80, 0, 480, 640)
    assert placement((1080, 1920), (512, 512), (512, 512)) == Region(112, 0, 288, 512)
    assert placement((1, 10_000), (64, 64), (64, 64)) == Region(31, 0, 1, 64), "never less than a pixel"
    picture = letterboxed(np.full((10, 20, 3), 200, np.uint8), (16, 16), (16, 16))
    assert (picture[4:12] == 200).all()
    assert (picture[:4] == PAD).all()
    assert (picture[12:] == PAD).all()


def test_edges_lie_on_the_grid_of_the_logits():
    """Inside a logit pixel they would shift the mask."""
    network, logits = (64, 96), (16, 24)
    for photo in [(1000, 1600), (10, 200), (200, 10), (333, 777), (1, 1), (1600, 1000)]:
        inside, region = placement(photo, network, logits), region_of(photo, network, logits)
        assert all(side % 4 == 0 for side in inside)
        assert inside == Region(*(4 * side for side in region))
    assert placement((1000, 1600), (65, 97), (17, 25)) == Region(2, 0, 61, 97), "no whole fraction: no grid"


def test_the_region_is_in_logit_pixels():
    assert region_of((480, 640), (640, 640), (160, 160)) == Region(20, 0, 120, 160)
    for photo in [(1, 500), (500, 1), (301, 97), (3, 3)]:
        region = region_of(photo, (64, 96), (9, 13))
        assert min(region.height, region.width) >= 1
        assert region.top + region.height <= 9
        assert region.left + region.width <= 13


PHOTO = np.random.default_rng(0).integers(0, 256, (40, 25, 3), np.uint8)


@pytest.mark.parametrize("make", [nchw, nhwc])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"resize": "bilinear"},
        {"match": "pil"},
        {"size": (40, 25)},
        {"size": (40, 25), "match": "opencv"},
        {"size": (40, 25), "resize": "bilinear"},
        {"lowering": "inline"},
    ],
)
def test_the_mask_is_that_of_the_photo_alone(make, settings, tmp_path, monkeypatch):
    source = save(make(), tmp_path / "net.onnx")
    bundle = build(source, tmp_path / "a.trtpost", flavour="none", fit="letterbox", **settings)
    whole = build(source, tmp_path / "whole.trtpost", flavour="none", fit="letterbox")
    inside = placement((40, 25), (8, 12), (8, 12))
    logits = OnnxRuntimeEngine(whole).logits(letterboxed(PHOTO, (8, 12), (8, 12))[None])
    cut = logits[:, :, inside.top :, inside.left :][:, :, : inside.height, : inside.width]  # NCHW in both
    expected = reference.argmax_resize(cut, (40, 25), bundle.passport.post)[0]
    fast = Segmenter(bundle)(PHOTO).mask
    monkeypatch.setattr("trtpost.kernels.cpu.is_available", lambda: False)
    slow = Segmenter(bundle)(PHOTO).mask
    assert (fast == expected).mean() > 0.999
    assert (slow == expected).mean() > 0.999


def test_what_cannot_be():
    with pytest.raises(SpecError, match="letterbox is made before the engine"):
        Post(region="runtime", size="image")


@pytest.mark.parametrize(
    ("start", "length", "logits", "side", "grid"),
    [
        (12, 40, 40, 64, 64),
        (0, 88, 11, 95, 95),
        (0, 64, 8, 96, 12),
        (4, 88, 11, 96, 24),
        (0.5, 94, 47, 96, 96),
        (0.25, 63, 126, 64, 128),
    ],
)
def test_the_coarsest_grid_that_logits_lie_on(start, length, logits, side, grid):
    assert grid_side(start, length, logits, side) == grid
    places = on_grid(start, length, logits, side, grid)
    step = length / logits
    assert places == pytest.approx([((cell + 0.5) * side / grid - start) / step for cell in range(grid)])
