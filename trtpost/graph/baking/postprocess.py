"""The seam: the node `trtpost::ArgMaxResize`, whose function body says in standard ONNX ops what it means.

A runtime with a faster kernel replaces the node; every other runtime expands the body. The signature is
`ArgMaxResize(logits, output_size)`, with a third input `region` where the photo was letterboxed, or
`ArgMaxResize(logits, rows, cols)` where the pixel convention needs float64 index tables. The node's attributes repeat
`Post`, for kernels; the body is written for one `Post` and ignores them.
"""

from __future__ import annotations

import onnx
import onnx.parser

from trtpost.graph.baked import DOMAIN, NODE
from trtpost.graph.reading.model import FUNCTION_IR_VERSION
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region
from trtpost.spec import Match, Post

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

    logits [N, C, h, w], [N, h, w, C] or labels [N, h, w]; output_size int64 [2]; region int64 [4]; mask int32
    [N, H, W].
    """
    sizes, crop, source = "output_size", "", "logits"
    if post.region == "runtime":
        sizes, crop, source = "output_size, region", _crop(post), "inside"
    if post.resize == "bilinear":
        return [_function(post, opset, sizes, crop + _resize(post, source) + _labels(post, "resized", "mask"))]
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
    body = _function(post, opset, sizes, crop + _labels(post, source, "labels") + indices + select)
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
    """Ops from logits [N, C, h, w] or [N, h, w, C] to int32 labels [N, h, w], the type of the node's output."""
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


def _crop(post: Post) -> str:
    """Ops from logits or labels to the part of them that `region` = [top, left, height, width] names."""
    axes = "2, 3" if post.head != "labels" and post.layout == "NCHW" else "1, 2"
    return f"""
      region_start = Constant <value_ints = [0]> ()
      region_middle = Constant <value_ints = [2]> ()
      region_end = Constant <value_ints = [4]> ()
      near = Slice (region, region_start, region_middle)
      extent = Slice (region, region_middle, region_end)
      far = Add (near, extent)
      spatial_axes = Constant <value_ints = [{axes}]> ()
      inside = Slice (logits, near, far, spatial_axes)"""


def _resize(post: Post, source: str) -> str:
    """Ops from logits to logits at `output_size`, in the same layout."""
    resize = f'Resize <mode = "linear", coordinate_transformation_mode = "{_TRANSFORMATION[post.match]}">'
    # the axes before, and (NHWC) after, the two that are resized
    leading, trailing = ("2", "4") if post.layout == "NCHW" else ("1", "3")
    return f"""
      shape = Shape ({source})
      start = Constant <value_ints = [0]> ()
      spatial_start = Constant <value_ints = [{leading}]> ()
      spatial_end = Constant <value_ints = [{trailing}]> ()
      end = Constant <value_ints = [4]> ()
      before = Slice (shape, start, spatial_start)
      after = Slice (shape, spatial_end, end)
      sizes = Concat <axis = 0> (before, output_size, after)
      resized = {resize} ({source}, , , sizes)"""


def node_model(
    post: Post,
    logits: onnx.TensorProto.DataType,
    shape: tuple[int | str, ...],
    opset: int,
    region: Region | None = None,
) -> onnx.ModelProto:
    """The post-processing as a model of its own: (logits, sizes) to `mask`.

    The Cast to uint8 stands outside the function, because TensorRT takes UINT8 only at the network's edge.

    Args:
        post: what to compute. With a fixed `post.size` the sizes are initializers, otherwise inputs: `output_size`
            int64 [2] (and `region` int64 [4] where `post.region` is `runtime`), or `rows` int64 [H] and `cols` int64
            [W].
        logits: element type of the logits.
        shape: of the logits, names for dynamic dimensions.
        opset: version of the standard operator set.
        region: with a fixed size, the part of the logits that holds the photo; None: all.
    """
    element = onnx.TensorProto.DataType.Name(logits).lower()
    dims = ", ".join(str(dim) for dim in shape)
    fixed = isinstance(post.size, tuple)
    height, width = post.size if isinstance(post.size, tuple) else ("H", "W")
    sizes = f"int64[{height}] rows, int64[{width}] cols" if post.needs_tables else "int64[2] output_size"
    names = "rows, cols" if post.needs_tables else "output_size"
    if post.region == "runtime" and not post.needs_tables:
        sizes, names = sizes + ", int64[4] region", names + ", region"
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
        # the size of the logits may be unknown where nothing depends on it
        source = spatial(post, shape) if post.needs_tables or post.region == "runtime" else (0, 0)
        values = size_inputs(post, region or Region(0, 0, *source), post.size)
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    return model


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
