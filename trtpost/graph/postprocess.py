"""The seam: the node `trtpost::ArgMaxResize`, whose function body says in standard ONNX ops what it means.

A runtime with a faster kernel replaces the node; every other runtime expands the body. The signature is
`ArgMaxResize(logits, output_size)`, or `ArgMaxResize(logits, rows, cols)` where the pixel convention needs float64
index tables. The node's attributes repeat `Post`, for kernels; the body is written for one `Post` and ignores them.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from trtpost.graph.model import DOMAIN, FUNCTION_IR_VERSION
from trtpost.resample import nearest_index
from trtpost.spec import Match, Post

NODE = "ArgMaxResize"
ATTRIBUTES = ("head", "layout", "resize", "match", "threshold")

# float32 throughout: the frameworks compute these indices in float32, and exact arithmetic differs from them
_POSITION = {
    "tf": """
      half = Constant <value_float = 0.5> ()
      centre = Add (j, half)
      position = Mul (centre, scale)""",
    "tf1": """
      position = Mul (j, scale)""",
}
_POSITION["torch"] = _POSITION["tf1"]

_TRANSFORMATION: dict[Match, str] = {
    "tf": "half_pixel",
    "torch": "half_pixel",
    "opencv": "half_pixel",
    "tf1": "asymmetric",
    "align_corners": "align_corners",
}


def index_function(match: Match, opset: int) -> onnx.FunctionProto:
    """`NearestIndex(source, target) -> index`: int64 scalars w and W to the int64 [W] source index of each pixel."""
    return onnx.parser.parse_function(f"""
    <domain: "{DOMAIN}", opset_import: ["" : {opset}]>
    NearestIndex (source, target) => (index)
    {{
      zero = Constant <value_int = 0> ()
      one = Constant <value_int = 1> ()
      steps = Range (zero, target, one)
      j = Cast <to = 1> (steps)
      w = Cast <to = 1> (source)
      W = Cast <to = 1> (target)
      scale = Div (w, W){_POSITION[match]}
      down = Floor (position)
      unbounded = Cast <to = 7> (down)
      last = Sub (source, one)
      index = Min (unbounded, last)
    }}""")


def functions(post: Post, opset: int) -> list[onnx.FunctionProto]:
    """The body of `ArgMaxResize` for `post`, after the functions that it calls.

    logits [N, C, h, w], [N, h, w, C] or labels [N, h, w]; output_size int64 [2]; mask int32 [N, H, W].
    """
    if post.resize == "bilinear":
        return [_function(post, opset, "output_size", _resize(post) + _labels(post, "resized", "mask"))]
    select = """
      tall = Gather <axis = 1> (labels, rows)
      mask = Gather <axis = 2> (tall, cols)"""
    if post.needs_tables:
        return [_function(post, opset, "rows, cols", _labels(post, "logits", "labels") + select)]
    indices = """
      shape = Shape (labels)
      first = Constant <value_int = 0> ()
      second = Constant <value_int = 1> ()
      third = Constant <value_int = 2> ()
      h = Gather (shape, second)
      w = Gather (shape, third)
      H = Gather (output_size, first)
      W = Gather (output_size, second)
      rows = trtpost.NearestIndex (h, H)
      cols = trtpost.NearestIndex (w, W)"""
    body = _function(post, opset, "output_size", _labels(post, "logits", "labels") + indices + select)
    return [index_function(post.match, opset), body]


def _function(post: Post, opset: int, sizes: str, body: str) -> onnx.FunctionProto:
    function = onnx.parser.parse_function(f"""
    <domain: "{DOMAIN}", opset_import: ["" : {opset}, "{DOMAIN}" : 1]>
    {NODE} <{", ".join(ATTRIBUTES)}> (logits, {sizes}) => (mask)
    {{{body}
    }}""")
    function.doc_string = f"{post.resize} resize of the {post.head}, pixel convention '{post.match}'"
    return function


def _labels(post: Post, source: str, result: str) -> str:
    """Ops from logits [N, C, h, w] or [N, h, w, C] to int32 labels [N, h, w]; TensorRT has no int64 arithmetic cheap
    enough to keep, and class ids fit."""
    axis = 1 if post.layout == "NCHW" else 3
    if post.head == "labels":
        return f"""
      {result} = Cast <to = 6> ({source})"""
    if post.head == "threshold":
        return f"""
      value = Cast <to = 1> ({source})
      threshold = Constant <value_float = {post.threshold!r}> ()
      above = Greater (value, threshold)
      one_channel = Cast <to = 6> (above)
      channel = Constant <value_ints = [{axis}]> ()
      {result} = Squeeze (one_channel, channel)"""
    return f"""
      best = ArgMax <axis = {axis}, keepdims = 0> ({source})
      {result} = Cast <to = 6> (best)"""


def _resize(post: Post) -> str:
    """Ops from logits to logits at `output_size`, in the same layout."""
    resize = f'Resize <mode = "linear", coordinate_transformation_mode = "{_TRANSFORMATION[post.match]}">'
    # the axes before, and (NHWC) after, the two that are resized
    leading, trailing = ("2", "4") if post.layout == "NCHW" else ("1", "3")
    return f"""
      shape = Shape (logits)
      start = Constant <value_ints = [0]> ()
      spatial_start = Constant <value_ints = [{leading}]> ()
      spatial_end = Constant <value_ints = [{trailing}]> ()
      end = Constant <value_ints = [4]> ()
      before = Slice (shape, start, spatial_start)
      after = Slice (shape, spatial_end, end)
      sizes = Concat <axis = 0> (before, output_size, after)
      resized = {resize} (logits, , , sizes)"""


def node_model(
    post: Post, logits: onnx.TensorProto.DataType, shape: tuple[int | str, ...], opset: int
) -> onnx.ModelProto:
    """The post-processing as a model of its own: (logits, sizes) to `mask`.

    The Cast to uint8 stands outside the function, because TensorRT takes UINT8 only at the network's edge.

    Args:
        post: what to compute. With a fixed `post.size` the sizes are initializers, otherwise inputs: `output_size`
            int64 [2], or `rows` int64 [H] and `cols` int64 [W].
        logits: element type of the logits.
        shape: of the logits, names for dynamic dimensions.
        opset: version of the standard operator set.
    """
    element = onnx.TensorProto.DataType.Name(logits).lower()
    dims = ", ".join(str(dim) for dim in shape)
    fixed = isinstance(post.size, tuple)
    height, width = post.size if isinstance(post.size, tuple) else ("H", "W")
    sizes = f"int64[{height}] rows, int64[{width}] cols" if post.needs_tables else "int64[2] output_size"
    names = "rows, cols" if post.needs_tables else "output_size"
    attributes = (
        f'head = "{post.head}", layout = "{post.layout}", resize = "{post.resize}", match = "{post.match}", '
        f"threshold = {post.threshold!r}"
    )
    model = onnx.parser.parse_model(f"""
    <ir_version: {FUNCTION_IR_VERSION}, opset_import: ["" : {opset}, "{DOMAIN}" : 1]>
    postprocess ({element}[{dims}] logits{"" if fixed else ", " + sizes})
      => ({"int32" if post.wide else "uint8"}[{shape[0]}, {height}, {width}] mask)
    {{
      classes = {DOMAIN}.{NODE} <{attributes}> (logits, {names})
      mask = Cast <to = {6 if post.wide else 2}> (classes)
    }}""")
    model.functions.extend(functions(post, opset))
    if isinstance(post.size, tuple):
        model.graph.initializer.extend(_fixed_sizes(post, shape, post.size))
    return model


def _fixed_sizes(post: Post, shape: tuple[int | str, ...], size: tuple[int, int]) -> list[onnx.TensorProto]:
    if not post.needs_tables:
        return [onnx.numpy_helper.from_array(np.array(size, np.int64), "output_size")]
    return [
        onnx.numpy_helper.from_array(nearest_index(source, target, post.match), name)
        for name, source, target in zip(("rows", "cols"), spatial(post, shape), size, strict=True)
    ]


def spatial(post: Post, shape: tuple[int | str, ...]) -> tuple[int, int]:
    """Height and width in the shape of the logits.

    Raises:
        ValueError: they are not known.
    """
    start = 2 if post.head != "labels" and post.layout == "NCHW" else 1
    height, width = shape[start : start + 2]
    if not isinstance(height, int) or not isinstance(width, int):
        raise ValueError("the logits' height and width are not known")
    return height, width
