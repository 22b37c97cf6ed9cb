"""Everything that decides a pixel of a bundle: settled from the source model, what lies beside it, and the options."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from trtpost.builder.labels import labels_beside, read_labels
from trtpost.builder.look import Look
from trtpost.builder.options import BuildOptions, region_for
from trtpost.bundle.passport import Check
from trtpost.convert import Conversion, conversion, convert
from trtpost.describe import (
    describe_check,
    describe_choice,
    describe_doubts,
    describe_dynamic_range,
    describe_failed_check,
    describe_located,
    describe_negative,
)
from trtpost.errors import ModelError, SpecError, one_line
from trtpost.graph.head.coverage import covered
from trtpost.graph.head.input_sizes import refuse_size
from trtpost.graph.head.locate import input_of, locate
from trtpost.graph.head.negative_ids import tells_negative
from trtpost.graph.head.probe import settled
from trtpost.graph.reading.input_size import with_input_size
from trtpost.graph.reading.model import load_model, metadata, normalized, understood
from trtpost.progress import Progress
from trtpost.spec import IGNORED, Ending, Located, Origin, Post, Pre, class_name, parse_normalization

UNKNOWN_CLASSES = 1 << 16
"""Number of classes assumed of labels where the graph does not tell it: the mask is then int32, which holds any."""

_BACKGROUNDS = {"background", "bg", "unlabeled", "void", "other"}
"""Names of a class that stands for none."""


@dataclass(frozen=True)
class Decided:
    """What a build makes of a source model before it writes anything.

    Attributes:
        model: the source model as ONNX.
        located: where its pixels go in and its logits come out.
        pre, post: every decision about a pixel.
        origin: who says how pixels are normalised.
        classes: name of each class.
        check: how far the conversion is off; None where there was none, or nothing could be compared.
    """

    model: onnx.ModelProto
    located: Located
    pre: Pre
    post: Post
    origin: Origin
    classes: tuple[str, ...]
    check: Check | None = None


def decide(source: Path, kind: str, options: BuildOptions, progress: Progress) -> Decided:
    """Convert the model, find its logits, and settle everything that decides a pixel.

    Raises:
        TrtpostError: the model cannot be converted or understood, or the options do not fit it.
    """
    with progress.step("convert") as step:
        converted, step.result = _load(source, kind, options)
    with progress.step("locate") as step, understood(source):
        loaded, located = _locate(converted.model, source, options)
        step.result = describe_located(located)
    check = _check(source, converted, located.output, progress)
    with understood(source):
        pre, origin = _pre(located, metadata(loaded), options)
        located = covered(loaded, located, pre, options.covers, options.outside)
        names = _names(loaded, options)
        found = _names_beside(source, progress) if not names else ()
        classes = _classes(located, names or found, options)
        if found:
            _tell_names(source, len(found), classes, progress)
        return Decided(loaded, located, pre, _post(located, len(classes), options), origin, classes, check)


def _check(source: Path, converted: Conversion, output: str, progress: Progress) -> Check | None:
    """The check of the output that was chosen.

    Raises:
        ModelError: it is further off than rounding explains.
    """
    check = converted.check_of(output)
    if check is not None and not check.passed:
        raise ModelError(f"{source}: {describe_failed_check(check)}")
    if check is not None or converted.unchecked:
        with progress.step("check") as step:
            step.result = describe_check(check, converted.seconds) if check else f"left out: {converted.unchecked}"
    return check


def doubts(decided: Decided, options: BuildOptions, look: Look | None = None) -> list[str]:
    """What was decided for the user and may be wrong: a sentence each, with the flag that settles it.

    Args:
        look: what the network says of a picture, where it was asked.
    """
    located = decided.located
    found = describe_doubts(located, decided.pre, decided.origin, "" if look is None else look.wrong)
    if decided.check is not None and decided.check.arithmetic == "dynamic range":
        found.append(describe_dynamic_range(decided.check))
    if decided.post.head == "labels" and tells_negative(decided.model, located.logits):
        found.append(describe_negative(IGNORED))
    names = {name.strip("_ ").casefold() for name in _names(decided.model, options)}
    if options.head is None and located.is_choice and not names & _BACKGROUNDS:
        found.append(describe_choice(located))
    return found


def _load(source: Path, kind: str, options: BuildOptions) -> tuple[Conversion, str]:
    if kind == "onnx":
        model = load_model(source)
        if "passport" in metadata(model):
            raise ModelError(f"{source} is baked already: give `trtpost infer --engine {source}` or the source model")
        return Conversion(model), f"{source.name}: ONNX already, {len(model.graph.node)} nodes"
    try:
        converted = conversion(source, signature=options.signature, input_size=options.input_size, check=options.check)
    except ModelError as error:
        raise _fault_of_size(source, options) or error from None
    model = normalized(converted.model, str(source))
    return replace(converted, model=model), f"{source.name}: {kind} to ONNX, {len(model.graph.node)} nodes"


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


def _pre(located: Located, known: dict[str, str], options: BuildOptions) -> tuple[Pre, Origin]:
    """How pixels are normalised, and who says so."""
    origin: Origin
    channels = options.channels or ("gray" if located.input_channels == 1 else "rgb")
    if options.normalize is not None:
        (mean, std), origin = parse_normalization(options.normalize, channels), "flag"
        if located.input_dtype == "uint8" and options.normalize != "none":
            raise SpecError(
                f"input '{located.input}' takes the uint8 pixels themselves, so --normalize {options.normalize} "
                "cannot be: leave it out"
            )
    elif located.input_dtype == "uint8":
        (mean, std), origin = parse_normalization("none"), "quantised"
    elif "normalization" in known:
        (mean, std), origin = _stated_normalization(known["normalization"]), "metadata"
    elif located.expects == "pixels":
        (mean, std), origin = parse_normalization("none"), "inside"
    elif located.expects == "unit":
        (mean, std), origin = parse_normalization("unit"), "unit"
    else:
        (mean, std), origin = parse_normalization("signed"), "assumed"
    return Pre(*located.input_size, mean=mean, std=std, channels=channels, fit=options.fit), origin


def _names(model: onnx.ModelProto, options: BuildOptions) -> tuple[str, ...]:
    """Names of the classes, given or in the model's metadata; empty where there are none."""
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


def _names_beside(source: Path, progress: Progress) -> tuple[str, ...]:
    """Class names in a file beside the model; empty where there is none, or what is there holds none."""
    file = labels_beside(source)
    try:
        return read_labels(file, progress.warn) if file else ()
    except SpecError as error:
        progress.warn(f"{error}; found beside the model, it is left out: settle it with --labels")
        return ()


def _tell_names(source: Path, count: int, classes: tuple[str, ...], progress: Progress) -> None:
    """Say which file the names came from, or that they are not taken because they do not fit."""
    file = labels_beside(source)
    if count not in (len(classes), len(classes) - 1) or classes[-1] == class_name(len(classes) - 1):
        progress.warn(
            f"{file}, found beside the model, has {count} class names, and the network {len(classes)} classes, so they "
            "are not taken: settle it with --labels"
        )
        return
    with progress.step("labels") as step:
        step.result = f"{count} class names of {file}, found beside the model; --labels takes others"


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
