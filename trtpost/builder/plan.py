"""The step that builds the TensorRT plan of a baked graph."""

from __future__ import annotations

from dataclasses import replace

import onnx

from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.backends.tensorrt.flavour import NAME_LIMIT
from trtpost.builder.options import BuildOptions
from trtpost.bundle.passport import Passport
from trtpost.describe import describe_built, describe_float_plan, describe_reserved
from trtpost.graph.precision.float_quantization import is_asymmetric
from trtpost.progress import Progress

LARGE = 2 << 30
"""Bytes that one tensor of a plan may take without a warning."""


def planned(
    baked: onnx.ModelProto, passport: Passport, flavour: str, options: BuildOptions, progress: Progress
) -> tuple[bytes, Passport]:
    """Build the plan.

    Returns:
        Its content, and the passport with what is to be known of it.

    Raises:
        BackendError: TensorRT does not take the graph, or would compute in another precision.
    """
    if options.post == "native" and (size := _interpolated(passport)) > LARGE:
        progress.warn(describe_reserved(size, passport.max_size))
    if is_asymmetric(baked):
        progress.warn(describe_float_plan())
    with progress.step("build") as step:
        plan, facts = build_plan(
            baked,
            _profile(passport),
            flavour,
            options,
            spec=(passport.pre, passport.post),
            name=passport.to_name(NAME_LIMIT),
            step=step,
            warn=progress.warn,
        )
        step.result = describe_built(facts, len(plan))
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
