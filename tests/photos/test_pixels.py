"""From a photo to what an engine takes; `tests/cases/test_specs.py` has engines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trtpost.errors import ImageError
from trtpost.photos.pixels import check_size, pixels_of
from trtpost.photos.scale import letterboxed, scaled
from trtpost.spec import MAX_SIDE, Post, Pre

PHOTO = np.random.default_rng(0).integers(0, 256, (9, 14, 3), np.uint8)
PRE = Pre(8, 12)


@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
def test_the_network_s_size_is_reached_as_it_fits(fit):
    pre = replace(PRE, fit=fit)
    expected = letterboxed(PHOTO, (8, 12), (4, 6)) if fit == "letterbox" else scaled(PHOTO, (8, 12))
    np.testing.assert_array_equal(pixels_of(PHOTO, pre, (4, 6)), expected)
    assert pixels_of(PHOTO, pre, (4, 6), resized=False) is PHOTO
    same = np.zeros((8, 12, 3), np.uint8)
    assert pixels_of(same, pre, (4, 6)) is same


@pytest.mark.parametrize(("channels", "planes"), [("rgb", 3), ("bgr", 3), ("gray", 1)])
def test_gray_networks_take_one_plane_and_others_rgb(channels, planes):
    pixels = pixels_of(PHOTO, replace(PRE, channels=channels), (8, 12), resized=False)
    assert pixels.shape == (9, 14, planes)
    if planes == 3:
        assert pixels is PHOTO


@pytest.mark.parametrize(
    ("photo", "size", "said"),
    [
        ((MAX_SIDE, 1), "runtime", None),
        ((1, MAX_SIDE), "runtime", None),
        ((MAX_SIDE + 1, 1), "runtime", "cut it into tiles"),
        ((1, MAX_SIDE + 1), "image", "cut it into tiles"),
        ((9, 14), (9, 14), None),
        ((14, 9), (9, 14), "fixed at 9x14, but the photo has 14x9"),
    ],
)
def test_sizes_of_which_no_mask_can_be_made(photo, size, said):
    post = Post(classes=2, size=size)
    if said is None:
        check_size(photo, post)
    else:
        with pytest.raises(ImageError, match=said):
            check_size(photo, post)
