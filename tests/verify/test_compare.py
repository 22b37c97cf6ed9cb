"""Figures of masks made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trtpost.spec import IGNORED
from trtpost.verify.compare import Masked, compare, overlap


def test_figures_of_masks_made_by_hand():
    reference = np.array([[0, 0, 1], [1, 2, 2]], np.int32)
    ours = np.array([[0, 1, 1], [1, 2, 0]])
    ties = np.array([[False, True, False], [False, False, False]])
    truth = np.array([[0, 255, 1], [1, 255, 2]])
    found = compare(Masked(reference, ties), ours, truth, 3, IGNORED)
    assert (found.pixels, found.different, found.tied, found.real, found.ties) == (6, 2, 1, 1, 1)
    assert found.overlap.ious.tolist() == [1 / 3, 2 / 3, 1 / 2]
    assert found.truth[0].mean_iou == 1
    assert found.truth[1].ious.tolist() == [1 / 2, 1, 0]
    total = found + found
    assert total.agreement == found.agreement == pytest.approx(4 / 6)
    assert total.agreement_apart_from_ties == pytest.approx(5 / 6)


def test_overlaps_of_unlike_length_add_up():
    total = overlap(np.array([0]), np.array([0]), 1) + overlap(np.array([2]), np.array([1]), 3)
    assert total.both.tolist() == [1, 0, 0]
    assert total.either.tolist() == [1, 1, 1]


def test_ties_that_cannot_be_told_stay_untold():
    one, other = (Masked(np.zeros((1, 2), np.int32), ties) for ties in (None, np.ones((1, 2), bool)))
    ours = np.array([[0, 1]])
    assert [compare(masked, ours, None, 2).ties for masked in (one, other)] == [None, 2]
    assert (compare(one, ours, None, 2) + compare(other, ours, None, 2)).ties is None


@pytest.mark.parametrize(
    ("mask", "other", "ignore", "mean"),
    [
        ([0, 1], [0, 1], None, 1),
        ([0, 1], [1, 0], None, 0),
        ([0, 0, 1, 1], [0, 1, 1, 1], None, (1 / 2 + 2 / 3) / 2),
        ([0, 1, 1], [0, IGNORED, 1], IGNORED, 1),
        ([0, 0], [0, 0], None, 1),  # of classes that do not occur nothing is said
        ([0, 1], [IGNORED, IGNORED], IGNORED, 1),
    ],
)
def test_mean_iou(mask, other, ignore, mean):
    assert overlap(np.array(mask), np.array(other), 3, ignore).mean_iou == pytest.approx(mean)
