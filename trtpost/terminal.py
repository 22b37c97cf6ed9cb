"""Prints to the terminal: text that is seen, and does nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trtpost.errors import one_line

FOLDED = 12
"""Columns that a folded one keeps however narrow the terminal is."""


class PlainConsole(Console):
    """A console on which no text acts: names of classes, files and tensors are whatever their files say.

    Styles are ours alone, by markup; what else would move the cursor or set a title becomes its escape.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(emoji=False, highlight=False, **settings)  # a class may be called :car:

    def render_str(self, text: str, **options: Any) -> Text:
        """Make rich's text, in which everything is to be seen."""
        return super().render_str(_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render what is text of rich's own already, such as what a bar is at, so that everything is to be seen."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_lines(segment.text))

    def show(self, renderable: Group | Table) -> None:
        """Print tables and lines of which nothing is cut.

        A terminal that is narrower than a table wraps its rows, which can be read; rich would shorten the numbers in
        them. Lines are left to the terminal too, so that a command in them is copied as one.
        """
        wide = self.options.update(max_width=1 << 16)
        for table in renderable.renderables if isinstance(renderable, Group) else [renderable]:
            for column in table.columns if isinstance(table, Table) else []:
                longest = max(Measurement.get(self, wide, one).minimum for one in (column.header, *column.cells))
                column.min_width = min(longest, FOLDED) if column.overflow == "fold" else longest
        self.print(renderable, soft_wrap=True)


def _lines(text: str) -> str:
    return text if text.isprintable() else "\n".join(map(one_line, text.split("\n")))


def as_markup(text: str) -> str:
    """Make one line of markup that means just this text, which came from a file."""
    return escape(one_line(text))
