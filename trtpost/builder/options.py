"""What to build: every choice that a user has."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

from trtpost.backends.tensorrt import configuration, suitable
from trtpost.backends.tensorrt.settings import Settings
from trtpost.errors import SpecError, did_you_mean
from trtpost.spec import (
    MAX_SIDE,
    Channels,
    Coverage,
    Ending,
    Extent,
    Fit,
    Flavour,
    Layout,
    Lowering,
    Match,
    Post,
    Pre,
    Precision,
    Resize,
    Size,
    one_of,
    parse_normalization,
)

MIN_AGREEMENT: dict[Precision, float] = {"fp16": 0.99, "bf16": 0.95, "int8": 0.9}
"""Share of pixels that must keep their class, where the user does not say."""

ONLY_NATIVE = "the network ends in labels, which are only resized, so there is nothing to gain: leave --post out"


@dataclass(frozen=True, kw_only=True)
class BuildOptions(Settings):
    """What to build; every default is what most people want.

    Attributes:
        normalize: a name, which means colours and follows `channels`, or `MEAN/STD`, which is in the order of
            `channels` as it stands; None takes the model's own metadata.
        channels: order in which the network wants the channels; None: `rgb`, or `gray` for one channel.
        fit: `stretch` the photo to the network's size, or `letterbox` it.
        labels: class names; empty takes the model's own metadata.
        logits, layout, head: override what `locate` finds.
        threshold: for one channel, or each of `multilabel`; None: 0.5 for a probability, 0 for a logit.
        resize, match, size: as in `Post`.
        input_size: (height, width) of a network whose own is dynamic.
        covers: (top, left, height, width) of what the logits lie on, in pixels of the network's input; None: the graph
            tells.
        outside: class id of pixels that no logit lies on; None: that of the nearest.
        max_batch: images in one call, where the network's batch is dynamic.
        max_size: (H, W) of the largest mask that the plan's profile allows.
        lowering: `function` keeps the node with its body, `inline` writes standard ops.
        signature: the one to take of a SavedModel that has several.
        flavour: TensorRT to build the plan with: `auto`, `none`, `tensorrt` or `tensorrt_rtx`.
        calibration: folder of photos: int8 is calibrated on them, and the agreement with the model's own precision
            measured.
        min_agreement: share of pixels that must keep their class when the precision is lowered; None: `MIN_AGREEMENT`.
        check: run a model of TensorFlow's and what it was converted to on two pictures, and refuse what differs.

    The others are what TensorRT's builder is told, `trtpost.backends.tensorrt.settings.Settings`; `precision` is
    what the portable engine computes in as well.
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
    covers: tuple[float, float, float, float] | None = None
    outside: int | None = None
    max_batch: int = 8
    max_size: tuple[int, int] = (8192, 8192)
    lowering: Lowering = "function"
    signature: str | None = None
    flavour: Flavour = "auto"
    calibration: Path | None = None
    min_agreement: float | None = None
    check: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        configuration.check_settings(self.flavour, self)
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
        if self.covers is not None:
            Coverage(*self.covers, grid=(1, 1))
        if self.outside is not None:
            Coverage(0, 0, 1, 1, (1, 1), self.outside)
        if self.min_agreement is not None and not 0 <= self.min_agreement <= 1:
            raise SpecError(f"min agreement must be from 0 to 1, not {self.min_agreement}")
        if self.min_agreement is not None and self.calibration is None:
            raise SpecError("--min-agreement is measured on photos: give a folder of them with --calibration")
        if self.post != "native" and self.head == "labels":
            raise SpecError(ONLY_NATIVE)
        one_of("lowering", self.lowering, get_args(Lowering))
        if self.flavour not in ("auto", "none", *suitable.FLAVOURS):
            raise SpecError(f"flavour must be auto, none, {' or '.join(suitable.FLAVOURS)}, not '{self.flavour}'")
        if self.max_batch < 1:
            raise SpecError(f"max batch must be at least 1, not {self.max_batch}")
        if min(self.max_size) < 1 or max(self.max_size) > MAX_SIDE:
            raise SpecError(f"max size must have sides from 1 to {MAX_SIDE}, not {self.max_size}")
        # refuse what has no meaning before TensorFlow has worked for a minute
        Pre(1, 1, channels=self.channels or "rgb", fit=self.fit)
        if self.head is not None:
            one_of("head", self.head, get_args(Ending))
        Post(
            head="argmax" if self.head is None or self.head == "multilabel" else self.head,
            layout=self.layout or "NCHW",
            resize=self.resize,
            match=self.match,
            size=self.size,
            threshold=self.threshold or 0.0,
            region=region_for(self.fit),
        )
        if self.normalize is not None:
            parse_normalization(self.normalize)

    @property
    def wants_plan(self) -> bool:
        """True where a bundle without a plan would not be what was asked for."""
        others = (one for one in fields(Settings) if one.name != "precision")
        return self.flavour in suitable.FLAVOURS or any(getattr(self, one.name) != one.default for one in others)


def options_from(settings: dict[str, object]) -> BuildOptions:
    """Make `BuildOptions` of settings by name.

    Raises:
        SpecError: a name that there is not, or a value without meaning.
    """
    names = [field.name for field in fields(BuildOptions)]
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            raise SpecError(f"build has no setting '{name}'{hint}")
    return BuildOptions(**settings)  # type: ignore[arg-type]


def region_for(fit: Fit) -> Extent:
    """The part of the logits that the mask is made of: a letterbox has bars, which it must leave out."""
    return "runtime" if fit == "letterbox" else "whole"
