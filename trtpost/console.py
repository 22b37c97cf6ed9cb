"""Tables and progress on the terminal: a spinner or a bar while a step runs, one line when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.text import Text

from trtpost.errors import one_line
from trtpost.progress import Progress, Step

DOING = {
    "convert": "converting (TensorFlow takes a few seconds to start)",
    "locate": "looking for the logits",
    "labels": "reading the class names",
    "bake": "baking pre- and post-processing into the graph",
    "precision": "lowering the precision",
    "build": "building the TensorRT plan",
    "bundle": "writing the bundle",
}


def plain(*parts: str | tuple[str, str]) -> Text:
    """A line whose texts mean nothing to rich or to a terminal; a pair gives a text its style."""
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((one_line(text), style) for text, style in styled))


class Terminal(Console):
    """Prints what `trtpost.report` gives. Texts in it are no markup, and hold nothing that a terminal acts on."""

    def __init__(self, **settings: Any) -> None:
        # a pipe or a log has no width of its own; tables must not be squeezed into 80 columns there
        width = {} if "file" in settings or sys.stdout.isatty() else {"width": 160}
        super().__init__(markup=False, emoji=False, highlight=False, **width | settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """What is given as a `str`, such as a table's cell."""
        return super().render_str(one_line(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything else, when its lines are broken."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else "\n".join(map(one_line, segment.text.split("\n")))
            yield segment if text == segment.text else segment._replace(text=text)


class ConsoleProgress(Progress):
    """Shows each step on `console`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """A spinner with what is being done, and a bar where the step tells how far it is; then what it came to."""
        with _bar(self._console, SpinnerColumn(), TextColumn("{task.description}", markup=False), _KnownBar()) as bar:
            description = one_line(f"{title}: {DOING.get(title, title)} ...")
            step = _ConsoleStep(bar, bar.add_task(description, total=None), title)
            yield step
        self._console.print(plain((f"{title:10}", "bold"), step.result), soft_wrap=True)

    def warn(self, text: str) -> None:
        """A line of its own that is not overlooked."""
        self._console.print(plain(("warning", "bold yellow"), (f" {text}", "yellow")), soft_wrap=True)


class _ConsoleStep(Step):
    def __init__(self, bar: Bar, task: TaskID, title: str) -> None:
        self._bar, self._task, self._title = bar, task, title

    def advance(self, fraction: float, what: str = "") -> None:
        description = one_line(f"{self._title}: {what} ...") if what else None
        self._bar.update(self._task, total=1, completed=fraction, description=description)


class _KnownBar(ProgressColumn):
    """A bar, or nothing while it is unknown how far the task is."""

    def render(self, task: Task) -> RenderableType:
        return Text() if task.total is None else ProgressBar(task.total, task.completed, width=40)


class _Speed(ProgressColumn):
    """How many a second, over what was done lately."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> RenderableType:
        return Text("" if not task.speed else f"{task.speed:.1f} {self._unit}/s, left")


def _bar(console: Console, *columns: ProgressColumn) -> Bar:
    """A display that goes away when it is done; in a pipe or a log it never comes."""
    return Bar(*columns, console=console, transient=True, disable=not console.is_interactive)


@contextmanager
def progress_bar(console: Console, total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar over many things; gives the function that moves it on. One thing, or `quiet`, shows none."""
    if quiet or total < 2:
        yield lambda: None
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        _Speed(unit),
        TimeRemainingColumn(compact=True),
    )
    with _bar(console, *columns) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda: bar.advance(task)
