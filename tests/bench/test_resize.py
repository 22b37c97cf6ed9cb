"""`bench resize`: every row runs, its pixels are right, and what is not installed is told."""

from __future__ import annotations

import sys

import pytest
from conftest import package

from trtpost.bench.resize import bench_resize, entrants
from trtpost.errors import SpecError


def test_every_row_runs_and_its_pixels_are_right():
    for name in ("tensorflow", "torch", "cv2", "trtpost._cpu"):
        package(name)
    advances = []
    report = bench_resize((24, 32), 3, rounds=3, advance=lambda: advances.append(1))
    assert len(advances) == 3
    assert report.size == (72, 96)
    assert [row.name for row in report.rows] == [one.name for one in entrants()]
    for row in report.rows:
        assert not row.missing, row
        assert min(row.decode, row.convert, row.scale) > 0
        assert row.different == 0, row
        assert row.largest < 1, row
    assert report.ours("nearest")
    assert report.ours("bilinear")


def test_a_wrong_result_is_found(monkeypatch):
    package("trtpost._cpu")
    from trtpost.bench import resize

    monkeypatch.setattr(resize, "scaled", lambda gray, size: gray.repeat(3, 0).repeat(3, 1)[: size[0], : size[1]])
    ours = bench_resize((24, 32), 3, rounds=3).ours("bilinear")
    assert ours is not None
    assert ours.largest > 2


def test_packages_that_are_missing_get_rows_that_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    missing = {row.name: row.missing for row in bench_resize((8, 8), 2, rounds=3).rows if row.missing}
    assert set(missing) == {"PyTorch, float", "PyTorch, uint8", "OpenCV"}
    assert "needs the package torch" in missing["PyTorch, float"]


def test_sizes_out_of_range():
    for source, factor in [((8, 8), 0), ((8, 70_000), 1), ((9_000, 9_000), 3)]:
        with pytest.raises(SpecError, match="bench resize makes results up to"):
            bench_resize(source, factor)
