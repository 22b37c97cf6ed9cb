"""Tells how many cores this machine gives a process."""

from __future__ import annotations

import os


def default_threads() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
