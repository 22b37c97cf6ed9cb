"""How long-running functions tell what they are doing: nothing but doubts unless the caller wants to show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trtpost.errors import doubt


class Step:
    """One step under way; `result` is what it came to, for the line that stays."""

    result: str = ""

    def advance(self, fraction: float, what: str = "") -> None:
        """Say how much of the step is done, from 0 to 1, and what it is at; any thread may call this."""


class Progress:
    """Takes the steps and shows none; doubts become warnings. The default of the Python API."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:  # noqa: ARG002, the subclass shows it
        """Announce a step, run it, and let it set its result."""
        yield Step()

    def warn(self, text: str) -> None:
        """Say what may be wrong though nothing failed: a `DoubtWarning`, unless a subclass shows it."""
        doubt(text)
