"""Everybody is timed in turn, warm, and by the median."""

from __future__ import annotations

from collections import Counter

import pytest

from trtpost.bench import measure
from trtpost.bench.measure import medians, take_turns


@pytest.mark.parametrize(("budget", "runs"), [(0.0, 3), (60.0, 5)])
def test_what_has_spent_its_budget_sits_out_after_three_runs(budget, runs):
    calls = []
    measured = medians({name: lambda name=name: calls.append(name) for name in ("a", "b")}, rounds=5, budget=budget)
    # once to warm up, then each run has one before it that does not count
    assert Counter(calls) == {"a": 1 + 2 * runs, "b": 1 + 2 * runs}
    assert calls[:2] == ["a", "b"]
    assert all(time > 0 for time in measured.values())


def test_long_runs_are_not_preceded_by_another(monkeypatch):
    monkeypatch.setattr(measure, "LONG", 0.0)
    calls = []
    medians({"a": lambda: calls.append("a")}, rounds=4, budget=60.0)
    assert len(calls) == 5


def test_the_median_is_given_and_not_the_mean(monkeypatch):
    clock = iter([0, 0, 0, 1, 0, 2, 0, 9])  # of the warm-up, then of three runs
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    assert medians({"a": lambda: None}, rounds=3, budget=60.0) == {"a": 2000}


def test_turns_are_shuffled_and_the_first_answer_is_dropped():
    calls = []

    def run(name):
        return lambda: calls.append(name) or len(calls)

    advances = []
    names = "abcdef"
    answers = take_turns({name: run(name) for name in names}, rounds=4, advance=lambda: advances.append(1))
    assert {len(found) for found in answers.values()} == {4}
    assert min(min(found) for found in answers.values()) == 7
    rounds = ["".join(calls[at : at + 6]) for at in range(0, 30, 6)]
    assert rounds[0] == names
    assert all(sorted(one) == list(names) for one in rounds)
    assert len(set(rounds)) > 2
    assert len(advances) == 4
