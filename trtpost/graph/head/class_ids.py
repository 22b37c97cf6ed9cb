"""Class ids after the ArgMax that made them: whether they still are ids, and what was made of them if not.

Networks add 1 to their ids, replace those that they are not sure of, look them up in tables, and paint pictures of
them. As long as every value is provably a whole number, the values are the mask; else they are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph.head.bounds import COMPARISONS, bounds_of, range_of
from trtpost.graph.walks import branches_of, constant_values, dims, is_constant, is_whole

ROUNDING_OPS = frozenset({"Round", "Floor", "Ceil"})
"""Leave whole numbers as they are."""

_MOVING = frozenset(
    {
        *("Identity", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Slice", "Split"),
        *("Gather", "GatherND", "GatherElements", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Resize", "Pad"),
        *("MaxPool", "ReduceMax", "ReduceMin", "Clip", *ROUNDING_OPS),
    }
)
"""Take the values of their first input."""

_JOINING = frozenset({"Where", "Concat", "ScatterND", "ScatterElements", "Min", "Max"})
"""Take each value from one of several inputs."""

_WHOLE = frozenset({"Add", "Sub", "Mul", "Sum", "Neg", "Abs", "Sign", "Mod"})
"""Make whole numbers of whole numbers."""

_OTHER = frozenset({"Div", "Mean", "Pow", "AveragePool", "ReduceMean", "ReduceSum"})
"""Compute with ids, which are none after it."""

_DEPTH = 64


def values_of(node: gs.Node) -> list[gs.Tensor]:
    """Those inputs of a node whose values come out of it, not shapes, indices and conditions."""
    if node.op == "Where":
        return list(node.inputs[1:])
    if node.op in ("ScatterND", "ScatterElements"):
        return [node.inputs[0], node.inputs[2]]
    if node.op == "Gather" and is_constant(node.inputs[0]):
        return list(node.inputs[:2])  # a table: what it is asked for decides what comes out
    if node.op == "Pad":
        return [node.inputs[0], *(value for value in node.inputs[2:3] if value.name)]
    return list(node.inputs[:1]) if node.op in _MOVING | _OTHER - {"Div", "Mean"} else list(node.inputs)


def ids_behind(tensor: gs.Tensor) -> gs.Tensor | None:
    """The class ids, as ArgMax, ArgMin or TopK gave them, that a tensor was computed from; None without any."""
    return next((value for value, _ in _ancestors(tensor) if _made_ids(value)), None)


def _made_ids(value: gs.Tensor) -> bool:
    node = value.inputs[0] if value.inputs else None
    return node is not None and (node.op in ("ArgMax", "ArgMin") or (node.op == "TopK" and value is node.outputs[1]))


def _ancestors(tensor: gs.Tensor) -> Iterator[tuple[gs.Tensor, gs.Node | None]]:
    """The tensor, and those whose values it was computed from, each with the node that took it."""
    pending: list[tuple[gs.Tensor, gs.Node | None]] = [(tensor, None)]
    seen = set()
    while pending:
        value, taker = pending.pop()
        yield value, taker
        node = value.inputs[0] if value.inputs else None
        if id(value) in seen or node is None or _made_ids(value):
            continue
        seen.add(id(value))
        pending += [(one, None) for one in branches_of(value)]
        if node.op in _MOVING | _JOINING | _WHOLE | _OTHER:
            pending += [(one, node) for one in values_of(node) if one.inputs]


def holds_whole_numbers(tensor: gs.Tensor, *, rounded: bool = True, depth: int = _DEPTH) -> bool:
    """True where every value is provably a whole number.

    Args:
        tensor: of any type.
        rounded: count real numbers that were rounded, or cast to integers; else only what was whole from the start,
            as ids, comparisons and constants are.
        depth: operators that are looked at, one before the other.
    """
    values = constant_values(tensor)
    if values is not None:
        return values.dtype.kind in "iub" or bool(np.all(np.isfinite(values)) and np.all(values == np.rint(values)))
    if rounded and is_whole(tensor):
        return True
    node = tensor.inputs[0] if tensor.inputs else None
    if node is None or not depth:
        return False
    if branches := branches_of(tensor):
        return all(holds_whole_numbers(one, rounded=rounded, depth=depth - 1) for one in branches)
    if _made_ids(tensor) or node.op in COMPARISONS or (rounded and node.op in ROUNDING_OPS):
        return True
    if node.op == "Resize" and node.attrs.get("mode", "nearest") != "nearest":
        return False
    if node.op == "Clip" and not all(
        holds_whole_numbers(one, rounded=rounded, depth=depth - 1) for one in node.inputs[1:] if one.name
    ):
        return False
    if node.op in _MOVING | _JOINING | _WHOLE:
        return all(holds_whole_numbers(one, rounded=rounded, depth=depth - 1) for one in values_of(node))
    return is_whole(tensor) and not node.op.startswith(("Quantize", "QLinear"))


def are_levels(tensor: gs.Tensor) -> bool:
    """True of integers that were real numbers before: levels of a probability from 0 to 255, and no ids."""
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
    """False of a Cast to a type that may not hold what it is given: ids become others, or 0 and 1."""
    given, held = cast.inputs[0], range_of(cast.outputs[0])
    (low, high), (least, greatest) = bounds_of(given), range_of(given)
    return held[0] <= max(low, least) and min(high, greatest) <= held[1]


def narrowed(tensor: gs.Tensor) -> str | None:
    """A warning where ids were cast to a type that does not hold them, and have become others; else None."""
    for value, taker in _ancestors(tensor):
        if taker is None or taker.op != "Cast" or str(taker.outputs[0].dtype) == "bool" or keeps_values(taker):
            continue
        high = min(bounds_of(value)[1], range_of(value)[1])
        if ids_behind(value) is not None and high > range_of(taker.outputs[0])[1]:
            return (
                f"the network casts its class ids, up to {high:.0f}, to {np.dtype(taker.outputs[0].dtype).name}, where "
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
    if any(taker is not None and _paints(taker) and ids_behind(value) for value, taker in _ancestors(tensor)):
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
    """True of a node that gives several values for each id: a palette, or ids beside something else."""
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
