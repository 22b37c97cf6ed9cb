"""Specs that have no meaning cannot be made."""

from __future__ import annotations

import pytest

from trtpost.errors import SpecError
from trtpost.spec import Post, Pre, parse_labels, parse_normalization, parse_pair, parse_size


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"head": "labels", "resize": "bilinear"}, "labels cannot be interpolated"),
        ({"resize": "bilinear", "match": "pil"}, "antialiases"),
        ({"resize": "nearest", "match": "align_corners"}, "no nearest convention"),
        ({"match": "opencv", "size": "image"}, "float64 index tables"),
        ({"size": (0, 5)}, "each side of size must be a whole number from 1 to"),
        ({"size": "big"}, "size must be"),
        ({"head": "threshold", "classes": 3}, "has 2 classes"),
        ({"threshold": float("nan")}, "finite"),
        ({"head": "softmax"}, "head must be one of"),
        ({"layout": "HWC"}, "layout must be one of"),
    ],
)
def test_post_refuses(fields, says):
    with pytest.raises(SpecError, match=says):
        Post(**fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"height": 0, "width": 4}, "input height must be a whole number from 1"),
        ({"height": 4, "width": 4, "std": (0.0,)}, "zero"),
        ({"height": 4, "width": 4, "mean": (1.0, 2.0)}, "one a channel"),
        ({"height": 4, "width": 4, "mean": (float("inf"),)}, "finite"),
        ({"height": 4, "width": 4, "channels": "rgba"}, "channels must be one of"),
    ],
)
def test_pre_refuses(fields, says):
    with pytest.raises(SpecError, match=says):
        Pre(**fields)


def test_normalization_is_a_name_or_numbers():
    assert parse_normalization("signed") == ((127.5,), (127.5,))
    assert parse_normalization("1,2,3/4,5,6") == ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
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
