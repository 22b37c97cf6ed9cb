"""What the benchmarks came to, as grids of text: for the terminal, and for a page (`trtpost.bench.page`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Group
from rich.table import Table

from trtpost.bench import pipeline, post, resize
from trtpost.bench.systems import FIELD, OPENCV, OURS
from trtpost.terminal import as_markup
from trtpost.timing import STAGE_NAMES

TOGETHER = ("decode", "preprocess", "network", "argmax_resize", "encode")
"""Stages of every system; a GPU has copies too."""

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
    """The grids as rich prints them."""
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


def to_json(report: post.Report | resize.ResizeReport | pipeline.PipelineReport) -> str:
    """All that was measured, for programs, in the units of the report's fields."""
    return json.dumps(asdict(report), indent=2)


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


# --- bench post


def post_grids(report: post.Report) -> list[Grid]:
    """One grid, nearest above bilinear, each row against our kernel and against the floor."""
    rows: list[Cells] = []
    notes = []
    if report.floor is not None:
        rows.append(("floor: read the logits, write the mask", f"{report.floor:.2f}", "1.0", "", ""))
    for way in ("nearest", "bilinear"):
        ours = report.ours(way)
        rows.append((way,))
        for row in report.rows:
            if row.resize != way:
                continue
            if row.milliseconds is None:
                rows.append((f"  {row.name}", "-", "", "", row.missing))
                continue
            rows.append(
                (
                    f"  {row.name}",
                    f"{row.milliseconds:.2f}",
                    f"{row.milliseconds / report.floor:.1f}" if report.floor else "",
                    f"{row.milliseconds / ours:.1f}" if ours else "",
                    _mask_verdict(row),
                )
            )
        rival = report.fastest_rival(way)
        if rival and rival.milliseconds and ours:
            notes.append(f"{way}: {rival.milliseconds / ours:.1f} times the speed of the fastest rival ({rival.name})")
    title = (
        f"{report.classes} x {_by(report.source)} float32 logits ({report.pattern}, {report.boundary:.0%} boundary "
        f"cells) to a mask of {_by(report.size)}; {report.threads} threads; {report.machine}"
    )
    columns = ("", "median ms", "x floor", "x ours", "mask against the reference")
    return [Grid(title, columns, tuple(rows), tuple(notes), words=(0, 4))]


def _mask_verdict(row: post.Row) -> str:
    convention = f" of '{row.match}'" if row.resize == "nearest" else ""
    if row.different == 0:
        return f"equal{convention}"
    if row.different == row.ties:
        return f"equal but for {row.ties} ties"
    return f"{row.different - row.ties} pixels differ{convention}"


# --- bench resize


def resize_grids(report: resize.ResizeReport) -> list[Grid]:
    """One grid, nearest above bilinear: what a turn of the loop spends on decoding, converting and resizing."""
    rows: list[Cells] = []
    for way in ("nearest", "bilinear"):
        ours = report.ours(way)
        rows.append((way,))
        for row in report.rows:
            if row.resize != way:
                continue
            if row.missing:
                rows.append((f"  {row.name}", "-", "-", "-", "-", "", row.missing))
                continue
            steps = (row.decode, row.convert, row.scale, row.total)
            ratio = f"{row.scale / ours.scale:.1f}" if ours else ""
            rows.append((f"  {row.name}", *(f"{step:.1f}" for step in steps), ratio, _gray_verdict(row)))
    title = (
        f"a gray JPEG of {_by(report.source)} ({report.bytes / 1000:.0f} kB, in memory) to {_by(report.size)}, "
        f"medians in microseconds; {report.threads} thread{'s' if report.threads > 1 else ''}; {report.machine}"
    )
    columns = ("", "decode", "convert", "resize", "one turn", "resize x ours", "result against the reference")
    return [Grid(title, columns, tuple(rows), words=(0, 6))]


def _gray_verdict(row: resize.Row) -> str:
    if row.resize == "bilinear":
        return f"within {row.largest:.2f} gray levels"
    return f"{row.different} pixels differ of '{row.match}'" if row.different else f"equal of '{row.match}'"


# --- bench pipeline


def pipeline_grids(report: pipeline.PipelineReport) -> list[Grid]:
    """A grid for each photo, with the ratios that matter below it; at the end how each system grows."""
    grids = [_sheet_grid(sheet) for sheet in report.sheets]
    if len(report.sheets) > 1:
        rows = tuple(
            (row.name, *(_aside(sheet.row(row.name)) for sheet in report.sheets))
            for row in report.sheets[0].rows
            if row.timing is not None
        )
        photos = tuple(sheet.photo for sheet in report.sheets)
        grids.append(Grid("network aside, in milliseconds", ("", *photos), rows))
    return grids


def pipeline_title(report: pipeline.PipelineReport) -> str:
    """What was measured, and on what."""
    return (
        f"{report.model}: {_by(report.network)}, {report.classes} classes; photo file to mask file, medians in "
        f"milliseconds; {report.threads} threads; {report.machine}"
    )


def stages_of(sheet: pipeline.Sheet) -> list[str]:
    """Those that a system of this sheet has: copies only where there is a GPU."""
    timings = [row.timing for row in sheet.rows if row.timing is not None]
    return [stage for stage in STAGE_NAMES if stage in TOGETHER or any(getattr(one, stage) for one in timings)]


def _sheet_grid(sheet: pipeline.Sheet) -> Grid:
    stages = stages_of(sheet)
    rows: list[Cells] = []
    notes = []
    for row in sheet.rows:
        if row.timing is None:
            notes.append(f"{row.name}: -, {row.missing}")
            continue
        ratio = sheet.ratio(row)
        rows.append(
            (
                row.name,
                *(f"{getattr(row.timing, stage):.1f}" for stage in stages),
                f"{row.timing.total:.1f}",
                _aside(row),
                f"{ratio:.2f}" if ratio is not None else "",
                f"{row.agreement:.2%}" if row.agreement is not None else "",
                f"{row.bytes / 1000:.1f}",
            )
        )
    stage_names = (STAGE_NAMES[stage] for stage in stages)
    columns = ("", *stage_names, "total", "network aside", "x ours", "pixels as ours", "mask kB")
    title = f"{sheet.photo}: {_by(sheet.size)}, {sheet.bytes / 1e6:.2f} MB"
    return Grid(title, columns, tuple(rows), (*notes, *_ratios(sheet)))


def _aside(row: pipeline.Row | None) -> str:
    return f"{row.aside:.1f}" if row is not None else "-"


def _ratios(sheet: pipeline.Sheet) -> list[str]:
    """A line on each of the two that people come from."""
    lines = []
    for name in (FIELD, OPENCV):
        row = sheet.row(name)
        aside, alone = (sheet.ratio(row), sheet.ratio(row, ("argmax_resize",))) if row else (None, None)
        if aside is not None and alone is not None:
            lines.append(
                f"{name}: {aside:.1f} times as long as {OURS}, network aside; ArgMax and resize alone {alone:.1f} times"
            )
    return lines
