"""Settings by name, as anybody may give them: each becomes what its annotation says, or is refused in a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from trtpost.errors import SpecError
from trtpost.spec import Size, real, whole


def convert_fields(settings: Any) -> None:
    """Give every field of a frozen dataclass the type of its annotation; None stays where it is the default.

    Raises:
        SpecError: a value that cannot have it; the message has the field's name.
    """
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        given = getattr(settings, field.name)
        if given is not None or field.default is not None:
            hint = hints[field.name]
            convert = next((_KINDS[one] for one in (hint, *get_args(hint)) if one in _KINDS), _text)
            object.__setattr__(settings, field.name, convert(field.name, given))


def _refused(name: str, wanted: str, given: object) -> SpecError:
    return SpecError(f"{name.replace('_', ' ')} must be {wanted}, not {given!r:.60}")


def _text(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise _refused(name, "a text" + (" such as '127.5/127.5', MEAN/STD" if name == "normalize" else ""), given)
    return given


def _path(name: str, given: object) -> Path:
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise _refused(name, "a path", given)
    return Path(text)


def _whole(name: str, given: object) -> int:
    if (number := whole(given)) is None:
        raise _refused(name, "a whole number", given)
    return number


def _flag(name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise _refused(name, "True or False", given)
    return given


def _real(name: str, given: object) -> float:
    if (number := real(given)) is None:
        raise _refused(name, "a number", given)
    return number


def _texts(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _refused(name, "a sequence of texts", given)
    texts = tuple(given)
    if not all(isinstance(one, str) for one in texts):
        raise _refused(name, "a sequence of texts", given)
    return texts


def _pair(name: str, given: object, or_else: str = "") -> tuple[int, int]:
    if not isinstance(given, Iterable):
        raise _refused(name, f"(height, width){or_else}", given)
    try:
        height, width = (_whole(name, side) for side in given)
    except ValueError:  # too many, too few, or of another type
        raise _refused(name, f"(height, width){or_else}", given) from None
    return height, width


def _rectangle(name: str, given: object) -> tuple[float, ...]:
    wanted = "(top, left, height, width)"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _refused(name, wanted, given)
    sides = tuple(_real(name, one) for one in given)
    if len(sides) != 4:
        raise _refused(name, wanted, given)
    return sides


def _size(name: str, given: object) -> str | tuple[int, int]:
    return given if isinstance(given, str) else _pair(name, given, ", or a text")


_KINDS: dict[Any, Callable[[str, object], object]] = {
    bool: _flag,
    int: _whole,
    float: _real,
    Path: _path,
    tuple[str, ...]: _texts,
    tuple[int, int]: _pair,
    tuple[float, float, float, float]: _rectangle,
    Size: _size,
}
"""What an annotation, or the one beside None in it, asks for; all others are texts."""
