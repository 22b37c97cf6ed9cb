"""Makes floats of the photo before anything is taken out of it: TensorRT has bytes at the edges of an engine alone."""

from __future__ import annotations

import onnx

from trtpost.graph.proto import replace

_FLOATS = "image_as_floats"


def with_float_photo(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model where no `Gather` takes bytes of the input `image`; the same model where none does.

    A byte is the same number in float32, so the order of `Gather` and `Cast` changes no value.
    """
    taken = {"image"}
    for node in model.graph.node:  # they stand in the order they run
        if node.op_type == "Gather" and node.input[0] in taken:
            taken.add(node.output[0])
    if len(taken) == 1:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.op_type == "Gather" and node.input[0] == "image":
            node.input[0] = _FLOATS
    cast = onnx.helper.make_node("Cast", ["image"], [_FLOATS], name="pre/image_as_floats", to=onnx.TensorProto.FLOAT)
    replace(copy.graph.node, [cast, *copy.graph.node])
    replace(copy.graph.value_info, [value for value in copy.graph.value_info if value.name not in taken])
    return copy
