"""A network of dynamic height and width at one size."""

from __future__ import annotations

import onnx

from trtpost.errors import ModelError


def with_input_size(model: onnx.ModelProto, located_input: str, layout: str, size: tuple[int, int]) -> onnx.ModelProto:
    """A copy whose dynamic input height and width are fixed to `size`, shapes inferred anew.

    Raises:
        ModelError: the network's own size is fixed and differs.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (value,) = (one for one in copy.graph.input if one.name == located_input)
    start = 1 if layout == "NHWC" else 2
    for dim, side in zip(value.type.tensor_type.shape.dim[start : start + 2], size, strict=True):
        if dim.dim_value > 0 and dim.dim_value != side:
            raise ModelError(
                f"input '{located_input}' is fixed at {dim.dim_value} pixels on one side, so --input-size "
                f"{size[0]}x{size[1]} does not fit: leave the flag out, or export the network with a dynamic size"
            )
        dim.dim_value = side
    del copy.graph.value_info[:]
    for output in copy.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            if not dim.dim_value:
                dim.Clear()
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)
