"""What a report says of its figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trtpost.verify.compare import Figures, Overlap
from trtpost.verify.report import PhotoFigures, Report, report_to_json


def report(different, tied, minimum=1.0):
    counts = np.array([10, 0])
    total = Figures(100, different, tied, tied, Overlap(counts, counts))
    photos = (PhotoFigures(Path("a.jpg"), (10, 10), total),)
    return Report("b", "m", "e", "f", "r", "p", ("sky", "sea"), photos, total, minimum, "why", None, ())


@pytest.mark.parametrize(
    ("different", "tied", "minimum", "passed", "verdict"),
    [
        (0, 0, 1.0, True, "equal on every pixel"),
        (3, 3, 1.0, True, "equal but for 3 pixels where two classes are a tie"),
        (3, 1, 1.0, False, "equal but for 3 pixels where two classes are a tie"),
        (3, 1, 0.98, True, "equal but for 3 pixels where two classes are a tie"),
    ],
)
def test_ties_do_not_count(different, tied, minimum, passed, verdict):
    found = report(different, tied, minimum)
    assert (found.passed, found.verdict) == (passed, verdict)


def test_json_has_the_classes_that_occur():
    found = json.loads(report_to_json(report(4, 1)))
    assert found["iou"] == [{"id": 0, "name": "sky", "iou": 1.0}]
    assert found["total"]["agreement"] == 0.96
    assert found["photos"][0]["really_different"] == 3
    assert "truth" not in found["total"]
