"""Which output of a network is the mask's, or which tensor, where the user names one."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping

import onnx
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.contents import are_labels, argmax_before
from trtpost.graph.head.refusals import refuse_detector
from trtpost.graph.head.same_mask import without_other_forms
from trtpost.graph.head.unflatten import unfolded
from trtpost.graph.reading.model import metadata
from trtpost.graph.walks import behind, chain_before, depends_on, dims, is_whole, listing, nodes_before, number

_AUXILIARY = re.compile(r"(^|[^a-z])(aux|auxiliary|deep_?supervision)", re.IGNORECASE)


def segmentation_output(graph: gs.Graph, source: gs.Variable, input_size: tuple[int, int]) -> gs.Variable:
    """The output that holds the mask.

    Args:
        graph: the network.
        source: its image input.
        input_size: its (height, width).

    Raises:
        ModelError: there is none, or several; the message lists them and names the flag.
    """
    seen = [value for value in graph.outputs if depends_on(value, source) and not _lists_places(value)]
    candidates = [value for value in seen if _may_be_mask(value, source)]
    candidates = candidates or [value for value in seen if _is_flattened(value, input_size)]
    if not candidates:
        if 1 in input_size:
            raise ModelError(
                f"the input is {input_size[0]}x{input_size[1]}, and one row or column does not tell a mask from other "
                f"numbers: the model gives {listing(graph.outputs)}; name the logits' tensor with --logits, and their "
                "--layout"
            )
        raise ModelError(
            "no output looks like a segmentation head (logits of four dimensions, or flattened from them, or integer "
            f"labels): the model gives {listing(graph.outputs)}; name the logits' tensor with --logits"
            + _open_size(input_size)
        )
    for narrowing in (
        _without_copies,
        _without_auxiliary,
        _without_descendants,
        lambda several: without_other_forms(several, input_size),
        _without_confidences,
        _largest,
    ):
        if len(candidates) > 1:
            candidates = narrowing(candidates)
    if len(candidates) > 1:
        raise ModelError(
            f"several outputs may be the segmentation head: {listing(candidates)}; choose one with --logits NAME"
            + _open_size(input_size)
        )
    refuse_detector(candidates[0], graph, input_size)
    return candidates[0]


def _open_size(input_size: tuple[int, int]) -> str:
    """What else has to be asked where something is: the size, if that is open."""
    if all(input_size):
        return ""
    return ", and the network's resolution, which is dynamic, with --input-size HxW"


def tensor_named(graph: gs.Graph, name: str, converted: Mapping[str, str] | None = None) -> gs.Variable:
    """The tensor that `--logits` names, also with or without the `:0` of TensorFlow.

    Args:
        graph: the network.
        name: of a tensor in it, or one that the conversion has replaced.
        converted: for names that the conversion has replaced those in the graph.

    Raises:
        ModelError: there is none that the network computes, or nothing is known of it; the message names others.
    """
    if any(value.name == name for value in graph.inputs):
        raise ModelError(f"'{name}' (--logits) is an input of the model: name a tensor that the network computes")
    tensors = {key: value for key, value in graph.tensors().items() if isinstance(value, gs.Variable) and value.inputs}
    spellings = (name, name + ":0", name.removesuffix(":0"))
    before = [converted[one] for one in spellings if one in converted] if converted else []
    tensor = next((tensors[one] for one in (*spellings, *before) if one in tensors), None)
    if tensor is None:
        close = difflib.get_close_matches(name, {*tensors, *(converted or {})}, 3)
        close = close or [value.name for value in graph.outputs]
        raise ModelError(
            f"the model has no tensor '{name}' (--logits); did you mean {' or '.join(repr(one) for one in close)}?"
        )
    if tensor.dtype is None or tensor.shape is None:
        raise ModelError(f"type and shape of tensor '{name}' cannot be inferred: name another with --logits")
    return tensor


def converted_names(model: onnx.ModelProto) -> dict[str, str]:
    """TensorFlow's names of tensors that the conversion has replaced, each with the one in the graph."""
    try:
        stated = json.loads(metadata(model).get("tensorflow_names", "{}"))
    except (ValueError, RecursionError):
        return {}
    pairs = stated.items() if isinstance(stated, dict) else ()
    return {name: now for name, now in pairs if isinstance(now, str)}


def _lists_places(value: gs.Variable) -> bool:
    """True for integers that are no mask: indices of pixels or boxes, a row each."""

    def moved(node: gs.Node) -> list[gs.Variable]:
        if node.op not in ops.MOVING_LABELS | ops.ARITHMETIC | {"Concat", "Expand", "Split"}:
            return []
        return [one for one in node.inputs[: None if node.op == "Concat" else 1] if is_whole(one)]

    makers = ("NonZero", "NonMaxSuppression", "Shape")
    return is_whole(value) and any(node.op in makers for node in nodes_before(value, moved))


def _may_be_mask(value: gs.Variable, source: gs.Variable) -> bool:
    """True for two axes of more than one pixel besides the batch, and a type that logits or labels have."""
    ranks = (2, 3, 4) if are_labels(value) else (4,)
    shape = dims(value)
    if len(shape) not in ranks:
        return False
    batch = dims(source)[0]
    has_batch = len(shape) == 4 or (batch != 1 and (shape[0] == batch or isinstance(shape[0], str)))
    return sum(not isinstance(dim, int) or dim > 1 for dim in shape[has_batch:]) >= 2


def _is_flattened(value: gs.Variable, input_size: tuple[int, int]) -> bool:
    try:
        return unfolded(value, input_size, labels=are_labels(value)) is not None
    except ModelError:  # both layouts fit
        return True


def _without_copies(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Keep the first of outputs that are one tensor under several names."""
    first: dict[int, gs.Variable] = {}
    for value in candidates:
        first.setdefault(id(behind(value, ("Identity",))), value)
    return list(first.values())


def _without_auxiliary(candidates: list[gs.Variable]) -> list[gs.Variable]:
    return [value for value in candidates if not _AUXILIARY.search(value.name)] or candidates


def _without_descendants(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Keep logits and leave out the Softmax or ArgMax of the same logits, which hold less."""
    known = {id(value) for value in candidates}
    passed = ops.RETYPING | {"Softmax", "Sigmoid", "ArgMax", "Transpose"}
    return [value for value in candidates if not any(id(one.inputs[0]) in known for one in chain_before(value, passed))]


def _without_confidences(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Leave out how sure the network is of its labels, where labels are beside that."""
    largest = ("ReduceMax", "TopK")
    return [
        value
        for value in candidates
        if not (value.inputs and value.inputs[0].op in largest) or argmax_before(value) is not None
    ] or candidates


def _largest(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Keep the finest of heads of the same classes at several resolutions (deep supervision): people use that one."""
    if len({len(dims(value)) for value in candidates}) != 1 or any(
        not isinstance(dim, int) for value in candidates for dim in dims(value)[1:]
    ):
        return candidates
    rank = len(dims(candidates[0]))

    def values_at(axis: int) -> int:
        return len({dims(value)[axis] for value in candidates})

    alike = any(
        values_at(channels) == 1 and rows and all(values_at(axis) == len(candidates) for axis in rows)
        for channels, rows in ((1, range(2, rank)), (-1, range(1, rank - 1)))
    )
    areas = [math.prod(map(number, dims(value)[1:])) for value in candidates]
    if not alike or areas.count(max(areas)) != 1:
        return candidates
    return [candidates[areas.index(max(areas))]]
