"""The image input of a network: which of its inputs that is, and which pixels its first arithmetic is made for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.graph import ops
from trtpost.graph.head.layout import input_layout
from trtpost.graph.walks import constant_values, depends_on, dims, dtype_name, is_constant, listing, number
from trtpost.spec import Layout

_IMAGE_DTYPES = ("float16", "float32", "uint8")


@dataclass(frozen=True)
class ImageInput:
    """The input that takes the photo.

    Attributes:
        tensor: of four dimensions.
        layout: of its axes.
        batch: photos that it takes at once; a name where that is dynamic.
        size: (height, width); 0 where dynamic.
        channels: 1 or 3.
    """

    tensor: gs.Variable
    layout: Layout
    batch: int | str
    size: tuple[int, int]
    channels: int


def image_input(graph: gs.Graph, tensor: gs.Variable | None) -> ImageInput:
    """The one image among the inputs, as `image_tensor` finds it, taken apart.

    Raises:
        ModelError: there is none, or its channels are not those of a photo.
    """
    source = image_tensor(graph, tensor)
    layout, shape = input_layout(source), dims(source)
    height, width, channels = shape[1:] if layout == "NHWC" else (*shape[2:], shape[1])
    if channels not in (1, 3):
        raise ModelError(
            f"input '{source.name}' {list(shape)} has {channels} channels in layout {layout}: "
            "trtpost takes networks of 1 or 3, fixed in the model"
        )
    return ImageInput(source, layout, shape[0], (number(height), number(width)), number(channels))


def image_tensor(graph: gs.Graph, tensor: gs.Variable | None) -> gs.Variable:
    """The one image among the inputs; the only one that `tensor` needs, where that is given.

    Raises:
        ModelError: there is none, or more than one input.
    """
    inputs = [value for value in graph.inputs if tensor is None or depends_on(tensor, value)] or graph.inputs
    fitting = [value for value in inputs if len(dims(value)) == 4 and dtype_name(value) in _IMAGE_DTYPES]
    if len(fitting) == 1 and (tensor is None or len(inputs) == 1):
        return fitting[0]
    if not fitting:
        raise ModelError(
            f"the model has no image input: it needs one of four dimensions and type {', '.join(_IMAGE_DTYPES)}, "
            f"but has {listing(inputs)}"
        )
    raise ModelError(
        f"the model has {len(inputs)} inputs, {listing(inputs)}: trtpost takes networks with one image input; make the "
        "others constants before the export, or name a tensor that needs the image alone with --logits"
    )


def expected_range(source: gs.Variable) -> str:
    """`pixels`, `unit` or nothing: which input the constants of the first arithmetic turn into about -3..3.

    The input that becomes 0, and how far 255 is from it, tell means and deviations of pixels from those of 0..1.
    """
    tensor, gain, offset, found = source, 1.0, 0.0, False
    for _ in range(16):
        node = tensor.outputs[0] if len(tensor.outputs) == 1 else None
        if node is None or not node.outputs:
            break
        if node.op in ops.ARITHMETIC:
            constant = next((constant_values(value) for value in node.inputs if is_constant(value)), None)
            if constant is None or constant.dtype.kind not in "fiu" or is_constant(node.inputs[0]):
                break
            value, found = float(np.mean(constant)), True
            if node.op in ("Sub", "Add"):
                offset += value if node.op == "Add" else -value
            else:
                factor = value if node.op == "Mul" else 1 / value if value else 0.0
                gain, offset = gain * factor, offset * factor
        elif node.op not in ops.KEEPING_PIXEL_RANGE:
            break
        tensor = node.outputs[0]
    if not found or not gain:
        return ""
    centre = -offset / gain
    return "pixels" if abs(255 * gain) <= 20 or abs(centre) > 2 else "unit"
