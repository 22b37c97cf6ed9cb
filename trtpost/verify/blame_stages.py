"""What each stage of a bundle does against the reference's: judged by itself, and its difference named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trtpost.builder.agreement import relative_error
from trtpost.bundle.folder import Bundle
from trtpost.errors import TrtpostError
from trtpost.kernels import cpu
from trtpost.kernels.reference import argmax_resize
from trtpost.letterbox import Region, region_of
from trtpost.segment import Result
from trtpost.spec import MATCHES, NORMALIZATIONS, Channels, Layout, Post, Resize, known_normalization
from trtpost.verify.network import Answer
from trtpost.verify.reference import Reference, masked, tensor_of
from trtpost.verify.squashing import squashed_by

StageName = Literal["preprocessing", "network", "post-processing"]

ONE_LEVEL = 1.5
"""Levels of the 8-bit pixel that two resizes may differ by; a half more for 16-bit tensors."""

FEW = 1e-3
"""Share of a tensor's values that may differ by more than `ONE_LEVEL`."""

LAYOUTS: tuple[Layout, Layout] = ("NHWC", "NCHW")

SAME_MASK = 1e-5
"""Share of pixels up to which two masks of the same logits are made alike: ties may fall otherwise."""

SAME_LOGITS = 1e-4
"""Relative RMS up to which two float32 networks say the same: they are about 1e-6 apart, float16 some 1e-4 and more."""


@dataclass(frozen=True)
class Stage:
    """Whether a stage differs, and a text that says how."""

    name: StageName
    differs: bool
    text: str


def channels_last(tensor: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """The first image of a tensor [1, ...] as [h, w, C]."""
    return np.moveaxis(tensor[0], 0, -1) if layout == "NCHW" else np.asarray(tensor[0])


# --- preprocessing


def preprocessing(bundle: Bundle, reference: Reference, ours: NDArray[Any], levels: NDArray[np.uint8]) -> Stage:
    """Compare the tensor that the bundle's network gets, [h, w, C], with the reference's."""
    pre = reference.pre
    expected = channels_last(tensor_of(levels, pre, reference.located), reference.located.input_layout)
    if ours.shape != expected.shape:
        shapes = ["x".join(map(str, one.shape)) for one in (ours, expected)]
        return Stage(
            "preprocessing", True, f"the bundle's network gets {shapes[0]} values, the reference's {shapes[1]}"
        )
    ours, expected = ours.astype(np.float32), expected.astype(np.float32)
    difference = np.abs(ours - expected)
    off = float((difference * np.abs(np.array(pre.std, np.float32)) > ONE_LEVEL).mean())
    size = f"the input tensor differs by up to {difference.max():.4g}, at {off:.2%} of its values by more than a level"
    if off <= FEW:
        text = (
            "the same input tensor" if not difference.max() else f"the same input tensor but for {difference.max():.2g}"
        )
        return Stage("preprocessing", False, text)
    doubt = (
        "; the reference's own is only ASSUMED, as the model does not say: if the bundle's is right, say so with "
        "--normalize"
        if reference.decided.origin == "assumed"
        else ""
    )
    like = _like(ours, levels, reference) or _placement(bundle, reference)
    return Stage("preprocessing", True, f"{like or 'it looks like another resize or another photo'} ({size}){doubt}")


def _like(ours: NDArray[np.float32], levels: NDArray[np.uint8], reference: Reference) -> str:
    """What was done to the reference's levels to become the tensor; empty where it cannot be told."""
    pre = reference.pre
    orders = {False: levels, True: levels[..., ::-1]} if levels.shape[2] == 3 else {False: levels}
    fits = {swapped: _fit(values.astype(np.float32), ours) for swapped, values in orders.items()}
    swapped, (gain, offset, error) = min(fits.items(), key=lambda item: item[1][2])
    if error > ONE_LEVEL:
        return ""
    said = []
    other: Channels = "bgr" if swapped else "rgb"
    if levels.shape[2] == 3 and other != pre.channels:
        said.append(f"the channels are swapped, {other} where the reference has {pre.channels}")
    std = 1 / gain
    mean = -offset * std
    wanted = np.broadcast_to(np.array(pre.mean), gain.shape), np.broadcast_to(np.array(pre.std), gain.shape)
    # of swapped channels, the same numbers and the same colours are both what somebody means
    steps = (1, -1) if said else (1,)
    if not any(
        np.allclose(std[::step], wanted[1], rtol=0.01) and np.allclose(mean[::step], wanted[0], atol=1.0)
        for step in steps
    ):
        theirs = _normalization(np.array(wanted[0]), np.array(wanted[1]), pre.channels)
        said.append(f"another scale and offset, {_normalization(mean, std, other)} where the reference has {theirs}")
    return " and ".join(said)


def _fit(levels: NDArray[np.float32], ours: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Gain and offset of each channel that turn `levels` into `ours`, and what they leave, in levels."""
    x, y = levels.reshape(-1, levels.shape[2]).astype(np.float64), ours.reshape(-1, ours.shape[2]).astype(np.float64)
    spread = x.var(axis=0)
    gain = ((x - x.mean(axis=0)) * (y - y.mean(axis=0))).mean(axis=0) / np.where(spread > 0, spread, 1)
    if not np.all(np.abs(gain) > 1e-12):
        return np.ones(x.shape[1]), np.zeros(x.shape[1]), np.inf
    offset = y.mean(axis=0) - gain * x.mean(axis=0)
    left = np.sqrt(np.square((y - gain * x - offset) / gain).mean())
    return gain, offset, float(left)


def _normalization(mean: NDArray[Any], std: NDArray[Any], channels: Channels) -> str:
    for name in NORMALIZATIONS:
        known_mean, known_std = known_normalization(name, channels)
        if np.allclose(mean, known_mean, atol=1.0) and np.allclose(std, known_std, rtol=0.01):
            return f"'{name}'"
    means, stds = (
        _number(values[0]) if np.allclose(values, values[0], rtol=0.005) else ",".join(map(_number, values))
        for values in (mean, std)
    )
    return f"'{means}/{stds}'"


def _number(value: float) -> str:
    """A number as people write it after --normalize: four figures, of large ones all before the point."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _placement(bundle: Bundle, reference: Reference) -> str:
    fits = bundle.passport.pre.fit, reference.pre.fit
    return f"the bundle has fit '{fits[0]}' where the reference has '{fits[1]}'" if fits[0] != fits[1] else ""


# --- network


def network(
    bundle: Bundle,
    reference: Reference,
    answer: Answer,
    logits: NDArray[Any],
    same_input: bool,
    others: Sequence[Answer] = (),
) -> tuple[Answer | None, Layout, Stage]:
    """Give the bundle's logits as an answer of the reference, the layout that they are in, and how far off they are.

    The layout is the one in which they are like the reference's; a bundle may read them in the other. The network is
    not at fault where it differs by no more than `others`, the answers of the framework's other kernel sets.
    """
    name: StageName = "network"
    precision = bundle.passport.precision
    if other := _other_coverage(bundle, reference):
        return None, "NCHW", Stage(name, True, other)
    if answer.labels is not None:
        labels = logits[0] if logits.ndim == 3 else np.zeros(0)
        if labels.shape != answer.labels.shape:
            return None, "NCHW", Stage(name, True, f"{_tensor(bundle)} where the reference ends in class ids")
        share = float((labels != answer.labels).mean())
        slack = max([0.0, *(float(np.mean(one.labels != answer.labels)) for one in others)])
        text = f"{share:.3%} of its class ids are others for the same input tensor" + _in(precision)
        text += f", where TensorFlow Lite's own kernels differ by up to {slack:.3%}" if others else ""
        # without its scores, the two answers' ties cannot be told apart from the rest
        return Answer(None, labels), "NCHW", Stage(name, share > slack, text)
    scores = answer.scores
    assert scores is not None
    fitting = {
        layout: channels_last(logits, layout).astype(np.float32)
        for layout in LAYOUTS
        if logits.ndim == 4 and channels_last(logits, layout).shape == scores.shape
    }
    if not fitting:
        return None, "NCHW", Stage(name, True, f"{_tensor(bundle)} where the reference has {_shape(scores)}")
    squashed = reference.network.squashed
    first = 0 if reference.located.background is None else 1  # that one is no logit, but a threshold
    errors = {
        layout: relative_error(scores[..., first:], squashed_by(one, squashed)[..., first:])
        for layout, one in fitting.items()
    }
    best = min(errors, key=lambda layout: errors[layout])
    given = "the same input tensor" if same_input else "the reference's own input tensor"
    text = f"the logits are {errors[best]:.2g} off (relative RMS) for {given}" + _in(precision)
    bound = answer.step / max(float(np.sqrt(np.square(scores).mean())), 1e-30) + SAME_LOGITS
    if others:
        slack = max(
            relative_error(scores[..., first:], one.scores[..., first:]) for one in others if one.scores is not None
        )
        text += f", where TensorFlow Lite's own kernels differ by up to {slack:.2g}"
        bound = max(bound, slack)
    ours = squashed_by(fitting[best], squashed)
    ours[..., :first] = scores[..., :first]
    return Answer(ours, None, answer.step), best, Stage(name, same_input and errors[best] > bound, text)


def _in(precision: str) -> str:
    return f", in {precision}" if precision != "fp32" else ""


def _tensor(bundle: Bundle) -> str:
    located = bundle.passport.located
    return f"the bundle takes '{located.logits}' {list(located.shape)}"


def _shape(values: NDArray[Any]) -> str:
    return "x".join(map(str, values.shape))


def _other_coverage(bundle: Bundle, reference: Reference) -> str:
    """Say what the logits of both cover, where it is not the same; else empty."""
    found = [bundle.passport.located.covers, reference.located.covers]
    if found[0] == found[1]:
        return ""
    ours, theirs = (
        "all" if one is None else ",".join(f"{side:g}" for side in (one.top, one.left, one.height, one.width))
        for one in found
    )
    return f"the bundle's logits are taken to cover {ours} of the input, the reference's {theirs} (--covers)"


# --- post-processing


def other_heads(bundle: Bundle, reference: Reference) -> str | None:
    """Say so where one of them has a background that the network has no channel for, and the other has not."""
    multilabel = [one.background is not None for one in (bundle.passport.located, reference.located)]
    if multilabel[0] == multilabel[1]:
        return None
    names = [
        "multilabel" if one else post.head
        for one, post in zip(multilabel, (bundle.passport.post, reference.post), strict=True)
    ]
    return f"the bundle has head '{names[0]}', the reference '{names[1]}'"


def post_processing(
    bundle: Bundle, reference: Reference, answer: Answer, logits: NDArray[Any], layout: Layout, result: Result
) -> Stage:
    """Compare the reference's post-processing of the bundle's logits, which are in `layout`, with the bundle's mask."""
    size = (result.mask.shape[0], result.mask.shape[1])
    expected = masked(answer, size, reference)
    different = result.mask != expected.labels
    if expected.ties is not None:
        different &= ~expected.ties
    share = float(different.mean())
    if not share:
        return Stage("post-processing", False, "the same mask of the same logits")
    text = f"{share:.3%} of the pixels have another class for the same logits"
    ours, theirs = bundle.passport.located.background, reference.located.background
    if ours != theirs:
        like = f"the bundle has threshold {ours:g}, the reference {theirs:g}"
    else:
        like = _like_post(bundle, replace(reference.post, layout=layout), logits, result)
    return Stage("post-processing", True, f"{like} ({text})" if like else text)


def _like_post(bundle: Bundle, right: Post, logits: NDArray[Any], result: Result) -> str:
    """Name the change of the right post-processing that makes the bundle's mask; empty where there is none."""
    passport = bundle.passport
    if passport.post.head != right.head:
        return f"the bundle has head '{passport.post.head}', the reference '{right.head}'"
    size = (result.mask.shape[0], result.mask.shape[1])
    region = None
    if passport.pre.fit == "letterbox":
        region = region_of(size, (passport.pre.height, passport.pre.width), passport.located.logits_size)
    for change, what in _changes(right, passport.post):
        try:
            mask = _argmax_resize(logits, size, replace(right, **change), region)
        except TrtpostError:  # a change that has no meaning here
            continue
        if (mask != result.mask).mean() < SAME_MASK:
            return what
    return ""


def _changes(right: Post, actual: Post) -> Iterator[tuple[dict[str, Any], str]]:
    """Change one setting at a time, then all to what the bundle's passport says; each comes with its name."""
    other: Layout = "NHWC" if right.layout == "NCHW" else "NCHW"
    yield {"layout": other}, f"the bundle reads the logits as {other}, and they are {right.layout}"
    for match in MATCHES[right.resize]:
        if match != right.match:
            yield {"match": match}, f"the bundle follows the convention '{match}', the reference '{right.match}'"
    resize: Resize = "bilinear" if right.resize == "nearest" else "nearest"
    yield {"resize": resize}, f"the bundle has resize '{resize}', the reference '{right.resize}'"
    if right.head == "threshold":
        what = f"the bundle has threshold {actual.threshold:g}, the reference {right.threshold:g}"
        yield {"threshold": actual.threshold}, what
    everything = {name: getattr(actual, name) for name in ("layout", "resize", "match", "threshold")}
    named = ", ".join(f"{name} '{value}'" for name, value in everything.items() if value != getattr(right, name))
    yield everything, f"the bundle has {named}" if named else "the bundle takes another part of the logits"


def _argmax_resize(logits: NDArray[Any], size: tuple[int, int], post: Post, region: Region | None) -> NDArray[Any]:
    if cpu.is_available() and str(logits.dtype) in (*cpu.LOGIT_TYPES, *cpu.LABEL_TYPES):
        return np.asarray(cpu.argmax_resize(logits, size, post, region=region)[0])
    if region is not None:
        top, left = slice(region.top, region.top + region.height), slice(region.left, region.left + region.width)
        logits = logits[:, :, top, left] if post.layout == "NCHW" and logits.ndim == 4 else logits[:, top, left]
    return np.asarray(argmax_resize(logits, size, post)[0])
