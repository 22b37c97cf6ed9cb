"""What is printed for people: names in files may hold anything, and a terminal must act on nothing."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from nets import nchw, save
from PIL import Image
from rich.console import Console, Group
from rich.table import Table

import trtpost as tp
from trtpost import inference, report, terminal
from trtpost.bench import pipeline, post, resize, tables
from trtpost.bundle import Plan
from trtpost.console import ConsoleProgress, Terminal, plain, progress_bar
from trtpost.doctor import Finding
from trtpost.errors import DoubtWarning, TrtpostError, doubt
from trtpost.inspect import Inspected
from trtpost.photos import PhotoFile
from trtpost.terminal import say, say_json
from trtpost.timing import Summary, Timing
from trtpost.verify.blame import Blame, Stage
from trtpost.verify.compare import Figures, Overlap
from trtpost.verify.orders import Order, Orders
from trtpost.verify.run import PhotoFigures
from trtpost.verify.run import Report as Verified

EVIL = (
    "\x1b[2J\x1b[31m\x1b]0;title\x07\x1b]8;;http://x\x1b\\\x1bP\x9b1A\x9d0;t\x9c\x90\x85"  # CSI, OSC, DCS, C1
    "\r\n\x0b\x0c\x08\x00\x7f\t\u2028\u2029"  # other lines, back over what is there
    "\u202e\u202d\u2066\u2067\u2069\u200f\u061c\u200b\ufeff\ud800"  # directions, what is not seen, half a character
    "[red]forged[/red] :boom: [link=http://x]y[/link] [/]"  # rich's own
)
ALLOWED = re.compile(r"\x1b\[[0-9;]*m")
"""Colours and weights, which are ours."""

TIMES = Timing(1, 2, 3, 4, 0, 6, 7, uploaded=8, downloaded=9)
FIGURES = Figures(10, 3, 1, 2, Overlap(np.array([3, 4]), np.array([5, 6])))


def verified(passed: bool) -> Verified:
    found = Verified(
        bundle=EVIL,
        against=EVIL,
        engine=EVIL,
        framework=EVIL,
        resizer=EVIL,
        pipeline=EVIL,
        classes=(EVIL,),
        photos=(PhotoFigures(Path(EVIL.replace("\0", "")), (2, 5), FIGURES),) * 2,
        total=replace(FIGURES, truth=(FIGURES.overlap,) * 2),
        minimum=0.0 if passed else 1.0,
        because=EVIL,
        blame=Blame(EVIL, (Stage("network", True, EVIL), Stage("resize", False, EVIL)), EVIL),
        notes=(EVIL, EVIL),
    )
    assert found.passed == passed
    return found


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Inspected:
    """A bundle with a plan, whose every name that a file may hold is hostile."""
    folder = tmp_path_factory.mktemp("terminal")
    name = EVIL.encode("utf-8", "ignore").decode().replace("\0", "")
    built = tp.build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none")
    plan = Plan("tensorrt", name, (name,), {name: 1}, {name: 2})
    located = replace(built.passport.located, input=name, output=name, logits=name, dropped=(name,))
    passport = replace(
        built.passport, classes=(name,) * 4, source=name, version=name, normalization=name, plan=plan, located=located
    )
    bundle = replace(built, path=Path(name), passport=passport)
    model = onnx.load(built.model)
    model.graph.input[0].name = model.graph.output[0].name = name
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    for node in model.graph.node:
        node.input[0] = node.name = name
    return Inspected(Path(name), model, bundle, located=located, problem=name)


GRIDS = {
    "post_grids": lambda: tables.post_grids(
        post.Report(2, (1, 2), (3, 4), EVIL, 0.5, 1, EVIL, 1.0, _rows(post.Row, "rival", 1.0))
    ),
    "resize_grids": lambda: tables.resize_grids(
        resize.ResizeReport((1, 2), (3, 4), 5, 1, EVIL, _rows(resize.Row, True, 1.0, 1.0, 1.0))
    ),
    "pipeline_grids": lambda: tables.pipeline_grids(
        pipeline.PipelineReport(
            EVIL,
            (1, 2),
            3,
            1,
            EVIL,
            (pipeline.Sheet(EVIL, (1, 2), 3, _systems()), pipeline.Sheet("x", (1, 2), 3, _systems())),
        )
    ),
}


def _rows(kind: type, *rest: object) -> tuple[object, ...]:
    run = [kind(EVIL, way, EVIL, *rest) for way in ("nearest", "bilinear")]
    return (*run, kind(EVIL, "nearest", EVIL, rest[0], missing=EVIL))


def _systems() -> tuple[pipeline.Row, ...]:
    return (pipeline.Row(EVIL, TIMES), pipeline.Row(EVIL, missing=EVIL))


REPORTS = {
    "timing_table": lambda _: report.timing_table([(EVIL, TIMES), (EVIL, Summary(TIMES, TIMES, 3))]),
    "layer_table": lambda _: report.layer_table([(EVIL, 1.0)] * 20),
    "facts_lines": report.facts_lines,
    "verify_tables": lambda _: Group(report.verify_tables(verified(True)), report.verify_tables(verified(False))),
    "orders_table": lambda _: report.orders_table(Orders(EVIL, EVIL, 1, EVIL, (Order("nearest", 1, 1, 1),))),
    "findings_table": lambda _: report.findings_table([Finding(EVIL, EVIL, one) for one in (True, False, None)]),
}
OTHERS = {"parts_of", "facts_json", "findings_json", "describe_verification"}
"""Public functions of the report that give no table, or what is in one."""


def check(text: str) -> None:
    """Nothing in it acts, and no name has been lost or has begun a line."""
    assert ALLOWED.sub("", text).replace("\n", "").isprintable(), re.findall(r"[^ -~]", ALLOWED.sub("", text))[:10]
    lines = [ALLOWED.sub("", line) for line in text.splitlines()]
    assert not any(line.lstrip().startswith("[red]") for line in lines)
    joined = re.sub(r"\s", "", "".join(lines))
    for part in (r"\x1b", r"\x9b", r"\u202e", "[red]forged[/red]", ":boom:"):
        assert part in joined, part


def printed(what: object, console: type[Console], *, terminal: bool, width: int = 4000) -> str:
    out = console(
        file=io.StringIO(), force_terminal=terminal, width=width, color_system="truecolor" if terminal else None
    )
    out.print(what)
    return out.file.getvalue()


def test_every_report_is_in_the_tests():
    """So that one that is added is tried with hostile names too."""
    public = {
        name for name, one in vars(report).items() if inspect.isfunction(one) and one.__module__ == report.__name__
    }
    assert {name for name in public if not name.startswith("_")} == set(REPORTS) | OTHERS
    public = {name for name, one in vars(tables).items() if inspect.isfunction(one) and name.endswith("_grids")}
    assert public == set(GRIDS)


@pytest.mark.parametrize("console", [Terminal, Console])
@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("name", [*REPORTS, *GRIDS])
def test_every_table_with_hostile_names(name, console, is_terminal, hostile, capsys):
    what = REPORTS[name](hostile) if name in REPORTS else tables.shown(GRIDS[name]())
    if isinstance(what, list):
        say(*what)
        text = capsys.readouterr().out
        assert text.count("\n") == len(what)
    else:
        text = printed(what, console, terminal=is_terminal)
    check(text)
    if is_terminal and name == "verify_tables":
        assert "\x1b[32mpassed\x1b[0m" in text  # the colours that are ours are there


@pytest.mark.parametrize("name", [*REPORTS, *GRIDS])
def test_every_table_in_a_narrow_window(name, hostile):
    """Names that are broken over lines are whole, and as inert."""
    what = REPORTS[name](hostile) if name in REPORTS else tables.shown(GRIDS[name]())
    if not isinstance(what, list):
        text = ALLOWED.sub("", printed(what, Terminal, terminal=True, width=60))
        assert text.replace("\n", "").isprintable()


def test_what_is_given_to_the_console_as_it_is():
    """A string, a cell, a title, a text: of whoever writes the next table without thinking of this."""
    table = Table(EVIL, title=EVIL, caption=EVIL)
    table.add_row(EVIL)
    for what in (EVIL, table, plain(EVIL), plain((EVIL, "red")), Group(EVIL)):
        check(printed(what, Terminal, terminal=True))
    from rich.text import Text

    text = ALLOWED.sub("", printed(Text(EVIL), Terminal, terminal=True))
    assert text.replace("\n", "").isprintable()  # a text may have lines


def test_progress_with_hostile_names():
    out = Terminal(file=io.StringIO(), force_terminal=True, width=4000)
    progress = ConsoleProgress(out)
    with progress.step("build") as step:
        step.advance(0.5, EVIL)
        step.result = EVIL
    progress.warn(EVIL)
    with progress_bar(out, 2, EVIL, quiet=False) as advance:
        advance()
    text = re.sub(r"\x1b\[(\?25[lh]|\d*[AKG]|2K)|\r", "", out.file.getvalue())  # the bar moves over itself
    check(text)


def test_lines_and_faults(capsys):
    say(EVIL, EVIL)
    say(EVIL, error=True)
    shown = capsys.readouterr()
    assert (shown.out.count("\n"), shown.err.count("\n")) == (2, 1)
    check(shown.out)
    check(shown.err)
    error = TrtpostError(EVIL)
    check(str(error))
    check(str(pickle.loads(pickle.dumps(error))))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        doubt(EVIL)
    assert caught[0].category is DoubtWarning
    check(str(caught[0].message))


def test_outcomes():
    job = inference.Job(PhotoFile(Path("a" + EVIL.replace("\0", "")), Path("a")), Path(EVIL.replace("\0", "")), None)
    classes = (inference.Share(0, EVIL, 1.0),)
    check(inference.Outcome(job, (1, 2), TIMES, classes=classes).describe())
    text = inference.to_json(job.mask, {"engine": EVIL}, [inference.Outcome(job, error=EVIL)], 1.0, [(EVIL, 1.0)])
    assert text.isascii()
    assert json.loads(text)["engine"] == EVIL


def test_json_is_ascii(hostile, capsys):
    """What `json.dumps` has escaped."""
    from trtpost.verify.orders import orders_to_json
    from trtpost.verify.run import report_to_json

    for text in (
        report.facts_json(replace(hostile, bundle=None)),
        report.findings_json([Finding(EVIL, EVIL)]),
        report_to_json(verified(True)),
        orders_to_json(Orders(EVIL, EVIL, 1, EVIL, ())),
    ):
        assert text.replace("\n", "").isascii()
        assert text.replace("\n", "").isprintable()
        say_json(text)
        json.loads(capsys.readouterr().out)


def test_nothing_else_prints():
    """In the package one module prints, no console is built but ours, and a worker answers the process that asked."""
    folder = Path(terminal.__file__).parent
    printing = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(
            r"(?<![\w.\"])print\(|sys\.std(out|err)\.write\(|(?<!\w)Console\((?!Console)", path.read_text("utf-8")
        )
    }
    assert printing == {"terminal.py", "convert/worker.py"}


def test_a_command_from_end_to_end(tmp_path, command_line):
    """Hostile names of photos, bundles, classes and files, by the commands that show them."""
    name = EVIL.encode("utf-8", "ignore").decode().replace("\0", "").replace("/", "")[:60]
    labels = tmp_path / "labels.txt"
    labels.write_text(
        "".join(f"{index}{EVIL[:40]}\n" for index in range(4)).replace("\r", "").replace("\n\x0b", "\x0b")
    )
    save(nchw(), tmp_path / f"{name}.onnx")
    Image.new("RGB", (9, 6)).save(tmp_path / f"{name}.png")
    commands = [
        ("build", f"{name}.onnx", "--flavour", "none", "-o", f"{name}.trtpost"),
        ("inspect", f"{name}.trtpost"),
        ("inspect", f"{name}.onnx"),
        ("infer", f"{name}.png", "-e", f"{name}.trtpost"),
        ("infer", f"{name}.png", "-e", f"{name}.trtpost", "--repeat", "3"),
        ("infer", f"no{name}.png", "-e", f"{name}.trtpost"),
        ("infer", f"{name}.png", "-e", f"no{name}"),
        ("infer", f"--{name}"),
        (f"{name}",),
        ("infer", f"{name}.png", "--backend", name),
        ("verify", f"{name}.trtpost", "--against", f"{name}.onnx", "--images", "."),
        ("export", "triton", f"{name}.trtpost", "-o", f"{name}.repository"),
        ("export", "onnx", f"{name}.trtpost", "-o", f"{name}.inlined.onnx"),
    ]
    for command in commands:
        status, out, err = command_line(*command, cwd=tmp_path)
        assert status in (0, 1, 2)
        assert (out + err).replace("\n", "").isprintable(), (command, out + err)
        assert r"\x1b" in out + err, command
