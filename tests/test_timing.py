"""Medians and percentiles."""

from __future__ import annotations

from trtpost.timing import Stopwatch, Timing, summarize


def test_summary():
    summary = summarize([Timing(decode=float(value)) for value in range(1, 101)])
    assert (summary.median.decode, summary.p95.decode, summary.count) == (50.5, 95.0, 100)
    assert summarize([Timing(encode=3.0)]).p95.total == 3.0


def test_stopwatch_adds_up_a_stage():
    watch = Stopwatch()
    for _ in range(2):
        with watch("decode"):
            pass
    assert watch.timing.decode > 0
    assert watch.timing.total == watch.timing.decode
