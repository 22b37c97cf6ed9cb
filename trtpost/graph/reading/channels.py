"""The number of an image's channels where the model leaves it open: the first convolution tells it."""

from __future__ import annotations

import onnx

from trtpost.graph import ops
from trtpost.graph.proto import attributes_of, replace

_KEEPING_AXES = (
    ops.ARITHMETIC
    | ops.QUANTIZING
    | ops.RESIZING
    | ops.ROUNDING
    | frozenset({"Identity", "Cast", "Clip", "Pad", "Relu"})
)
"""Leave four axes where they are; a Transpose does not, and is followed."""


def with_known_channels(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the channels of its images fixed, where it calls them by a name.

    transformers exports `[batch_size, num_channels, height, width]`, though its convolutions take three channels.
    """
    shapes = {one.name: list(one.dims) for one in model.graph.initializer}
    shapes |= {
        node.output[0]: list(attributes_of(node)["value"].dims)
        for node in model.graph.node
        if node.op_type == "Constant" and "value" in attributes_of(node)
    }
    changed = False
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        found = _axis_of_channels(model.graph, value.name, shapes) if len(dims) == 4 else None
        if found is not None and not dims[found[0]].dim_value:
            dims[found[0]].dim_value = found[1]
            changed = True
    if not changed:
        return model
    replace(model.graph.value_info, [])  # they know the name alone
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _axis_of_channels(graph: onnx.GraphProto, image: str, shapes: dict[str, list[int]]) -> tuple[int, int] | None:
    """Where the channels of an image stand, and how many there are, by the first convolution that takes them."""
    axes = {image: [0, 1, 2, 3]}  # of the tensors that hold the image: where each of their axes stands in it
    for node in graph.node:  # in the order in which they run
        given = next((axes[name] for name in node.input if name in axes), None)
        if given is None:
            continue
        attributes = attributes_of(node)
        if node.op_type == "Conv" and node.input[0] in axes and len(weights := shapes.get(node.input[1], [])) == 4:
            return given[1], weights[1] * int(attributes.get("group", 1))
        if node.op_type == "Transpose" and len(attributes.get("perm", [])) == 4:
            axes[node.output[0]] = [given[axis] for axis in attributes["perm"]]
        elif node.op_type in _KEEPING_AXES:
            axes[node.output[0]] = given
    return None
