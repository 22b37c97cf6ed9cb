"""Progress on the terminal: a spinner while a step runs, one line when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from trtpost.progress import Progress, Step

DOING = {
    "convert": "converting (TensorFlow takes a few seconds to start)",
    "locate": "looking for the logits",
    "bake": "baking pre- and post-processing into the graph",
    "build": "building the TensorRT plan",
    "bundle": "writing the bundle",
}


class ConsoleProgress(Progress):
    """Shows each step on `console`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """A spinner with what is being done, then a line with what it came to."""
        step = Step()
        with self._console.status(f"{title}: {DOING.get(title, title)} ..."):
            yield step
        self._console.print(f"[bold]{title:8}[/]{escape(step.result)}", soft_wrap=True, highlight=False)

    def warn(self, text: str) -> None:
        """A line of its own that is not overlooked."""
        self._console.print(f"[yellow][bold]warning[/] {escape(text)}[/]", soft_wrap=True, highlight=False)


@contextmanager
def progress_bar(console: Console, total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """A bar over many things; gives the function that moves it on. One thing, or `quiet`, shows none."""
    if quiet or total < 2:
        yield lambda: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda: bar.advance(task)
