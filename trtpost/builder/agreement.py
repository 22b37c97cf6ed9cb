"""The accuracy gate: does a network of lower precision still say the same, and if not, where does it go wrong?

Both networks run on the CPU, in the arithmetic that their types promise of a GPU (`trtpost.graph.emulate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.describe import counted, percent
from trtpost.errors import BackendError, ModelError, reason
from trtpost.graph.baked import source_name
from trtpost.graph.baking.seam import seam, split
from trtpost.graph.emulate import BFLOAT16, FLOAT, FLOAT16, rounded, session, with_outputs
from trtpost.kernels.reference import labels_of
from trtpost.spec import Head, Layout, Post, Precision

LARGE_ERROR = 0.1
"""Relative error of a tensor from which on it may be what went wrong: masks bear less without harm."""

JUMP = 3.0
"""How many times the error of its inputs a tensor's error must be to be where things went wrong, and not downstream."""

GROUP_BYTES = 1 << 28
"""Tensors that are looked at together: what does not fit is looked at in another run."""

MADE_UP_SIDE = 256
"""Height and width of the made-up pictures where the graph takes any."""


@dataclass(frozen=True)
class Wrong:
    """A tensor that the lower precision spoils.

    Attributes:
        tensor: its name in the source model.
        op: operator that makes it.
        error: RMS of the difference over RMS of the reference, on the photo with the worst mask; infinite where values
            are NaN or infinite that are finite in the reference.
        before: the largest error of the tensors that it is made from.
    """

    tensor: str
    op: str
    error: float
    before: float


@dataclass(frozen=True)
class Agreement:
    """What a network says of photos, against a reference.

    Attributes:
        photos: how many were compared; 0: none were given, and two made-up pictures were looked at for NaN and
            infinities alone.
        share: how many of the pixels have the same class at the logits' resolution; None where there are no photos.
        mean_iou: mean over the classes that occur, the reference's masks as the truth; None where there are no photos.
        non_finite: number of tensors with NaN or infinities where the reference has none.
        wrong: the first tensor, in the order of the graph, that went wrong; None where nothing did.
    """

    photos: int
    share: float | None
    mean_iou: float | None
    non_finite: int
    wrong: Wrong | None


def compare(
    reference: onnx.ModelProto,
    reduced: onnx.ModelProto,
    pixels: Iterable[NDArray[np.uint8]],
    *,
    minimum: float = 0.0,
    on_photo: Callable[[], None] | None = None,
) -> Agreement:
    """Run both baked graphs up to their logits, on the CPU, and compare the masks at the logits' resolution.

    Args:
        reference, reduced: baked graphs of one network.
        pixels: photos as the graph takes them, uint8 [h, w, C] or [1, h, w, C], each read once.
        minimum: share of equal pixels under which the tensor that went wrong is searched for.
        on_photo: is called after each photo.

    Raises:
        BackendError: ONNX Runtime does not take a graph.
        ModelError: a graph is not baked.
    """
    post = _post_of(reference)
    networks = [rounded(split(model)[0]) for model in (reference, reduced)]
    shape = [dim.dim_value for dim in networks[0].graph.input[0].type.tensor_type.shape.dim]
    tensors = _shared_tensors(*networks)
    run_reference, run_reduced = _run(networks[0], []), _run(_with_probes(networks[1], tensors), _probes(tensors))
    equal = total = 0
    both, either = Counter[int](), Counter[int]()
    spoilt: set[str] = set()
    worst: tuple[float, NDArray[np.uint8]] | None = None
    photos = 0
    for photo in pixels:
        batch = _batch(photo, shape)
        found, *sums = run_reduced(batch)
        expected = labels_of(run_reference(batch)[0], post)
        spoilt |= _not_finite(networks[0], tensors, sums, batch)
        labels = labels_of(found, post)
        same = labels == expected
        share = float(same.mean())
        equal, total, photos = equal + int(same.sum()), total + same.size, photos + 1
        both += _counts(labels[same])
        either += _counts(labels) + _counts(expected[~same])
        if worst is None or share < worst[0]:
            worst = share, batch
        if on_photo is not None:
            on_photo()
    if not photos:
        for batch in _made_up(shape):
            spoilt |= _not_finite(networks[0], tensors, run_reduced(batch)[1:], batch)
    wrong = None
    if spoilt:
        first = next(name for name in tensors if name in spoilt)
        wrong = Wrong(source_name(first), tensors[first].op_type, float("inf"), 0.0)
    elif worst is not None and equal < minimum * total:
        wrong = _first_wrong(networks[0], networks[1], tensors, worst[1])
    return Agreement(
        photos=photos,
        share=equal / total if total else None,
        mean_iou=float(np.mean([both[index] / count for index, count in either.items()])) if either else None,
        non_finite=len(spoilt),
        wrong=wrong,
    )


def check(agreement: Agreement, precision: Precision, minimum: float) -> None:
    """Let an agreement pass, or say what is wrong with it.

    Args:
        agreement: what the network in `precision` says, against the network in its own.
        precision: what was asked for.
        minimum: share of pixels that must have the same class.

    Raises:
        ModelError: NaN or infinities, or less agreement than that.
    """
    wrong = agreement.wrong
    if agreement.non_finite and wrong is not None:
        instead = "bf16, which has the range of float32, or" if precision == "fp16" else "--precision"
        raise ModelError(
            f"--precision {precision} makes NaN or infinities of tensor '{wrong.tensor}' ({wrong.op}), which is finite "
            f"in float32: use {instead} fp32"
        )
    if agreement.share is None or agreement.share >= minimum:
        return
    where = ""
    if wrong is not None:
        where = (
            f"; the first tensor that goes wrong is '{wrong.tensor}' ({wrong.op}), {wrong.error:.2g} off (root mean "
            f"square, relative) where its inputs were {wrong.before:.2g} off"
        )
    raise ModelError(
        f"--precision {precision} keeps the class of {percent(agreement.share)} of the pixels of "
        f"{counted(agreement.photos, 'photo')}, and {percent(minimum)} are asked for (--min-agreement){where}: "
        f"{_REMEDIES[precision]}"
    )


_REMEDIES: dict[Precision, str] = {
    "int8": "calibrate with more photos like those that it will see (--calibration), or use --precision fp16",
    "fp16": "use --precision fp32, or bf16 if large values are the reason",
    "bf16": "use --precision fp16, which is finer, or fp32",
    "fp32": "this is a fault of trtpost",
}


def _post_of(baked: onnx.ModelProto) -> Post:
    """The decisions on labels that our node states."""
    values = {one.name: onnx.helper.get_attribute_value(one) for one in seam(baked).attribute}
    return Post(
        head=cast(Head, values["head"].decode()),
        layout=cast(Layout, values["layout"].decode()),
        threshold=values["threshold"],
    )


def _shared_tensors(reference: onnx.ModelProto, reduced: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """Float tensors that both graphs have by one name, with the reference's node, in the order of the reduced graph."""
    made = {name: node for node in reference.graph.node for name in node.output}
    types: list[dict[str, int]] = []
    for model in (reference, reduced):
        graph = onnx.shape_inference.infer_shapes(model).graph
        types.append({value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)})
    return {
        name: made[name]
        for node in reduced.graph.node
        for name in node.output
        if name in made and all(one.get(name) in (FLOAT, FLOAT16, BFLOAT16) for one in types)
    }


def _probes(tensors: Iterable[str]) -> list[str]:
    return [f"{name}/probe" for name in tensors]


def _with_probes(network: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """The network with a number for each tensor beside its logits: NaN where anything in the tensor is not finite.

    Nothing times zero is zero but what is finite, and NaN spoils a sum; so no tensor needs to be kept.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(network)
    copy.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((), np.float32), "probe/zero"))
    for name, probe in zip(tensors, _probes(tensors), strict=True):
        copy.graph.node.append(onnx.helper.make_node("Mul", [name, "probe/zero"], [f"{probe}/product"]))
        copy.graph.node.append(onnx.helper.make_node("ReduceSum", [f"{probe}/product"], [probe], keepdims=0))
    return copy


def _not_finite(
    reference: onnx.ModelProto, tensors: dict[str, onnx.NodeProto], sums: list[NDArray[Any]], batch: NDArray[np.uint8]
) -> set[str]:
    """Tensors that the probes' `sums` find not finite, and that are finite in the reference."""
    suspects = [name for name, value in zip(tensors, sums, strict=True) if not np.isfinite(value)]
    if not suspects:
        return set()
    _, *sums = _run(_with_probes(reference, suspects), _probes(suspects))(batch)
    return {name for name, value in zip(suspects, sums, strict=True) if np.isfinite(value)}


def _first_wrong(
    reference: onnx.ModelProto,
    reduced: onnx.ModelProto,
    tensors: dict[str, onnx.NodeProto],
    batch: NDArray[np.uint8],
) -> Wrong | None:
    """The first tensor with a large error that its inputs do not explain; where all drift, the first with a large one.

    An error passes on from tensor to tensor and grows a little at each: the first to be far off is where it began only
    if what it was made from was not nearly as far off.
    """
    errors: dict[str, float] = {}
    before: dict[str, float] = {}
    drifted = None
    for group in _groups(reference, list(tensors)):
        pairs = zip(
            *(_run(with_outputs(model, group), group)(batch)[1:] for model in (reference, reduced)), strict=True
        )
        for name, (expected, found) in zip(group, pairs, strict=True):
            errors[name] = relative_error(expected, found)
            before[name] = max((errors.get(source, 0.0) for source in tensors[name].input), default=0.0)
            if errors[name] > LARGE_ERROR:
                if errors[name] >= JUMP * before[name]:
                    return Wrong(source_name(name), tensors[name].op_type, errors[name], before[name])
                drifted = drifted or name
    name = drifted or max(errors, key=lambda one: errors[one], default="")
    return Wrong(source_name(name), tensors[name].op_type, errors[name], before[name]) if name else None


def _groups(network: onnx.ModelProto, names: list[str]) -> Iterator[list[str]]:
    """The names in groups of which two copies fit into memory; a tensor whose size is not known goes alone."""
    sizes = {}
    for value in (*network.graph.value_info, *network.graph.output):
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        sizes[value.name] = 4 * int(np.prod([max(dim, 1) for dim in dims])) if all(dims[1:]) else GROUP_BYTES
    group: list[str] = []
    filled = 0
    for name in names:
        size = sizes.get(name, GROUP_BYTES)
        if group and filled + size > GROUP_BYTES:
            yield group
            group, filled = [], 0
        group.append(name)
        filled += size
    if group:
        yield group


def relative_error(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """The RMS of the difference over the RMS of `expected`, where that is finite."""
    expected, found = expected.astype(np.float32), found.astype(np.float32)
    counted = np.isfinite(expected)
    scale = float(np.sqrt(np.mean(np.square(expected, where=counted, out=np.zeros_like(expected)))))
    difference = np.subtract(found, expected, where=counted, out=np.zeros_like(expected))
    distance = float(np.sqrt(np.mean(np.square(difference))))
    return distance / scale if scale else float(distance > 0)


def _counts(labels: NDArray[np.int32]) -> Counter[int]:
    return Counter(dict(zip(*(part.tolist() for part in np.unique(labels, return_counts=True)), strict=True)))


def _batch(photo: NDArray[np.uint8], shape: list[int]) -> NDArray[np.uint8]:
    """The photo alone, or as often as a network of fixed batch wants it."""
    images = photo if photo.ndim == 4 else photo[None]
    return np.repeat(images, max(shape[0], 1) // len(images), axis=0) if len(images) < shape[0] else images


def _made_up(shape: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Noise and a gradient, uint8 [N, h, w, C]."""
    batch, height, width, channels = (
        dim or default for dim, default in zip(shape, (1, MADE_UP_SIDE, MADE_UP_SIDE, 3), strict=True)
    )
    yield np.random.default_rng(0).integers(0, 256, (batch, height, width, channels), np.uint8)
    levels = np.linspace(0, 255, width).astype(np.uint8)
    yield np.ascontiguousarray(np.broadcast_to(levels[None, None, :, None], (batch, height, width, channels)))


def _run(model: onnx.ModelProto, more: list[str]) -> Callable[[NDArray[np.uint8]], list[NDArray[Any]]]:
    """Make what runs a network from `image` to its logits and the tensors named in `more`."""
    outputs = [model.graph.output[0].name, *more]
    try:
        runner = session(with_outputs(model, more))
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise BackendError(f"ONNX Runtime does not take the network: {reason(error)}") from None

    def run(batch: NDArray[np.uint8]) -> list[NDArray[Any]]:
        try:
            results: list[NDArray[Any]] = runner.run(outputs, {"image": batch})
        except Exception as error:
            raise BackendError(f"ONNX Runtime failed: {reason(error)}") from None
        return results

    return run
