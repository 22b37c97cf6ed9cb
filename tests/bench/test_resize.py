"""`scripts/bench_resize.py`: every row runs, its pixels are right, and what is not installed is told."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from conftest import package

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_resize.py"
SIZE = (72, 96)


@pytest.fixture
def bench(monkeypatch):
    spec = importlib.util.spec_from_file_location("bench_resize", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_resize", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROUNDS", 3)
    return module


def test_every_row_runs_and_its_pixels_are_right(bench):
    for name in ("tensorflow", "torch", "cv2", "trtpost._cpu"):
        package(name)
    for one, turn in bench.measured(bench.jpeg(24, 32), SIZE).items():
        assert not turn.missing, one
        assert min(turn.decode, turn.convert, turn.resize) > 0
        assert turn.different == 0, one
        assert turn.largest < 1, one


def test_a_wrong_result_is_found(bench, monkeypatch):
    monkeypatch.setattr(bench, "scaled", lambda gray, size: gray.repeat(3, 0).repeat(3, 1)[: size[0], : size[1]])
    assert list(bench.measured(bench.jpeg(24, 32), SIZE).values())[-1].largest > 2


def test_packages_that_are_missing_get_rows_that_say_so(bench, monkeypatch):
    package("trtpost._cpu")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    grid = bench.grid((8, 8))
    missing = {row[0].strip(): row[-1] for row in grid.rows if row[1:2] == ("-",)}
    assert set(missing) == {"PyTorch, float", "PyTorch, uint8", "OpenCV"}
    assert "needs the package torch" in missing["PyTorch, float"]
    assert grid.rows[-1][5] == "1.0"
