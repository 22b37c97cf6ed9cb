"""The way from a model file to an engine bundle: convert, locate, bake, build, bundle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import onnx

from trtpost import __version__
from trtpost.backends import tensorrt
from trtpost.bundle import SUFFIX, Bundle, Passport, embed, load_bundle, sha256, write_bundle
from trtpost.convert import convert, kind_of
from trtpost.errors import BundleError, ModelError, SpecError
from trtpost.graph.bake import bake, inlined, with_input_size
from trtpost.graph.locate import Located, input_of, locate
from trtpost.graph.model import load_model, metadata, normalized
from trtpost.image import class_name
from trtpost.packages import installed_version
from trtpost.progress import Progress
from trtpost.spec import MAX_SIDE, Channels, Head, Layout, Match, Post, Pre, Resize, Size, parse_normalization

UNKNOWN_CLASSES = 1 << 16
"""Assumed of labels whose number the graph does not tell: the mask is then int32, which holds any of them."""

LOWERINGS = ("function", "inline")


@dataclass(frozen=True)
class BuildOptions:
    """What to build; every default is what most people want.

    Attributes:
        normalize: a name or `MEAN/STD` as `parse_normalization` takes it; None takes the model's own metadata.
        channels: order in which the network wants the channels; None: `rgb`, or `gray` for one channel.
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
    """

    normalize: str | None = None
    channels: Channels | None = None
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

    def __post_init__(self) -> None:
        if self.lowering not in LOWERINGS:
            raise SpecError(f"lowering must be one of {', '.join(LOWERINGS)}, not '{self.lowering}'")
        if self.flavour not in ("auto", "none", *tensorrt.FLAVOURS):
            raise SpecError(f"flavour must be auto, none, {' or '.join(tensorrt.FLAVOURS)}, not '{self.flavour}'")
        if self.max_batch < 1:
            raise SpecError(f"max batch must be at least 1, not {self.max_batch}")
        if min(self.max_size) < 1 or max(self.max_size) > MAX_SIDE:
            raise SpecError(f"max size must have sides from 1 to {MAX_SIDE}, not {self.max_size}")
        # refuse what has no meaning before TensorFlow has worked for a minute
        Post(
            head=self.head or "argmax",
            resize=self.resize,
            match=self.match,
            size=self.size,
            threshold=self.threshold or 0.0,
        )
        if self.normalize is not None:
            parse_normalization(self.normalize)


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
    if options is not None and settings:
        raise TypeError("give options or settings, not both")
    options = options or BuildOptions(**settings)  # type: ignore[arg-type]
    progress = progress or Progress()
    source = Path(model)
    kind = kind_of(source)
    path = Path(output) if output is not None else Path(_stem(source) + SUFFIX)
    flavour, _ = tensorrt.builder_here() if options.flavour == "auto" else (options.flavour, "")
    source_hash = sha256(source.parent if source.name == "saved_model.pb" else source)
    request = _request(source_hash, options, flavour)
    if not force and (current := _up_to_date(path, request)) is not None:
        with progress.step("bundle") as step:
            step.result = f"{path} is up to date: nothing to do"
        return current

    with progress.step("convert") as step:
        loaded, step.result = _load(source, kind, options)
    with progress.step("locate") as step:
        loaded, located = _locate(loaded, source, options)
        step.result = describe_located(located)
    with progress.step("bake") as step:
        pre, origin = _pre(located, metadata(loaded), options)
        classes = _classes(located, metadata(loaded), options)
        post = _post(located, len(classes), options)
        baked = bake(loaded, located, pre, post)
        step.result = describe_spec(pre, post, origin)
    passport = Passport(
        version=__version__,
        request=request,
        source=source.resolve().name,
        source_sha256=source_hash,
        pre=pre,
        post=post,
        located=located,
        normalization=origin,
        classes=classes,
        max_batch=located.batch or options.max_batch,
        max_size=post.size if isinstance(post.size, tuple) else options.max_size,
    )
    plan = None
    if flavour not in (None, "none"):
        with progress.step("build") as step:
            profile = tensorrt.Profile(passport.max_batch, passport.max_size, _typical(passport.max_size))
            plan, facts = tensorrt.build_plan(baked, profile, flavour)
            passport = replace(passport, plan=facts)
            step.result = (
                f"{facts.flavour} {facts.version}: {sum(facts.layers.values())} layers, {len(plan) / 1e6:.1f} MB plan "
                f"for compute capability {', '.join(facts.target)}"
            )
    with progress.step("bundle") as step:
        result = inlined(baked) if options.lowering == "inline" else baked
        embed(result, passport)
        bundle = write_bundle(path, result, plan, passport)
        step.result = str(path)
    return bundle


def next_step(bundle: Bundle) -> str:
    """What the bundle holds and what to do with it, for the last line of a build."""
    if bundle.plan is not None:
        holds = f"holds the portable engine and a {bundle.passport.plan.flavour} plan"  # type: ignore[union-attr]
    else:
        _, why = tensorrt.builder_here()
        holds = f"holds the portable engine only, no TensorRT plan ({why})"
    return f"{bundle.path} {holds}; run it: trtpost infer PHOTO --engine {bundle.path}"


def describe_located(located: Located) -> str:
    """One line on where input and logits are."""
    size = "x".join(map(str, located.input_size))
    dropped = f", without {', '.join(reversed(located.dropped))}" if located.dropped else ""
    what = {
        "argmax": f"{located.classes} classes, {located.layout}",
        "threshold": "one channel, " + ("probability" if located.probability else "logit"),
        "labels": "class ids already",
    }[located.head]
    return (
        f"input '{located.input}' {located.input_dtype} {located.input_layout} {size}; "
        f"{located.head} of '{located.logits}' ({what}{dropped})"
    )


def describe_spec(pre: Pre, post: Post, origin: str) -> str:
    """One line on what was baked."""
    size = "x".join(map(str, post.size)) if isinstance(post.size, tuple) else post.size
    normalization = "raw pixels" if pre.is_identity else f"(pixel - {_terse(pre.mean)}) / {_terse(pre.std)}"
    steps = f"{post.head}, {post.resize} resize as in '{post.match}', size {size}"
    return f"{pre.channels} {normalization} ({origin}); {steps}"


def _terse(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"


def _stem(source: Path) -> str:
    resolved = source.resolve()
    if resolved.name == "saved_model.pb":
        resolved = resolved.parent
    return resolved.name if resolved.is_dir() else resolved.stem


def _request(source_hash: str, options: BuildOptions, flavour: str | None) -> str:
    """SHA-256 of everything that decides the bundle."""
    toolchain = {"trtpost": __version__, "onnx": onnx.__version__}
    if flavour not in (None, "none"):
        toolchain["tensorrt"] = f"{flavour} {installed_version(str(flavour))}"
    request = {"source": source_hash, "options": asdict(options), "toolchain": toolchain}
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
    model = normalized(convert(source, signature=options.signature), str(source))
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
        (mean, std), origin = parse_normalization(options.normalize), "--normalize"
    elif located.input_dtype == "uint8":
        (mean, std), origin = parse_normalization("none"), "quantised input"
    elif "normalization" in known:
        stated = json.loads(known["normalization"])
        mean, std, origin = tuple(stated["mean"]), tuple(stated["std"]), "the model's metadata"
    elif located.rescales:
        (mean, std), origin = parse_normalization("none"), "normalised inside the network"
    else:
        (mean, std), origin = (
            parse_normalization("signed"),
            "ASSUMED: the model says nothing, see --normalize",
        )
    channels = options.channels or ("gray" if located.input_channels == 1 else "rgb")
    return Pre(*located.input_size, mean=mean, std=std, channels=channels), origin


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
    )


def _typical(largest: tuple[int, int]) -> tuple[int, int]:
    return min(1080, largest[0]), min(1920, largest[1])
