"""What a network does, seen by running it on zeros: shapes that its graph does not tell, branches that never change.

A transformer that folds its tokens with `reshape(B, -1, H, W)` computes its number of classes, and an `If` that
exporters write around a `squeeze` looks at sizes alone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.errors import ModelError
from trtpost.graph.emulate import session, with_outputs
from trtpost.graph.proto import attributes_of, depending_on, part_of, rename
from trtpost.graph.walks import reached

PATIENCE = 120.0
"""Seconds that a run on zeros may take; a network of a second for a photo is slow."""

_NESTED = 8
"""How deep an If in an If is looked into."""

_NEAR = 96
"""Tensors before the outputs that are asked for: a head has fewer."""


def run_on_zeros(runner: Any, names: Sequence[str] | None, feeds: dict[str, NDArray[Any]]) -> list[Any]:
    """Run a session, for `PATIENCE` at most.

    Raises:
        ModelError: it takes longer.
        Exception: an operator fails; ONNX Runtime's errors have no common base.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    ended = threading.Event()

    def end() -> None:
        ended.set()
        options.terminate = True

    timer = threading.Timer(PATIENCE, end)
    timer.daemon = True
    timer.start()
    try:
        found: list[Any] = runner.run(names, feeds, options)
    except Exception:
        if not ended.is_set():
            raise
        shapes = ", ".join("x".join(map(str, value.shape)) for value in feeds.values())
        raise ModelError(
            f"the network does not end: a run on zeros of {shapes} took more than {PATIENCE:g} seconds; if it is slow "
            "and no Loop of it is endless, choose a smaller --input-size"
        ) from None
    finally:
        timer.cancel()
    return found


def settled(model: onnx.ModelProto, logits: str | None) -> onnx.ModelProto:
    """The model with the shapes before its outputs known, and without an If that the size of its input decides.

    Runs it where that is worth it, with one image and, where the batch is dynamic, with two: what differs stays open.

    Args:
        model: of one input, whose height and width are fixed; others are given back as they are, and so is one that
            ONNX Runtime does not take.
        logits: a tensor that matters as much as the outputs.

    Raises:
        ModelError: it does not end.
    """
    ends = [value.name for value in model.graph.output] + ([logits] if logits else [])
    if len(model.graph.input) != 1:
        return model
    for _ in range(_NESTED):
        conditions, decided = _decided_by_size(model)
        results = _tried(_part(model, conditions), conditions) if decided else []
        if not results or any(not np.array_equal(*pair) for pair in zip(results[0], results[-1], strict=True)):
            break
        model = _with_branches(model, dict(zip(decided, (bool(one.all()) for one in results[0]), strict=True)))
    unknown = _unknown_before(model, ends)
    if not unknown:
        return model
    results = _tried(model, unknown)
    if results:
        model = _with_shapes(model, unknown, results)
    return model


def values_on_zeros(model: onnx.ModelProto, names: list[str]) -> dict[str, NDArray[Any]]:
    """What the named tensors, which the size of the input decides, are; empty where the network does not run."""
    results = _tried(_part(model, names), names)
    return dict(zip(names, results[0], strict=True)) if results else {}


def _tried(model: onnx.ModelProto, names: list[str]) -> list[list[Any]]:
    """The named tensors for one image, and for two where it takes them; nothing where it does not run."""
    (source,) = model.graph.input
    dtype = onnx.helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type)
    batch, *sides = (dim.dim_value for dim in source.type.tensor_type.shape.dim)
    if not all(sides):
        return []
    results = []
    try:
        runner = session(with_outputs(model, names))
        for images in [batch] if batch else [1, 2]:
            results.append(run_on_zeros(runner, names, {source.name: np.zeros((images, *sides), dtype)}))
    except ModelError:
        raise
    except Exception:  # what it cannot run, the build's other steps tell
        pass
    return results


def _part(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """What makes the named tensors: beside a branch that its sizes forbid, ONNX Runtime does not take the whole."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    stated = {value.name for value in (*copy.graph.value_info, *copy.graph.output)}
    missing = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, None) for name in names]
    copy.graph.value_info.extend(one for one in missing if one.name not in stated)
    return part_of(copy, [value.name for value in model.graph.input], names)


def _unknown_before(model: onnx.ModelProto, ends: list[str]) -> list[str]:
    """Tensors near the ends whose rank, or a side other than the batch, is not known."""
    graph = model.graph
    known = {value.name for value in (*graph.value_info, *graph.output, *graph.input) if _is_known(value)}
    known |= {one.name for one in graph.initializer}
    made = {name: node for node in graph.node if node.op_type != "Constant" for name in node.output if name}
    names = reached(ends, lambda name: made[name].input if name in made else [], key=str)
    near = itertools.islice((name for name in names if name in made), _NEAR)
    return [name for name in near if name not in known]


def _is_known(value: onnx.ValueInfoProto) -> bool:
    if not value.type.HasField("tensor_type"):
        return value.type.WhichOneof("value") is not None  # a sequence has no shape
    kind = value.type.tensor_type
    return kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim[1:])


def _with_shapes(model: onnx.ModelProto, names: list[str], results: list[list[Any]]) -> onnx.ModelProto:
    """A copy with the shapes that one and two images agree on; an axis that is 1 and 2 is the batch."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    values = {value.name: value for value in (*graph.value_info, *graph.output)}
    batch = graph.input[0].type.tensor_type.shape.dim[0]
    for name, one_image, images in zip(names, results[0], results[-1], strict=True):
        if not isinstance(one_image, np.ndarray) or one_image.ndim != images.ndim:
            continue  # a sequence
        value = values[name] if name in values else graph.value_info.add(name=name)
        if not value.type.tensor_type.elem_type:
            value.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(one_image.dtype)
        shape = value.type.tensor_type.shape
        old = [dim.dim_param for dim in shape.dim]
        del shape.dim[:]
        shape.SetInParent()
        for axis, (one, two) in enumerate(zip(one_image.shape, images.shape, strict=True)):
            dim = shape.dim.add()
            if one == two and (len(results) > 1 or axis or batch.dim_value):
                dim.dim_value = one
            elif axis == 0 and (one, two) == (1, 2):
                dim.dim_param = batch.dim_param or "N"
            elif axis < len(old) and old[axis]:
                dim.dim_param = old[axis]
    return copy


def _decided_by_size(model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """Conditions of those If of the main graph that depend on no pixel, and the first outputs of these nodes."""
    from_pixels = depending_on(model.graph, {value.name for value in model.graph.input})
    decided = [node for node in model.graph.node if node.op_type == "If" and node.input[0] not in from_pixels]
    return [node.input[0] for node in decided], [node.output[0] for node in decided]


def _with_branches(model: onnx.ModelProto, taken: dict[str, bool]) -> onnx.ModelProto:
    """A copy where the branch taken stands in the place of each If, which its first output names."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.output[0] not in taken:
            graph.node.append(node)
            continue
        branch = attributes_of(node)["then_branch" if taken[node.output[0]] else "else_branch"]
        inner = [name for one in branch.node for name in one.output if name]
        inner += [one.name for one in branch.initializer]
        names = {name: f"{node.output[0]}/{name}" for name in inner}
        for constant in branch.initializer:
            graph.initializer.add().CopyFrom(constant)
            graph.initializer[-1].name = names[constant.name]
        rename(branch.node, names)
        graph.node.extend(branch.node)
        for result, name in zip(branch.output, node.output, strict=True):
            graph.node.append(onnx.helper.make_node("Identity", [names.get(result.name, result.name)], [name]))
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)
