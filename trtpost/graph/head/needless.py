"""What ends a network and the post-processing makes needless, and the tensor before it, from which that starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.class_ids import keeps_values
from trtpost.graph.head.contents import argmax_before, head_of
from trtpost.graph.head.layout import TO_NCHW, TO_NHWC, channel_axis, layout_of
from trtpost.graph.head.turns import IN_PLACE, before_turns, squashed
from trtpost.graph.head.unflatten import unfolded
from trtpost.graph.walks import behind, chain_before, dims, dtype_name, is_whole, maker_of, number
from trtpost.spec import Ending, Layout


@dataclass(frozen=True)
class Start:
    """Where the post-processing starts.

    Attributes:
        tensor: what it takes.
        layout: of the tensor, where that is known.
        dropped: operators between the tensor and the network's output.
    """

    tensor: gs.Variable
    layout: Layout | None
    dropped: tuple[str, ...] = ()


def start_before(
    output: gs.Variable,
    input_size: tuple[int, int],
    *,
    head: Ending | None = None,
    layout: Layout | None = None,
    before_argmax: bool = False,
) -> Start:
    """The start that a network's output leads back to.

    Raises:
        ModelError: the network interpolates class ids and moves them then, or its layout cannot be told.
    """
    if before_argmax or head == "multilabel":
        before = logits_before_argmax(output, input_size, may_unsquash=head != "multilabel")
        if before is not None:
            tensor, axis_layout, turns = before
            more: tuple[str, ...] = ()
            if head != "multilabel":
                tensor, more = before_needless(tensor, layout, input_size)
            return Start(tensor, layout or (axis_layout if not more else None), ("ArgMax", *turns, *more))
    found = head or head_of(output, layout, input_size)
    if found == "labels":
        tensor, dropped = before_interpolation(output)
        tensor, more = before_retyping(tensor)
        return Start(tensor, layout, dropped + more)
    if found == "argmax":
        tensor, dropped = before_needless(output, layout, input_size)
    else:
        tensor, dropped = before_quantization(output, layout)
    return Start(tensor, layout, dropped)


def logits_before_argmax(
    output: gs.Variable, input_size: tuple[int, int], *, may_unsquash: bool = True
) -> tuple[gs.Variable, Layout, tuple[str, ...]] | None:
    """What a final ArgMax was taken of, in the layout that its axis tells; None where labels were moved after it.

    Transposes that lead rows and columns away before it and back after it leave labels where they were.

    Args:
        output: the labels.
        input_size: (height, width) of the network.
        may_unsquash: what probabilities were made of will do as well.

    Returns:
        The logits, their layout, and the operators stepped over before the ArgMax.
    """
    passed = ops.RETYPING | ops.RESHAPING | {"Transpose"}
    chain, argmax = chain_before(output, passed), maker_of(behind(output, passed))
    if any(node.op == "Cast" and not keeps_values(node) for node in chain):
        return None  # ids have become others, or true and false
    if argmax is None or argmax.op != "ArgMax" or argmax.attrs.get("select_last_index", 0):
        return None
    logits = argmax.inputs[0]
    shape = dims(logits)
    axis = argmax.attrs.get("axis", 0) % max(len(shape), 1)
    layout: Layout
    if any(node.op == "Transpose" for node in chain):
        return _before_turned_argmax(argmax, chain, axis, may_unsquash=may_unsquash)
    if len(shape) == 4 and axis in (1, 3):
        layout = "NCHW" if axis == 1 else "NHWC"
    else:
        view = unfolded(logits, input_size)
        if view is None or axis != view.class_axis:
            return None
        layout, shape = view.layout, view.shape
    plane = [number(dim) for dim in (shape[2:] if layout == "NCHW" else shape[1:3])]
    # a Reshape leaves every label in its place where rows stay rows, or all of them become one
    long = [number(dim) for dim in dims(output)[1 if isinstance(dims(output)[0], str) else 0 :] if dim != 1]
    if any(node.op in ("Reshape", "Flatten") for node in chain) and long not in (plane, [math.prod(plane)]):
        return None
    return logits, layout, ()


def _before_turned_argmax(
    argmax: gs.Node, chain: list[gs.Node], classes: int, *, may_unsquash: bool
) -> tuple[gs.Variable, Layout, tuple[str, ...]] | None:
    """The same where labels are turned after an ArgMax over the axis `classes`, by the nodes of `chain`, last first."""
    axes: list[int | None] = [axis if axis != classes else None for axis in range(len(dims(argmax.inputs[0])))]
    if not argmax.attrs.get("keepdims", 1):
        axes.remove(None)
    for node in reversed(chain):
        if node.op == "Transpose":
            axes = [axes[axis] for axis in node.attrs.get("perm", [*range(len(axes))][::-1])]
        elif node.op not in ("Cast", "Identity"):
            return None
    order = [axis for axis in axes if axis is not None]
    if len(order) != 3 or order[0] != 0:
        return None
    turned = before_turns(argmax.inputs[0], [*order, classes], (IN_PLACE, TO_NHWC))
    if turned is None or not turned.is_over(3) or (turned.squashes and not may_unsquash):
        return None
    return turned.tensor, "NHWC" if turned.order == IN_PLACE else "NCHW", turned.dropped


def before_interpolation(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    """Labels before a Resize that interpolates them, and the ops stepped over: between 0 and 2 there is no 1.

    Raises:
        ModelError: the network goes on to move what it has interpolated.
    """
    chain = chain_before(output, ops.MOVING_LABELS) if argmax_before(output) is not None else []
    kept = 0
    for at, node in enumerate(chain):
        if node.op == "Resize" and node.attrs.get("mode", "nearest") != "nearest":
            if {one.op for one in chain[kept:at]} - ops.RETYPING - ops.ROUNDING - {"Resize"}:
                raise ModelError(
                    f"the network interpolates its class ids ('{node.outputs[0].name}', a {node.attrs['mode']} Resize) "
                    "and so invents classes: name the class ids before it with "
                    f"--logits '{node.inputs[0].name}'"
                )
            kept = at + 1
    return chain[kept - 1].inputs[0] if kept else output, tuple(node.op for node in chain[:kept])


def before_retyping(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    """Integer labels before the Cast, Squeeze or Unsqueeze that ends the network, and the ops stepped over."""
    best, kept = output, 0
    chain = chain_before(output, ops.RETYPING)
    for count, node in enumerate(chain, 1):
        before = node.inputs[0]
        if not before.inputs or (node.op == "Cast" and not keeps_values(node)):
            break
        if is_whole(before) and len(dims(before)) in (2, 3, 4):
            best, kept = before, count
    return best, tuple(node.op for node in chain[:kept])


def before_needless(
    output: gs.Variable, layout: Layout | None, input_size: tuple[int, int]
) -> tuple[gs.Variable, tuple[str, ...]]:
    """Logits before what ArgMax makes needless, and the ops stepped over.

    Those are Softmax over the classes, Sigmoid of several channels, a final QuantizeLinear, and at the end Transpose
    and the Reshape that makes pixels and classes two axes, or one.
    """
    tensor, dropped = output, list[str]()
    while (step := _step_over(tensor, layout, input_size) or _turn_back(tensor, layout, input_size)) is not None:
        tensor, names = step
        dropped += names
    return tensor, tuple(dropped)


def _step_over(
    tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]
) -> tuple[gs.Variable, tuple[str, ...]] | None:
    """What the needless op that made `tensor` was given, and that op; None where it is needed."""
    if not tensor.inputs or len(tensor.inputs[0].outputs) != 1 or not tensor.inputs[0].inputs:
        return None
    if (found := squashed(tensor)) is not None:
        before, op, axes = found
        axis = _class_axis(tensor, layout, input_size)
        needless = axis is not None and dims(tensor)[axis] != 1 and (not axes or axis in axes)
        return (before, (op,)) if needless and _is_understood(before, input_size) else None
    node = tensor.inputs[0]
    before = node.inputs[0]
    if not _is_understood(before, input_size):
        return None
    if node.op == "Transpose":
        # an override names the layout of what the model gives, so it holds only before anything is skipped
        needless = layout is None and list(node.attrs.get("perm", [])) == [0, 2, 1]
    elif node.op in ops.RESHAPING:
        needless = layout is None and _is_folded(before, tensor, input_size)
    else:
        needless = node.op == "Identity" or (node.op == "QuantizeLinear" and dtype_name(before).startswith("float"))
    return (before, (node.op,) if node.op != "Identity" else ()) if needless else None


def _is_understood(before: gs.Tensor, input_size: tuple[int, int]) -> bool:
    return not isinstance(before, gs.Constant) and (len(dims(before)) == 4 or unfolded(before, input_size) is not None)


def _turn_back(
    tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]
) -> tuple[gs.Variable, tuple[str, ...]] | None:
    """What Transposes turned to the other layout, or away and back with a Softmax over the classes between them."""
    turned = before_turns(tensor, IN_PLACE, (IN_PLACE, TO_NHWC, TO_NCHW))
    if turned is None or (layout is not None and turned.order != IN_PLACE):
        return None
    axis = _class_axis(tensor, layout, input_size) if turned.squashes else None
    if turned.squashes and (axis is None or dims(tensor)[axis] == 1 or not turned.is_over(axis)):
        return None
    return turned.tensor, turned.dropped


def before_quantization(output: gs.Variable, layout: Layout | None) -> tuple[gs.Variable, tuple[str, ...]]:
    """The real numbers before the QuantizeLinear that ends a network, and the ops stepped over.

    What the integers stand for is compared with a threshold, so they are no less to be stepped over where the pixels
    are moved to the other layout behind them.
    """
    moving = ops.RESHAPING | {"Transpose"}
    chain = chain_before(output, moving | {"Identity"})
    node = maker_of(behind(output, moving | {"Identity"}))
    if node is None or node.op != "QuantizeLinear":
        return output, ()
    before = node.inputs[0]
    moved = [one for one in chain if one.op in moving]
    if moved and (layout is not None or not all(_only_turns(one, before) for one in moved)):
        return output, ()
    return before, (*(one.op for one in moved), node.op)


def _only_turns(node: gs.Node, before: gs.Variable) -> bool:
    """True where an op between two layouts leaves rows and columns of `before` in their order."""
    if node.op == "Transpose":
        return list(node.attrs.get("perm", [])) in (TO_NHWC, TO_NCHW)
    planes = [[number(dim) for dim in dims(one)[1:] if dim != 1] for one in (node.outputs[0], before)]
    return len(dims(before)) == 4 and 1 in (dims(before)[1], dims(before)[3]) and planes[0] == planes[1]


def _class_axis(tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]) -> int | None:
    view = unfolded(tensor, input_size, layout=layout)
    if view is not None:
        return view.class_axis
    found = layout or (layout_of(tensor, input_size) if len(dims(tensor)) == 4 else None)
    return channel_axis(found) if found else None


def _is_folded(before: gs.Variable, tensor: gs.Variable, input_size: tuple[int, int]) -> bool:
    """True where `tensor` is `before`, of four dimensions, with fewer axes, and nothing else."""
    view = unfolded(tensor, input_size) if len(dims(before)) == 4 else None
    return view is not None and view.shape[1:] == dims(before)[1:] and view.layout == layout_of(before, input_size)
