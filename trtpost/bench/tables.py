"""The grids of text that the benchmarks' reports are shown as."""

from __future__ import annotations

from trtpost.bench.output import Cells, Grid
from trtpost.bench.pipeline import PipelineReport, Sheet, SystemResult
from trtpost.bench.post import PostReport, RivalResult
from trtpost.bench.systems import FIELD, OPENCV, OURS
from trtpost.timing import STAGE_NAMES


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


# --- bench post


def post_grids(report: PostReport) -> list[Grid]:
    """Make one grid, nearest above bilinear, each row against our kernel and against the floor."""
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


def _mask_verdict(row: RivalResult) -> str:
    convention = f" of '{row.match}'" if row.resize == "nearest" else ""
    if row.different == 0:
        return f"equal{convention}"
    if row.different == row.ties:
        return f"equal but for {row.ties} ties"
    return f"{row.different - row.ties} pixels differ{convention}"


# --- bench pipeline


def pipeline_grids(report: PipelineReport) -> list[Grid]:
    """Make a grid for each photo, with the ratios that matter below it; the last says how each system grows."""
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


def pipeline_title(report: PipelineReport) -> str:
    """A line that says what was measured, and on what."""
    return (
        f"{report.model}: {_by(report.network)}, {report.classes} classes; photo file to mask file, medians in "
        f"milliseconds; {report.threads} threads; {report.machine}"
    )


def _sheet_grid(sheet: Sheet) -> Grid:
    stages = sheet.stages
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


def _aside(row: SystemResult | None) -> str:
    return f"{row.aside:.1f}" if row is not None else "-"


def _ratios(sheet: Sheet) -> list[str]:
    """Say of the two systems that people come from how much longer each takes than ours."""
    lines = []
    for name in (FIELD, OPENCV):
        row = sheet.row(name)
        aside, alone = (sheet.ratio(row), sheet.ratio(row, ("argmax_resize",))) if row else (None, None)
        if aside is not None and alone is not None:
            lines.append(
                f"{name}: {aside:.1f} times as long as {OURS}, network aside; ArgMax and resize alone {alone:.1f} times"
            )
    return lines
