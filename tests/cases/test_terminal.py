"""Names of classes, files, tensors and layers that would act on a terminal, in everything that is printed."""

from __future__ import annotations

import inspect
import io
import pickle
import re
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from nets import nchw, save
from PIL import Image
from rich.text import Text

from trtpost.bench.output import Grid, shown
from trtpost.builder.build import build
from trtpost.bundle.passport import Plan, Verification
from trtpost.cli import tables as report
from trtpost.cli import usage
from trtpost.cli.console import ConsoleProgress
from trtpost.cli.doctor import Finding
from trtpost.cli.inspect import Inspected
from trtpost.errors import DoubtWarning, ImageError, TrtpostError, doubt
from trtpost.jobs.paths import PhotoJob
from trtpost.jobs.report import Outcome, Share
from trtpost.photos.find import PhotoFile
from trtpost.terminal import PlainConsole, as_markup
from trtpost.timing import Timing
from trtpost.verify.blame import Blame
from trtpost.verify.blame_stages import Stage
from trtpost.verify.compare import Figures, Overlap
from trtpost.verify.orders import Order, Orders, orders_to_json
from trtpost.verify.report import PhotoFigures, Report, report_to_json

HOSTILE = "a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202ec\r\nd\x08[red]e[/]\u2028"
"""Sets the title, clears the screen, changes colours, runs backwards, begins a line, is markup."""

SEEN = r"a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202ec\r\nd\x08[red]e[/]\u2028"


def printed(renderable: object) -> str:
    stream = io.StringIO()
    PlainConsole(file=stream, width=2000).print(renderable, soft_wrap=True)
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


ORDERS = Orders(HOSTILE, HOSTILE, 1, HOSTILE, (Order("nearest", 0.5, 0.5, 1.0),) * 2)

TABLES = {
    "timing": lambda: report.timing_table([(HOSTILE, Timing(decode=1.0)), ("b", Timing(decode=1.0))]),
    "layers": lambda: report.layer_table([(HOSTILE, 1.0), ("network/b", 2.0)]),
    "verify": lambda: report.verify_tables(verified()),
    "orders": lambda: report.orders_table(ORDERS),
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
    progress = ConsoleProgress(PlainConsole(file=stream, width=2000))
    with progress.step("build") as step:
        step.result = HOSTILE
    progress.warn(HOSTILE)
    check(stream.getvalue())
    assert stream.getvalue().count(SEEN) == 2


def test_lines_of_photos():
    job = PhotoJob(PhotoFile(Path(HOSTILE), Path(HOSTILE)), Path(HOSTILE), None)
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


def test_text_of_richs_own():
    """Whoever makes a `Text` of a name: lines it may have, and nothing else."""
    text = printed(Text(HOSTILE))
    assert r"\x1b[2Jb\x9b31m\u202ec" in text
    assert all(one.isprintable() or one == "\n" for one in text), ascii(text)


def test_names_are_shown_as_they_are():
    """Neither pictures nor colours are made of them."""
    stream = io.StringIO()
    PlainConsole(file=stream, force_terminal=True).print(as_markup(":car: 'x' 12 http://x [b]c[/b]"))
    assert stream.getvalue() == ":car: 'x' 12 http://x [b]c[/b]\n"


def test_a_bar_that_says_what_it_is_at():
    """Names of a builder's phases and layers."""
    stream = io.StringIO()
    console = PlainConsole(file=stream, force_terminal=True, width=2000)
    with ConsoleProgress(console).step("build") as step:
        step.advance(0.5, HOSTILE)
    text = re.sub(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AGK]|\r", "", stream.getvalue())  # what draws the bar
    check(text)


def test_faults_and_doubts_in_python():
    """They are read in tracebacks and logs, which are terminals too."""
    for error in (TrtpostError(HOSTILE), pickle.loads(pickle.dumps(ImageError(HOSTILE)))):
        check(str(error))
        check(traceback.format_exception_only(type(error), error)[0])
    with pytest.warns(DoubtWarning) as caught:
        doubt(HOSTILE)
    check(str(caught[0].message))


def test_every_function_of_the_report_is_tried():
    """Also one that is added later."""
    public = {
        name
        for name, one in vars(report).items()
        if inspect.isfunction(one) and one.__module__ == report.__name__ and not name.startswith("_")
    }
    tables = {"timing_table", "layer_table", "verify_tables", "orders_table", "findings_table"}
    assert public == tables | {"facts_text", "facts_json", "findings_json", "parts_of"}
    assert len(TABLES) == len(tables) + 1


def test_json_is_ascii():
    for text in (report_to_json(verified()), orders_to_json(ORDERS), report.findings_json([Finding(HOSTILE, HOSTILE)])):
        assert text.replace("\n", "").isascii()
        assert text.replace("\n", "").isprintable()


def test_commands_from_end_to_end(tmp_path, command_line):
    """Names of photos, bundles, models and outputs, by all the commands that show them."""
    name = HOSTILE.replace("/", "")
    save(nchw(), tmp_path / f"{name}.onnx")
    Image.new("RGB", (9, 6)).save(tmp_path / f"{name}.png")
    for command in (
        ("build", f"{name}.onnx", "--flavour", "none", "-o", f"{name}.trtpost"),
        ("inspect", f"{name}.trtpost"),
        ("inspect", f"{name}.onnx"),
        ("infer", f"{name}.png", "-e", f"{name}.trtpost"),
        ("infer", f"{name}.png", "-e", f"{name}.trtpost", "--repeat", "3"),
        ("infer", f"no{name}.png", "-e", f"{name}.trtpost"),
        ("infer", f"{name}.png", "-e", f"no{name}"),
        ("infer", f"{name}.png", "--backend", name),
        ("verify", f"{name}.trtpost", "--against", f"{name}.onnx", "--images", "."),
        ("export", "triton", f"{name}.trtpost", "-o", f"{name}.repository"),
        ("export", "onnx", f"{name}.trtpost", "-o", f"{name}.inlined.onnx"),
    ):
        status, output, errors = command_line(*command, cwd=tmp_path)
        assert status in (0, 1, 2)
        assert all(one.isprintable() or one == "\n" for one in output + errors), (command, ascii(output + errors))
        assert r"\x1b" in output + errors, command


def test_usage_sentences_are_text():
    class Error:
        ctx = None

        def format_message(self):
            return f"No such command '{HOSTILE}'."

    assert "there is no command" in usage.sentence(Error())
