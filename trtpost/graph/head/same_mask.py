"""Outputs that give one mask in several forms: logits, probabilities and class ids of the same scores."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_graphsurgeon as gs

from trtpost.graph import ops
from trtpost.graph.head.class_ids import keeps_values
from trtpost.graph.head.layout import channel_axis, layout_of
from trtpost.graph.head.turns import squashed
from trtpost.graph.walks import constant_values, dims, maker_of


@dataclass(frozen=True)
class _Form:
    """What an output was made of.

    Attributes:
        scores: the tensor below all that squashes, chooses and moves.
        axes: where each axis of the output stands in the scores; None for one of length 1 that they do not have.
        classes: the axes of the scores over which a Softmax or an ArgMax works.
        losses: how many operators choose among the scores, and how many squash them.
    """

    scores: gs.Variable
    axes: tuple[int | None, ...]
    classes: frozenset[int]
    losses: tuple[int, int]


def without_other_forms(candidates: list[gs.Variable], input_size: tuple[int, int]) -> list[gs.Variable]:
    """Keep of outputs that mean one mask the one that holds the most: logits before probabilities before class ids.

    Args:
        candidates: outputs that may be the mask's.
        input_size: (height, width) of the network.
    """
    groups: dict[int, list[tuple[gs.Variable, _Form]]] = {}
    for value in candidates:
        form = _form(value)
        groups.setdefault(id(form.scores), []).append((value, form))
    kept: list[gs.Variable] = []
    for group in groups.values():
        best = min(group, key=lambda one: one[1].losses)[0]
        kept += [best] if _mean_one_mask([form for _, form in group], input_size) else [value for value, _ in group]
    return [value for value in candidates if any(value is one for one in kept)]


def _mean_one_mask(forms: list[_Form], input_size: tuple[int, int]) -> bool:
    """True where all work on the same classes, and leave rows and columns in the same places."""
    scores = forms[0].scores
    classes = frozenset[int]().union(*(form.classes for form in forms))
    if not classes and len(dims(scores)) == 4 and (layout := layout_of(scores, input_size)) is not None:
        classes = frozenset([channel_axis(layout)])
    long = {axis for axis, dim in enumerate(dims(scores)) if dim != 1} - classes
    places = {tuple(axis for axis in form.axes if axis in long) for form in forms}
    return len(classes) == len(places) == 1


def _form(output: gs.Variable) -> _Form:
    tensor, steps = output, list[tuple[str, gs.Node, list[int]]]()
    while (node := maker_of(tensor)) is not None and node.inputs and dims(node.inputs[0]):
        found = squashed(tensor)
        if found is not None:
            before, op, over = found[0], found[1], list(found[2])
        elif _is_passed(node):
            before, op, over = node.inputs[0], node.op, []
        else:
            break
        steps.append((op, node, over))
        tensor = before
    axes: list[int | None] = list(range(len(dims(tensor))))
    classes = set[int]()
    for op, node, squashed_over in reversed(steps):
        over = [node.attrs.get("axis", 0) % len(axes)] if op == "ArgMax" else squashed_over
        # of several axes that are one, as before opset 13, nothing tells the classes
        classes.update(axis for at in over if len(over) == 1 and (axis := axes[at]) is not None)
        axes = _moved(axes, op, node, over)
    choices = sum(op == "ArgMax" for op, *_ in steps)
    squashes = sum(op in ops.SOFTMAXES | ops.SIGMOIDS for op, *_ in steps)
    return _Form(tensor, tuple(axes), frozenset(classes), (choices, squashes))


def _is_passed(node: gs.Node) -> bool:
    if node.op == "Cast":
        return keeps_values(node)
    if node.op in ("Squeeze", "Unsqueeze"):
        return _axes_of(node) is not None
    return node.op in ("Identity", "Transpose", "ArgMax", "QuantizeLinear") and not node.attrs.get("select_last_index")


def _axes_of(node: gs.Node) -> list[int] | None:
    """The axes that a Squeeze takes away or an Unsqueeze brings; None where they are not known."""
    if len(node.inputs) > 1:
        values = constant_values(node.inputs[1])
        return None if values is None else [int(one) for one in values.reshape(-1)]
    return [at for at, dim in enumerate(dims(node.inputs[0])) if dim == 1]


def _moved(axes: list[int | None], op: str, node: gs.Node, over: list[int]) -> list[int | None]:
    """Where the axes after a node stand."""
    if op == "Transpose":
        return [axes[at] for at in node.attrs.get("perm", [*range(len(axes))][::-1])]
    if op == "ArgMax":
        return [None if at in over else axis for at, axis in enumerate(axes) if at not in over or _keeps(node)]
    if op == "Squeeze":
        gone = [at % len(axes) for at in _axes_of(node) or ()]
        return [axis for at, axis in enumerate(axes) if at not in gone]
    if op == "Unsqueeze":
        given, rank = iter(axes), len(axes) + len(_axes_of(node) or ())
        new = [at % rank for at in _axes_of(node) or ()]
        return [None if at in new else next(given) for at in range(rank)]
    return axes


def _keeps(node: gs.Node) -> bool:
    return bool(node.attrs.get("keepdims", 1))
