"""Class ids after the ArgMax that made them: whether they still are ids, and what was made of them if not.

Networks add 1 to their ids, replace those that they are not sure of, look them up in tables, and paint pictures of
them. As long as every value is provably a whole number, the values are the mask; else they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.bounds import bounds_of, range_of
from trtpost.graph.walks import branches_of, constant_values, dims, is_constant, is_whole, maker_of, proven, reached

_WITH_IDS = ops.KEEPING_IDS | ops.CHOOSING_IDS | ops.COUNTING_WITH_IDS | ops.SPOILING_IDS
"""Operators whose results were computed from ids where their inputs were."""


def values_of(node: gs.Node) -> list[gs.Tensor]:
    """The inputs of a node whose values come out of it, not shapes, indices and conditions."""
    if node.op == "Where":
        return list(node.inputs[1:])
    if node.op in ("ScatterND", "ScatterElements"):
        return [node.inputs[0], node.inputs[2]]
    if node.op == "Gather" and is_constant(node.inputs[0]):
        return list(node.inputs[:2])  # a table: what it is asked for decides what comes out
    if node.op == "Pad":
        return [node.inputs[0], *(value for value in node.inputs[2:3] if value.name)]
    one = node.op in ops.KEEPING_IDS | ops.SPOILING_IDS - {"Div", "Mean"}
    return list(node.inputs[:1] if one else node.inputs)


def ids_behind(tensor: gs.Tensor) -> gs.Tensor | None:
    """The class ids, as ArgMax, ArgMin or TopK gave them, that a tensor was computed from; None without any."""
    return next(filter(_made_ids, _ancestors(tensor)), None)


def _made_ids(value: gs.Tensor) -> bool:
    node = maker_of(value)
    return node is not None and (node.op in ops.INDEXING or (node.op == "TopK" and value is node.outputs[1]))


def _ancestors(tensor: gs.Tensor) -> Iterator[gs.Tensor]:
    """The tensor, and those whose values it was computed from, back to class ids."""

    def before(value: gs.Tensor) -> list[gs.Tensor]:
        node = maker_of(value)
        if node is None or _made_ids(value):
            return []
        return branches_of(value) or (values_of(node) if node.op in _WITH_IDS else [])

    return reached([tensor], before, last_first=True)


def holds_whole_numbers(tensor: gs.Tensor, *, rounded: bool = True) -> bool:
    """True where every value is provably a whole number.

    Args:
        tensor: values of any type.
        rounded: count real numbers that were rounded, or cast to integers; else only what was whole from the start,
            as ids, comparisons and constants are.
    """

    def premises(value: gs.Tensor) -> list[gs.Tensor] | None:
        constant, node = constant_values(value), maker_of(value)
        if constant is not None:
            real = constant.dtype.kind not in "iub"
            return None if real and not np.all(np.isfinite(constant) & (constant == np.rint(constant))) else []
        if rounded and is_whole(value):
            return []
        if node is None:
            return None
        if branches := branches_of(value):
            return branches
        if _made_ids(value) or node.op in ops.COMPARING or (rounded and node.op in ops.ROUNDING):
            return []
        if node.op == "Resize" and node.attrs.get("mode", "nearest") != "nearest":
            return None
        if node.op in _WITH_IDS - ops.SPOILING_IDS:
            return values_of(node) + [one for one in node.inputs[1:] if node.op == "Clip" and one.name]
        return [] if is_whole(value) and not node.op.startswith(("Quantize", "QLinear")) else None

    return proven(tensor, premises)


def are_levels(tensor: gs.Tensor) -> bool:
    """True for integers that were real numbers before: levels of a probability from 0 to 255, and no ids."""
    return is_whole(tensor) and not holds_whole_numbers(tensor, rounded=False)


def refuse_unknown_integers(tensor: gs.Variable) -> None:
    """Refuse integers that were real numbers without limits before: levels, class ids, or neither.

    Raises:
        ModelError: they are.
    """
    low, high = bounds_of(tensor)
    if are_levels(tensor) and high - low >= 1 << 16 and 1 in dims(tensor)[1:]:
        raise ModelError(
            f"nothing tells what the integers of '{tensor.name}' are, which were real numbers before: say --head "
            "labels, or --head threshold with --threshold"
        )


def keeps_values(cast: gs.Node) -> bool:
    """False for a Cast to a type that may not hold what it is given: ids become others, or 0 and 1."""
    given, held = cast.inputs[0], range_of(cast.outputs[0])
    (low, high), (least, greatest) = bounds_of(given), range_of(given)
    return held[0] <= max(low, least) and min(high, greatest) <= held[1]


def narrowed(tensor: gs.Tensor) -> str | None:
    """A warning where ids were cast to a type that does not hold them, and have become others; else None."""
    for held in _ancestors(tensor):
        cast = maker_of(held)
        if cast is None or cast.op != "Cast" or str(held.dtype) == "bool" or keeps_values(cast):
            continue
        value = cast.inputs[0]
        high = min(bounds_of(value)[1], range_of(value)[1])
        if ids_behind(value) is not None and high > range_of(held)[1]:
            return (
                f"the network casts its class ids, up to {high:.0f}, to {np.dtype(held.dtype).name}, where "
                f"they become others, as in its own output; if that is a fault, name those before with --logits "
                f"'{value.name}'"
            )
    return None


def refuse_what_ids_became(tensor: gs.Variable, *, head: str | None) -> None:
    """Refuse pictures of ids, and ids that are no whole numbers any more.

    Args:
        tensor: what the post-processing would take.
        head: what the user says that it is.

    Raises:
        ModelError: it is one of these; the message names the ids.
    """
    ids = ids_behind(tensor)
    if ids is None or tensor is ids:
        return
    instead = f"take them as they are with --logits '{ids.name}'"
    makers = filter(None, map(maker_of, _ancestors(tensor)))
    if any(_paints(node) and any(map(ids_behind, values_of(node))) for node in makers):
        raise ModelError(
            f"'{tensor.name}' is no mask but a picture of the class ids '{ids.name}', with several values for each: "
            f"{instead}"
        )
    if head is None and not holds_whole_numbers(tensor):
        raise ModelError(
            f"'{tensor.name}' was computed from the class ids '{ids.name}', but may hold what is no whole number: "
            f"{instead}, or say what it is with --head"
        )


def _paints(node: gs.Node) -> bool:
    """True for a node that gives several values for each id: a palette, or ids beside something else."""
    if node.op == "Gather" and is_constant(node.inputs[0]):
        table = constant_values(node.inputs[0])
        one_hot = table is not None and table.ndim == 2 and bool((table.argmax(-1) == np.arange(len(table))).all())
        return table is not None and table.ndim > 1 and table[0].size > 1 and not one_hot
    after = dims(node.outputs[0])
    if node.op == "Concat":
        axis = node.attrs["axis"]
        return len(node.inputs) > 1 and all(dims(one) and dims(one)[axis] == 1 for one in node.inputs)
    if node.op in ("Expand", "Tile"):
        before = dims(node.inputs[0])
        before = (1,) * (len(after) - len(before)) + before
        return any(one == 1 and other not in (1, "") for one, other in zip(before[-len(after) :], after, strict=False))
    return False
