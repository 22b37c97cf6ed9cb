"""The input side of the engine: the graph from uint8 NHWC pixels to the network's input.

However the photo is resized, the network sees whole levels of grey: with a runtime or fixed mask size the photo is
resized before the engine and rounded to uint8; with size `image` the graph resizes and rounds. The two can differ by
one level, where the runtime's interpolation and ours round to different sides of a half.
"""

from __future__ import annotations

import onnx
import onnx.parser

from trtpost.graph.reading.model import FUNCTION_IR_VERSION
from trtpost.spec import Layout, Pre

_ELEMENTS = {"float32": (1, "float"), "float16": (10, "float16"), "uint8": (2, "uint8")}


def pixel_model(pre: Pre, *, layout: Layout, dtype: str, batch: int | str, resize: bool, opset: int) -> onnx.ModelProto:
    """A model of the preprocessing alone: `image` uint8 [N, h, w, C] to `pixels` as the network takes them.

    Args:
        pre: normalisation, channel order, network resolution.
        layout: that of the network's input.
        dtype: that of the network's input: float32, float16 or uint8.
        batch: number or name of the batch dimension.
        resize: the image has any size [N, H, W, C] and is resized here; `output_size` int64 [2], its size, is
            then a second output.
        opset: version of the standard operator set.
    """
    code, element = _ELEMENTS[dtype]
    depth = pre.depth
    size = "image_height, image_width" if resize else f"{pre.height}, {pre.width}"
    shape = f"{depth}, {pre.height}, {pre.width}" if layout == "NCHW" else f"{pre.height}, {pre.width}, {depth}"
    steps, current = ["as_float = Cast <to = 1> (image)"], "as_float"
    if resize:
        steps += [
            "shape = Shape (image)",
            "zero = Constant <value_ints = [0]> ()",
            "one = Constant <value_ints = [1]> ()",
            "three = Constant <value_ints = [3]> ()",
            "batch = Slice (shape, zero, one)",
            f"network_size = Constant <value_ints = [{pre.height}, {pre.width}, {depth}]> ()",
            "sizes = Concat <axis = 0> (batch, network_size)",
            'stretched = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (as_float, , , sizes)',
            "levels = Round (stretched)",
            "output_size = Slice (shape, one, three)",
        ]
        current = "levels"
    if pre.channels == "bgr":
        steps += [
            "reversed = Constant <value_ints = [2, 1, 0]> ()",
            f"bgr = Gather <axis = 3> ({current}, reversed)",
        ]
        current = "bgr"
    weights = ""
    if not pre.is_identity:
        steps += [f"centred = Sub ({current}, mean)", "scaled = Div (centred, std)"]
        current, weights = "scaled", f"<{_weight('mean', pre.mean)}, {_weight('std', pre.std)}>"
    if layout == "NCHW":
        steps += [f"channels_first = Transpose <perm = [0, 3, 1, 2]> ({current})"]
        current = "channels_first"
    steps += [f"pixels = Cast <to = {code}> ({current})"]
    body = "\n      ".join(steps)
    return onnx.parser.parse_model(f"""
    <ir_version: {FUNCTION_IR_VERSION}, opset_import: ["" : {opset}]>
    preprocess (uint8[{batch}, {size}, {depth}] image)
      => ({element}[{batch}, {shape}] pixels{", int64[2] output_size" if resize else ""}) {weights}
    {{
      {body}
    }}""")


def _weight(name: str, values: tuple[float, ...]) -> str:
    return f"float[{len(values)}] {name} = {{{', '.join(repr(float(value)) for value in values)}}}"
