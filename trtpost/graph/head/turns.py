"""Transposes that lead the axes of classes, rows and columns away and back, and what squashes scores between them.

Older PyTorch and Paddle write `softmax(dim=1)` as a Transpose [0, 3, 2, 1] that brings the classes to the end, a
Softmax over them, and the same Transpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from trtpost.graph import ops
from trtpost.graph.walks import dims, maker_of, nodes_before

IN_PLACE = [0, 1, 2, 3]
"""Every axis where it was."""


@dataclass(frozen=True)
class Turned:
    """A tensor that another one was made of by turning its axes and squashing its scores.

    Attributes:
        tensor: the one before.
        order: where each axis of the other one stands in it.
        dropped: the operators between, the last first; Transposes among them are odd where the layout is another.
        squashes: for each that squashes scores, where the axes of the other one stood there, and the axes over which.
    """

    tensor: gs.Variable
    order: list[int]
    dropped: tuple[str, ...]
    squashes: tuple[tuple[list[int], Sequence[int]], ...]

    def is_over(self, axis: int) -> bool:
        """True where all that squashes works on the axis of the other tensor, or on each value by itself."""
        return all(not axes or order[axis] in axes for order, axes in self.squashes)


def before_turns(tensor: gs.Variable, start: list[int], ends: Collection[Sequence[int]]) -> Turned | None:
    """The nearest tensor of four axes whose axes stand as in one of `ends`; None where another operator comes first.

    Args:
        tensor: from which to go back, by one Transpose at least where its axes are `IN_PLACE`.
        start: where axes stand in it.
        ends: in which order they may stand.
    """
    order, dropped, squashes = start, list[str](), list[tuple[list[int], Sequence[int]]]()
    while order not in ends or (start == IN_PLACE and "Transpose" not in dropped):
        node, found = maker_of(tensor), squashed(tensor)
        if node is None or len(node.outputs) != 1 or len(dims(tensor)) != 4:
            return None
        if found is not None:
            before, op, axes = found
            squashes.append((order, axes))
        elif node.op == "Transpose":
            before, op = node.inputs[0], node.op
            order = [node.attrs.get("perm", IN_PLACE[::-1])[axis] for axis in order]
        elif node.op == "Identity":
            before, op = node.inputs[0], ""
        else:
            return None
        if isinstance(before, gs.Constant):
            return None
        tensor = before
        dropped += [op] if op else []
    if "Transpose" in dropped and dropped.count("Transpose") % 2 != (order != IN_PLACE):
        dropped.remove("Transpose")
    return Turned(tensor, order, tuple(dropped), tuple(squashes))


def squashed(tensor: gs.Variable) -> tuple[gs.Variable, str, Sequence[int]] | None:
    """What a Softmax or a Sigmoid was given, its name, and the axes that it makes one of; None of other operators.

    The version converter writes a Softmax of before opset 13 as Flatten, Softmax over the last axis, and Reshape to the
    shape it had: from its axis on, all axes are one.
    """
    nodes = list(itertools.islice(nodes_before(tensor, lambda node: node.inputs[:1]), 3))
    if not nodes or not nodes[0].inputs or len(nodes[0].outputs) != 1:
        return None
    node, rank = nodes[0], len(dims(tensor))
    if node.op in ops.SOFTMAXES and rank:
        return node.inputs[0], node.op, [node.attrs.get("axis", -1) % rank]
    if node.op == "Sigmoid":
        return node.inputs[0], node.op, []
    if [one.op.removeprefix("Log") for one in nodes] != ["Reshape", "Softmax", "Flatten"]:
        return None
    _, softmax, flatten = nodes
    before = flatten.inputs[0]
    if softmax.attrs.get("axis", -1) not in (-1, 1) or dims(before)[1:] != dims(tensor)[1:]:
        return None
    return before, softmax.op, range(flatten.attrs.get("axis", 1), rank)
