"""The way from a model file to an engine bundle: convert, locate, bake, lower the precision, build, bundle."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost import __version__, cuda
from trtpost.backends.tensorrt import flavour as flavours
from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.builder import agreement
from trtpost.builder.calibration import content_hash, pixels_in
from trtpost.builder.labels import labels_beside, labels_hash, read_labels
from trtpost.builder.loadable import check_loads
from trtpost.builder.options import MIN_AGREEMENT, ONLY_NATIVE, BuildOptions, options_from, region_for
from trtpost.bundle.folder import SUFFIX, Bundle, check_replaceable, embed, load_bundle, sha256, write_bundle
from trtpost.bundle.passport import ASSUMED, Passport
from trtpost.convert import convert, kind_of
from trtpost.convert.formats import saved_model_folder
from trtpost.describe import (
    PLACES,
    describe_choice,
    describe_located,
    describe_precision,
    describe_precisions,
    describe_spec,
)
from trtpost.errors import BackendError, BundleError, ModelError, PrecisionError, SpecError, one_line, printable
from trtpost.graph.baking.bake import bake, inlined, with_input_size
from trtpost.graph.head.input_sizes import refuse_size
from trtpost.graph.head.locate import input_of, locate
from trtpost.graph.head.negative_ids import IGNORED, tells_negative
from trtpost.graph.head.probe import settled
from trtpost.graph.precision.reduce import network_inputs, reduced, spoilt_weights
from trtpost.graph.reading.model import LARGEST as LARGEST_FILE
from trtpost.graph.reading.model import external_files, load_model, metadata, normalized, understood
from trtpost.packages import installed_version
from trtpost.photos.find import photos_in
from trtpost.progress import Progress
from trtpost.spec import Ending, Located, Post, Pre, class_name, parse_normalization

UNKNOWN_CLASSES = 1 << 16
"""Assumed of labels whose number the graph does not tell: the mask is then int32, which holds any of them."""

FEW_PHOTOS = 10
"""With fewer, the ranges that int8 takes from them are chance."""

LARGE = 2 << 30
"""Bytes that one tensor of a plan may take without a warning."""

BY_FLAG, FROM_UNIT = "--normalize", "the network goes on from 0..1"
"""Origins of a normalisation that may be worth a warning, beside `ASSUMED`: the user, the network itself."""


def build(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
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
        progress: is told of each step and each doubt; None: doubts are warnings, of the class `DoubtWarning`.
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
    if not isinstance(options, BuildOptions):
        raise SpecError(
            f"options must be BuildOptions, not a {type(options).__name__}: or give single settings by name"
        )
    progress = progress or Progress()
    if not isinstance(model, str | os.PathLike):
        raise ModelError(f"a model is given by its path, not as a {type(model).__name__}: write it to a file first")
    source = Path(os.fsdecode(model))
    kind = kind_of(source)
    path = Path(os.fsdecode(output)) if output is not None else Path(_stem(source) + SUFFIX)
    check_replaceable(path)
    flavour, _ = flavours.builder_here() if options.flavour == "auto" else (options.flavour, "")
    if flavour is not None:
        flavours.check_settings(flavour, options.settings)
    photos = photos_in(options.calibration) if options.calibration is not None else ()
    source_hash = content_of(source, kind)
    if kind == "onnx" and options.signature is not None:
        raise SpecError("--signature is for SavedModels; an ONNX model has none")
    options, wants_plan = _for_this_machine(flavour, options), options.wants_plan
    names_hash = labels_hash(beside) if (beside := _labels_file(source, options)) else ""
    request = _request(source_hash, options, flavour, photos, names_hash)
    if not force and (current := _up_to_date(path, request, flavour)) is not None:
        with progress.step("bundle") as step:
            step.result = f"{path} is up to date: nothing to do"
        return current
    if flavour in flavours.FLAVOURS:  # loads a large library, so only where there is something to build
        _check_builder(flavour, options, progress)

    loaded, baked, passport = _baked(source, kind, options, progress)
    passport = replace(passport, request=request, source_sha256=source_hash)
    check_loads(baked, passport, path)
    if options.precision != "fp32":
        with understood(source):
            baked, passport = _lowered(loaded, baked, passport, photos, options, progress)
        check_loads(baked, passport, path)
    plan = None
    if flavour in flavours.FLAVOURS:
        try:
            plan, passport = _planned(baked, passport, flavour, options, progress)
        except BackendError as error:
            if wants_plan or isinstance(error, PrecisionError):
                raise
            progress.warn(f"no engine.plan, the bundle holds the portable engine alone: {error}")
    with progress.step("bundle") as step:
        result = inlined(baked) if options.lowering == "inline" else baked
        embed(result, passport)
        bundle = write_bundle(path, result, plan, passport)
        step.result = str(path)
    return bundle


def _for_this_machine(flavour: str | None, options: BuildOptions) -> BuildOptions:
    """The options with which the plan runs on the GPU of this machine, where there is one that it can be made for."""
    capabilities = flavours.capabilities_here(flavour, options.compute_capabilities)
    return replace(options, compute_capabilities=capabilities)


def _check_builder(flavour: str, options: BuildOptions, progress: Progress) -> None:
    """Refuse what cannot be built here, and say what will not run here, unless somebody has chosen the GPUs."""
    flavours.check_builder(flavour, options.settings)
    driver = cuda.driver() if flavour == "tensorrt_rtx" and not options.compute_capabilities else None
    if driver and driver.devices and (other := flavours.beyond_rtx(driver)):
        progress.warn(f"the plan is for other GPUs than this machine's, where the CPU goes on: {other}")


@dataclass(frozen=True)
class Decided:
    """What a build makes of a source model before it writes anything.

    Attributes:
        model: the source model as ONNX.
        located: input and logits.
        pre, post: every decision about a pixel.
        origin: where the normalisation comes from.
        classes: name of each class.
    """

    model: onnx.ModelProto
    located: Located
    pre: Pre
    post: Post
    origin: str
    classes: tuple[str, ...]


def decide(source: Path, kind: str, options: BuildOptions, progress: Progress) -> Decided:
    """Convert the model, find its logits, and settle everything that decides a pixel.

    Raises:
        TrtpostError: the model cannot be converted or understood, or the options do not fit it.
    """
    with progress.step("convert") as step:
        loaded, step.result = _load(source, kind, options)
    with progress.step("locate") as step, understood(source):
        loaded, located = _locate(loaded, source, options)
        step.result = describe_located(located)
    with understood(source):
        pre, origin = _pre(located, metadata(loaded), options)
        names = _names(loaded, options)
        found = _names_beside(source, options, progress) if not names else ()
        classes = _classes(located, names or found, options)
        if found:
            _tell_names(source, len(found), classes, progress)
        return Decided(loaded, located, pre, _post(located, len(classes), options), origin, classes)


def _baked(
    source: Path, kind: str, options: BuildOptions, progress: Progress
) -> tuple[onnx.ModelProto, onnx.ModelProto, Passport]:
    """The source model as ONNX, the baked graph, and a passport that lacks the hashes."""
    decided = decide(source, kind, options, progress)
    located, pre, post, origin = decided.located, decided.pre, decided.post, decided.origin
    with progress.step("bake") as step, understood(source):
        if options.post != "native" and post.head == "labels":
            raise SpecError(ONLY_NATIVE)
        baked = bake(decided.model, located, pre, post)
        step.result = describe_spec(pre, post, origin, located.background)
    for warning in doubts(located, pre, origin):
        progress.warn(warning)
    if post.head == "labels" and tells_negative(decided.model, located.logits):
        progress.warn(
            f"class ids below zero become {IGNORED} in the mask, as `ignore` is written in Pascal VOC and Cityscapes"
        )
    if options.head is None and located.is_choice and not _has_background(_names(decided.model, options)):
        progress.warn(describe_choice(located))
    with understood(source):
        spoilt = spoilt_weights(baked)
    for name in spoilt[:1]:
        progress.warn(f"weight '{name}' holds NaN or infinities, so the mask is likely to be wrong everywhere")
    return (
        decided.model,
        baked,
        Passport(
            version=__version__,
            request="",
            source=printable(source.resolve().name),
            source_sha256="",
            pre=pre,
            post=post,
            located=located,
            normalization=origin,
            classes=decided.classes,
            max_batch=located.batch or options.max_batch,
            max_size=post.size if isinstance(post.size, tuple) else options.max_size,
        ),
    )


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
    found = list(located.doubts)
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


def _stem(source: Path) -> str:
    resolved = saved_model_folder(source.resolve())
    return resolved.name if resolved.is_dir() else resolved.stem


def content_of(source: Path, kind: str) -> str:
    """SHA-256 of all that the model consists of: external data of ONNX files too.

    Raises:
        ModelError: the file is longer than one of its format can be.
    """
    if kind == "saved_model":
        return sha256(saved_model_folder(source))
    if kind != "keras" and (size := source.stat().st_size) > LARGEST_FILE:  # before a sparse file is read for an hour
        raise ModelError(
            f"{source} has {size / 1e9:.1f} GB, and a file of its format can have {LARGEST_FILE / 1e9:.1f} GB"
        )
    hashes = [sha256(source)]
    if kind == "onnx":
        hashes += [sha256(file) for file in external_files(source)]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _request(
    source_hash: str, options: BuildOptions, flavour: str | None, photos: tuple[Path, ...], names_hash: str
) -> str:
    """SHA-256 of everything that decides the bundle."""
    toolchain = {"trtpost": __version__, "onnx": onnx.__version__}
    if flavour in flavours.FLAVOURS:
        toolchain["tensorrt"] = f"{flavour} {installed_version(flavour)}"
    decisive = asdict(options)
    del decisive["timing_cache"]  # it saves time and decides nothing
    decisive["calibration"] = content_hash(photos)
    request = {"source": source_hash, "labels": names_hash, "options": decisive, "toolchain": toolchain}
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _up_to_date(path: Path, request: str, flavour: str | None) -> Bundle | None:
    if not path.exists():
        return None
    try:
        bundle = load_bundle(path)
    except BundleError:
        return None  # damaged, of another version, or something else: writing the new one will tell
    if flavour in flavours.FLAVOURS and bundle.passport.plan is None:
        return None  # it failed the last time; whoever asks again wants it tried again, or at least to be told why
    return bundle if bundle.passport.request == request else None


def _load(source: Path, kind: str, options: BuildOptions) -> tuple[onnx.ModelProto, str]:
    if kind == "onnx":
        model = load_model(source)
        if "passport" in metadata(model):
            raise ModelError(f"{source} is baked already: give `trtpost infer --engine {source}` or the source model")
        return model, f"{source.name}: ONNX already, {len(model.graph.node)} nodes"
    try:
        converted = convert(source, signature=options.signature, input_size=options.input_size)
    except ModelError as error:
        raise _fault_of_size(source, options) or error from None
    model = normalized(converted, str(source))
    return model, f"{source.name}: {kind} to ONNX, {len(model.graph.node)} nodes"


def _fault_of_size(source: Path, options: BuildOptions) -> ModelError | None:
    """Why a model that TensorFlow does not take at --input-size cannot be had at it, where that is the reason."""
    if options.input_size is None:
        return None
    try:
        model = normalized(convert(source), str(source))
        name, layout = input_of(model)
    except ModelError:
        return None
    try:
        refuse_size(model, name, layout, options.input_size)
    except ModelError as error:
        return error
    return None


def _locate(model: onnx.ModelProto, source: Path, options: BuildOptions) -> tuple[onnx.ModelProto, Located]:
    if options.input_size is not None:
        name, layout = input_of(model, options.logits)
        refuse_size(model, name, layout, options.input_size)
        model = with_input_size(model, name, layout, options.input_size)
    model = settled(model, options.logits)

    def found(head: Ending | None) -> Located:
        return locate(
            model,
            logits=options.logits,
            layout=options.layout,
            head=head,
            threshold=options.threshold,
            before_argmax=options.resize == "bilinear",
        )

    located = found(options.head)
    if options.head is None and located.is_choice and len(_names(model, options)) == located.classes + 1:
        located = found("multilabel")  # the names begin with a background that the network has no channel for
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
        (mean, std), origin = _stated_normalization(known["normalization"]), "the model's metadata"
    elif located.expects == "pixels":
        (mean, std), origin = parse_normalization("none"), "normalised inside the network"
    elif located.expects == "unit":
        (mean, std), origin = parse_normalization("unit"), FROM_UNIT
    else:
        (mean, std), origin = parse_normalization("signed"), ASSUMED
    channels = options.channels or ("gray" if located.input_channels == 1 else "rgb")
    return Pre(*located.input_size, mean=mean, std=std, channels=channels, fit=options.fit), origin


def _names(model: onnx.ModelProto, options: BuildOptions) -> tuple[str, ...]:
    """Of the classes: given, or in the model's metadata; empty where there are none."""
    if options.labels:
        return options.labels
    text = metadata(model).get("labels", "[]")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(
            f"the model's metadata entry trtpost.labels is no list of class names in JSON, but {_quoted(text)}: "
            "remove it, or give the names with --labels"
        )
    return tuple(names)


def _names_beside(source: Path, options: BuildOptions, progress: Progress) -> tuple[str, ...]:
    """Class names in a file beside the model; empty where there is none, or what is there holds none."""
    file = _labels_file(source, options)
    try:
        return read_labels(file) if file else ()
    except SpecError as error:
        progress.warn(f"{error}; found beside the model, it is left out: settle it with --labels")
        return ()


def _tell_names(source: Path, count: int, classes: tuple[str, ...], progress: Progress) -> None:
    """Say which file the names came from, or that they are not taken because they do not fit."""
    file = labels_beside(saved_model_folder(source))
    if count not in (len(classes), len(classes) - 1) or classes[-1] == class_name(len(classes) - 1):
        progress.warn(
            f"{file}, found beside the model, has {count} class names, and the network {len(classes)} classes, so they "
            "are not taken: settle it with --labels"
        )
        return
    with progress.step("labels") as step:
        step.result = f"{count} class names of {file}, found beside the model; --labels takes others"


def _labels_file(source: Path, options: BuildOptions) -> Path | None:
    return labels_beside(saved_model_folder(source)) if not options.labels else None


def _stated_normalization(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of pixels, as a model's metadata state them."""
    try:
        stated = json.loads(text)
        found = tuple(stated["mean"]), tuple(stated["std"])
    except (ValueError, TypeError, KeyError, RecursionError):
        found = ((), ())
    if not all(found) or not all(type(value) in (int, float) for values in found for value in values):
        raise ModelError(
            "the model's metadata entry trtpost.normalization is no JSON such as "
            f'{{"mean": [127.5], "std": [127.5]}}, but {_quoted(text)}: remove it, or say --normalize'
        )
    return found


def _quoted(text: str) -> str:
    return one_line(repr(text if len(text) <= 60 else text[:57] + "..."))


def _has_background(names: tuple[str, ...]) -> bool:
    return any(name.strip("_ ").casefold() in ("background", "bg", "unlabeled", "void", "other") for name in names)


def _classes(located: Located, names: tuple[str, ...], options: BuildOptions) -> tuple[str, ...]:
    """A name for each class: as given, or numbered."""
    has_background = located.head == "threshold" or located.background is not None
    count = located.classes or len(names) or UNKNOWN_CLASSES
    if count > UNKNOWN_CLASSES:
        raise ModelError(
            f"tensor '{located.logits}' has {count} classes, of which masks hold {UNKNOWN_CLASSES}: "
            "name the logits with --logits, or their --layout"
        )
    if has_background and len(names) == count - 1:
        names = ("background", *names)
    if options.labels and len(names) != count:
        hint = ""
        if located.head == "argmax" and located.background is None and len(names) == count + 1:
            hint = "; if the first is the background, and the network has no channel for it, say --head multilabel"
        raise SpecError(f"the network has {count} classes, but {len(names)} class names were given (--labels){hint}")
    if len(names) == count:
        return names
    if located.head == "threshold":
        return ("background", "foreground")
    numbered = tuple(class_name(index) for index in range(count))
    return ("background", *numbered[1:]) if has_background else numbered


def _post(located: Located, classes: int, options: BuildOptions) -> Post:
    threshold = options.threshold
    if threshold is not None and located.head != "threshold" and located.background is None:
        raise SpecError(
            "--threshold is for networks of one channel, or of classes without a background (--head multilabel); this "
            f"one has head '{located.head}'"
        )
    if threshold is not None and located.limits is not None:
        low, high = located.limits
        if not low <= threshold < high:
            what = "a probability" if (low, high) == (0, 1) else "these values"
            raise SpecError(f"--threshold {threshold:g} makes no sense for {what}: choose one from {low:g} to {high:g}")
    if located.head != "threshold":
        threshold = Post.threshold  # not looked at
    elif threshold is None:
        threshold = located.threshold
    return Post(
        head=located.head,
        layout=located.layout,
        classes=classes,
        resize=options.resize,
        match=options.match,
        size=options.size,
        threshold=threshold,
        region=region_for(options.fit),
    )


def _lowered(
    source: onnx.ModelProto,
    reference: onnx.ModelProto,
    passport: Passport,
    photos: tuple[Path, ...],
    options: BuildOptions,
    progress: Progress,
) -> tuple[onnx.ModelProto, Passport]:
    """The baked graph in a lower precision, and the passport with how well it agrees with the `reference`."""
    precision, pre, located = options.precision, passport.pre, passport.located
    minimum = MIN_AGREEMENT[precision] if options.min_agreement is None else options.min_agreement
    skipped: dict[str, None] = {}  # each photo is read twice, and said to be unreadable once

    def pixels() -> Iterator[NDArray[np.uint8]]:
        return pixels_in(photos, pre, located.logits_size, skipped.setdefault)

    with progress.step("precision") as step:
        passes = 2 if precision == "int8" else 1
        done = itertools.count(1)

        def calibrated() -> None:
            step.advance(next(done) / (passes * len(photos)), f"calibrating {precision}")

        def compared() -> None:
            step.advance(next(done) / (passes * len(photos)), f"comparing {precision} with the model's own precision")

        inputs = network_inputs(pixels(), pre, located)
        baked = bake(
            source,
            located,
            pre,
            passport.post,
            reduce=lambda network: reduced(network, precision, inputs, on_photo=calibrated),
        )
        found = agreement.compare(reference, baked, pixels(), minimum=minimum, on_photo=compared)
        agreement.check(found, precision, minimum)
        passport = replace(
            passport, precision=precision, agreement=found.share, mean_iou=found.mean_iou, photos=found.photos
        )
        step.result = describe_precision(passport)
    for reason in skipped:
        progress.warn(f"a photo of --calibration is left out: {reason}")
    if precision == "int8" and found.photos < FEW_PHOTOS:
        progress.warn(
            f"int8 was calibrated on {agreement.counted(found.photos, 'photo')}, and measured on the same: "
            "give some dozen like those that it will see"
        )
    if found.share is None:
        progress.warn(
            f"{precision} was only checked for NaN and infinities, not compared with the model's own precision: "
            "give photos with --calibration"
        )
    return baked, passport


def _planned(
    baked: onnx.ModelProto, passport: Passport, flavour: str, options: BuildOptions, progress: Progress
) -> tuple[bytes, Passport]:
    """The plan of a baked graph, and the passport with what is to be known of it."""
    if options.post == "native" and (size := _interpolated(passport)) > LARGE:
        height, width = passport.max_size
        progress.warn(
            f"bilinear by TensorRT's own layers reserves memory for the interpolated logits, {size / 2**30:.0f} GiB "
            f"for masks of {height}x{width}: --post kernel needs none, a smaller --max-size less"
        )
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
            f"{describe_precisions(facts.precisions)}; {PLACES[facts.post]}; "
            f"{len(plan) / 1e6:.1f} MB plan for compute capability {', '.join(facts.target)}"
        )
    return plan, replace(passport, plan=facts)


def _interpolated(passport: Passport) -> int:
    """Bytes of the logits at the size of the largest mask, where TensorRT interpolates them."""
    post, (height, width) = passport.post, passport.max_size
    if post.resize != "bilinear":
        return 0
    channels = 1 if post.head == "threshold" else post.classes
    return passport.max_batch * channels * height * width * (2 if passport.precision in ("fp16", "bf16") else 4)


def _profile(passport: Passport) -> Profile:
    """Ranges that hold everything that the passport promises."""
    pre, (height, width) = passport.pre, passport.located.logits_size
    return Profile(
        max_batch=passport.max_batch,
        max_size=passport.max_size,
        logits_size=(height or pre.height, width or pre.width),  # unknown: no larger than the input
    )
