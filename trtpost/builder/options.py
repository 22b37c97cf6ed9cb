"""What to build: every choice that a user has."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from numbers import Real
from pathlib import Path
from typing import SupportsIndex, get_args

import numpy as np

from trtpost.backends.tensorrt import flavour as flavours
from trtpost.backends.tensorrt.settings import Settings
from trtpost.errors import SpecError, did_you_mean
from trtpost.spec import (
    MAX_SIDE,
    Channels,
    Compatibility,
    Ending,
    Extent,
    Fit,
    Flavour,
    Layout,
    Lowering,
    Match,
    Place,
    Post,
    Pre,
    Precision,
    Resize,
    Size,
    parse_normalization,
)

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
    lowering: Lowering = "function"
    signature: str | None = None
    flavour: Flavour = "auto"
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
        for field in fields(self):
            given = getattr(self, field.name)
            if field.name in KINDS and not (given is None and field.default is None):
                object.__setattr__(self, field.name, KINDS[field.name](field.name, given))
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
        if self.lowering not in get_args(Lowering):
            raise SpecError(f"lowering must be one of {', '.join(get_args(Lowering))}, not '{self.lowering}'")
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


def _refused(name: str, wanted: str, given: object) -> SpecError:
    return SpecError(f"{name.replace('_', ' ')} must be {wanted}, not {given!r:.60}")


def _text(name: str, given: object) -> str:
    if not isinstance(given, str):
        raise _refused(name, "a text" + (" such as '127.5/127.5', MEAN/STD" if name == "normalize" else ""), given)
    return given


def _path(name: str, given: object) -> Path:
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise _refused(name, "a path", given)
    return Path(text)


def _whole(name: str, given: object) -> int:
    """A whole number, numpy's among them, as Python has it: others do not go into JSON."""
    if isinstance(given, bool | np.ndarray) or not isinstance(given, SupportsIndex):
        raise _refused(name, "a whole number", given)
    return operator.index(given)


def _real(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise _refused(name, "a number", given)
    return float(given)


def _texts(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _refused(name, "a sequence of texts", given)
    texts = tuple(given)
    if not all(isinstance(one, str) for one in texts):
        raise _refused(name, "a sequence of texts", given)
    return texts


def _pair(name: str, given: object) -> tuple[int, int]:
    wanted = "(height, width)" + (", or a text" if name == "size" else "")
    if not isinstance(given, Iterable):
        raise _refused(name, wanted, given)
    try:
        height, width = (_whole(name, side) for side in given)
    except ValueError:  # too many, too few, or of another type
        raise _refused(name, wanted, given) from None
    return height, width


def _size(name: str, given: object) -> str | tuple[int, int]:
    return given if isinstance(given, str) else _pair(name, given)


KINDS: dict[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("normalize", "channels", "fit", "logits", "layout", "head", "resize", "match"), _text),
    **dict.fromkeys(("lowering", "signature", "flavour", "precision", "post", "hardware_compatibility"), _text),
    **dict.fromkeys(("labels", "compute_capabilities"), _texts),
    **dict.fromkeys(("input_size", "max_size"), _pair),
    **dict.fromkeys(("max_batch", "workspace", "optimization_level"), _whole),
    **dict.fromkeys(("threshold", "min_agreement"), _real),
    **dict.fromkeys(("calibration", "timing_cache"), _path),
    "size": _size,
}
"""What each setting must be, and becomes; one that may be left out may be None as well."""


def options_from(settings: dict[str, object]) -> BuildOptions:
    """`BuildOptions` from settings by name.

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
    """A letterbox has bars, which the mask must leave out."""
    return "runtime" if fit == "letterbox" else "whole"
