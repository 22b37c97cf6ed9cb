"""Names of classes, files, tensors and layers that would act on a terminal, in everything that is printed."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from nets import nchw, save

from trtpost import report, usage
from trtpost.bench.tables import Grid, shown
from trtpost.builder import build
from trtpost.bundle import Plan, Verification
from trtpost.console import ConsoleProgress
from trtpost.doctor import Finding
from trtpost.inference import Job, Outcome, Share
from trtpost.inspect import Inspected
from trtpost.photos import PhotoFile
from trtpost.terminal import PlainConsole
from trtpost.timing import Timing
from trtpost.verify.blame import Blame, Stage
from trtpost.verify.compare import Figures, Overlap
from trtpost.verify.orders import Order, Orders
from trtpost.verify.run import PhotoFigures, Report

HOSTILE = "a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202ec\r\nd\x08[red]e[/]\u2028"
"""Sets the title, clears the screen, changes colours, runs backwards, begins a line, is markup."""

SEEN = r"a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202ec\r\nd\x08[red]e[/]\u2028"


def printed(renderable: object) -> str:
    stream = io.StringIO()
    PlainConsole(file=stream, width=2000, highlight=False).print(renderable, soft_wrap=True)
    return stream.getvalue()


def overlap() -> Overlap:
    return Overlap(np.array([1, 2]), np.array([2, 2]))


def figures() -> Figures:
    return Figures(10, 1, 0, 0, overlap(), (overlap(), overlap()))


def verified() -> Report:
    return Report(
        bundle=HOSTILE,
        against=HOSTILE,
        engine=HOSTILE,
        framework=HOSTILE,
        resizer=HOSTILE,
        pipeline=HOSTILE,
        classes=(HOSTILE, "b"),
        photos=(PhotoFigures(Path(HOSTILE), (2, 2), figures()),) * 2,
        total=figures(),
        minimum=0.5,
        because=HOSTILE,
        blame=Blame(HOSTILE, (Stage("pixels", True, HOSTILE),), HOSTILE),
        notes=(HOSTILE,),
    )


@pytest.fixture(scope="module")
def inspected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("net")
    bundle = build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none", normalize="unit")
    model = onnx.load(bundle.model)
    for value in (*model.graph.input, *model.graph.output):
        value.name = HOSTILE
    for node in model.graph.node:
        node.input[:] = [HOSTILE] * len(node.input)
    passport = replace(
        bundle.passport,
        source=HOSTILE,
        classes=(HOSTILE,) * len(bundle.passport.classes),
        located=replace(bundle.passport.located, input=HOSTILE, output=HOSTILE, logits=HOSTILE, dropped=(HOSTILE,)),
        plan=Plan("tensorrt", HOSTILE, (HOSTILE,), {HOSTILE: 1}, {HOSTILE: 1}),
        verification=Verification(HOSTILE, "0", HOSTILE, 1, 10, 0.9, 0, 1, 0.8),
    )
    return Inspected(Path(HOSTILE), model, replace(bundle, passport=passport), problem=HOSTILE)


TABLES = {
    "timing": lambda: report.timing_table([(HOSTILE, Timing(decode=1.0)), ("b", Timing(decode=1.0))]),
    "layers": lambda: report.layer_table([(HOSTILE, 1.0), ("network/b", 2.0)]),
    "verify": lambda: report.verify_tables(verified()),
    "orders": lambda: report.orders_table(Orders(HOSTILE, HOSTILE, 1, "1", (Order("nearest", 0.5, 0.5, 1.0),) * 2)),
    "doctor": lambda: report.findings_table([Finding(HOSTILE, HOSTILE, False)]),
    "bench": lambda: shown([Grid(HOSTILE, ("a", "b"), [(HOSTILE, HOSTILE), (HOSTILE,)], [HOSTILE])]),
}


def check(text: str) -> None:
    assert SEEN in text, ascii(text)
    assert all(one.isprintable() or one == "\n" for one in text), ascii(text)


@pytest.mark.parametrize("table", TABLES)
def test_every_table(table):
    check(printed(TABLES[table]()))


def test_what_inspect_says(inspected):
    check(report.facts_text(inspected))
    report.facts_json(inspected).encode("ascii")  # of programs, which read it by a parser


def test_steps_and_warnings():
    stream = io.StringIO()
    progress = ConsoleProgress(PlainConsole(file=stream, width=2000, highlight=False))
    with progress.step("build") as step:
        step.result = HOSTILE
    progress.warn(HOSTILE)
    check(stream.getvalue())
    assert stream.getvalue().count(SEEN) == 2


def test_lines_of_photos():
    job = Job(PhotoFile(Path(HOSTILE), Path(HOSTILE)), Path(HOSTILE), None)
    check(Outcome(job, (2, 2), Timing(), classes=(Share(0, HOSTILE, 1.0),)).describe() + "\n")


@pytest.mark.parametrize("arguments", [("build", HOSTILE), ("infer", HOSTILE), (HOSTILE,), ("build", f"--{HOSTILE}")])
def test_what_is_typed(command_line, tmp_path, arguments):
    status, output, errors = command_line(*arguments, cwd=tmp_path)
    assert status in (1, 2)
    assert output == ""
    assert all(one.isprintable() or one == "\n" for one in errors), ascii(errors)
    assert errors.count("\n") == 1


def test_text_that_nobody_has_looked_at():
    """Whatever is printed as it is: the console itself sees to it."""
    text = printed(HOSTILE.replace("[red]", "").replace("[/]", ""))
    assert all(one.isprintable() or one == "\n" for one in text), ascii(text)


def test_usage_sentences_are_text():
    class Error:
        ctx = None

        def format_message(self):
            return f"No such command '{HOSTILE}'."

    assert "there is no command" in usage.sentence(Error())
