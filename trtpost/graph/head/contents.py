"""What the values of a tensor are: class ids, scores of classes, or probabilities, and of how many classes."""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.bounds import bounds_of
from trtpost.graph.head.class_ids import are_levels, holds_whole_numbers, ids_behind
from trtpost.graph.head.layout import channel_axis, layout_or_ask
from trtpost.graph.head.unflatten import unfolded
from trtpost.graph.walks import behind, dims, dtype_name, is_whole, maker_of, nodes_before
from trtpost.spec import Head, Layout


def argmax_before(output: gs.Variable) -> gs.Node | None:
    """The ArgMax (or ArgMin, or TopK) that labels come from, through ops that only move them about."""
    labels = behind(output, ops.MOVING_LABELS)
    node = maker_of(labels)
    if node is None or not (node.op in ops.INDEXING or (node.op == "TopK" and labels is node.outputs[1])):
        return None
    return node


def are_labels(value: gs.Variable) -> bool:
    """True for class ids: the result of an ArgMax and what was whole after it, or whole numbers that stand for none
    that are not: neither quantised logits nor levels of a probability."""
    if argmax_before(value) is not None or (ids_behind(value) is not None and holds_whole_numbers(value)):
        return True
    return is_whole(value) and not are_levels(value)


def are_one_label_a_pixel(tensor: gs.Variable) -> bool:
    """True for class ids without an axis for classes."""
    shape = dims(tensor)
    return are_labels(tensor) and (len(shape) < 4 or 1 in (shape[1], shape[3]) or argmax_before(tensor) is not None)


def are_fractions(tensor: gs.Variable) -> bool:
    """True for probabilities."""
    low, high = bounds_of(tensor)
    return low >= 0 and high <= 1 and not holds_whole_numbers(tensor)


def are_independent(output: gs.Variable) -> bool:
    """True where scores of several classes come from a Sigmoid each, so that none, or several, may be large."""
    if not all(map(math.isfinite, bounds_of(output))):
        return False  # a gate: what it multiplies has no limits
    before = nodes_before(output, lambda node: node.inputs if node.op in ops.CHANNELWISE else [])
    return any(node.op.removeprefix("QLinear") in ops.SIGMOIDS for node in before)


def limits_of(tensor: gs.Variable) -> tuple[float, float] | None:
    """The least and the greatest value of scores, (0, 1) behind a Sigmoid; None where nothing bounds them."""
    low, high = bounds_of(tensor)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None


def head_of(tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]) -> Head:
    """What makes a mask of a tensor: class ids are one, scores of one channel have a threshold, others an ArgMax.

    Raises:
        ModelError: the layout that tells the channels cannot be told; the message names the flag.
    """
    if are_one_label_a_pixel(tensor):
        return "labels"
    view = unfolded(tensor, input_size, layout=layout, guess=True)
    shape = dims(tensor)
    channels: int | str = 0
    if view is not None:
        channels = view.classes
    elif len(shape) == 4:
        channels = shape[channel_axis(layout_or_ask(tensor, layout, input_size))]
    return "threshold" if channels == 1 else "argmax"


def label_count(tensor: gs.Variable) -> int:
    """How many classes labels can name: from the ArgMax before them, or their type; 0 where neither tells.

    Raises:
        ModelError: more than a mask can hold.
    """
    argmax = argmax_before(tensor)
    low, high = bounds_of(tensor)
    if argmax is not None and math.isfinite(high):
        return int(high) + 1
    if ids_behind(tensor) is not None and math.isfinite(high) and not -(1 << 31) <= low <= high < 1 << 31:
        raise ModelError(
            f"the class ids of '{tensor.name}' go from {low:.0f} to {high:.0f}, and masks hold 32 bits: name those "
            f"before with --logits '{getattr(ids_behind(tensor), 'name', '')}'"
        )
    return {"bool": 2, "uint8": 256}.get(dtype_name(tensor), 0)
