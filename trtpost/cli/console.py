"""Shows progress on the terminal: a spinner or a bar while a step runs, one line when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
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
from rich.table import Column
from rich.text import Text

from trtpost.errors import one_line
from trtpost.progress import Progress, Step
from trtpost.terminal import as_markup

DOING = {
    "convert": "converting and comparing (TensorFlow takes a few seconds to start)",
    "locate": "looking for the logits",
    "labels": "reading the class names",
    "bake": "baking pre- and post-processing into the graph",
    "precision": "lowering the precision",
    "build": "building the TensorRT plan",
    "bundle": "writing the bundle",
}


class ConsoleProgress(Progress):
    """Shows each step on `console`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a spinner with what is being done, a bar where the step tells how far it is, then what it came to."""
        with _bar(self._console, SpinnerColumn(), TextColumn("{task.description}", markup=False), _KnownBar()) as bar:
            description = f"{title}: {DOING.get(title, title)} ..."
            step = _ConsoleStep(bar, bar.add_task(description, total=None), title)
            yield step
        self._console.print(f"[bold]{title:10}[/]{as_markup(step.result)}", soft_wrap=True, highlight=False)

    def warn(self, text: str) -> None:
        """Print a doubt on a line of its own, which is not overlooked."""
        self._console.print(f"[yellow][bold]warning[/] {as_markup(text)}[/]", soft_wrap=True, highlight=False)


class _ConsoleStep(Step):
    def __init__(self, bar: Bar, task: TaskID, title: str) -> None:
        self._bar, self._task, self._title = bar, task, title

    def advance(self, fraction: float, what: str = "") -> None:
        description = one_line(f"{self._title}: {what} ...") if what else None
        self._bar.update(self._task, total=1, completed=fraction, description=description)


class _KnownBar(ProgressColumn):
    """Shows a bar, or nothing while it is unknown how far the task is."""

    def render(self, task: Task) -> RenderableType:
        return Text() if task.total is None else ProgressBar(task.total, task.completed, width=40)


class _Speed(ProgressColumn):
    """Shows how many are done a second, over what was done lately."""

    def __init__(self, unit: str) -> None:
        super().__init__(Column(no_wrap=True))  # the bar is what may be shorter
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
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), _Speed(unit), TimeRemainingColumn(compact=True))
    with _bar(console, *columns) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda: bar.advance(task)
