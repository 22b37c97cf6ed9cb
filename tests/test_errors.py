"""Sentences in one line, and doubts at the line of the caller."""

from __future__ import annotations

import errno
import os

import pytest

from trtpost.errors import DoubtWarning, TrtpostError, did_you_mean, doubt, one_line, printable, reason


@pytest.mark.parametrize(("text", "line"), [("a b ü", "a b ü"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("", "")])
def test_a_message_is_one_line(text, line):
    assert one_line(text) == str(TrtpostError(text)) == line


def test_file_names_that_cannot_be_encoded_are_shown():
    assert printable(os.fsdecode(b"a\xff")) == "a\\udcff"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOENT, "No such file", "x"), "No such file"),
        (ValueError("\n  first \nsecond"), "first"),
        (ValueError(), "ValueError"),
        (ValueError("a" * 300), "a" * 300),
        (ValueError("a" * 301), "a" * 297 + "..."),
    ],
)
def test_the_reason_of_an_error_of_others(error, said):
    assert reason(error) == said


@pytest.mark.parametrize(("given", "said"), [("nearst", "; did you mean nearest?"), ("xyz", "")])
def test_what_may_have_been_meant(given, said):
    assert did_you_mean(given, ["nearest", "bilinear"]) == said


def test_a_doubt_is_at_the_line_of_whoever_called():
    with pytest.warns(DoubtWarning, match=r"^a.*b$") as caught:
        doubt("a\nb")
    assert caught[0].filename == __file__
