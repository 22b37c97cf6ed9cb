"""What the tables say of results that are made by hand."""

from __future__ import annotations

import pytest

from trtpost.bench.pipeline import PipelineReport, Sheet, SystemResult
from trtpost.bench.post import PostReport, RivalResult
from trtpost.bench.systems import FIELD, OURS
from trtpost.bench.tables import pipeline_grids, post_grids
from trtpost.timing import Timing


def post_rows(*rows, floor=1.0):
    (grid,) = post_grids(PostReport(3, (8, 8), (20, 20), "smooth", 0.2, 2, "a machine", floor, rows))
    return grid, {row[0].strip(): row[1:] for row in grid.rows}


@pytest.mark.parametrize(
    ("resize", "different", "ties", "words"),
    [
        ("nearest", 0, 0, "equal of 'tf'"),
        ("nearest", 7, 0, "7 pixels differ of 'tf'"),
        ("bilinear", 0, 0, "equal"),
        ("bilinear", 2, 2, "equal but for 2 ties"),
        ("bilinear", 5, 2, "3 pixels differ"),
    ],
)
def test_a_mask_is_judged_apart_from_its_ties(resize, different, ties, words):
    _, rows = post_rows(RivalResult("one", resize, "tf", "rival", 4.0, different=different, ties=ties))
    assert rows["one"] == ("4.00", "4.0", "", words)


def test_times_are_told_as_multiples_of_ours_and_of_the_floor():
    kernel = RivalResult("ours", "nearest", "tf", "kernel", 2.0)
    rivals = [RivalResult(str(time), "nearest", "tf", "rival", time) for time in (5.0, 8.0)]
    absent = RivalResult("absent", "nearest", "tf", missing="not here")
    variant = RivalResult("variant", "nearest", "tf", "variant", 1.0)
    grid, rows = post_rows(kernel, *rivals, absent, variant)
    assert rows["8.0"][1:3] == ("8.0", "4.0")
    assert rows["absent"] == ("-", "", "", "not here")
    assert grid.notes == ("nearest: 2.5 times the speed of the fastest rival (5.0)",)
    assert "floor" in grid.rows[0][0]
    grid, rows = post_rows(kernel, floor=None)
    assert rows["ours"] == ("2.00", "", "1.0", "equal of 'tf'")


def sheet(name, **download):
    ours = Timing(decode=10, preprocess=1, network=100, argmax_resize=1, encode=3, **download)
    theirs = Timing(decode=20, preprocess=10, network=100, argmax_resize=10, encode=5)
    rows = (SystemResult(FIELD, theirs, agreement=0.5), SystemResult(OURS, ours), SystemResult("x", missing="no x"))
    return Sheet(name, (30, 40), 1000, rows)


def test_the_network_is_left_out_of_what_is_compared():
    (grid,) = pipeline_grids(PipelineReport("m", (8, 8), 3, 2, "a machine", (sheet("one"),)))
    by_name = {row[0]: dict(zip(grid.columns, row, strict=True)) for row in grid.rows}
    assert set(by_name) == {FIELD, OURS}
    assert (by_name[FIELD]["network aside"], by_name[FIELD]["x ours"]) == ("45.0", "3.00")
    assert by_name[FIELD]["pixels as ours"] == "50.00%"
    assert grid.notes[0] == "x: -, no x"
    assert "3.0 times as long" in grid.notes[1]
    assert "alone 10.0 times" in grid.notes[1]


def test_copies_have_a_column_where_there_is_a_gpu_and_several_photos_a_grid_of_growth():
    sheets = (sheet("one"), sheet("two", download=4))
    assert [len(one.stages) for one in sheets] == [5, 6]
    *_, growth = pipeline_grids(PipelineReport("m", (8, 8), 3, 2, "a machine", sheets))
    assert growth.rows == ((FIELD, "45.0", "45.0"), (OURS, "15.0", "19.0"))
