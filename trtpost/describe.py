"""Every sentence about a model, a bundle or a plan: what was found and decided, in a line each, for people."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from trtpost.spec import Compatibility, Located, Origin, Place, Post, Pre

if TYPE_CHECKING:
    from trtpost.bundle.folder import Bundle
    from trtpost.bundle.passport import Check, Passport, Plan, Verification

ORIGINS: dict[Origin, str] = {
    "flag": "--normalize",
    "quantised": "the input is uint8",
    "metadata": "the model's metadata",
    "inside": "normalised inside the network",
    "unit": "the network goes on from 0..1",
    "assumed": "assumed",
}
"""Who says how pixels are normalised."""

_PLACES: dict[Place, str] = {
    "native": "TensorRT's own layers make the mask",
    "kernel": "it ends in logits, our kernel makes the mask",
    "plugin": "our plugin makes the mask",
}


_OTHER_GPUS: dict[Compatibility, str] = {
    "none": "",
    "ampere+": " and all newer than 8.0",
    "same": " on any GPU of it",
}


def describe_doubts(located: Located, pre: Pre, origin: Origin, wrong: str = "") -> list[str]:
    """What was concluded from the graph and may be wrong: a sentence each, with the flag that settles it.

    Args:
        wrong: what speaks against a normalisation that was assumed; empty where nothing does.
    """
    found = list(located.doubts)
    if origin == "assumed":
        outcome = f"it looks WRONG: {wrong}" if wrong else "a wrong guess spoils the mask"
        found.append(
            f"the model does not say how pixels are normalised: (pixel - 127.5) / 127.5 is ASSUMED, and {outcome}; "
            "settle it with --normalize"
        )
    if origin == "flag" and located.expects == "pixels" and not pre.is_identity:
        found.append("the network begins with a normalisation of its own, so --normalize makes it the second one")
    if origin == "unit":
        found.append(
            "the network's own normalisation looks made for pixels of 0..1, so they are divided by 255 before it; "
            "if it is not, settle it with --normalize"
        )
    if located.others:
        names = ", ".join(f"'{name}'" for name in located.others)
        found.append(f"the model has other outputs, {names}, which are left out; choose one with --logits")
    return found


def describe_check(check: Check, seconds: float | None = None) -> str:
    """One line on how far a conversion was off, which took so long to see."""
    took = "" if seconds is None else f" ({seconds:.1f} s)"
    return f"{_difference(check)} on two pictures; rounding explains up to {_amount(check.bound, check)}{took}"


def describe_failed_check(check: Check) -> str:
    """What a conversion does that is further off than rounding explains."""
    return (
        f"what it was converted to does not compute the same: {_difference(check)} on made pictures, where rounding "
        f"explains up to {_amount(check.bound, check)}; that is a fault of the conversion, so export the model in "
        "another format, or as ONNX, and see whether that goes; --no-check goes on all the same"
    )


def describe_dynamic_range(check: Check) -> str:
    """Why masks of a model with dynamic-range quantisation are not quite those of its interpreter."""
    return (
        "the model has dynamic-range quantisation: TFLite's interpreter rounds activations to 8 bits on the fly, and "
        f"here they stay floats, so {_difference(check)}, and a few pixels of the mask with it; that is no fault"
    )


def _difference(check: Check) -> str:
    """By how much a converted network and its source differ."""
    mean = "" if check.unit == "pixels" else " in the quadratic mean"
    return f"output '{check.output}' differs from {check.framework} by {_amount(check.difference, check)}{mean}"


def _amount(value: float, check: Check) -> str:
    if check.unit == "steps":
        return f"{value:.1f} steps of quantisation"
    return f"{value:.2%} of the pixels" if check.unit == "pixels" else f"{value:.1g} of its range"


def describe_negative(ignored: int) -> str:
    """What becomes of class ids below zero."""
    return f"class ids below zero become {ignored} in the mask, as `ignore` is written in Pascal VOC and Cityscapes"


def describe_spoilt(weight: str) -> str:
    """What may be wrong of a mask where a weight is no number."""
    return f"weight '{weight}' holds NaN or infinities, so the mask is likely to be wrong everywhere"


def describe_reserved(length: int, max_size: tuple[int, int]) -> str:
    """What a plan reserves so many bytes for, with the flags that save them."""
    return (
        f"bilinear by TensorRT's own layers reserves memory for the interpolated logits, {length / 2**30:.0f} GiB "
        f"for masks of {max_size[0]}x{max_size[1]}: --post kernel needs none, a smaller --max-size less"
    )


def describe_float_plan() -> str:
    """What becomes of a network whose quantisation TensorRT does not take, with what to do."""
    return (
        "the network is quantised with uint8 or with zero points, and TensorRT takes symmetric int8 alone: the plan "
        "computes the same values in float, without the speed of int8; for that quantise the network symmetrically "
        "(ONNX Runtime: activations and weights QInt8, ActivationSymmetric), or give the float model it was made from "
        "and --precision int8; --precision fp16 makes this one faster"
    )


def describe_choice(located: Located) -> str:
    """What may be wrong where `located.is_choice`, with the flag that settles it."""
    return (
        f"each of the {located.classes} classes has a Sigmoid of its own, and the largest wins, however small it is; "
        "if none of them is the background, say --head multilabel, and where none exceeds --threshold is background; "
        "else say --head argmax"
    )


def describe_located(located: Located) -> str:
    """One line on where input and logits are."""
    size = "x".join(map(str, located.input_size))
    unit = "logit"
    if located.limits is not None:
        low, high = located.limits
        unit = "probability" if (low, high) == (0, 1) else f"value from {low:g} to {high:g}"
    scores = "probabilities" if located.limits == (0, 1) else "logits"
    what = {
        "argmax": f"{scores} of {located.classes} classes",
        "threshold": f"one channel, {unit}",
        "labels": "class ids already",
    }[located.head]
    if located.background is not None:
        what = f"a {unit} for each of {located.classes - 1} classes, and none for the background"
    if located.is_flat and all(isinstance(side, int) for side in located.shape[1:]):
        what += f", flattened from {'x'.join(map(str, located.shape[1:]))}"
    if (covers := located.covers) is not None:
        rows, columns = (
            f"{covers.top:g} to {covers.top + covers.height:g}",
            f"{covers.left:g} to {covers.left + covers.width:g}",
        )
        what += f", on rows {rows} and columns {columns} of the input"
        what += f", outside class {covers.outside}" if covers.outside is not None else ""
    before = f", taken before its {' and '.join(reversed(located.dropped))}" if located.dropped else ""
    return (
        f"input '{located.input}' {located.input_dtype} {located.input_layout} {size}; "
        f"output '{located.output}': {what}{before}"
    )


def describe_spec(pre: Pre, post: Post, origin: Origin, background: float | None = None) -> str:
    """One line on what was baked; `background` as in `Located`."""
    size = "x".join(map(str, post.size)) if isinstance(post.size, tuple) else post.size
    normalization = "raw pixels" if pre.is_identity else f"(pixel - {_terse(pre.mean)}) / {_terse(pre.std)}"
    head = f"threshold > {post.threshold:g}" if post.head == "threshold" else post.head
    if background is not None:
        head = f"the largest that is > {background:g}, else background"
    steps = f"{head}, {post.resize} resize as in '{post.match}', size {size}"
    fit = ", letterboxed" if pre.fit == "letterbox" else ""
    return f"{pre.channels} {normalization} ({ORIGINS[origin]}){fit}; {steps}"


def describe_precision(passport: Passport) -> str:
    """One line on the precision that was asked for, and how much of the mask survived it."""
    if passport.precision == "fp32":
        return "as in the source model"
    if passport.agreement is None:
        return f"{passport.precision}; agreement with the source model was not measured"
    return (
        f"{passport.precision}; {percent(passport.agreement)} of the pixels of "
        f"{counted(passport.photos, 'photo')} have the same class as before, mean IoU {passport.mean_iou:.4f}"
    )


def describe_precisions(precisions: dict[str, int]) -> str:
    """How many compute layers of a plan compute in which precision."""
    counts = ", ".join(f"{count} in {name}" for name, count in precisions.items())
    return f"compute layers: {counts or 'none'}"


def describe_plan(plan: Plan) -> str:
    """One line on what runs a plan."""
    gpus = ", ".join(plan.target) + _OTHER_GPUS[plan.hardware_compatibility]
    return f"{plan.flavour} {plan.version}, compute capability {gpus}; {_PLACES[plan.post]}"


def describe_built(plan: Plan, length: int) -> str:
    """One line on a plan of so many bytes that was built just now."""
    return (
        f"{plan.flavour} {plan.version}: {sum(plan.layers.values())} layers; "
        f"{describe_precisions(plan.precisions)}; {_PLACES[plan.post]}; "
        f"{length / 1e6:.1f} MB plan for compute capability {', '.join(plan.target)}"
    )


def describe_verification(score: Verification | None) -> str:
    """One line on the last `trtpost verify`."""
    if score is None:
        return "not yet: trtpost verify BUNDLE --against MODEL --images FOLDER"
    ties = "ties cannot be told" if score.ties is None else f"{score.ties:,} ties"
    return (
        f"{score.agreement:.4%} of the pixels of {score.photos} photos have the class that {score.against} gives, "
        f"{score.real:,} really differ, {ties}, mean IoU {score.mean_iou:.4f}; on {score.engine}"
    )


def next_step(bundle: Bundle, flavour: str) -> str:
    """What the bundle holds and what to do with it, for the last line of a build that asked for `flavour`."""
    if bundle.passport.plan is not None:
        holds = f"holds the portable engine and a {bundle.passport.plan.flavour} plan"
    else:
        from trtpost.backends.tensorrt.suitable import builder_here

        builder, reason = builder_here()
        why = "--flavour none" if flavour == "none" else reason if builder is None else "see the warning above"
        holds = f"holds the portable engine only, no TensorRT plan ({why})"
    return f"{bundle.path} {holds}; run it: trtpost infer PHOTO --engine {shlex.quote(str(bundle.path))}"


def percent(share: float) -> str:
    """A share of 0..1 with two figures behind the point, four where it is close to all; never rounded up to that."""
    digits = 4 if share > 0.999 else 2
    return f"{math.floor(share * 10 ** (digits + 2)) / 10**digits:.{digits}f}%"


def counted(number: int, thing: str) -> str:
    """`1 photo`, `2 photos`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _terse(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"
