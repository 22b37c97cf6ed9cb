"""What is no mask, whatever its shape: a sentence for each, with what to take instead."""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head import class_ids
from trtpost.graph.head.bounds import bounds_of
from trtpost.graph.head.contents import are_fractions, are_labels, are_one_label_a_pixel, argmax_before
from trtpost.graph.head.layout import layout_of
from trtpost.graph.walks import behind, depends_on, dims, is_whole, listing, maker_of, number
from trtpost.spec import Ending

_SOFTMAXES = {"Softmax": 1, "LogSoftmax": 0}
"""Values of a Softmax over one class."""


def refuse_no_mask(tensor: gs.Variable, source: gs.Variable, head: Ending | None) -> None:
    """Refuse what is no mask, whatever its shape, and what is another one than the user says.

    Raises:
        ModelError: the tensor is; the message says what to take instead.
    """
    if not depends_on(tensor, source):
        raise ModelError(f"tensor '{tensor.name}' is the same for every image: name another with --logits")
    batch, shape = dims(source)[0], dims(tensor)
    if len(shape) == 4 and batch == 1 and isinstance(shape[0], int) and shape[0] > 1:
        raise ModelError(
            f"tensor '{tensor.name}' {list(shape)} holds {shape[0]} masks of one image, as of networks that give each "
            "object its own, and trtpost gives one: name a tensor of four dimensions that begin with 1 with --logits"
        )
    class_ids.refuse_what_ids_became(tensor, head=head)
    if head in ("argmax", "multilabel") and are_one_label_a_pixel(tensor):
        raise ModelError(
            f"tensor '{tensor.name}' holds class ids, one for each pixel, so --head {head} cannot be: leave it out, or "
            "name the scores that they were made from with --logits"
        )
    if head == "labels" and are_fractions(tensor):
        raise ModelError(
            f"tensor '{tensor.name}' holds values between 0 and 1, and no class ids, so --head labels cannot be: leave "
            "it out, or say --head threshold"
        )
    argmax = argmax_before(tensor)
    if argmax is not None and bounds_of(argmax.outputs[-1]) == (0, 0):
        raise ModelError(
            f"'{tensor.name}' is an {argmax.op} over one class, which is 0 everywhere: take the scores before it with "
            f"--logits '{argmax.inputs[0].name}'"
        )
    if head is None:
        class_ids.refuse_unknown_integers(tensor)


def refuse_other_batch(tensor: gs.Variable, shape: tuple[int | str, ...], batch: int | str) -> None:
    """Refuse a tensor without one entry for each photo, in the shape that it has or is meant to have.

    Raises:
        ModelError: it is such a one.
    """
    shown = f"tensor '{tensor.name}' {list(dims(tensor))}"
    if len(shape) == 2 and shape[0] == batch and batch != 1:
        raise ModelError(
            f"{shown} has a row of values for each photo of the batch, and no rows and columns of pixels: name another "
            "with --logits"
        )
    if len(shape) > 2 and isinstance(shape[0], int) and isinstance(batch, int) and shape[0] != batch:
        raise ModelError(
            f"{shown} has {shape[0]} entries, but the input holds {batch} photo{'s' * (batch != 1)}: name a tensor "
            "with one entry a photo with --logits"
        )


def refuse_detector(chosen: gs.Variable, graph: gs.Graph, input_size: tuple[int, int]) -> None:
    """Refuse masks of objects: prototypes beside boxes and coefficients, queries beside their classes, ids of boxes.

    Raises:
        ModelError: another output lists objects, with a number for each channel of `chosen`.
    """
    shape = [number(dim) for dim in dims(chosen)]
    labels = are_labels(chosen)
    for other in graph.outputs:
        axes = [number(dim) for dim in dims(other)]
        if other is chosen or len(axes) != 3 or is_whole(other):
            continue
        if labels:
            fits = len(shape) == 2 and shape[1] > 1 and sorted(axes[1:]) == sorted((4, shape[1]))
        else:
            layout = layout_of(chosen, input_size)
            plane = shape[1:3] if layout == "NHWC" else shape[2:]
            channels = shape[3] if layout == "NHWC" else shape[1]
            pixels = math.prod(plane)
            lists = axes[1:] != plane and pixels not in axes[1:]  # rows and columns are no objects
            lists = lists or (axes[2] == pixels and axes[1] > channels + 4)
            fits = len(shape) == 4 and lists and any(one == channels > 1 or one > channels + 4 > 5 for one in axes[1:])
        if fits:
            raise ModelError(
                f"output {listing([chosen])} stands beside {listing([other])}, as of networks that detect objects and "
                "then give each a mask of its own, which trtpost does not put together; if it does hold the classes "
                f"of pixels, say --logits '{chosen.name}'"
            )


def refuse_lone_softmax(tensor: gs.Variable) -> None:
    """Refuse a Softmax over one channel, which is the same everywhere.

    Raises:
        ModelError: the tensor is one; the message names that before it.
    """
    tensor = behind(tensor, ops.RETYPING | ops.RESHAPING | {"Transpose"})
    node = maker_of(tensor)
    if node is not None and node.op in _SOFTMAXES and dims(tensor) and dims(tensor)[node.attrs.get("axis", -1)] == 1:
        raise ModelError(
            f"'{tensor.name}' is a {node.op} of one class, which is {_SOFTMAXES[node.op]} everywhere: take the logits "
            "before it with "
            f"--logits '{node.inputs[0].name}', or train with two classes, or with a Sigmoid"
        )
