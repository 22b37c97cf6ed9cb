"""Settings become what their annotations say, or are refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from trtpost.coerce import convert_fields
from trtpost.errors import SpecError
from trtpost.spec import Channels, Size


@dataclass(frozen=True)
class Settings:
    text: str = ""
    channels: Channels | None = None
    count: int = 1
    most: int | None = None
    share: float | None = None
    folder: Path | None = None
    names: tuple[str, ...] = ()
    max_size: tuple[int, int] = (1, 1)
    input_size: tuple[int, int] | None = None
    covers: tuple[float, float, float, float] | None = None
    size: Size = "runtime"

    def __post_init__(self) -> None:
        convert_fields(self)


@pytest.mark.parametrize(
    ("name", "given", "becomes"),
    [
        ("text", "a", "a"),
        ("channels", "rgb", "rgb"),
        ("channels", None, None),
        ("count", np.int8(3), 3),
        ("most", np.uint64(3), 3),
        ("share", np.float32(0.5), 0.5),
        ("share", 1, 1.0),
        ("share", 10**400, float("inf")),
        ("folder", "a/b", Path("a/b")),
        ("names", ["a", "b"], ("a", "b")),
        ("max_size", np.array([3, 4]), (3, 4)),
        ("input_size", [3, 4], (3, 4)),
        ("covers", np.array([1, 2, 3, 4]), (1.0, 2.0, 3.0, 4.0)),
        ("size", "image", "image"),
        ("size", [3, 4], (3, 4)),
    ],
)
def test_what_values_become(name, given, becomes):
    found = getattr(Settings(**{name: given}), name)
    assert found == becomes
    assert type(found) is type(becomes)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("text", None, "text must be a text, not None"),
        ("channels", 3, "channels must be a text, not 3"),
        ("count", None, "count must be a whole number, not None"),
        ("count", True, "count must be a whole number, not True"),
        ("count", 1.0, "count must be a whole number, not 1.0"),
        ("share", "0.5", "share must be a number, not '0.5'"),
        ("folder", 3, "folder must be a path, not 3"),
        ("names", "ab", "names must be a sequence of texts, not 'ab'"),
        ("names", [1], r"names must be a sequence of texts, not \[1\]"),
        ("max_size", (1, 2, 3), r"max size must be \(height, width\), not \(1, 2, 3\)"),
        ("input_size", (1, "2"), r"input size must be \(height, width\), not \(1, '2'\)"),
        ("size", 5, r"size must be \(height, width\), or a text, not 5"),
        ("text", [0] * 99, r"text must be a text, not [\[0, ]{60}$"),
    ],
)
def test_what_is_refused(name, given, says):
    with pytest.raises(SpecError, match=f"^{says}"):
        Settings(**{name: given})
