"""The benchmarks' plots, each as the text of an SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from trtpost.bench.pipeline import PipelineReport
from trtpost.bench.post import PostReport
from trtpost.packages import require
from trtpost.timing import STAGE_NAMES

COLOURS = {
    "decode": "#4c7cf0",
    "preprocess": "#7fb2ff",
    "upload": "#9aa3ad",
    "network": "#d5d9de",
    "argmax_resize": "#e4572e",
    "download": "#626b76",
    "encode": "#f2a541",
}
OURS, OTHERS = "#1a7f46", "#4c7cf0"


def pipeline_plots(report: PipelineReport) -> list[str]:
    """Plot the stages of each system, stacked, for each photo; with several, also how each system grows."""
    plots = []
    for sheet in report.sheets:
        rows = [row for row in sheet.rows if row.timing is not None]
        parts = {
            STAGE_NAMES[stage]: ([float(getattr(row.timing, stage)) for row in rows], COLOURS[stage])
            for stage in sheet.stages
        }
        plots.append(_stacked([row.name for row in rows], parts, f"{sheet.photo}, milliseconds"))
    if len(report.sheets) > 1:
        plots.append(_growth(report))
    return plots


def post_plots(report: PostReport) -> list[str]:
    """Plot each row's time on a logarithmic scale, with the floor as a line; nearest, then bilinear."""
    plots = []
    for way in ("nearest", "bilinear"):
        rows = [row for row in report.rows if row.resize == way and row.milliseconds]
        figure, axes = _figure(len(rows))
        colours = [OURS if row.kind == "kernel" else OTHERS for row in rows]
        times = [row.milliseconds or 0.0 for row in rows]
        bars = axes.barh([row.name for row in rows], times, color=colours)
        axes.bar_label(bars, fmt=" %.1f")
        axes.set_xscale("log")
        if report.floor:
            axes.axvline(report.floor, color="#626b76", linestyle=":", label="floor of memory")
            axes.legend(frameon=False, loc="lower right")
        axes.set_xlabel(f"{way}, milliseconds")
        plots.append(_svg(figure))
    return plots


def _stacked(names: Sequence[str], parts: dict[str, tuple[list[float], str]], label: str) -> str:
    figure, axes = _figure(len(names))
    left = [0.0] * len(names)
    for name, (values, colour) in parts.items():
        bars = axes.barh(names, values, left=left, color=colour, label=name)
        left = [start + value for start, value in zip(left, values, strict=True)]
    axes.bar_label(bars, labels=[f" {value:.0f}" for value in left])
    axes.set_xlabel(label)
    axes.margins(x=0.08)
    axes.legend(frameon=False, ncols=len(parts), loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return _svg(figure)


def _growth(report: PipelineReport) -> str:
    figure, axes = _figure(8)
    axes.invert_yaxis()  # back: these are no bars
    for row in report.sheets[0].rows:
        points = [(sheet.size[0] * sheet.size[1] / 1e6, sheet.row(row.name)) for sheet in report.sheets]
        found = [(size, one.aside) for size, one in points if one is not None]
        if found:
            axes.plot(*zip(*found, strict=True), marker="o", label=row.name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("megapixels")
    axes.set_ylabel("milliseconds, network aside")
    axes.legend(frameon=False)
    return _svg(figure)


def _figure(rows: int) -> tuple[Any, Any]:
    require("matplotlib", "report", "--html")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.3 + 0.36 * rows), layout="constrained")
    axes = figure.subplots()
    axes.invert_yaxis()  # bars in the order of the rows
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    """The figure's SVG without what makes it a file, so that it can stand in a page."""
    import matplotlib

    stream = io.StringIO()
    # letters stay letters; ids are the same every time
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "trtpost"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", stream.getvalue(), flags=re.DOTALL)
