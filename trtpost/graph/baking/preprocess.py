"""The input side of the engine: the graph from uint8 NHWC pixels to the network's input.

However the photo is resized, the network sees whole levels of grey, and the same ones: with a runtime or fixed mask
size the photo is resized before the engine and rounded to uint8; with size `image` the graph does it, by
`kernels.reference.bilinear` in plain operators, each step in float32 and in its order. Runtimes' own `Resize` weighs
the pixels in other orders, and rounds another way where the value lies next to a half.
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
    if resize:
        steps, current = _resize(pre.height, pre.width, depth), "levels"
    else:
        steps, current = ["as_float = Cast <to = 1> (image)"], "as_float"
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


def _resize(height: int, width: int, depth: int) -> list[str]:
    """Ops from `image` to `levels`, float32 [N, height, width, C], and `output_size`.

    Rows and columns are taken while they are bytes, so that a large photo is never held as floats. In between, the
    colours of a row lie in one axis: broadcasting over the three of a pixel would take several times as long.
    """
    return [
        "half = Constant <value_float = 0.5> ()",
        "nought = Constant <value_float = 0.0> ()",
        "unit = Constant <value_int = 1> ()",
        "shape = Shape (image)",
        "one = Constant <value_ints = [1]> ()",
        "two = Constant <value_ints = [2]> ()",
        "three = Constant <value_ints = [3]> ()",
        "output_size = Slice (shape, one, three)",
        "photo_height = Slice (shape, one, two)",
        "photo_width = Slice (shape, two, three)",
        *_neighbours("row", "photo_height", height),
        *_neighbours("column", "photo_width", width),
        "upright = Constant <value_ints = [-1, 1]> ()",
        "down = Reshape (row_between, upright)",
        "column_of_pixels = Reshape (column_between, upright)",
        f"row_of_pixels = Constant <value_ints = [{width}, {depth}]> ()",
        "across_pixels = Expand (column_of_pixels, row_of_pixels)",
        "flat = Constant <value_ints = [-1]> ()",
        "across = Reshape (across_pixels, flat)",
        f"rows_of_values = Constant <value_ints = [0, {height}, {width * depth}]> ()",
        *_row("upper"),
        *_row("lower"),
        "difference = Sub (lower, upper)",
        "change = Mul (difference, down)",
        "sum = Add (change, upper)",
        "rounded = Round (sum)",
        f"rows_of_pixels = Constant <value_ints = [0, {height}, {width}, {depth}]> ()",
        "levels = Reshape (rounded, rows_of_pixels)",
    ]


def _neighbours(axis: str, source: str, target: int) -> list[str]:
    """Ops of `reference.linear_index`: of int64 [1] `source` the `AXIS_lower`, `AXIS_upper` and `AXIS_between`."""
    return [
        f"{axis}_first = Constant <value_int = 0> ()",
        f"{axis}_count = Constant <value_int = {target}> ()",
        f"{axis}_steps = Range ({axis}_first, {axis}_count, unit)",
        f"{axis}_j = Cast <to = 1> ({axis}_steps)",
        f"{axis}_w = Cast <to = 1> ({source})",
        f"{axis}_W = Cast <to = 1> ({axis}_count)",
        f"{axis}_scale = Div ({axis}_w, {axis}_W)",
        f"{axis}_centre = Add ({axis}_j, half)",
        f"{axis}_stretched = Mul ({axis}_centre, {axis}_scale)",
        f"{axis}_free = Sub ({axis}_stretched, half)",
        f"{axis}_last = Sub ({source}, unit)",
        f"{axis}_most = Cast <to = 1> ({axis}_last)",
        f"{axis}_least = Max ({axis}_free, nought)",
        f"{axis}_position = Min ({axis}_least, {axis}_most)",
        f"{axis}_floor = Floor ({axis}_position)",
        f"{axis}_between = Sub ({axis}_position, {axis}_floor)",
        f"{axis}_lower = Cast <to = 7> ({axis}_floor)",
        f"{axis}_next = Add ({axis}_lower, unit)",
        f"{axis}_upper = Min ({axis}_next, {axis}_last)",
    ]


def _row(name: str) -> list[str]:
    """Ops from `image` to the float32 [N, height, width * C] between the columns of each pixel's upper or lower row."""
    sides = [
        [
            f"{name}_{side}_bytes = Gather <axis = 2> ({name}_rows, column_{neighbour})",
            f"{name}_{side}_pixels = Cast <to = 1> ({name}_{side}_bytes)",
            f"{name}_{side} = Reshape ({name}_{side}_pixels, rows_of_values)",
        ]
        for side, neighbour in (("left", "lower"), ("right", "upper"))
    ]
    row = "row_upper" if name == "lower" else "row_lower"  # the lower row of a picture has the upper number
    return [
        f"{name}_rows = Gather <axis = 1> (image, {row})",
        *sides[0],
        *sides[1],
        f"{name}_difference = Sub ({name}_right, {name}_left)",
        f"{name}_change = Mul ({name}_difference, across)",
        f"{name} = Add ({name}_change, {name}_left)",
    ]


def _weight(name: str, values: tuple[float, ...]) -> str:
    return f"float[{len(values)}] {name} = {{{', '.join(repr(float(value)) for value in values)}}}"
