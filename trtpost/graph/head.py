"""The output side of a network: which output is the mask's, and from which tensor the post-processing starts."""

from __future__ import annotations

import math
import re

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph.layout import TO_NCHW, TO_NHWC, channel_axis, layout_of
from trtpost.graph.tensors import dims, dtype_name, is_whole, listing, number
from trtpost.spec import Layout

_AUXILIARY = re.compile(r"(^|[^a-z])(aux|auxiliary|deep_?supervision)", re.IGNORECASE)
_RETYPING_OPS = frozenset({"Cast", "Squeeze", "Unsqueeze", "Identity"})
"""Leave every label where it is."""
_LABEL_OPS = _RETYPING_OPS | {"Reshape", "Transpose", "Resize", "Gather", "Slice"}
"""Move labels about, but make no new ones."""


def segmentation_output(graph: gs.Graph) -> gs.Variable:
    """The output that holds the mask.

    Raises:
        ModelError: there is none, or several; the message lists them and names the flag.
    """
    candidates = [value for value in graph.outputs if _may_be_mask(value)]
    if not candidates:
        raise ModelError(
            "no output looks like a segmentation head (logits of four dimensions, or integer labels): "
            f"the model gives {listing(graph.outputs)}; name the logits' tensor with --logits"
        )
    for narrowing in (_without_auxiliary, _without_descendants, _largest):
        if len(candidates) > 1:
            candidates = narrowing(candidates)
    if len(candidates) > 1:
        raise ModelError(
            f"several outputs may be the segmentation head: {listing(candidates)}; choose one with --logits NAME"
        )
    return candidates[0]


def _may_be_mask(value: gs.Variable) -> bool:
    """Two axes of more than one pixel, and a type that logits or labels have."""
    ranks = (2, 3, 4) if is_whole(value) or argmax_before(value) is not None else (4,)
    return len(dims(value)) in ranks and sum(not isinstance(dim, int) or dim > 1 for dim in dims(value)) >= 2


def _without_auxiliary(candidates: list[gs.Variable]) -> list[gs.Variable]:
    return [value for value in candidates if not _AUXILIARY.search(value.name)] or candidates


def _without_descendants(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Of logits and the Softmax or ArgMax of the same logits, keep the first, which hold the most."""
    known = {id(value) for value in candidates}
    kept = []
    for value in candidates:
        tensor, descends = value, False
        while tensor.inputs and tensor.inputs[0].op in _RETYPING_OPS | {"Softmax", "Sigmoid", "ArgMax", "Transpose"}:
            tensor = tensor.inputs[0].inputs[0]
            descends = descends or id(tensor) in known
        if not descends:
            kept.append(value)
    return kept


def _largest(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Deep supervision: heads of the same classes at several resolutions; the finest is the one that people use."""
    if len({len(dims(value)) for value in candidates}) != 1 or any(
        not isinstance(dim, int) for value in candidates for dim in dims(value)[1:]
    ):
        return candidates
    channels = {min(dims(value)[1], dims(value)[-1]) for value in candidates}
    areas = [math.prod(map(number, dims(value)[1:])) for value in candidates]
    if len(channels) != 1 or areas.count(max(areas)) != 1:
        return candidates
    return [candidates[areas.index(max(areas))]]


def argmax_before(output: gs.Variable) -> gs.Node | None:
    """The ArgMax that labels come from, through ops that only move them about."""
    tensor = output
    while tensor.inputs and tensor.inputs[0].inputs:
        node = tensor.inputs[0]
        if node.op == "ArgMax":
            return node
        if node.op not in _LABEL_OPS:
            return None
        tensor = node.inputs[0]
    return None


def logits_before_argmax(output: gs.Variable) -> tuple[gs.Variable, Layout] | None:
    """What a final ArgMax was taken of, in the layout that its axis tells; None where labels were moved after it."""
    tensor = output
    while tensor.inputs and tensor.inputs[0].op in _RETYPING_OPS:
        tensor = tensor.inputs[0].inputs[0]
    if not tensor.inputs or tensor.inputs[0].op != "ArgMax":
        return None
    node = tensor.inputs[0]
    axis = node.attrs.get("axis", 0) % 4
    if len(dims(node.inputs[0])) != 4 or axis not in (1, 3):
        return None
    return node.inputs[0], "NCHW" if axis == 1 else "NHWC"


def before_retyping(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    """Integer labels before the Cast, Squeeze or Unsqueeze that ends the network, and the ops stepped over."""
    tensor, best, dropped, kept = output, output, [], 0
    while tensor.inputs and tensor.inputs[0].op in _RETYPING_OPS and tensor.inputs[0].inputs[0].inputs:
        dropped.append(tensor.inputs[0].op)
        tensor = tensor.inputs[0].inputs[0]
        if is_whole(tensor) and len(dims(tensor)) in (2, 3, 4):
            best, kept = tensor, len(dropped)
    return best, tuple(dropped[:kept])


def before_needless(
    output: gs.Variable, layout: Layout | None, input_size: tuple[int, int]
) -> tuple[gs.Variable, tuple[str, ...]]:
    """Logits before what ArgMax makes needless, and the ops stepped over.

    Those are Softmax over the classes, Sigmoid of several channels, a final QuantizeLinear, and a trailing Transpose.
    """
    tensor, dropped = output, []
    while tensor.inputs and len(tensor.inputs[0].outputs) == 1:
        node = tensor.inputs[0]
        before = node.inputs[0] if node.inputs else None
        if before is None or isinstance(before, gs.Constant) or len(dims(before)) != 4:
            break
        if node.op == "Transpose":
            # an override names the layout of what the model gives, so it holds only before anything is skipped
            if layout is not None or list(node.attrs.get("perm", [])) not in (TO_NHWC, TO_NCHW):
                break
        elif node.op in ("Softmax", "LogSoftmax", "Sigmoid"):
            found = layout or layout_of(tensor, input_size)
            axis = channel_axis(found) if found else 0
            if not axis or dims(tensor)[axis] == 1 or (node.op != "Sigmoid" and node.attrs.get("axis", -1) % 4 != axis):
                break
        elif node.op != "Identity" and not (node.op == "QuantizeLinear" and dtype_name(before).startswith("float")):
            break
        if node.op != "Identity":
            dropped.append(node.op)
        tensor = before
    return tensor, tuple(dropped)


def label_count(tensor: gs.Variable) -> int:
    """How many classes labels can name: from the ArgMax before them, or their type; 0 where neither tells."""
    argmax = argmax_before(tensor)
    if argmax is not None and dims(argmax.inputs[0]):
        shape = dims(argmax.inputs[0])
        return number(shape[argmax.attrs.get("axis", 0) % len(shape)])
    return {"bool": 2, "uint8": 256}.get(dtype_name(tensor), 0)


def is_probability(tensor: gs.Variable) -> bool:
    """True behind a Sigmoid."""
    while tensor.inputs and tensor.inputs[0].inputs:
        node = tensor.inputs[0]
        if node.op in ("Sigmoid", "HardSigmoid"):
            return True
        if node.op not in _LABEL_OPS | {"QuantizeLinear", "DequantizeLinear"}:
            return False
        tensor = node.inputs[0]
    return False
