"""Wrong usage in one sentence; `tests/cases` has what people type."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtpost.cli.usage import sentence


def error(message: str) -> SimpleNamespace:
    options = [SimpleNamespace(opts=["--output", "-o"]), SimpleNamespace(opts=["--mask"])]
    command = SimpleNamespace(params=options, commands={"build": None, "infer": None})
    context = SimpleNamespace(command_path="trtpost x", command=command)
    return SimpleNamespace(ctx=context, format_message=lambda: message)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "Invalid value for '--mask' / '-m': 'grey' is not one of 'gray', 'packed'.",
            "--mask must be one of gray, packed, not 'grey'; did you mean gray?",
        ),
        ("No such option: --outptu", "there is no option --outptu; did you mean --output?"),
        ("No such option '--zzz'.", "there is no option --zzz"),
        ("No such command 'biuld'.", "there is no command 'biuld'; did you mean build?"),
        ("Missing argument 'IMAGES...'.", "images is missing"),
        ("Option '--mask' requires an argument.", "--mask needs a value"),
        ("Got unexpected extra arguments (a b)", "there is more than it takes: a b"),
        ("Invalid value for '--n': Input should be a valid integer, unable to parse", "--n must be a valid integer"),
        ("Invalid value for '--n': it is odd", "--n: it is odd"),
        ("Something else.", "Something else"),
    ],
)
def test_sentences(message, said):
    assert sentence(error(message)) == f"{said}; `trtpost x --help` shows what there is"


def test_an_error_before_any_command():
    assert sentence(SimpleNamespace(ctx=None, format_message=lambda: "x")) == "x; `trtpost --help` shows what there is"
