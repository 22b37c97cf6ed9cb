"""The benchmark runs everybody, and its verdicts are right."""

from __future__ import annotations

import io

import numpy as np
import pytest
from conftest import package
from rich.console import Console

from trtpost.bench.output import shown
from trtpost.bench.post import bench_post, boundary_share, make_logits
from trtpost.bench.tables import post_grids
from trtpost.errors import SpecError


def test_everybody_runs_and_is_judged():
    for name in ("tensorflow", "torch", "cv2", "trtpost._cpu"):
        package(name)
    advances = []
    report = bench_post(5, (24, 36), (100, 130), rounds=3, advance=lambda: advances.append(1))
    assert len(advances) == 3
    assert report.floor is not None
    assert all(row.milliseconds for row in report.rows), [row.missing for row in report.rows]
    for row in report.rows:
        if row.name != "ONNX Runtime, plain ArgMax and Resize":  # it rounds some indices in its own way
            assert row.different == row.ties, row
    ours = report.ours("bilinear")
    assert ours is not None
    rival = report.fastest_rival("nearest")
    assert rival is not None
    assert rival.kind == "rival"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown(post_grids(report)))
    text = console.export_text()
    assert "trtpost fused kernel" in text
    assert "times the speed of the fastest rival" in text


def test_a_wrong_mask_is_found(monkeypatch):
    from trtpost.kernels import cpu

    right = cpu.argmax_resize

    def wrong(*arguments, **options):
        mask = right(*arguments, **options)
        mask[0, 0, :7] += 1
        return mask

    monkeypatch.setattr(cpu, "argmax_resize", wrong)
    report = bench_post(5, (24, 36), (100, 130), rounds=3)
    assert {row.different - row.ties for row in report.rows if row.kind == "kernel"} == {7}


def test_a_package_that_is_missing_gets_a_row_that_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    report = bench_post(3, (8, 8), (20, 20), rounds=3)
    missing = [row for row in report.rows if row.milliseconds is None]
    assert {row.name for row in missing} == {"PyTorch argmax, interpolate", "PyTorch interpolate, argmax"}
    assert "needs the package torch" in missing[0].missing


def test_patterns():
    assert 0.1 < boundary_share(make_logits(19, (128, 128), "smooth")) < 0.3
    assert boundary_share(make_logits(19, (64, 64), "noise")) > 0.99
    np.testing.assert_array_equal(make_logits(3, (32, 48), "smooth"), make_logits(3, (32, 48), "smooth"))
    with pytest.raises(SpecError, match="pattern must be one of"):
        bench_post(3, (8, 8), (8, 8), pattern="stripes")
    for source, size in [((9_999_999, 9), (8, 8)), ((8, 8), (1, 65_537)), ((60_000, 60_000), (8, 8))]:
        with pytest.raises(SpecError, match="bench post takes sides up to"):
            bench_post(3, source, size)
    with pytest.raises(SpecError, match="2 to 256 classes"):
        bench_post(1, (8, 8), (8, 8))
