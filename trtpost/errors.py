"""Faults that the user can mend.

Every message is one sentence or two: what is wrong, with which file or tensor, and what to do about it. The command
line prints the message and exits with code 1; anything that is not a `TrtpostError` is a fault of ours.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path


class TrtpostError(Exception):
    """Base of all faults that the user can mend."""

    def __str__(self) -> str:
        """The message, which may hold names of anybody's, in one line for a terminal or a log."""
        return one_line(super().__str__())


class SpecError(TrtpostError, ValueError):
    """A combination of settings that has no meaning."""


class ModelError(TrtpostError):
    """A model that cannot be read, converted or understood."""


class ImageError(TrtpostError):
    """A photo that cannot be read or does not fit the engine."""


class BundleError(TrtpostError):
    """An engine bundle that is missing, incomplete or changed."""


class BackendError(TrtpostError):
    """A runtime that refuses the model."""


class PrecisionError(BackendError):
    """A plan that would not compute in the precision that was asked for."""


class MissingPackageError(TrtpostError):
    """An optional package that this step needs is not installed."""


class DoubtWarning(UserWarning):
    """A sentence on what was decided for the user and may be wrong, though nothing failed, with what settles it."""


def doubt(text: str) -> None:
    """Warn whoever called this package, at the line where it was called."""
    inside = str(Path(__file__).parent)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        level, frame = level + 1, frame.f_back
    warnings.warn(one_line(text), DoubtWarning, stacklevel=level)


def printable(text: str) -> str:
    """Make text that can be encoded: file names need not be."""
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """Make one line for a terminal: what is no character to see becomes its escape, such as a file name's newline."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The known name that may have been meant, to be added to a sentence; empty where none is like what was given."""
    from difflib import get_close_matches

    close = get_close_matches(given, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def reason(error: BaseException) -> str:
    """The first sentence of another library's error, on one line, for use inside a message of ours."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
