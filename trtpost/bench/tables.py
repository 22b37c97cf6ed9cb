"""Tables of `bench pipeline` and `bench resize` for people. Every function returns something that rich prints."""

from __future__ import annotations

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from trtpost.bench.pipeline import PipelineReport, Sheet
from trtpost.bench.systems import FIELD, OPENCV, OURS
from trtpost.timing import STAGE_NAMES, Timing

TOGETHER = ("decode", "preprocess", "network", "argmax_resize", "encode")


def pipeline_table(report: PipelineReport) -> Group:
    """A table for each photo, the ratios that matter below it; at the end how each system grows."""
    height, width = report.network
    parts: list[Table | str] = [
        f"{escape(report.model)}: {height}x{width}, {report.classes} classes; photo file to mask file, "
        f"medians in milliseconds; {report.threads} threads; {report.machine}"
    ]
    for sheet in report.sheets:
        parts += ["", _sheet_table(sheet), *ratios(sheet)]
    if len(report.sheets) > 1:
        parts += ["", _growth_table(report)]
    return Group(*parts)


def stages_of(sheet: Sheet) -> list[str]:
    """Those that a system of this sheet has: copies only where there is a GPU."""
    timings = [row.timing for row in sheet.rows if row.timing is not None]
    return [stage for stage in STAGE_NAMES if stage in TOGETHER or any(getattr(one, stage) for one in timings)]


def _sheet_table(sheet: Sheet) -> Table:
    stages = stages_of(sheet)
    size = "x".join(map(str, sheet.size))
    title = f"{escape(sheet.photo)}: {size}, {sheet.bytes / 1e6:.2f} MB"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in (*(STAGE_NAMES[stage] for stage in stages), "total", "network aside", "x ours", "same pixels"):
        table.add_column(name, justify="right")
    missing = []
    for row in sheet.rows:
        if row.timing is None:
            missing.append((row.name, row.missing))
            continue
        values = [f"{getattr(row.timing, stage):.1f}" for stage in stages]
        ratio = sheet.ratio(row)
        table.add_row(
            row.name,
            *values,
            f"{row.timing.total:.1f}",
            f"{row.aside:.1f}",
            f"{ratio:.2f}" if ratio is not None else "",
            f"{row.agreement:.3%}" if row.agreement is not None else "",
        )
    for name, why in missing:
        table.add_row(name, *["-" for _ in stages], "-", "-", "", escape(why))
    return table


def ratios(sheet: Sheet) -> list[str]:
    """A line on each of the two that people come from: network aside, and ArgMax and resize alone."""
    lines = []
    for name in (FIELD, OPENCV):
        row = sheet.row(name)
        if row is None:
            continue
        aside, post = sheet.ratio(row), sheet.ratio(row, ("argmax_resize",))
        if aside is not None and post is not None:
            lines.append(
                f"{name}: {aside:.1f} times as long as {OURS}, network aside; ArgMax and resize alone {post:.1f} times"
            )
    return lines


def _growth_table(report: PipelineReport) -> Table:
    table = Table(title="network aside, in milliseconds", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for sheet in report.sheets:
        table.add_column(escape(sheet.photo), justify="right")
    for row in report.sheets[0].rows:
        if row.timing is not None:
            cells = [sheet.row(row.name) for sheet in report.sheets]
            table.add_row(row.name, *(f"{one.aside:.1f}" if one else "-" for one in cells))
    return table


def total(timing: Timing | None) -> float:
    """Milliseconds of all stages; 0 where there are none."""
    return timing.total if timing is not None else 0.0
