"""What ends a network and the post-processing makes needless, and the tensor before it, from which that starts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.class_ids import keeps_values
from trtpost.graph.head.contents import argmax_before, head_of
from trtpost.graph.head.layout import TO_NCHW, TO_NHWC, channel_axis, layout_of
from trtpost.graph.head.unflatten import unfolded
from trtpost.graph.walks import behind, chain_before, dims, dtype_name, is_whole, maker_of, nodes_before, number
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
        before = logits_before_argmax(output, input_size)
        if before is not None:
            tensor, axis_layout = before
            more: tuple[str, ...] = ()
            if head != "multilabel":
                tensor, more = before_needless(tensor, layout, input_size)
            return Start(tensor, layout or (axis_layout if not more else None), ("ArgMax", *more))
    found = head or head_of(output, layout, input_size)
    if found == "labels":
        tensor, dropped = before_interpolation(output)
        tensor, more = before_retyping(tensor)
        return Start(tensor, layout, dropped + more)
    if found == "argmax":
        tensor, dropped = before_needless(output, layout, input_size)
    else:
        tensor, dropped = before_quantization(output)
    return Start(tensor, layout, dropped)


def logits_before_argmax(output: gs.Variable, input_size: tuple[int, int]) -> tuple[gs.Variable, Layout] | None:
    """What a final ArgMax was taken of, in the layout that its axis tells; None where labels were moved after it."""
    passed = ops.RETYPING | ops.RESHAPING
    chain, argmax = chain_before(output, passed), maker_of(behind(output, passed))
    if any(node.op == "Cast" and not keeps_values(node) for node in chain):
        return None  # ids have become others, or true and false
    if argmax is None or argmax.op != "ArgMax" or argmax.attrs.get("select_last_index", 0):
        return None
    logits = argmax.inputs[0]
    shape = dims(logits)
    axis = argmax.attrs.get("axis", 0) % max(len(shape), 1)
    layout: Layout
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
    return logits, layout


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
    tensor, dropped = output, []
    while (step := _step_over(tensor, layout, input_size)) is not None:
        tensor, op = step
        if op != "Identity":
            dropped.append(op)
    return tensor, tuple(dropped)


def _step_over(
    tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]
) -> tuple[gs.Variable, str] | None:
    """What the needless op that made `tensor` was given, and that op; None where it is needed."""
    if not tensor.inputs or len(tensor.inputs[0].outputs) != 1 or not tensor.inputs[0].inputs:
        return None
    if (flattened := _before_flattened_softmax(tensor)) is not None:
        before, op, first_axis = flattened
        axis = _class_axis(tensor, layout, input_size)
        return (before, op) if axis is not None and axis >= first_axis else None  # else classes are normalised apart
    node = tensor.inputs[0]
    before = node.inputs[0]
    if isinstance(before, gs.Constant) or (len(dims(before)) != 4 and unfolded(before, input_size) is None):
        return None
    if node.op == "Transpose":
        # an override names the layout of what the model gives, so it holds only before anything is skipped
        needless = layout is None and list(node.attrs.get("perm", [])) in (TO_NHWC, TO_NCHW, [0, 2, 1])
    elif node.op in ops.RESHAPING:
        needless = layout is None and _is_folded(before, tensor, input_size)
    elif node.op in ("Softmax", "LogSoftmax", "Sigmoid"):
        axis = _class_axis(tensor, layout, input_size)
        needless = axis is not None and dims(tensor)[axis] != 1
        needless = needless and (node.op == "Sigmoid" or node.attrs.get("axis", -1) % len(dims(tensor)) == axis)
    else:
        needless = node.op == "Identity" or (node.op == "QuantizeLinear" and dtype_name(before).startswith("float"))
    return (before, node.op) if needless else None


def before_quantization(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    """The real numbers before the QuantizeLinear that ends a network, and that op where it was stepped over."""
    node = maker_of(behind(output, ("Identity",)))
    return (node.inputs[0], (node.op,)) if node is not None and node.op == "QuantizeLinear" else (output, ())


def _before_flattened_softmax(tensor: gs.Variable) -> tuple[gs.Variable, str, int] | None:
    """What a Softmax of before opset 13 was taken of, its op, and its axis, from which on all axes are one; else None.

    The version converter writes it as Flatten, Softmax over the last axis, and Reshape to the shape it had.
    """
    nodes = list(itertools.islice(nodes_before(tensor, lambda node: node.inputs[:1]), 3))
    if [node.op.removeprefix("Log") for node in nodes] != ["Reshape", "Softmax", "Flatten"]:
        return None
    _, softmax, flatten = nodes
    before = flatten.inputs[0]
    if softmax.attrs.get("axis", -1) not in (-1, 1) or dims(before)[1:] != dims(tensor)[1:]:
        return None
    return before, softmax.op, flatten.attrs.get("axis", 1)


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
