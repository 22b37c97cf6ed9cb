"""The way from a model file to an engine bundle: convert, locate, bake, build, bundle."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import onnx

from trtpost import __version__
from trtpost.backends.tensorrt import flavour as flavours
from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.backends.tensorrt.settings import Settings
from trtpost.bundle import (
    SUFFIX,
    Bundle,
    Compatibility,
    Passport,
    Place,
    check_replaceable,
    embed,
    load_bundle,
    sha256,
    write_bundle,
)
from trtpost.convert import convert, kind_of
from trtpost.errors import BackendError, BundleError, ModelError, SpecError, printable
from trtpost.graph.bake import bake, inlined, with_input_size
from trtpost.graph.locate import Located, input_of, locate
from trtpost.graph.model import external_files, load_model, metadata, normalized, understood
from trtpost.graph.reduce import Precision
from trtpost.image import class_name
from trtpost.packages import installed_version
from trtpost.progress import Progress
from trtpost.spec import (
    MAX_SIDE,
    Channels,
    Extent,
    Fit,
    Head,
    Layout,
    Match,
    Post,
    Pre,
    Resize,
    Size,
    parse_normalization,
)

UNKNOWN_CLASSES = 1 << 16
"""Assumed of labels whose number the graph does not tell: the mask is then int32, which holds any of them."""

LOWERINGS = ("function", "inline")

ONLY_NATIVE = "the network ends in labels, which are only resized, so there is nothing to gain: leave --post out"

BY_FLAG, ASSUMED, FROM_UNIT = "--normalize", "assumed", "the network goes on from 0..1"
"""Origins of a normalisation that may be worth a warning: the user, nobody, the network's own first arithmetic."""


@dataclass(frozen=True)
class BuildOptions:
    """What to build; every default is what most people want.

    Attributes:
        normalize: a name or `MEAN/STD` as `parse_normalization` takes it; None takes the model's own metadata.
        channels: order in which the network wants the channels; None: `rgb`, or `gray` for one channel.
        fit: `stretch` the photo to the network's size, or `letterbox` it.
        labels: class names; empty takes the model's own metadata.
        logits, layout, head: override what `locate` finds.
        threshold: for one channel; None: 0.5 for a probability, 0 for a logit.
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
        min_agreement: share of pixels that must keep their class when the precision is lowered; None: 0.99 for fp16,
            0.98 for bf16, 0.9 for int8.
        post, workspace, optimization_level, timing_cache, hardware_compatibility, compute_capabilities: as in
            `trtpost.backends.tensorrt.settings.Settings`.
    """

    normalize: str | None = None
    channels: Channels | None = None
    fit: Fit = "stretch"
    labels: tuple[str, ...] = ()
    logits: str | None = None
    layout: Layout | None = None
    head: Head | None = None
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
        object.__setattr__(self, "compute_capabilities", tuple(self.compute_capabilities))
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
        Post(
            head=self.head or "argmax",
            layout=self.layout or "NCHW",
            resize=self.resize,
            match=self.match,
            size=self.size,
            threshold=self.threshold or 0.0,
            region=_region(self.fit),
        )
        if self.threshold is not None:
            object.__setattr__(self, "threshold", float(self.threshold))  # numpy's floats do not go into JSON
        if self.normalize is not None:
            parse_normalization(self.normalize)

    @property
    def settings(self) -> Settings:
        """What goes to TensorRT's builder."""
        return Settings(**{field.name: getattr(self, field.name) for field in fields(Settings)})


def build(
    model: str | Path,
    output: str | Path | None = None,
    options: BuildOptions | None = None,
    *,
    progress: Progress | None = None,
    force: bool = False,
    **settings: object,
) -> Bundle:
    """Build an engine bundle from a TensorFlow or ONNX model.

    Args:
        model: SavedModel folder, `.keras`, `.h5`, frozen `.pb`, `.tflite` or `.onnx`.
        output: the bundle's folder; default the model's name with `.trtpost`, in the working folder.
        options: what to build.
        progress: is told of each step.
        force: build even if the bundle is up to date.
        settings: fields of `BuildOptions` by name, instead of `options`.

    Returns:
        The bundle that was built, or the one that was there if nothing has changed.

    Raises:
        TrtpostError: with a sentence that says what is wrong and what to do.
    """
    if options is None:
        options = options_from(settings)
    elif settings:
        raise SpecError("give options or single settings to build, not both")
    progress = progress or Progress()
    source = Path(model)
    kind = kind_of(source)
    path = Path(output) if output is not None else Path(_stem(source) + SUFFIX)
    check_replaceable(path)
    flavour, _ = flavours.builder_here() if options.flavour == "auto" else (options.flavour, "")
    if flavour is not None:
        flavours.check_settings(flavour, options.settings)
    source_hash = _source_hash(source, kind)
    if kind == "onnx" and options.signature is not None:
        raise SpecError("--signature is for SavedModels; an ONNX model has none")
    request = _request(source_hash, options, flavour)
    if not force and (current := _up_to_date(path, request)) is not None:
        with progress.step("bundle") as step:
            step.result = f"{path} is up to date: nothing to do"
        return current
    if flavour in flavours.FLAVOURS:
        flavours.check_builder(
            flavour, options.settings
        )  # loads a large library, so only where there is something to build

    with progress.step("convert") as step:
        loaded, step.result = _load(source, kind, options)
    with progress.step("locate") as step, understood(source):
        loaded, located = _locate(loaded, source, options)
        step.result = describe_located(located)
    with progress.step("bake") as step, understood(source):
        pre, origin = _pre(located, metadata(loaded), options)
        classes = _classes(located, metadata(loaded), options)
        post = _post(located, len(classes), options)
        if options.post != "native" and post.head == "labels":
            raise SpecError(ONLY_NATIVE)
        baked = bake(loaded, located, pre, post)
        step.result = describe_spec(pre, post, origin)
    for warning in doubts(located, pre, origin):
        progress.warn(warning)
    passport = Passport(
        version=__version__,
        request=request,
        source=printable(source.resolve().name),
        source_sha256=source_hash,
        pre=pre,
        post=post,
        located=located,
        normalization=origin,
        classes=classes,
        max_batch=located.batch or options.max_batch,
        max_size=post.size if isinstance(post.size, tuple) else options.max_size,
        precision=options.precision,
    )
    plan = None
    if flavour in flavours.FLAVOURS:
        try:
            plan, passport = _planned(baked, passport, flavour, options, progress)
        except BackendError as error:
            if options.flavour != "auto":
                raise
            progress.warn(f"no engine.plan, the bundle holds the portable engine alone: {error}")
    with progress.step("bundle") as step:
        result = inlined(baked) if options.lowering == "inline" else baked
        embed(result, passport)
        bundle = write_bundle(path, result, plan, passport)
        step.result = str(path)
    return bundle


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


def next_step(bundle: Bundle, flavour: str) -> str:
    """What the bundle holds and what to do with it, for the last line of a build that asked for `flavour`."""
    if bundle.passport.plan is not None:
        holds = f"holds the portable engine and a {bundle.passport.plan.flavour} plan"
    else:
        builder, reason = flavours.builder_here()
        why = "--flavour none" if flavour == "none" else reason if builder is None else "see the warning above"
        holds = f"holds the portable engine only, no TensorRT plan ({why})"
    return f"{bundle.path} {holds}; run it: trtpost infer PHOTO --engine {shlex.quote(str(bundle.path))}"


def doubts(located: Located, pre: Pre, origin: str) -> list[str]:
    """What was decided for the user and may be wrong: a sentence each, with the flag that settles it."""
    found = []
    if origin == ASSUMED:
        found.append(
            "the model does not say how pixels are normalised: (pixel - 127.5) / 127.5 is ASSUMED, and a wrong guess "
            "spoils the mask; settle it with --normalize"
        )
    if origin == BY_FLAG and located.expects == "pixels" and not pre.is_identity:
        found.append("the network begins with a normalisation of its own, so --normalize makes it the second one")
    if origin == FROM_UNIT:
        found.append(
            "the network's own normalisation looks made for pixels of 0..1, so they are divided by 255 before it; "
            "if it is not, settle it with --normalize"
        )
    if located.others:
        names = ", ".join(f"'{name}'" for name in located.others)
        found.append(f"the model has other outputs, {names}, which are left out; choose one with --logits")
    return found


def describe_located(located: Located) -> str:
    """One line on where input and logits are."""
    size = "x".join(map(str, located.input_size))
    what = {
        "argmax": f"logits of {located.classes} classes",
        "threshold": "one channel, " + ("probability" if located.probability else "logit"),
        "labels": "class ids already",
    }[located.head]
    before = f", taken before its {' and '.join(reversed(located.dropped))}" if located.dropped else ""
    return (
        f"input '{located.input}' {located.input_dtype} {located.input_layout} {size}; "
        f"output '{located.output}': {what}{before}"
    )


def describe_spec(pre: Pre, post: Post, origin: str) -> str:
    """One line on what was baked."""
    size = "x".join(map(str, post.size)) if isinstance(post.size, tuple) else post.size
    normalization = "raw pixels" if pre.is_identity else f"(pixel - {_terse(pre.mean)}) / {_terse(pre.std)}"
    head = f"threshold > {post.threshold:g}" if post.head == "threshold" else post.head
    steps = f"{head}, {post.resize} resize as in '{post.match}', size {size}"
    fit = ", letterboxed" if pre.fit == "letterbox" else ""
    return f"{pre.channels} {normalization} ({origin}){fit}; {steps}"


def describe_precision(passport: Passport) -> str:
    """One line on the precision that was asked for, and how much of the mask survived it."""
    if passport.precision == "fp32":
        return "as in the source model"
    if passport.agreement is None:
        return f"{passport.precision}; agreement with the source model was not measured"
    return (
        f"{passport.precision}; {passport.agreement:.2%} of the pixels of {passport.photos} photos have the class "
        "that the source model's precision gives"
    )


def describe_precisions(precisions: dict[str, int]) -> str:
    """How many compute layers of a plan compute in which precision."""
    counts = ", ".join(f"{count} in {name}" for name, count in precisions.items())
    return f"compute layers: {counts or 'none'}"


def _terse(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"


def _stem(source: Path) -> str:
    resolved = source.resolve()
    if resolved.name == "saved_model.pb":
        resolved = resolved.parent
    return resolved.name if resolved.is_dir() else resolved.stem


def _source_hash(source: Path, kind: str) -> str:
    """SHA-256 of all that the model consists of: external data of ONNX files too."""
    if source.name == "saved_model.pb":
        return sha256(source.parent)
    hashes = [sha256(source)]
    if kind == "onnx":
        hashes += [sha256(file) for file in external_files(source)]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _request(source_hash: str, options: BuildOptions, flavour: str | None) -> str:
    """SHA-256 of everything that decides the bundle."""
    toolchain = {"trtpost": __version__, "onnx": onnx.__version__}
    if flavour in flavours.FLAVOURS:
        toolchain["tensorrt"] = f"{flavour} {installed_version(flavour)}"
    decisive = asdict(options)
    del decisive["timing_cache"]  # it saves time and decides nothing
    request = {"source": source_hash, "options": decisive, "toolchain": toolchain}
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _up_to_date(path: Path, request: str) -> Bundle | None:
    if not path.exists():
        return None
    try:
        bundle = load_bundle(path)
    except BundleError:
        return None  # damaged, of another version, or something else: writing the new one will tell
    return bundle if bundle.passport.request == request else None


def _load(source: Path, kind: str, options: BuildOptions) -> tuple[onnx.ModelProto, str]:
    if kind == "onnx":
        model = load_model(source)
        if "passport" in metadata(model):
            raise ModelError(f"{source} is baked already: give `trtpost infer --engine {source}` or the source model")
        return model, f"{source.name}: ONNX already, {len(model.graph.node)} nodes"
    converted = convert(source, signature=options.signature, input_size=options.input_size)
    model = normalized(converted, str(source))
    return model, f"{source.name}: {kind} to ONNX, {len(model.graph.node)} nodes"


def _locate(model: onnx.ModelProto, source: Path, options: BuildOptions) -> tuple[onnx.ModelProto, Located]:
    if options.input_size is not None:
        name, layout = input_of(model)
        model = with_input_size(model, name, layout, options.input_size)
    located = locate(
        model,
        logits=options.logits,
        layout=options.layout,
        head=options.head,
        before_argmax=options.resize == "bilinear",
    )
    if not all(located.input_size):
        raise ModelError(
            f"{source}: the height and width of input '{located.input}' are dynamic: "
            "choose the network's resolution with --input-size HxW"
        )
    return model, located


def _pre(located: Located, known: dict[str, str], options: BuildOptions) -> tuple[Pre, str]:
    """How pixels are normalised, and who says so."""
    if options.normalize is not None:
        (mean, std), origin = parse_normalization(options.normalize), BY_FLAG
        if located.input_dtype == "uint8" and options.normalize != "none":
            raise SpecError(
                f"input '{located.input}' takes the uint8 pixels themselves, so --normalize {options.normalize} "
                "cannot be: leave it out"
            )
    elif located.input_dtype == "uint8":
        (mean, std), origin = parse_normalization("none"), "quantised input"
    elif "normalization" in known:
        stated = json.loads(known["normalization"])
        mean, std, origin = tuple(stated["mean"]), tuple(stated["std"]), "the model's metadata"
    elif located.expects == "pixels":
        (mean, std), origin = parse_normalization("none"), "normalised inside the network"
    elif located.expects == "unit":
        (mean, std), origin = parse_normalization("unit"), FROM_UNIT
    else:
        (mean, std), origin = parse_normalization("signed"), ASSUMED
    channels = options.channels or ("gray" if located.input_channels == 1 else "rgb")
    return Pre(*located.input_size, mean=mean, std=std, channels=channels, fit=options.fit), origin


def _classes(located: Located, known: dict[str, str], options: BuildOptions) -> tuple[str, ...]:
    """A name for each class: given, from the model's metadata, or numbered."""
    names = options.labels or tuple(json.loads(known.get("labels", "[]")))
    if located.head == "threshold" and len(names) == 1:
        names = ("background", *names)
    count = located.classes or len(names) or UNKNOWN_CLASSES
    if options.labels and len(names) != count:
        raise SpecError(f"the network has {count} classes, but {len(names)} class names were given (--labels)")
    if located.head == "threshold" and not names:
        return ("background", "foreground")
    return tuple(names) if len(names) == count else tuple(class_name(index) for index in range(count))


def _post(located: Located, classes: int, options: BuildOptions) -> Post:
    threshold = options.threshold
    if threshold is not None and located.head != "threshold":
        raise SpecError(f"--threshold is for networks of one channel; this one has head '{located.head}'")
    if threshold is not None and located.probability and not 0 <= threshold < 1:
        raise SpecError(f"--threshold {threshold:g} makes no sense for a probability: choose one from 0 to 1")
    if threshold is None:
        threshold = 0.5 if located.probability or located.head != "threshold" else 0.0
    return Post(
        head=located.head,
        layout=located.layout,
        classes=classes,
        resize=options.resize,
        match=options.match,
        size=options.size,
        threshold=threshold,
        region=_region(options.fit),
    )


def _region(fit: Fit) -> Extent:
    """A letterbox has bars, which the mask must leave out."""
    return "runtime" if fit == "letterbox" else "whole"


def _planned(
    baked: onnx.ModelProto, passport: Passport, flavour: str, options: BuildOptions, progress: Progress
) -> tuple[bytes, Passport]:
    """The plan of a baked graph, and the passport with what is to be known of it."""
    with progress.step("build") as step:
        plan, facts = build_plan(
            baked,
            _profile(passport),
            flavour,
            options.settings,
            spec=(passport.pre, passport.post),
            name=passport.to_name(flavours.NAME_LIMIT),
            step=step,
            warn=progress.warn,
        )
        step.result = (
            f"{facts.flavour} {facts.version}: {sum(facts.layers.values())} layers; "
            f"{describe_precisions(facts.precisions)}; "
            f"{len(plan) / 1e6:.1f} MB plan for compute capability {', '.join(facts.target)}"
        )
    return plan, replace(passport, plan=facts)


def _profile(passport: Passport) -> Profile:
    """Ranges that hold everything that the passport promises."""
    pre, (height, width) = passport.pre, passport.located.logits_size
    return Profile(
        max_batch=passport.max_batch,
        max_size=passport.max_size,
        logits_size=(height or pre.height, width or pre.width),  # unknown: no larger than the input
    )
