"""Everything that is known of a bundle, and how that is kept as JSON."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

from trtpost.errors import BundleError, SpecError, reason
from trtpost.spec import MAX_SIDE, Compatibility, Located, Origin, Place, Post, Pre, Precision

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 5
"""Version of the passport; a reader refuses what it does not know."""

MAX_INPUT = 1 << 26
"""Pixels that a network may want at once: 8192x8192 of one image. Beyond, a few bytes would ask for any memory."""

OUR_ENTRIES = ("source_sha256", "located")
"""Keys that identify our passport.json."""


Arithmetic = Literal["float", "half", "quantised", "dynamic range"]
"""What a source model computes in: floats of 32 or 16 bits; integers that stand for real numbers; or floats of which
TFLite quantises some on the fly (its dynamic-range quantisation)."""

Unit = Literal["range", "steps", "pixels"]
"""What a difference of results is counted in: shares of their range, steps of quantisation, shares of the pixels."""


@dataclass(frozen=True)
class Check:
    """How far a converted network was from its source model, both run on the same two pictures.

    Attributes:
        framework: what ran the source model.
        output: which of its outputs.
        arithmetic: what the source model computes in.
        difference: of the picture where it was largest: of values the quadratic mean.
        bound: the most that rounding explains.
        unit: of both.
    """

    framework: str
    output: str
    arithmetic: Arithmetic
    difference: float
    bound: float
    unit: Unit

    def __post_init__(self) -> None:
        if not (self.difference >= 0 and self.bound > 0):
            raise SpecError("differences are from 0, and bounds above it")

    @property
    def passed(self) -> bool:
        """True where rounding explains the difference."""
        return self.difference <= self.bound


@dataclass(frozen=True)
class Plan:
    """How `engine.plan` was built.

    Attributes:
        flavour: `tensorrt` or `tensorrt_rtx`.
        version: that of TensorRT.
        target: compute capabilities that the plan is for.
        layers: number of layers of each type in the network that was built.
        precisions: number of compute layers (convolutions, matrix products) that compute in each precision.
        post: where the mask is made: `native` layers or our `plugin` in the plan, or our `kernel` after a plan that
            ends in logits.
        hardware_compatibility: GPUs beside those of `target` that may run the plan of the full TensorRT: `none` but
            the model that built it, `ampere+`, or all of the `same` compute capability.
    """

    flavour: str
    version: str
    target: tuple[str, ...]
    layers: dict[str, int]
    precisions: dict[str, int]
    post: Place = "native"
    hardware_compatibility: Compatibility = "none"

    def __post_init__(self) -> None:
        if self.flavour not in ("tensorrt", "tensorrt_rtx"):
            raise SpecError(f"there is no flavour '{self.flavour}' of TensorRT")
        if min([0, *self.layers.values(), *self.precisions.values()]) < 0:
            raise SpecError("there are no fewer than 0 layers")


@dataclass(frozen=True)
class Verification:
    """How well a bundle's masks agreed with those of the pipeline that it replaces, at the photos' resolution.

    Attributes:
        against, against_sha256: name and content hash of the model that was run in its own framework.
        engine: what ran the bundle.
        photos, pixels: how many were compared.
        agreement: share of pixels with the same class.
        ties: pixels where the reference's two best classes are a tie; None where that cannot be told.
        real: pixels that differ where there is no tie.
        mean_iou: how far the masks overlap, the reference's as the truth.
    """

    against: str
    against_sha256: str
    engine: str
    photos: int
    pixels: int
    agreement: float
    ties: int | None
    real: int
    mean_iou: float

    def __post_init__(self) -> None:
        if min(self.photos, self.pixels, self.ties or 0, self.real) < 0:
            raise SpecError("nothing is counted below 0")
        _check_shares(self.agreement, self.mean_iou)


@dataclass(frozen=True)
class Passport:
    """Everything that is known of a bundle.

    Attributes:
        version: the trtpost that built it.
        request: SHA-256 of all that went into the build; an equal request needs no rebuild.
        source, source_sha256: name and content hash of the source model.
        pre, post: every decision about a pixel.
        located: where the logits were found.
        normalization: who says how pixels are normalised.
        classes: name of each class.
        max_batch: images that one call may hold.
        max_size: (H, W): largest mask, or photo with size `image`, that the plan's profile allows.
        check: how far the conversion was off; None where nothing was converted, or compared.
        precision: that was asked for; `fp32` leaves the source model's own types.
        agreement: share of pixels with the same class as before the precision was lowered, at the resolution of the
            logits; None where not measured.
        mean_iou: how far the masks overlap, those from before as the truth; None where not measured.
        photos: number of photos that these were measured with.
        plan: how `engine.plan` was built; None where there is none.
        files: SHA-256 of each file of the bundle.
        verification: the last one; None where there was none since the build.
        format: version of this passport.
    """

    version: str
    request: str
    source: str
    source_sha256: str
    pre: Pre
    post: Post
    located: Located
    normalization: Origin
    classes: tuple[str, ...]
    max_batch: int
    max_size: tuple[int, int]
    check: Check | None = None
    precision: Precision = "fp32"
    agreement: float | None = None
    mean_iou: float | None = None
    photos: int = 0
    plan: Plan | None = None
    files: dict[str, str] = field(default_factory=dict)
    verification: Verification | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if len(self.located.shape) < 2:
            raise SpecError("logits have a height and a width")
        if len(self.classes) != self.post.classes:
            raise SpecError(f"{len(self.classes)} class names do not fit {self.post.classes} classes")
        images, pixels = max(self.located.batch, 1), self.pre.height * self.pre.width
        if images * pixels > MAX_INPUT:
            size = f"{self.pre.height}x{self.pre.width}"
            raise SpecError(
                f"the network takes {images} images of {size} at once; no more than {MAX_INPUT} pixels are taken: "
                "choose a smaller --input-size where its size is dynamic, else export it with a smaller size or batch"
            )
        if min(*self.max_size, self.max_batch) < 1 or max(self.max_size) > MAX_SIDE or self.photos < 0:
            raise SpecError(f"sizes are from 1 to {MAX_SIDE}, and numbers not negative")
        _check_shares(self.agreement, self.mean_iou)

    def to_json(self) -> str:
        """The passport as text; `passport_from_json` reads it back."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    def to_name(self, limit: int) -> str:
        """The name of a TensorRT network by which a bare plan says what it is: JSON, its one key `trtpost`.

        Args:
            limit: bytes that the name may have. Where the whole passport is longer, version, source and spec stay, and
                the classes become their number and SHA-256.
        """
        names = json.dumps(self.classes).encode()
        kept = ("format", "version", "source", "source_sha256", "precision", "max_batch", "max_size", "pre", "post")
        everything = {key: value for key, value in asdict(self).items() if key not in ("plan", "files", "verification")}
        short = {key: everything[key] for key in kept}
        short |= {"class_count": len(self.classes), "classes_sha256": hashlib.sha256(names).hexdigest()}
        for content in (everything, short):
            name = json.dumps({"trtpost": content}, separators=(",", ":"))
            if len(name) <= limit:
                return name
        return json.dumps({"trtpost": {"format": self.format, "version": self.version, "request": self.request}})


def _check_shares(*shares: float | None) -> None:
    if not all(share is None or 0 <= share <= 1 for share in shares):
        raise SpecError("shares are from 0 to 1")


def passport_from_json(text: str | bytes, name: str) -> Passport:
    """Read a passport.

    Raises:
        BundleError: damaged, or of another format version; `name` says which.
    """
    from pydantic import ValidationError

    try:
        content = json.loads(text)
        version = content["format"]
        if version != FORMAT:
            newer = isinstance(version, int) and version > FORMAT
            raise BundleError(
                f"{name} has format {str(version)[:20]}, this trtpost reads format {FORMAT}: "
                + ("update trtpost, or build it again with this version" if newer else "build it again")
            )
        passport = _reader().validate_json(text, strict=True)
        if (key := _unknown(content, asdict(passport))) is not None:
            raise BundleError(f"{name} is damaged (there is no entry {key[:100]!r}): build the bundle again")
        return passport
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "passport"
        raise BundleError(f"{name} is damaged ({where}: {first['msg']}): build the bundle again") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BundleError(f"{name} is damaged ({reason(error)}): build the bundle again") from None


@cache
def _reader() -> TypeAdapter[Passport]:
    """Pydantic's reader, without other packages' plugins: looking for those reads the metadata of every package."""
    from pydantic import TypeAdapter

    before = os.environ.get("PYDANTIC_DISABLE_PLUGINS")
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"
    try:
        return TypeAdapter(Passport)
    finally:
        if before is None:
            del os.environ["PYDANTIC_DISABLE_PLUGINS"]
        else:
            os.environ["PYDANTIC_DISABLE_PLUGINS"] = before


def _unknown(given: object, known: object) -> str | None:
    """A key of the given JSON that is not in the known one: it would have a meaning that is not read."""
    if not isinstance(given, dict) or not isinstance(known, dict):
        return None
    below = (_unknown(value, known[key]) for key, value in given.items() if key in known)
    return next((key for key in given if key not in known), None) or next(filter(None, below), None)
