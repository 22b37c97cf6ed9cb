"""Refuses networks that were exported while they were being trained: their mask is not the photo's alone."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.proto import attributes_of, constants_of

_AGAIN = "export the network for inference (PyTorch: model.eval(); Keras: training=False)"


def check_trained(model: onnx.ModelProto, name: str) -> None:
    """Refuse batch normalisation by the batch's own statistics, and random numbers.

    ONNX Runtime does not run the first, and TensorRT takes other statistics for it without a word. Written in plain
    arithmetic both would run it, but a photo's mask would depend on the photos beside it; with the batch fixed at one
    there are none beside it, and the model is taken.

    Args:
        model: as `normalized` gives it: opset 13 or later.
        name: the model's, for the message.

    Raises:
        ModelError: naming the node.
    """
    asking = [node for node in model.graph.node if node.op_type in ops.AVERAGING_BATCH | {"Dropout"}]
    constants = constants_of(model.graph, {name for node in asking for name in node.input[1:]})
    for node in model.graph.node:
        where = f"{name}: node '{node.name or node.output[0]}' ({node.op_type})"
        if node.op_type == "BatchNormalization" and (
            attributes_of(node).get("training_mode") or len([one for one in node.output if one]) > 1
        ):
            raise ModelError(
                f"{where} is in training mode: it normalises by the photos of the batch instead of by what it has "
                f"learnt; {_AGAIN}"
            )
        switch = constants.get(node.input[2]) if node.op_type == "Dropout" and len(node.input) > 2 else None
        if node.op_type in ops.RANDOM or (switch is not None and switch.any()):
            raise ModelError(f"{where} draws random numbers, so the mask would be another one each time; {_AGAIN}")
    batches = [one.type.tensor_type.shape.dim[0].dim_value for one in model.graph.input if _rank(one) == 4]
    if batches != [1] and (culprit := _batch_moments(model.graph, constants)) is not None:
        raise ModelError(
            f"{name}: node '{culprit.name or culprit.output[0]}' takes mean and variance over the photos of the batch, "
            "as batch normalisation in training mode does, so a photo's mask would depend on the photos beside it; "
            f"{_AGAIN}, or with a batch fixed at 1 where the photo's own statistics are meant"
        )


def _batch_moments(graph: onnx.GraphProto, constants: dict[str, NDArray[np.generic]]) -> onnx.NodeProto | None:
    """The mean over batch, height and width that a variance over the same axes is taken about."""
    producers: dict[str, onnx.NodeProto] = {output: node for node in graph.node for output in node.output}

    def over_batch(node: onnx.NodeProto) -> bool:
        axes = attributes_of(node).get("axes", constants.get(node.input[1], []) if len(node.input) > 1 else [])
        return len(axes) == 3 and (0 in axes or -4 in axes)

    for node in graph.node:
        if node.op_type not in ops.AVERAGING_BATCH or not over_batch(node):
            continue
        pending, seen = [node.input[0]], set[str]()
        while pending:
            name = pending.pop()
            source = producers.get(name)
            if source is None or name in seen:
                continue
            seen.add(name)
            if source.op_type == "ReduceMean" and over_batch(source):
                return source
            if source.op_type in ops.IN_DEVIATION:
                pending.extend(source.input)
    return None


def _rank(value: onnx.ValueInfoProto) -> int:
    return len(value.type.tensor_type.shape.dim)
