"""Photos at network resolution: the native function gives the pixels of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import package

from trtpost.kernels import cpu
from trtpost.kernels.reference import bilinear
from trtpost.photos.scale import scaled

RNG = np.random.default_rng(0)


def reference(photo: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.rint(bilinear(photo, size)).astype(np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_pixel_is_the_reference_s(channels):
    package("trtpost._cpu")
    for _ in range(200):
        photo = RNG.integers(0, 256, (*RNG.integers(1, 300, 2), channels), np.uint8)
        size = tuple(int(side) for side in RNG.integers(1, 300, 2))
        np.testing.assert_array_equal(scaled(photo, size), reference(photo, size))


def test_halves_are_rounded_to_even():
    photo = np.array([[[0], [1]], [[2], [3]]], np.uint8)
    np.testing.assert_array_equal(scaled(photo, (1, 1)), [[[2]]])  # 1.5
    np.testing.assert_array_equal(scaled(photo[:1], (1, 1)), [[[0]]])  # 0.5


def test_views_and_the_way_without_the_kernel(monkeypatch):
    photo = RNG.integers(0, 256, (40, 60, 3), np.uint8)
    for view in (photo[::-1], photo.swapaxes(0, 1), photo[:, 5:31]):
        np.testing.assert_array_equal(scaled(view, (13, 17)), reference(view, (13, 17)))
    monkeypatch.setattr(cpu, "is_available", lambda: False)
    np.testing.assert_array_equal(scaled(photo, (13, 17)), reference(photo, (13, 17)))


def test_frameworks_agree():
    tensorflow = package("tensorflow")
    photo = RNG.integers(0, 256, (311, 173, 3), np.uint8)
    theirs = np.rint(tensorflow.image.resize(photo, (64, 96)).numpy()).astype(np.uint8)
    difference = np.abs(scaled(photo, (64, 96)).astype(int) - theirs)
    assert (difference > 0).mean() < 1e-3, "values at a half may round either way"
    assert difference.max() <= 1
