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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0 sky\n1 wide road\n2 3d print", ("sky", "wide road", "3d print")),
        ("0: sky\n1: road", ("sky", "road")),
        ("0,sky\n1,road", ("sky", "road")),
        ("0\tsky\n1\troad\n\nremarks", ("sky", "road")),
        ("0  sky\n1  road", ("sky", "road")),
        ("1 sky\n2 road", ("1 sky", "2 road")),
        ("0 sky\n2 road", ("0 sky", "2 road")),
        ("1 road\n0 sky", ("1 road", "0 sky")),
        ("0 sky\nroad", ("0 sky", "road")),
        ("0 sky", ("0 sky",)),
        ("0\n1\n2", ("0", "1", "2")),
        ("0-10 m\n1-20 m", ("0-10 m", "1-20 m")),
        ("00 sky\n01 road", ("00 sky", "01 road")),
    ],
)
def test_lines_that_are_numbered_in_order_are_names_without_their_numbers(text, names):
    assert parse_labels(text) == names
