"""What the command line shows: tables for people. Every function returns something that rich prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group
from rich.table import Table

from trtpost.describe import (
    describe_check,
    describe_choice,
    describe_located,
    describe_plan,
    describe_precision,
    describe_precisions,
    describe_spec,
    describe_verification,
)
from trtpost.errors import one_line, printable
from trtpost.graph.baked import DOMAIN, NODE
from trtpost.terminal import as_markup
from trtpost.timing import STAGE_NAMES, Summary, Timing

if TYPE_CHECKING:  # what only runs needs none of what builds or compares
    import onnx

    from trtpost.bundle.folder import Bundle
    from trtpost.cli.doctor import Finding
    from trtpost.cli.inspect import Inspected
    from trtpost.verify.compare import Figures
    from trtpost.verify.orders import Orders
    from trtpost.verify.report import Report as Verified


def timing_table(rows: Sequence[tuple[str, Timing | Summary]]) -> Group:
    """Stages of one or more photos, in milliseconds; for repeated runs median and 95th percentile.

    A GPU adds its copies, and a line on how fast they were.
    """
    single = [timing.median if isinstance(timing, Summary) else timing for _, timing in rows]
    on_gpu = any(timing.uploaded for timing in single)
    stages = [stage for stage in STAGE_NAMES if on_gpu or stage not in ("upload", "download")]
    repeated = any(isinstance(timing, Summary) for _, timing in rows)
    table = Table(title="milliseconds", title_justify="left", box=None, pad_edge=False)
    table.add_column("photo", overflow="fold")
    if repeated:
        table.add_column("")
    for name in (*(STAGE_NAMES[stage] for stage in stages), "total"):
        table.add_column(name, justify="right")
    for name, timing in rows:
        if isinstance(timing, Summary):
            table.add_row(as_markup(name), f"median of {timing.count}", *_milliseconds(timing.median, stages))
            table.add_row("", "p95", *_milliseconds(timing.p95, stages))
        else:
            table.add_row(as_markup(name), *([""] if repeated else []), *_milliseconds(timing, stages))
    notes = [f"copies of {as_markup(rows[0][0])}: {single[0].copies}"] if single[0].copies else []
    if on_gpu and not single[0].argmax_resize:
        notes.append("ArgMax and resize are layers of the plan, counted under network: --profile tells them apart")
    return Group(table, *notes)


def _milliseconds(timing: Timing, stages: Sequence[str]) -> list[str]:
    return [f"{getattr(timing, stage):.2f}" for stage in stages] + [f"{timing.total:.2f}"]


LAYERS_SHOWN = 15


def layer_table(layers: Sequence[tuple[str, float]]) -> Group:
    """The slowest layers of a TensorRT plan, and what preprocessing, network and post-processing take together."""
    whole = sum(milliseconds for _, milliseconds in layers) or 1.0
    table = Table(title="layers of the plan", title_justify="left", box=None, pad_edge=False)
    table.add_column("layer", overflow="fold")
    for name in ("ms", "share"):
        table.add_column(name, justify="right")
    slowest = sorted(layers, key=lambda layer: -layer[1])[:LAYERS_SHOWN]
    for name, milliseconds in slowest:
        table.add_row(as_markup(name), f"{milliseconds:.3f}", f"{milliseconds / whole:.1%}")
    if len(layers) > len(slowest):
        rest = whole - sum(milliseconds for _, milliseconds in slowest)
        table.add_row(f"{len(layers) - len(slowest)} more", f"{rest:.3f}", f"{rest / whole:.1%}")
    sums = ", ".join(f"{name} {milliseconds:.3f} ms" for name, milliseconds in parts_of(layers).items())
    return Group(table, f"together: {sums}")


def parts_of(layers: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Milliseconds of preprocessing, network, post-processing, and of layers that TensorRT fused across these."""
    sums: dict[str, float] = {}
    for name, milliseconds in layers:
        stages = [stage for prefix, stage in _PARTS.items() if prefix in name]
        part = stages[0] if len(stages) == 1 else " and ".join(stages) if stages else "network"
        sums[part] = sums.get(part, 0.0) + milliseconds
    return sums


_PARTS = {"pre/": "preprocessing", "network/": "network", "post/": "post-processing"}
"""Prefix of a layer's name to the part of the graph that it comes from."""


def facts_text(found: Inspected) -> str:
    """What `inspect` found, a line a fact: what, and how it is."""
    facts = [*(_bundle_facts(found.bundle) if found.bundle else []), *_model_facts(found)]
    width = max(len(name) for name, _ in facts) + 2
    return "\n".join(f"{name:{width}}{one_line(value)}" for name, value in facts)


def facts_json(found: Inspected) -> str:
    """What `inspect` found, for programs.

    Keys: `path`; `passport`, as in the bundle, or null; `graph` (`nodes`, `opset`, `ir_version`); `inputs` and
    `outputs` (`name`, `dtype`, `shape`: numbers, or names of dynamic dimensions, or null); `located`, where `build`
    would take the logits, or null; `problem`, why it would not, or null.
    """
    from trtpost.graph.reading.model import opset_of

    graph = found.model.graph
    return json.dumps(
        {
            "path": printable(str(found.path)),
            "passport": asdict(found.bundle.passport) if found.bundle else None,
            "graph": {
                "nodes": len(graph.node),
                "opset": opset_of(found.model),
                "ir_version": found.model.ir_version,
            },
            "inputs": [_value_entry(value) for value in graph.input],
            "outputs": [_value_entry(value) for value in graph.output],
            "located": asdict(found.located) if found.located else None,
            "problem": found.problem,
        },
        indent=2,
    )


def _bundle_facts(bundle: Bundle) -> list[tuple[str, str]]:
    """A bundle's passport, in the order in which one asks."""
    passport = bundle.passport
    facts = [
        ("bundle", str(bundle.path)),
        ("source", f"{passport.source} (SHA-256 {passport.source_sha256[:12]})"),
        ("located", describe_located(passport.located)),
        ("baked", describe_spec(passport.pre, passport.post, passport.normalization, passport.located.background)),
        ("classes", f"{len(passport.classes)}: {_shortened(passport.classes)}"),
        (
            "batch",
            f"1 to {passport.max_batch}" if not passport.located.batch else f"{passport.located.batch} (fixed)",
        ),
    ]
    if passport.check is not None:
        facts.append(("check", describe_check(passport.check)))
    facts.append(("precision", describe_precision(passport)))
    facts.append(("verified", describe_verification(passport.verification)))
    if passport.plan and bundle.plan is None:
        facts.append(("plan", "in the bundle's folder, which this file was taken out of"))
    elif passport.plan:
        plan = passport.plan
        facts += [
            ("plan", describe_plan(plan)),
            ("", f"masks up to {passport.max_size[0]}x{passport.max_size[1]}"),
            ("", describe_precisions(plan.precisions)),
            ("layers", ", ".join(f"{count} {name}" for name, count in plan.layers.items())),
        ]
    else:
        facts.append(("plan", "none: runs in ONNX Runtime"))
    return [*facts, ("built by", f"trtpost {passport.version}")]


def verify_tables(report: Verified) -> Group:
    """What `verify` found: a row a photo, worst first, the classes, where differences begin."""
    total = report.total
    lines = [
        f"bundle    {as_markup(report.bundle)} on {as_markup(report.engine)}",
        f"against   {as_markup(report.against)} in {as_markup(report.framework)}",
        f"pipeline  {as_markup(report.pipeline)}; {as_markup(report.resizer)}",
    ]
    table = Table(box=None, pad_edge=False)
    table.add_column("photo", overflow="fold")
    columns = ["size", "same class", "really different", "different on ties", "ties", "mean IoU"]
    for name in columns + (["truth: replaced", "truth: bundle"] if total.truth else []):
        table.add_column(name, justify="right")
    for one in report.photos:
        table.add_row(as_markup(one.photo.name), f"{one.size[0]}x{one.size[1]}", *_figures(one.figures))
    if len(report.photos) > 1:
        table.add_row("[bold]all[/]", "", *_figures(total))
    ious = [
        f"{as_markup(report.classes[index]) if index < len(report.classes) else index} {iou:.4f}"
        for index, iou in enumerate(total.overlap.ious)
        if not np.isnan(iou)
    ]
    ending = [f"IoU of each class: {', '.join(ious)}"]
    if report.blame is not None:
        ending.append(f"where it begins, on {as_markup(report.blame.photo)}:")
        for stage in report.blame.stages:
            mark = "[yellow]differs[/]" if stage.differs else "[green]the same[/]"
            ending.append(f"  {stage.name:16} {mark}: {as_markup(stage.text)}")
    if report.spread is not None:
        ending.append(f"kernels: {as_markup(report.spread.text)}")
    ending += [f"note: {as_markup(note)}" for note in report.notes]
    outcome, sign = ("[green]passed[/]", "at least") if report.passed else ("[red]failed[/]", "less than")
    ending.append(
        f"{outcome}: {total.agreement_apart_from_ties:.4%} apart from ties, {sign} the {report.minimum:.2%} asked for "
        f"({as_markup(report.because)}): {as_markup(report.summary)}"
    )
    return Group(*lines, table, *ending)


def _figures(figures: Figures) -> list[str]:
    cells = [
        f"{figures.agreement:.4%}",
        f"{figures.real:,}",
        f"{figures.tied:,}",
        "?" if figures.ties is None else f"{figures.ties:,}",
        f"{figures.overlap.mean_iou:.4f}",
    ]
    return cells + ([f"{one.mean_iou:.4f}" for one in figures.truth] if figures.truth else [])


def orders_table(report: Orders) -> Group:
    """What `verify --orders` found: a row an order."""
    table = Table(box=None, pad_edge=False)
    table.add_column("order")
    for name in ("mean IoU", "boundary F", "ArgMax+resize ms"):
        table.add_column(name, justify="right")
    for order in report.orders:
        table.add_row(
            as_markup(order.name), f"{order.mean_iou:.4f}", f"{order.boundary:.4f}", f"{order.milliseconds:.2f}"
        )
    return Group(
        f"{as_markup(report.against)} on {report.photos} photos against their ground truth; {as_markup(report.engine)}",
        table,
        f"boundary F: a boundary counts as found within {report.tolerance} pixels; mean over the classes",
        "ArgMax+resize: the fastest of several runs in turn, median over the photos",
    )


def _shortened(names: Sequence[str], limit: int = 24) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown}, ... {len(names) - limit} more"


def _model_facts(found: Inspected) -> list[tuple[str, str]]:
    """Inputs and outputs of an ONNX model, and the baked node, or where the logits were found or why not."""
    import onnx

    from trtpost.graph.reading.model import opset_of

    path, model, located = found.path, found.model, found.located
    facts = [("graph", f"{path}: {len(model.graph.node)} nodes, opset {opset_of(model)}, IR {model.ir_version}")]
    facts += [("input", _value(value)) for value in model.graph.input]
    facts += [("output", _value(value)) for value in model.graph.output]
    for node in model.graph.node:
        if node.domain == DOMAIN and node.op_type == NODE:
            values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            if values.get("head") != b"threshold":
                values.pop("threshold", None)
            attributes = ", ".join(
                f"{name}={value.decode() if isinstance(value, bytes) else f'{value:g}'}"
                for name, value in values.items()
            )
            facts.append(("node", f"{DOMAIN}::{NODE} ({', '.join(node.input)}), {attributes}"))
    if located is not None:
        facts.append(("located", describe_located(located)))
        if located.is_choice:
            facts.append(("", describe_choice(located)))
    if found.problem is not None:
        facts.append(("located", f"no: {found.problem}"))
    return facts


def _value(value: onnx.ValueInfoProto) -> str:
    entry = _value_entry(value)
    return f"{entry['name']} {entry['dtype']} [{', '.join('?' if dim is None else str(dim) for dim in entry['shape'])}]"


def _value_entry(value: onnx.ValueInfoProto) -> dict[str, Any]:
    import onnx

    tensor = value.type.tensor_type
    # tf2onnx calls dynamic dimensions unk__ and a number
    names = [dim.dim_param if not dim.dim_param.startswith("unk__") else "" for dim in tensor.shape.dim]
    return {
        "name": value.name,
        "dtype": onnx.TensorProto.DataType.Name(tensor.elem_type).lower(),
        "shape": [dim.dim_value or name or None for dim, name in zip(tensor.shape.dim, names, strict=True)],
    }


def findings_json(findings: Sequence[Finding]) -> str:
    """What `doctor` found, for programs: a list of `name`, `text`, and `present` (true, false, or null)."""
    return json.dumps([asdict(finding) for finding in findings], indent=2)


def findings_table(findings: Sequence[Finding], *, ascii_only: bool = False) -> Group:
    """What `doctor` found, a line each; where a terminal has letters of ASCII alone, marks are words."""
    present, missing = ("ok", "no") if ascii_only else ("✓", "–")
    marks = {True: f"[green]{present:4}[/]", False: f"[yellow]{missing:4}[/]", None: "    "}
    width = max(len(finding.name) for finding in findings) + 2
    return Group(
        *(
            f"{marks[finding.present]}[bold]{as_markup(f'{finding.name:{width}}')}[/]{as_markup(finding.text)}"
            for finding in findings
        )
    )
