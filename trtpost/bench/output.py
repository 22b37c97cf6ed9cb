"""What a benchmark found, written out: grids of text for the terminal, a page with plots, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from trtpost.packages import require
from trtpost.storage import pages
from trtpost.terminal import as_markup

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Attributes:
        title: a line above it; may be empty.
        columns: their names, the first of the rows' own names.
        rows: cells of each; one cell alone is a heading.
        notes: lines below it.
        words: columns of words, which begin at the left; the first always is.
    """

    title: str
    columns: Cells
    rows: tuple[Cells, ...]
    notes: Cells = ()
    words: tuple[int, ...] = (0,)


def shown(grids: Sequence[Grid]) -> Group:
    """Turn grids into what rich prints."""
    parts: list[str | Table] = []
    for grid in grids:
        table = Table(box=None, pad_edge=False)
        for index, name in enumerate(grid.columns):
            left = index in grid.words
            table.add_column(name, justify="left" if left else "right", overflow="fold" if index == 0 else "ellipsis")
        for row in grid.rows:
            table.add_row(*((f"[bold]{as_markup(row[0])}[/]",) if len(row) == 1 else map(as_markup, row)))
        parts += [""] if parts else []
        parts += [as_markup(grid.title)] if grid.title else []
        parts += [table, *map(as_markup, grid.notes)]
    return Group(*parts)


def to_json(report: Any) -> str:
    """All that was measured, for programs, in the units of the report's fields."""
    return json.dumps(asdict(report), indent=2)


def write_page(path: Path, title: str, subtitle: str, plots: Sequence[str], grids: Sequence[Grid]) -> None:
    """Write one HTML file that needs nothing else: plots, as the text of SVGs, above tables.

    Raises:
        MissingPackageError: Jinja2 is not installed.
        SpecError: the file cannot be written.
    """
    jinja2 = require("jinja2", "report", "--html")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("trtpost.bench").joinpath("report.html.jinja").read_text(encoding="utf-8")
    content = environment.from_string(template).render(title=title, subtitle=subtitle, plots=plots, grids=grids)
    pages.write_page(path, content)
