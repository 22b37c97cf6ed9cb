"""How many cores a process has."""

from __future__ import annotations

import os

from trtpost.cores import default_threads


def test_cores_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5}, raising=False)
    assert default_threads() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert default_threads() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert default_threads() == 1
