"""Takes a baked graph apart at our node, as a model in memory; `trtpost.graph.baked` does it for a file's bytes."""

from __future__ import annotations

import onnx
import onnx.inliner

from trtpost.errors import ModelError, reason
from trtpost.graph.baked import DOMAIN, NETWORK, NODE
from trtpost.graph.proto import part_of


def seam(baked: onnx.ModelProto) -> onnx.NodeProto:
    """The `ArgMaxResize` node of a baked graph.

    Raises:
        ModelError: there is none.
    """
    node: onnx.NodeProto
    for node in baked.graph.node:
        if node.op_type == NODE and node.domain == DOMAIN:
            return node
    raise ModelError(f"the graph holds no {DOMAIN}::{NODE} node: it was not baked, or its functions were inlined")


def split(baked: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Cut a baked graph at the logits: (`image` to logits, logits and sizes to `mask`).

    A fixed size stays with the second part; every other size is an input of it.

    Raises:
        ModelError: the graph holds no `ArgMaxResize` node.
    """
    logits, *sizes = seam(baked).input
    fixed = {initializer.name for initializer in baked.graph.initializer}
    free = [name for name in sizes if name not in fixed]
    return part_of(baked, ["image"], [logits]), part_of(baked, [logits, *free], ["mask"])


def is_inlined(baked: onnx.ModelProto) -> bool:
    """True where the graph holds no function of ours any more."""
    return not any(function.domain == DOMAIN for function in baked.functions)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The baked graph in standard ops alone: every function call is replaced by its body."""
    return checked(onnx.inliner.inline_local_functions(model))


def checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with shapes inferred, after the full check of the ONNX checker.

    Raises:
        ModelError: the checker refuses it.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
        onnx.checker.check_model(inferred, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError) as error:
        raise ModelError(f"the baked graph is not valid: {reason(error).replace(NETWORK, '')}") from None
    return inferred
