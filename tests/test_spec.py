"""Specs as texts; which of them have a meaning is in cases/test_specs.py."""

from __future__ import annotations

import pytest

from trtpost.errors import SpecError
from trtpost.spec import parse_labels, parse_normalization, parse_pair, parse_size


def test_normalization_is_a_name_or_numbers():
    assert parse_normalization("signed") == ((127.5,), (127.5,))
    assert parse_normalization("1,2,3/4,5,6") == ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    assert parse_normalization("1,2,3/4,5,6", "bgr") == parse_normalization("1,2,3/4,5,6")
    assert parse_normalization("imagenet", "bgr") == ((103.53, 116.28, 123.675), (57.375, 57.12, 58.395))
    for text in ("wrong", "1/", "a/b", ""):
        with pytest.raises(SpecError, match="normalisation must be"):
            parse_normalization(text)


def test_sizes():
    assert parse_size("runtime") == "runtime"
    assert parse_size("1080x1920") == (1080, 1920)
    for text in ("1080", "0x5", "x", "-1x5", "1080x1920x3", "1e3x5"):
        with pytest.raises(SpecError):
            parse_pair(text)


def test_label_files_carry_remarks_after_a_blank_line():
    assert parse_labels("sky\n road \n\nand 255 is ignored\n") == ("sky", "road")
    assert parse_labels("\nsky\nroad\n") == ("sky", "road")
    assert parse_labels("") == ()
