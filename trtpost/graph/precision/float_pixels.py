"""Gives TensorRT as float32 the pixels that a network moves about before it casts them: it has no uint8 inside."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.graph import ops
from trtpost.graph.walks import behind, maker_of

RESIZED = "pre/levels"
"""Name of the node that gives the levels of a photo that the baked graph resized: see `baking.preprocess`."""

_FROM_PIXELS = ("Cast", "Transpose", "Gather", "Identity", "Slice")


def with_float_pixels(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network for TensorRT: a Cast to uint8, and what moves its result up to the next Cast, in float32.

    These are the same whole numbers from 0 to 255. Where anything else is done with them, the model stays as it is.
    """
    graph = gs.import_onnx(model)
    inputs = {id(value) for value in graph.inputs if value.dtype == np.uint8}
    changed = False
    for node in graph.nodes:
        if node.op == "Cast" and node.attrs["to"] == onnx.TensorProto.UINT8 and _gives_pixels(node, inputs):
            carried = _carried(node.outputs[0], {id(value) for value in graph.outputs})
            if carried is not None:
                node.attrs["to"] = onnx.TensorProto.FLOAT
                changed = True
                for value in carried:
                    value.dtype = np.dtype(np.float32)
    return gs.export_onnx(graph, do_type_check=False) if changed else model


def _gives_pixels(cast: gs.Node, inputs: set[int]) -> bool:
    """True where a Cast takes whole levels of gray: those of an image, or those that the baked graph resized."""
    source = behind(cast.inputs[0], _FROM_PIXELS)
    maker = maker_of(source)
    return id(source) in inputs or (maker is not None and maker.name == RESIZED)


def _carried(pixels: gs.Variable, outputs: set[int]) -> list[gs.Variable] | None:
    """The pixels and all that they are moved to; None where something else than a Cast takes them in the end."""
    found, pending = [pixels], [pixels]
    while pending:
        value = pending.pop()
        if id(value) in outputs:
            return None
        for node in value.outputs:
            if node.op in ("Cast", "Shape"):
                continue
            nearest = node.op == "Resize" and node.attrs.get("mode", "nearest") == "nearest"
            if not (nearest or node.op in ops.MOVING) or node.inputs[0] is not value:
                return None
            found += node.outputs
            pending += node.outputs
    return found
