"""What to build: every choice that a user has."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import SupportsIndex, get_args

from trtpost.backends.tensorrt import flavour as flavours
from trtpost.backends.tensorrt.settings import Settings
from trtpost.bundle import Compatibility, Place
from trtpost.errors import SpecError
from trtpost.graph.reduce import Precision
from trtpost.spec import (
    MAX_SIDE,
    Channels,
    Ending,
    Extent,
    Fit,
    Layout,
    Match,
    Post,
    Pre,
    Resize,
    Size,
    parse_normalization,
)

LOWERINGS = ("function", "inline")

MIN_AGREEMENT: dict[Precision, float] = {"fp16": 0.99, "bf16": 0.95, "int8": 0.9}
"""Share of pixels that must keep their class, where the user does not say."""

ONLY_NATIVE = "the network ends in labels, which are only resized, so there is nothing to gain: leave --post out"


@dataclass(frozen=True)
class BuildOptions:
    """What to build; every default is what most people want.

    Attributes:
        normalize: a name or `MEAN/STD` as `parse_normalization` takes it; None takes the model's own metadata.
        channels: order in which the network wants the channels; None: `rgb`, or `gray` for one channel.
        fit: `stretch` the photo to the network's size, or `letterbox` it.
        labels: class names; empty takes the model's own metadata.
        logits, layout, head: override what `locate` finds.
        threshold: for one channel, or each of `multilabel`; None: 0.5 for a probability, 0 for a logit.
        resize, match, size: as in `Post`.
        input_size: (height, width) of a network whose own is dynamic.
        max_batch: images in one call, where the network's batch is dynamic.
        max_size: (H, W) of the largest mask that the plan's profile allows.
        lowering: `function` keeps the node with its body, `inline` writes standard ops.
        signature: of a SavedModel that has several.
        flavour: TensorRT to build the plan with: `auto`, `none`, `tensorrt` or `tensorrt_rtx`.
        precision: `fp32` (the model's own types), `fp16`, `bf16` or `int8`.
        calibration: folder of photos: int8 is calibrated on them, and the agreement with the model's own precision
            measured.
        min_agreement: share of pixels that must keep their class when the precision is lowered; None: `MIN_AGREEMENT`.
        post, workspace, optimization_level, timing_cache, hardware_compatibility, compute_capabilities: as in
            `trtpost.backends.tensorrt.settings.Settings`.
    """

    normalize: str | None = None
    channels: Channels | None = None
    fit: Fit = "stretch"
    labels: tuple[str, ...] = ()
    logits: str | None = None
    layout: Layout | None = None
    head: Ending | None = None
    threshold: float | None = None
    resize: Resize = "nearest"
    match: Match = "tf"
    size: Size = "runtime"
    input_size: tuple[int, int] | None = None
    max_batch: int = 8
    max_size: tuple[int, int] = (8192, 8192)
    lowering: str = "function"
    signature: str | None = None
    flavour: str = "auto"
    precision: Precision = "fp32"
    calibration: Path | None = None
    min_agreement: float | None = None
    post: Place = "native"
    workspace: int | None = None
    optimization_level: int | None = None
    timing_cache: Path | None = None
    hardware_compatibility: Compatibility = "none"
    compute_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("calibration", "timing_cache"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, Path(given))
        for name in ("labels", "compute_capabilities"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        for name in ("size", "input_size", "max_size"):
            given = getattr(self, name)
            if not (isinstance(given, str) if name == "size" else given is None and name == "input_size"):
                object.__setattr__(self, name, _pair(name, given))
        if not isinstance(self.max_batch, SupportsIndex):
            raise SpecError(f"max batch must be a whole number, not {self.max_batch!r}")
        object.__setattr__(self, "max_batch", operator.index(self.max_batch))  # numpy's numbers do not go into JSON
        flavours.check_settings(self.flavour, self.settings)
        if self.precision == "int8" and self.calibration is None:
            raise SpecError(
                "precision int8 needs photos to calibrate with: give a folder of some dozen with --calibration"
            )
        if self.precision == "fp32":
            for name in ("calibration", "min_agreement"):
                if getattr(self, name) is not None:
                    flag = f"--{name.replace('_', '-')}"
                    raise SpecError(
                        f"precision fp32 leaves the model as it is, so {flag} would do nothing: leave it out"
                    )
        if self.min_agreement is not None and not 0 <= self.min_agreement <= 1:
            raise SpecError(f"min agreement must be from 0 to 1, not {self.min_agreement}")
        if self.min_agreement is not None and self.calibration is None:
            raise SpecError("--min-agreement is measured on photos: give a folder of them with --calibration")
        if self.post != "native" and self.head == "labels":
            raise SpecError(ONLY_NATIVE)
        if self.lowering not in LOWERINGS:
            raise SpecError(f"lowering must be one of {', '.join(LOWERINGS)}, not '{self.lowering}'")
        if self.flavour not in ("auto", "none", *flavours.FLAVOURS):
            raise SpecError(f"flavour must be auto, none, {' or '.join(flavours.FLAVOURS)}, not '{self.flavour}'")
        if self.max_batch < 1:
            raise SpecError(f"max batch must be at least 1, not {self.max_batch}")
        if min(self.max_size) < 1 or max(self.max_size) > MAX_SIDE:
            raise SpecError(f"max size must have sides from 1 to {MAX_SIDE}, not {self.max_size}")
        # refuse what has no meaning before TensorFlow has worked for a minute
        Pre(1, 1, channels=self.channels or "rgb", fit=self.fit)
        if self.head not in (None, *get_args(Ending)):
            raise SpecError(f"head must be one of {', '.join(get_args(Ending))}, not '{self.head}'")
        Post(
            head="argmax" if self.head is None or self.head == "multilabel" else self.head,
            layout=self.layout or "NCHW",
            resize=self.resize,
            match=self.match,
            size=self.size,
            threshold=self.threshold or 0.0,
            region=region_for(self.fit),
        )
        if self.threshold is not None:
            object.__setattr__(self, "threshold", float(self.threshold))  # numpy's floats do not go into JSON
        if self.normalize is not None:
            parse_normalization(self.normalize)

    @property
    def wants_plan(self) -> bool:
        """True where a bundle without a plan would not be what was asked for."""
        return self.flavour in flavours.FLAVOURS or replace(self.settings, precision="fp32") != Settings()

    @property
    def settings(self) -> Settings:
        """What goes to TensorRT's builder."""
        return Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})


def _texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise SpecError(f"{name.replace('_', ' ')} must be a sequence of texts, not {given!r}")
    return tuple(given)


def _pair(name: str, given: Sequence[int]) -> tuple[int, int]:
    try:
        height, width = map(operator.index, given)
    except (TypeError, ValueError):
        raise SpecError(f"{name.replace('_', ' ')} must be (height, width), not {given!r}") from None
    return height, width


def options_from(settings: dict[str, object]) -> BuildOptions:
    """`BuildOptions` from settings by name.

    Raises:
        SpecError: a name that there is not, or a value without meaning.
    """
    names = [field.name for field in fields(BuildOptions)]
    for name in settings:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
            raise SpecError(f"build has no setting '{name}': {hint}")
    return BuildOptions(**settings)  # type: ignore[arg-type]


def region_for(fit: Fit) -> Extent:
    """A letterbox has bars, which the mask must leave out."""
    return "runtime" if fit == "letterbox" else "whole"
