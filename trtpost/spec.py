"""Everything that decides a pixel of the mask, as frozen dataclasses, and the names that several rooms share.

`Pre` is the way from the photo to the network's input, `Post` the way from the network's output to the mask, `Located`
where the two meet the network. A spec that has no meaning cannot be made: the constructor refuses it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from trtpost.errors import SpecError, did_you_mean

Layout = Literal["NHWC", "NCHW"]
Channels = Literal["rgb", "bgr", "gray"]
Head = Literal["argmax", "threshold", "labels"]
Ending = Literal["argmax", "threshold", "labels", "multilabel"]
"""What a network may end in. `multilabel` is a score for each class by itself and none for the background: a constant
background in front makes `argmax` of it."""
Resize = Literal["nearest", "bilinear"]
Match = Literal["tf", "tf1", "torch", "opencv", "pil", "align_corners"]
Fit = Literal["stretch", "letterbox"]
Extent = Literal["whole", "runtime"]
Size = Literal["runtime", "image"] | tuple[int, int]
Precision = Literal["fp32", "fp16", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

Backend = Literal["auto", "tensorrt", "onnxruntime"]
"""What runs a bundle: `auto` takes the GPU where there is one that can run the plan."""

Flavour = Literal["auto", "none", "tensorrt", "tensorrt_rtx"]
"""What builds the plan: `auto` takes what is installed, `none` builds none."""

Lowering = Literal["function", "inline"]
"""How the post-processing is written: as one node with a function body, or in standard ops."""

Place = Literal["native", "kernel", "plugin"]
"""Where the mask is made: by `native` layers or our `plugin` in the plan, or by our `kernel` after it."""

Compatibility = Literal["none", "ampere+", "same"]
"""GPUs beside the one that built it that may run a plan of the full TensorRT."""

Form = Literal["python", "tensorrt_plan", "onnxruntime_onnx"]
"""What a model of a Triton repository is."""

Pattern = Literal["smooth", "noise"]
"""Logits that a benchmark draws: smooth as networks give them, or with a boundary in every cell."""

Origin = Literal["flag", "quantised", "metadata", "inside", "unit", "assumed"]
"""Who says how pixels are normalised: the user, the type of a uint8 input, the model's metadata, layers inside the
network that take 0..255 or a unit of 0..1, or nobody."""

Encoding = Literal["palette", "packed", "gray"]
"""How a mask's PNG holds class ids: 8 bits and a palette, as few bits as hold them, or as levels of gray."""

NORMALIZATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "none": ((0.0,), (1.0,)),
    "unit": ((0.0,), (255.0,)),
    "signed": ((127.5,), (127.5,)),
    "imagenet": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}
"""Names for `(mean, std)`, in units of the 8-bit pixel: the network sees `(pixel - mean) / std`.

`unit` gives 0..1, `signed` -1..1 (the `tf` mode of keras.applications), `imagenet` torchvision's usual statistics,
which are those of red, green and blue.
"""

MATCHES: dict[str, tuple[Match, ...]] = {
    "nearest": ("tf", "tf1", "torch", "opencv", "pil"),
    "bilinear": ("tf", "tf1", "torch", "opencv", "align_corners"),
}


@dataclass(frozen=True)
class Pre:
    """From a photo to the network's input.

    The photo is resized to `height` x `width` with bilinear interpolation (half-pixel centres, no antialiasing, the
    default of `tf.image.resize`): by `fit` stretched, or letterboxed, which keeps its proportions and fills the rest
    with grey. Then it is rounded to uint8, put in the order of `channels`, and normalised: `(pixel - mean) / std`, with
    `mean` and `std` in units of the 8-bit pixel, one number or one a channel.
    """

    height: int
    width: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    channels: Channels = "rgb"
    fit: Fit = "stretch"

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            _set(self, name, _whole(f"the network's input {name}", getattr(self, name), MAX_SIDE))
        one_of("channels", self.channels, get_args(Channels))
        one_of("fit", self.fit, get_args(Fit))
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, list | tuple) or len(values) not in (1, self.depth):
                raise SpecError(
                    f"normalisation {name} must be one number, or {self.depth}, one a channel, not {_shown(values)}"
                )
            _set(self, name, tuple(_real(f"normalisation {name}", value, LARGEST) for value in values))
        if any(value == 0 for value in self.std):
            raise SpecError("normalisation std must not be zero: the pixel is divided by it")
        for mean, std in zip(self.mean * self.depth, self.std * self.depth, strict=False):
            extremes = [abs(pixel - mean) / abs(std) for pixel in (0, 255)]
            if abs(std) < SMALLEST or max(extremes) > LARGEST:
                raise SpecError(f"normalisation (pixel - {mean:g}) / {std:g} goes beyond what a float32 holds")

    @property
    def depth(self) -> int:
        """Number of channels of the network's input."""
        return 1 if self.channels == "gray" else 3

    @property
    def is_identity(self) -> bool:
        """True where the network takes the raw pixel values."""
        return all(value == 0 for value in self.mean) and all(value == 1 for value in self.std)


@dataclass(frozen=True)
class Post:
    """From the network's output to the mask.

    Attributes:
        head: `argmax` over `classes` channels; `threshold` of one channel (`value > threshold` is class 1);
            `labels` where the network already ends in class ids.
        layout: order of the logits' axes; `labels` have no channel axis and ignore it.
        classes: number of class ids that can occur in the mask.
        resize: `nearest` picks a label for each output pixel; `bilinear` interpolates the logits, then takes ArgMax.
        match: whose pixel convention; see `trtpost.kernels.reference`.
        size: `runtime` (int64 input `output_size` = [H, W]), `image` (that of the engine's image input), or (H, W).
        threshold: for `threshold`; in the unit of the network's output (probability or logit).
        region: part of the logits that holds the photo: `whole`, or `runtime`: int64 input `region` = [top, left,
            height, width] in logit pixels, which undoes a letterbox; index tables hold it already.
    """

    head: Head = "argmax"
    layout: Layout = "NCHW"
    classes: int = 2
    resize: Resize = "nearest"
    match: Match = "tf"
    size: Size = "runtime"
    threshold: float = 0.5
    region: Extent = "whole"

    def __post_init__(self) -> None:
        one_of("head", self.head, get_args(Head))
        one_of("layout", self.layout, get_args(Layout))
        one_of("resize", self.resize, get_args(Resize))
        one_of("match", self.match, get_args(Match))
        one_of("region", self.region, get_args(Extent))
        _set(self, "classes", _whole("the number of classes", self.classes, MAX_CLASSES))
        # within the limit of interpolation, see trtpost.kernels.reference
        _set(self, "threshold", _real("threshold", self.threshold, 4e37))
        if isinstance(self.size, str):
            one_of("size", self.size, ("runtime", "image"))
        elif isinstance(self.size, list | tuple) and len(self.size) == 2:
            _set(self, "size", tuple(_whole("each side of size", side, MAX_SIDE) for side in self.size))
        else:
            raise SpecError(f"size must be runtime, image, or height and width, not {_shown(self.size)}")
        if self.region == "runtime" and self.size == "image":
            raise SpecError("a letterbox is made before the engine, so size 'image' cannot be: use runtime or HxW")
        if self.match not in MATCHES[self.resize]:
            why = "; Pillow's bilinear antialiases" if (self.match, self.resize) == ("pil", "bilinear") else ""
            raise SpecError(
                f"match '{self.match}' has no {self.resize} convention: "
                f"choose one of {', '.join(MATCHES[self.resize])}{why}"
            )
        if self.head == "labels" and self.resize == "bilinear":
            raise SpecError(
                "labels cannot be interpolated: use resize 'nearest', or name the tensor before the model's own ArgMax "
                "with --logits"
            )
        if self.head == "threshold" and self.classes != 2:
            raise SpecError(f"head 'threshold' has 2 classes, below and above it, not {self.classes}")
        if self.size == "image" and self.needs_tables:
            raise SpecError(
                f"match '{self.match}' needs float64 index tables, which an engine cannot compute from the "
                "image's size: use size 'runtime' or a fixed HxW, or match 'tf'"
            )

    @property
    def needs_tables(self) -> bool:
        """True where the index arithmetic needs float64, so the indices come from outside the graph."""
        return self.resize == "nearest" and self.match in ("opencv", "pil")

    @property
    def size_inputs(self) -> tuple[str, ...]:
        """Names of what the node takes beside the logits; see `trtpost.kernels.reference.size_inputs`."""
        if self.needs_tables:
            return ("rows", "cols")
        return ("output_size", "region") if self.region == "runtime" else ("output_size",)

    @property
    def wide(self) -> bool:
        """True where class ids need more than 8 bits, so the mask is int32 instead of uint8."""
        return self.classes > 256


@dataclass(frozen=True)
class Coverage:
    """The part of the network's input that its logits lie on, where that is not all of it.

    Attributes:
        top, left, height, width: in pixels of the network's input; beyond it where logits lie outside.
        grid: (h, w) of the logits that are made of the network's own and lie on all of the input. What lies beyond the
            network's own is like the nearest of them.
        outside: the class id of pixels that no logit lies on; None: that of the nearest.
    """

    top: float
    left: float
    height: float
    width: float
    grid: tuple[int, int]
    outside: int | None = None

    def __post_init__(self) -> None:
        for name in ("top", "left", "height", "width"):
            _set(self, name, _real(f"covers {name}", getattr(self, name), 4 * MAX_SIDE))
        if min(self.height, self.width) <= 0:
            raise SpecError(
                f"logits must cover some pixels, not a height and width of {self.height:g} and {self.width:g}"
            )
        _set(self, "grid", tuple(_whole("each side of the grid", side, 4 * MAX_SIDE) for side in self.grid))
        if self.outside is not None and not 0 <= self.outside < MAX_CLASSES:
            raise SpecError(f"outside must be a class id, not {self.outside}")


@dataclass(frozen=True)
class Located:
    """Where a network takes its pixels and gives its logits.

    Attributes:
        input, input_layout, input_dtype: name, layout and element type of the image input.
        input_size: (height, width) of the network; 0 where dynamic.
        input_channels: 1 or 3.
        batch: fixed batch size, or 0 where dynamic.
        expects: what the network's first arithmetic is made for, where that is by constants (a Rescaling or
            Normalization layer): `pixels` 0..255 or `unit` 0..1; else empty.
        output: the network's output that was chosen.
        logits: the tensor that the post-processing takes: `output`, or one before it.
        layout, head, classes: as in `Post`; `classes` of labels is 0 where the graph does not tell.
        shape, dtype: those of `logits`; names for dynamic dimensions. Where `is_flat`, the shape that is meant.
        dropped: operators between `logits` and `output` that the post-processing makes needless.
        others: outputs that were not chosen.
        is_flat: `logits` have other axes than `shape`, with the values in the same order.
        limits: the least and the greatest value of scores, where the graph bounds them: (0, 1) behind a Sigmoid.
        independent: several classes have a Sigmoid each, so that none, or more than one, may be large.
        background: the value that one of the classes must exceed, else the pixel is class 0, which counts among
            `classes`, but has no channel in `shape` (`multilabel`); None: the largest wins, whatever it is.
        is_compared_inside: scores are of a type that tells more numbers apart than float32, so the network itself finds
            the largest.
        is_named: the user named the tensor (`--logits`).
        doubts: what was concluded and may be wrong: a sentence each, with the flag that settles it.
        covers: the part of the input that the logits lie on; None: everything.
    """

    input: str
    input_layout: Layout
    input_dtype: str
    input_size: tuple[int, int]
    input_channels: int
    batch: int
    expects: str
    output: str
    logits: str
    layout: Layout
    head: Head
    classes: int
    shape: tuple[int | str, ...]
    dtype: str
    dropped: tuple[str, ...]
    others: tuple[str, ...] = ()
    is_flat: bool = False
    limits: tuple[float, float] | None = None
    independent: bool = False
    background: float | None = None
    is_compared_inside: bool = False
    is_named: bool = False
    doubts: tuple[str, ...] = ()
    covers: Coverage | None = None

    @property
    def is_choice(self) -> bool:
        """True where ArgMax over the classes may or may not be meant."""
        return self.independent and self.background is None

    @property
    def threshold(self) -> float:
        """What scores shall exceed where the user does not say: the middle of their limits; 0, where logits turn."""
        return sum(self.limits) / 2 if self.limits is not None else 0.0

    @property
    def logits_size(self) -> tuple[int, int]:
        """(height, width) of the logits or labels that the mask is made of; 0 where dynamic."""
        return self.covers.grid if self.covers is not None else self.own_size

    @property
    def own_size(self) -> tuple[int, int]:
        """(height, width) of the logits or labels as the network gives them; 0 where dynamic."""
        sizes = [dim if isinstance(dim, int) else 0 for dim in self.shape]
        if len(sizes) == 4:
            channels_first = self.layout == "NCHW" if self.head != "labels" else sizes[1] == 1
            sizes = sizes[2:] if channels_first else sizes[1:3]
        return sizes[-2], sizes[-1]


MAX_SIDE = 1 << 16
"""Longest side of a mask, or of a network's input, that is accepted."""

MAX_CLASSES = 1 << 24
"""Most class ids: float32 tells these apart, and some runtimes move labels about in it."""

IGNORED = 255
"""Class id that counts for nobody: Pascal VOC and Cityscapes write it, and negative ids become it in a mask."""

SMALLEST, LARGEST = 1e-37, 3e38
"""Magnitudes that float32 holds with all its digits."""


def parse_size(text: str) -> Size:
    """`runtime`, `image` or `HxW` as a `Size`.

    Raises:
        SpecError: the text is none of these.
    """
    if text == "runtime":
        return "runtime"
    if text == "image":
        return "image"
    try:
        return parse_pair(text)
    except SpecError:
        near = did_you_mean(text, ("runtime", "image"))
        raise SpecError(f"size must be 'runtime', 'image' or HxW such as 1080x1920, not '{text}'{near}") from None


def parse_pair(text: str) -> tuple[int, int]:
    """`HxW` as (height, width).

    Raises:
        SpecError: the text is something else.
    """
    if match := re.fullmatch(r"0*([1-9]\d{0,6})[xX]0*([1-9]\d{0,6})", text, re.ASCII):
        return int(match.group(1)), int(match.group(2))
    raise SpecError(f"a size must be HxW (height x width) such as 1080x1920, not '{text}'")


def parse_covers(text: str) -> tuple[float, float, float, float]:
    """`TOP,LEFT,HEIGHT,WIDTH` in pixels of the network's input.

    Raises:
        SpecError: the text is something else.
    """
    try:
        top, left, height, width = map(float, text.split(","))
        if min(height, width) > 0 and all(abs(one) <= MAX_SIDE for one in (top, left, height, width)):
            return top, left, height, width
    except ValueError:
        pass
    raise SpecError(
        f"covers must be TOP,LEFT,HEIGHT,WIDTH in pixels of the network's input, such as 92,92,388,388, not '{text}'"
    )


def parse_normalization(text: str, channels: Channels = "rgb") -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A name from `NORMALIZATIONS`, or `MEAN/STD` with one number or three, comma-separated, as `(mean, std)`.

    Both are in the order of `channels`: a name means colours, and follows; numbers are taken as they stand.

    Raises:
        SpecError: the text is neither.
    """
    if text in NORMALIZATIONS:
        return known_normalization(text, channels)
    mean, slash, std = text.partition("/")
    try:
        if slash:
            return tuple(map(float, mean.split(","))), tuple(map(float, std.split(",")))
    except ValueError:
        pass
    raise SpecError(
        f"normalisation must be one of {', '.join(NORMALIZATIONS)}, or MEAN/STD in units of the 8-bit pixel "
        f"such as 127.5/127.5 or 123.7,116.3,103.5/58.4,57.1,57.4, not '{text}'{did_you_mean(text, NORMALIZATIONS)}"
    )


def known_normalization(name: str, channels: Channels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What a name of `NORMALIZATIONS` means for a network that takes its colours in the order of `channels`."""
    mean, std = NORMALIZATIONS[name]
    return (mean[::-1], std[::-1]) if channels == "bgr" else (mean, std)


def parse_labels(text: str) -> tuple[str, ...]:
    """Class names, one a line, up to the first blank line: published lists carry remarks after it.

    Where every line begins with its own number, counted from 0 (`0 sky`, `0: sky`, `0,sky`), that is no part of a name.
    """
    names = [line.strip() for line in text.strip().splitlines()]
    if "" in names:
        names = names[: names.index("")]
    numbered = [re.fullmatch(r"(\d+)(?:\s*[:,]\s*|\s+)(.+)", name, re.ASCII) for name in names]
    found = [match.group(2) for index, match in enumerate(numbered) if match and match.group(1) == str(index)]
    return tuple(found if len(found) == len(names) > 1 else names)


def class_name(index: int) -> str:
    """What a class without a name is called."""
    return f"class {index}"


def one_of(name: str, value: object, allowed: Collection[str]) -> None:
    """Let a name pass that is among those allowed.

    Raises:
        SpecError: it is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise SpecError(f"{name} must be one of {', '.join(allowed)}, not {_shown(value)}")


def whole(value: object) -> int | None:
    """A whole number, of any library's type, as Python has it and JSON takes it; None: it is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def whole_or_none(name: str, value: object, most: int | None = None) -> int | None:
    """A whole number from 1 to `most`, as Python has it, where one is given.

    Raises:
        SpecError: it is something else; `name` says what.
    """
    number = whole(value)
    if value is not None and (number is None or not 1 <= number <= (most or number)):
        limit = f" to {most}" if most else ""
        raise SpecError(f"{name} must be a whole number from 1{limit}, or None, not {value!r:.60}")
    return number


def real(value: object) -> float | None:
    """A number, numpy's among them, as Python has it and JSON takes it; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf


def _whole(name: str, value: object, most: int) -> int:
    """A whole number from 1 to `most`."""
    number = whole(value)
    if number is None or not 1 <= number <= most:
        raise SpecError(f"{name} must be a whole number from 1 to {most}, not {_shown(value)}")
    return number


def _real(name: str, value: object, most: float) -> float:
    """A finite number of at most that magnitude."""
    number = real(value)
    if number is None or not abs(number) <= most:
        raise SpecError(f"{name} must be finite and within {most:g}, not {_shown(value)}")
    return number


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _set(spec: object, name: str, value: object) -> None:
    object.__setattr__(spec, name, value)  # the dataclass is frozen
