"""What the terminal shows while steps run."""

from __future__ import annotations

import io
import re

from rich.console import Console

from trtpost.cli.console import ConsoleProgress


def shown(terminal: bool, run) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, highlight=False)
    run(ConsoleProgress(console))
    return console.file.getvalue()


def work(progress):
    with progress.step("build") as step:
        step.advance(0.25, "Timing [x] layers")
        step.result = "done [x]"


def test_a_step_that_tells_how_far_it_is_shows_a_bar_and_leaves_one_line():
    text = shown(True, work)
    assert "build: Timing [x] layers" in text
    assert "━" in text
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()[-1].endswith("build     done [x]")


def test_a_step_that_does_not_shows_no_bar():
    def quiet(progress):
        with progress.step("locate") as step:
            step.result = "found"

    text = shown(True, quiet)
    assert "looking for the logits" in text
    assert "━" not in text


def test_a_pipe_gets_the_line_alone():
    assert shown(False, work) == "build     done [x]\n"
