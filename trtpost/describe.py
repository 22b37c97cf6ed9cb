"""What was found and decided, in a line each, for people."""

from __future__ import annotations

from trtpost.bundle.passport import Passport
from trtpost.spec import Located, Post, Pre

PLACES = {
    "native": "TensorRT's own layers make the mask",
    "kernel": "it ends in logits, our kernel makes the mask",
    "plugin": "our plugin makes the mask",
}


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
    what = {
        "argmax": f"logits of {located.classes} classes",
        "threshold": f"one channel, {unit}",
        "labels": "class ids already",
    }[located.head]
    if located.background is not None:
        what = f"a {unit} for each of {located.classes - 1} classes, and none for the background"
    if located.is_flat and all(isinstance(side, int) for side in located.shape[1:]):
        what += f", flattened from {'x'.join(map(str, located.shape[1:]))}"
    before = f", taken before its {' and '.join(reversed(located.dropped))}" if located.dropped else ""
    return (
        f"input '{located.input}' {located.input_dtype} {located.input_layout} {size}; "
        f"output '{located.output}': {what}{before}"
    )


def describe_spec(pre: Pre, post: Post, origin: str, background: float | None = None) -> str:
    """One line on what was baked; `background` as in `Located`."""
    size = "x".join(map(str, post.size)) if isinstance(post.size, tuple) else post.size
    normalization = "raw pixels" if pre.is_identity else f"(pixel - {_terse(pre.mean)}) / {_terse(pre.std)}"
    head = f"threshold > {post.threshold:g}" if post.head == "threshold" else post.head
    if background is not None:
        head = f"the largest that is > {background:g}, else background"
    steps = f"{head}, {post.resize} resize as in '{post.match}', size {size}"
    fit = ", letterboxed" if pre.fit == "letterbox" else ""
    return f"{pre.channels} {normalization} ({origin}){fit}; {steps}"


def describe_precision(passport: Passport) -> str:
    """One line on the precision that was asked for, and how much of the mask survived it."""
    from trtpost.builder import agreement

    if passport.precision == "fp32":
        return "as in the source model"
    if passport.agreement is None:
        return f"{passport.precision}; agreement with the source model was not measured"
    return (
        f"{passport.precision}; {agreement.percent(passport.agreement)} of the pixels of "
        f"{agreement.counted(passport.photos, 'photo')} have the same class as before, mean IoU {passport.mean_iou:.4f}"
    )


def describe_precisions(precisions: dict[str, int]) -> str:
    """How many compute layers of a plan compute in which precision."""
    counts = ", ".join(f"{count} in {name}" for name, count in precisions.items())
    return f"compute layers: {counts or 'none'}"


def _terse(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"
