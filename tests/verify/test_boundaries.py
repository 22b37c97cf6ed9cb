"""Boundaries of masks made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trtpost.verify.boundaries import boundaries_of, reach_of


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
