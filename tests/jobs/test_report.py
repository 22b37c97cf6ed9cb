"""What is said of photos that were run, that failed, and that were done before."""

from __future__ import annotations

import json
from pathlib import Path

from trtpost.jobs.paths import PhotoJob
from trtpost.jobs.report import LISTED, Outcome, Share, summary_line, timing_rows, to_json
from trtpost.photos.find import PhotoFile
from trtpost.timing import Timing, summarize

JOB = PhotoJob(PhotoFile(Path("x/a.jpg"), Path("a.jpg")), Path("out/a.mask.png"), None)
DONE = Outcome(JOB, (4, 6), Timing(network=1.0), None, (Share(8, "cat", 0.9995), Share(0, "background", 0.0005)))
FAILED, SKIPPED = Outcome(JOB, error="x/a.jpg is empty"), Outcome(JOB, skipped=True)


def test_a_line_for_people():
    assert DONE.describe() == "x/a.jpg -> out/a.mask.png: 4x6, cat 100.0%, background <0.1%"


def test_a_row_for_each_photo_until_they_are_too_many():
    assert timing_rows([DONE, FAILED, SKIPPED]) == [("a.jpg", DONE.timing)]
    assert len(timing_rows([DONE] * LISTED)) == LISTED
    ((name, summary),) = timing_rows([DONE] * (LISTED + 1))
    assert (name, summary.count) == ("all photos", LISTED + 1)
    assert timing_rows([FAILED] * (LISTED + 1)) == []


def test_the_last_line_counts_each_kind():
    assert summary_line([DONE, DONE], 4.0) == "2 photos in 4.00 s: 0.5 a second"
    assert summary_line([DONE, SKIPPED, FAILED, FAILED], 1.0) == (
        "1 photos in 1.00 s: 1.0 a second; 1 were done before, by the same engine (--force runs them again); 2 failed"
    )
    assert summary_line([FAILED], 1.0) == "1 failed"


def test_json_for_programs():
    repeated = Outcome(JOB, (4, 6), DONE.timing, summarize([DONE.timing] * 3))
    outcomes = [DONE, FAILED, SKIPPED, repeated]
    found = json.loads(to_json(Path("b"), {"engine": "e"}, outcomes, 1.23456, [("conv", 0.12344)]))
    assert (found["bundle"], found["engine"], found["seconds"]) == ("b", "e", 1.235)
    assert found["layers"] == [{"name": "conv", "ms": 0.1234}]
    done, failed, skipped, several = found["photos"]
    assert (done["photo"], done["mask"], done["overlay"]) == ("x/a.jpg", "out/a.mask.png", None)
    assert (done["height"], done["width"]) == (4, 6)
    assert done["classes"][0] == {"id": 8, "name": "cat", "share": 0.9995}
    assert done["timing_ms"]["network"] == 1.0
    assert failed == {"photo": "x/a.jpg", "error": "x/a.jpg is empty"}
    assert skipped == {"photo": "x/a.jpg", "mask": "out/a.mask.png", "skipped": True}
    assert several["repeated"]["count"] == 3
    assert "layers" not in json.loads(to_json(Path("b"), {}, [], 0.0))
