"""A benchmark as one HTML file that needs nothing else: style and plots are inside."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from trtpost.bench.tables import Grid
from trtpost.packages import require
from trtpost.storage import pages


def write_page(path: Path, title: str, subtitle: str, plots: Sequence[str], grids: Sequence[Grid]) -> None:
    """Write the page: plots, as the text of SVGs, above tables.

    Raises:
        MissingPackageError: Jinja2 is not installed.
        SpecError: the file cannot be written.
    """
    jinja2 = require("jinja2", "report", "--html")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("trtpost.bench").joinpath("report.html.jinja").read_text(encoding="utf-8")
    content = environment.from_string(template).render(title=title, subtitle=subtitle, plots=plots, grids=grids)
    pages.write_page(path, content)
