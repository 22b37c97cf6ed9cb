"""Run `trtpost bench post` over many shapes and write docs/bench-post.md; a quarter of an hour on two cores."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from trtpost.bench.output import shown
from trtpost.bench.post import PostReport, bench_post
from trtpost.bench.tables import post_grids
from trtpost.spec import Pattern

CASES: tuple[tuple[int, tuple[int, int], tuple[int, int], Pattern], ...] = (
    (19, (512, 512), (3024, 4032), "smooth"),
    (19, (512, 512), (3024, 4032), "noise"),
    (2, (512, 512), (3024, 4032), "smooth"),
    (21, (512, 512), (3024, 4032), "smooth"),
    (150, (512, 512), (3024, 4032), "smooth"),
    (21, (257, 257), (1080, 1920), "smooth"),
    (19, (1024, 2048), (1024, 2048), "smooth"),
    (19, (128, 128), (4320, 7680), "smooth"),
)

HEAD = """# Logits to mask: the fused kernel against everything people use

Written by `python scripts/bench_post.py`, which runs `trtpost bench post` in one process for each shape. Medians of
interleaved runs. `x floor` is against reading the logits once and writing the mask once, in the same run; `x ours` is
against the first row of each half. The machine is shared: single figures wander by a third; the ratios are steadier.

| classes | logits | mask | cells on a boundary | nearest: ms, x floor, x fastest rival | bilinear: the same |
|---|---|---|---|---|---|
"""


def main() -> int:
    """Run all cases; returns the exit status."""
    target = Path(__file__).resolve().parents[1] / "docs" / "bench-post.md"
    lines, tables = [], []
    for classes, source, size, pattern in CASES:
        report = bench_post(classes, source, size, pattern=pattern)
        stream = io.StringIO()
        Console(file=stream, width=140).print(shown(post_grids(report)))
        text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
        print(text, flush=True)
        lines.append(_summary(report))
        tables.append(f"```\n{text}\n```\n")
        target.write_text(HEAD + "\n".join(lines) + "\n\n" + "\n".join(tables), encoding="utf-8")
    return 0


def _summary(report: PostReport) -> str:
    cells = [
        str(report.classes),
        "x".join(map(str, report.source)),
        "x".join(map(str, report.size)),
        f"{report.boundary:.0%}",
    ]
    for resize in ("nearest", "bilinear"):
        ours, rival = report.ours(resize), report.fastest_rival(resize)
        if ours is None or rival is None or rival.milliseconds is None or report.floor is None:
            cells.append("-")
        else:
            cells.append(f"{ours:.2f}, {ours / report.floor:.1f}, **{rival.milliseconds / ours:.1f}** ({rival.name})")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
