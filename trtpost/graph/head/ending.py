"""The output side of a network: what its output holds, and from which tensor the post-processing starts."""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph.head.bounds import COMPARISONS, bounds_of
from trtpost.graph.head.class_ids import ROUNDING_OPS, are_levels, holds_whole_numbers, ids_behind, keeps_values
from trtpost.graph.head.layout import TO_NCHW, TO_NHWC, channel_axis, layout_of
from trtpost.graph.head.unflatten import RESHAPING_OPS, unfolded
from trtpost.graph.walks import dims, dtype_name, is_whole, nodes_before, number
from trtpost.spec import Layout

RETYPING_OPS = frozenset({"Cast", "Squeeze", "Unsqueeze", "Identity"})
"""Leave every label where it is."""
_SOFTMAXES = {"Softmax": 1, "LogSoftmax": 0}
LABEL_OPS = RETYPING_OPS | ROUNDING_OPS | {"Reshape", "Transpose", "Resize", "Gather", "Slice"}
"""Move labels about, but make no new ones, unless a `Resize` interpolates: see `before_interpolation`."""

_CHANNELWISE_OPS = (
    LABEL_OPS
    | RESHAPING_OPS
    | (COMPARISONS - {"Equal"})  # with the largest, that is an ArgMax
    | {"QuantizeLinear", "DequantizeLinear", "Split", "Clip", "Add", "Sub", "Mul", "Div", "Pow", "Sqrt"}
    | {"Mean", "Sum", "Max", "Min", "Where", "Pad"}
)
"""Scores of a class come from those of the same class."""


def are_labels(value: gs.Variable) -> bool:
    """True for class ids: the result of an ArgMax and what was whole after it, or whole numbers that stand for none
    that are not: neither quantised logits nor levels of a probability."""
    if argmax_before(value) is not None or (ids_behind(value) is not None and holds_whole_numbers(value)):
        return True
    return is_whole(value) and not _is_quantized(value) and not are_levels(value)


def are_one_label_a_pixel(tensor: gs.Variable) -> bool:
    """True for class ids without an axis for classes."""
    shape = dims(tensor)
    return are_labels(tensor) and (len(shape) < 4 or 1 in (shape[1], shape[3]) or argmax_before(tensor) is not None)


def are_fractions(tensor: gs.Variable) -> bool:
    """True of probabilities."""
    low, high = bounds_of(tensor)
    return low >= 0 and high <= 1 and not holds_whole_numbers(tensor)


def _is_quantized(tensor: gs.Variable) -> bool:
    """True for integers that stand for real numbers."""
    while tensor.inputs and tensor.inputs[0].inputs:
        node = tensor.inputs[0]
        if node.op.startswith(("QuantizeLinear", "QLinear")):
            return True
        if node.op not in LABEL_OPS | RESHAPING_OPS or node.op == "Cast":
            return False
        tensor = node.inputs[0]
    return False


def argmax_before(output: gs.Variable) -> gs.Node | None:
    """The ArgMax (or ArgMin, or TopK) that labels come from, through ops that only move them about."""
    tensor = output
    while tensor.inputs and tensor.inputs[0].inputs:
        node = tensor.inputs[0]
        if node.op in ("ArgMax", "ArgMin") or (node.op == "TopK" and tensor is node.outputs[1]):
            return node
        if node.op not in LABEL_OPS:
            return None
        tensor = node.inputs[0]
    return None


def logits_before_argmax(output: gs.Variable, input_size: tuple[int, int]) -> tuple[gs.Variable, Layout] | None:
    """What a final ArgMax was taken of, in the layout that its axis tells; None where labels were moved after it."""
    tensor, reshaped = output, False
    while tensor.inputs and tensor.inputs[0].op in RETYPING_OPS | RESHAPING_OPS:
        if tensor.inputs[0].op == "Cast" and not keeps_values(tensor.inputs[0]):
            return None  # ids have become others, or true and false
        reshaped = reshaped or tensor.inputs[0].op in ("Reshape", "Flatten")
        tensor = tensor.inputs[0].inputs[0]
    if not tensor.inputs or tensor.inputs[0].op != "ArgMax" or tensor.inputs[0].attrs.get("select_last_index", 0):
        return None
    logits = tensor.inputs[0].inputs[0]
    shape = dims(logits)
    axis = tensor.inputs[0].attrs.get("axis", 0) % max(len(shape), 1)
    if len(shape) == 4 and axis in (1, 3):
        layout: Layout = "NCHW" if axis == 1 else "NHWC"
        plane = [number(dim) for dim in (shape[2:] if axis == 1 else shape[1:3])]
    else:
        view = unfolded(logits, input_size)
        if view is None or axis != view.class_axis:
            return None
        layout = view.layout
        plane = [number(dim) for dim in (view.shape[2:] if layout == "NCHW" else view.shape[1:3])]
    # a Reshape leaves every label in its place where rows stay rows, or all of them become one
    long = [number(dim) for dim in dims(output)[1 if isinstance(dims(output)[0], str) else 0 :] if dim != 1]
    if reshaped and long not in (plane, [math.prod(plane)]):
        return None
    return logits, layout


def before_interpolation(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    """Labels before a Resize that interpolates them, and the ops stepped over: between 0 and 2 there is no 1.

    Raises:
        ModelError: the network goes on to move what it has interpolated.
    """
    if argmax_before(output) is None:
        return output, ()
    tensor, best, dropped, kept = output, output, [], 0
    while tensor.inputs[0].op in LABEL_OPS:
        node = tensor.inputs[0]
        tensor = node.inputs[0]
        dropped.append(node.op)
        if node.op == "Resize" and node.attrs.get("mode", "nearest") != "nearest":
            moving = set(dropped[kept:-1]) - RETYPING_OPS - ROUNDING_OPS - {"Resize"}
            if moving:
                raise ModelError(
                    f"the network interpolates its class ids ('{node.outputs[0].name}', a {node.attrs['mode']} Resize) "
                    f"and so invents classes: name the class ids before it with --logits '{tensor.name}'"
                )
            best, kept = tensor, len(dropped)
    return best, tuple(dropped[:kept])


def before_retyping(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    """Integer labels before the Cast, Squeeze or Unsqueeze that ends the network, and the ops stepped over."""
    tensor, best, dropped, kept = output, output, [], 0
    while tensor.inputs and tensor.inputs[0].op in RETYPING_OPS and tensor.inputs[0].inputs[0].inputs:
        if tensor.inputs[0].op == "Cast" and not keeps_values(tensor.inputs[0]):
            break
        dropped.append(tensor.inputs[0].op)
        tensor = tensor.inputs[0].inputs[0]
        if is_whole(tensor) and len(dims(tensor)) in (2, 3, 4):
            best, kept = tensor, len(dropped)
    return best, tuple(dropped[:kept])


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
    elif node.op in RESHAPING_OPS:
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
    tensor = output
    while tensor.inputs and tensor.inputs[0].op == "Identity":
        tensor = tensor.inputs[0].inputs[0]
    if tensor.inputs and tensor.inputs[0].op == "QuantizeLinear":
        return tensor.inputs[0].inputs[0], ("QuantizeLinear",)
    return output, ()


def _before_flattened_softmax(tensor: gs.Variable) -> tuple[gs.Variable, str, int] | None:
    """What a Softmax of before opset 13 was taken of, its op, and its axis, from which on all axes are one; else None.

    The version converter writes it as Flatten, Softmax over the last axis, and Reshape to the shape it had.
    """
    made = tensor
    nodes = []
    for ops in (("Reshape",), ("Softmax", "LogSoftmax"), ("Flatten",)):
        if not made.inputs or made.inputs[0].op not in ops:
            return None
        nodes.append(made.inputs[0])
        made = made.inputs[0].inputs[0]
    _, softmax, flatten = nodes
    if softmax.attrs.get("axis", -1) not in (-1, 1) or dims(made)[1:] != dims(tensor)[1:]:
        return None
    return made, softmax.op, flatten.attrs.get("axis", 1)


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


def limits_of(tensor: gs.Variable) -> tuple[float, float] | None:
    """The least and the greatest value of scores, (0, 1) behind a Sigmoid; None where nothing bounds them."""
    low, high = bounds_of(tensor)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None


def are_independent(output: gs.Variable) -> bool:
    """True where scores of several classes come from a Sigmoid each, so that none, or several, may be large."""
    low, high = bounds_of(output)
    if not (math.isfinite(low) and math.isfinite(high)):
        return False  # a gate: what it multiplies has no limits
    before = nodes_before(output, lambda node: node.inputs if node.op in _CHANNELWISE_OPS else [])
    return any(node.op.removeprefix("QLinear") in ("Sigmoid", "HardSigmoid") for node in before)


def refuse_lone_argmax(tensor: gs.Variable) -> None:
    """Refuse the ArgMax over one class.

    Raises:
        ModelError: it is one; the message names what it was taken of.
    """
    argmax = argmax_before(tensor)
    if argmax is not None and bounds_of(argmax.outputs[-1]) == (0, 0):
        raise ModelError(
            f"'{tensor.name}' is an {argmax.op} over one class, which is 0 everywhere: take the scores before it with "
            f"--logits '{argmax.inputs[0].name}'"
        )


def refuse_lone_softmax(tensor: gs.Variable) -> None:
    """Refuse a Softmax over one channel.

    Raises:
        ModelError: it is one; the message names the tensor before it.
    """
    while tensor.inputs and tensor.inputs[0].op in RETYPING_OPS | RESHAPING_OPS | {"Transpose"}:
        tensor = tensor.inputs[0].inputs[0]
    node = tensor.inputs[0] if tensor.inputs else None
    if node is not None and node.op in _SOFTMAXES and dims(tensor) and dims(tensor)[node.attrs.get("axis", -1)] == 1:
        raise ModelError(
            f"'{tensor.name}' is a {node.op} of one class, which is {_SOFTMAXES[node.op]} everywhere: take the logits "
            "before it with "
            f"--logits '{node.inputs[0].name}', or train with two classes, or with a Sigmoid"
        )
