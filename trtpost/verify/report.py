"""What `verify` found, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trtpost.describe import counted
from trtpost.errors import printable
from trtpost.verify.blame import Blame
from trtpost.verify.compare import Figures
from trtpost.verify.kernel_sets import Spread


@dataclass(frozen=True)
class PhotoFigures:
    """The file of a photo, its size (H, W), and its figures."""

    photo: Path
    size: tuple[int, int]
    figures: Figures


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
        bundle: path, for people.
        engine, framework: what ran the bundle, and what ran the model that it replaces.
        resizer: what resized in the replaced pipeline.
        pipeline: the replaced pipeline in one line.
        classes: name of each class.
        photos: by their real differences, worst first.
        total: figures of all photos together.
        minimum, because: the share of pixels that must agree apart from ties, and why this one.
        blame: where differences begin; None where there are none.
        spread: by how much the framework's own kernels differ; None where the network does not compute in integers, or
            they cannot be chosen.
        notes: what the reader should know.
    """

    bundle: str
    against: str
    engine: str
    framework: str
    resizer: str
    pipeline: str
    classes: tuple[str, ...]
    photos: tuple[PhotoFigures, ...]
    total: Figures
    minimum: float
    because: str
    blame: Blame | None
    notes: tuple[str, ...]
    spread: Spread | None = None

    @property
    def passed(self) -> bool:
        """True where enough pixels agree."""
        return self.total.agreement_apart_from_ties >= self.minimum

    @property
    def verdict(self) -> str:
        """One sentence that sums the report up."""
        return self._verdict("" if self.blame is None else self.blame.verdict)

    @property
    def summary(self) -> str:
        """The verdict without what the stages say, for where they stand beside it."""
        return self._verdict("" if self.blame is None else self.blame.summary)

    def _verdict(self, blamed: str) -> str:
        total = self.total
        if blamed:
            return f"{counted(total.real, 'pixel')} really differ{'s' * (total.real == 1)}; {blamed}"
        if total.different:
            return f"equal but for {counted(total.different, 'pixel')} where two classes are a tie"
        return "equal on every pixel"


def report_to_json(report: Report) -> str:
    """The report as JSON, for programs."""

    def figures(one: Figures) -> dict[str, Any]:
        found: dict[str, Any] = {
            "pixels": one.pixels,
            "agreement": one.agreement,
            "agreement_apart_from_ties": one.agreement_apart_from_ties,
            "ties": one.ties,
            "different_on_ties": one.tied,
            "really_different": one.real,
            "mean_iou": one.overlap.mean_iou,
        }
        if one.truth is not None:
            found |= {"truth": {"reference": one.truth[0].mean_iou, "bundle": one.truth[1].mean_iou}}
        return found

    ious = enumerate(zip(report.classes, report.total.overlap.ious, strict=False))
    content = {
        field.name: getattr(report, field.name)
        for field in dataclasses.fields(report)
        if field.name not in ("photos", "total", "blame", "classes", "spread")
    }
    content |= {
        "passed": report.passed,
        "verdict": report.verdict,
        "total": figures(report.total),
        "iou": [{"id": id_, "name": name, "iou": float(value)} for id_, (name, value) in ious if not np.isnan(value)],
        "photos": [
            {"photo": printable(str(one.photo)), "size": one.size} | figures(one.figures) for one in report.photos
        ],
        "kernels": None
        if report.spread is None
        else {
            "reference_on": report.spread.base,
            "others": [{"kernels": name} | figures(one) for name, one in report.spread.others],
        },
        "blame": None if report.blame is None else asdict(report.blame) | {"begins": report.blame.begins},
    }
    return json.dumps(content, indent=2)
