"""Rewrites the forms of `Resize` that TensorRT alone needs in other words, because its parser refuses them.

It refuses (measured with TensorRT for RTX 1.7) the coordinate modes `tf_half_pixel_for_nn`, which tf2onnx writes,
`half_pixel_symmetric` and `tf_crop_and_resize`, antialiasing, kept proportions, and integers other than int8. The graph
that other runtimes run keeps its nodes; only what TensorRT is given is rewritten:

- nearest selects: a `Gather` for each axis, by indices in exact integer arithmetic, as the ONNX specification has them.
  Floating-point arithmetic, ONNX Runtime's included, misses an index by one where the exact position lies on a boundary
  (by count: of 14 -> 39 pixels one, of 236 among 15,561 pairs of sizes some);
- linear and cubic are sums: a product with a matrix for each axis, whose columns are what ONNX Runtime makes of a
  single bright pixel. They need sizes that are known.

What is left refused: regions (`tf_crop_and_resize`), and kept proportions of what is not nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
from numpy.typing import NDArray

from trtpost.graph.emulate import session
from trtpost.graph.proto import attributes_of, constants_of, rename, replace
from trtpost.graph.reading.model import FUNCTION_IR_VERSION, opset_of

REFUSED_MODES = ("tf_half_pixel_for_nn", "half_pixel_symmetric")
"""Coordinate modes that TensorRT does not know, and whose result can be had otherwise."""

RESIZED_TYPES = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.INT8,
)
"""Element types that TensorRT resizes."""

# In integers: output pixel j lies at a / b of the source, where the axis has w pixels, its result W, and its scale is
# d / n; `odd` is 2 j + 1.
_HALF_PIXEL = """
      scaled = Mul (odd, n)
      a = Sub (scaled, d)
      b = Mul (two, d)"""
_POSITIONS = {
    "half_pixel": _HALF_PIXEL,
    "pytorch_half_pixel": """
      scaled = Mul (odd, n)
      centred = Sub (scaled, d)
      last = Sub (W, one)
      several = Min (last, one)
      a = Mul (centred, several)
      b = Mul (two, d)""",
    "half_pixel_symmetric": """
      scaled = Mul (odd, n)
      centred = Sub (scaled, d)
      wd = Mul (w, d)
      Wn = Mul (W, n)
      surplus = Sub (wd, Wn)
      a = Add (centred, surplus)
      b = Mul (two, d)""",
    "tf_half_pixel_for_nn": """
      a = Mul (odd, n)
      b = Mul (two, d)""",
    "asymmetric": """
      a = Mul (j, n)
      b = Identity (d)""",
    "align_corners": """
      end = Sub (w, one)
      a = Mul (j, end)
      last = Sub (W, one)
      b = Max (last, one)""",
}
_ROUNDINGS = {
    "floor": """
      unlimited = Div (position, b)""",
    "ceil": """
      added = Add (position, b)
      less = Sub (added, one)
      unlimited = Div (less, b)""",
    "round_prefer_ceil": """
      twice = Mul (two, position)
      added = Add (twice, b)
      bb = Mul (two, b)
      unlimited = Div (added, bb)""",
    "round_prefer_floor": """
      twice = Mul (two, position)
      added = Add (twice, b)
      less = Sub (added, one)
      bb = Mul (two, b)
      unlimited = Div (less, bb)""",
}


@dataclass(frozen=True)
class _Axis:
    """One axis that is resized.

    Attributes:
        number: its place in the shape.
        source, target: its length before and after; 0 where it is not known.
        scale: target over source, as exactly as the node says it; None where that is the quotient of the two.
        place: the place of its length in the node's `sizes`.
    """

    number: int
    source: int
    target: int
    scale: Fraction | None
    place: int


def for_tensorrt(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without a `Resize` that TensorRT refuses, where there is another way to say it.

    Args:
        model: with shapes inferred, opset 13 or later.

    Returns:
        The same model where there is nothing to do.
    """
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    types = {value.name: value.type.tensor_type for value in values}
    refused = [node for node in model.graph.node if node.op_type == "Resize" and _is_refused(node, types)]
    if not refused:
        return model
    known = constants_of(model.graph, {name for node in refused for name in node.input[2:]})
    opset = opset_of(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        replaced = node.op_type == "Resize" and _is_refused(node, types)
        nodes += (_rewritten(node, types, known, opset) if replaced else None) or [node]
    replace(copy.graph.node, nodes)
    return copy


def nearest_table(source: int, target: int, scale: Fraction, coordinates: str, rounding: str) -> NDArray[np.int64]:
    """The source index of each output index, int64 [target], as the ONNX specification has it.

    Args:
        source, target: lengths of the axis before and after.
        scale: target over source, as the node says it.
        coordinates, rounding: its `coordinate_transformation_mode` and `nearest_mode`.
    """
    model = onnx.parser.parse_model(_index_text(coordinates, rounding))
    values = {"w": source, "W": target, "d": scale.numerator, "n": scale.denominator}
    feeds = {name: np.array(value, np.int64) for name, value in values.items()}
    results: Any = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(results[0], np.int64)


def _is_refused(node: onnx.NodeProto, types: dict[str, onnx.TypeProto.Tensor]) -> bool:
    attributes = attributes_of(node)
    return (
        attributes.get("coordinate_transformation_mode", b"half_pixel").decode() in REFUSED_MODES
        or attributes.get("antialias", 0) == 1
        or attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
        or (node.input[0] in types and types[node.input[0]].elem_type not in RESIZED_TYPES)
    )


def _rewritten(
    node: onnx.NodeProto, types: dict[str, onnx.TypeProto.Tensor], known: dict[str, NDArray[Any]], opset: int
) -> list[onnx.NodeProto]:
    """Other nodes with the same result; empty where there are none."""
    attributes = attributes_of(node)
    coordinates = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    axes = _axes(node, types, known)
    if coordinates not in _POSITIONS or axes is None:
        return []
    if attributes.get("mode", b"nearest") == b"nearest":
        rounding = attributes.get("nearest_mode", b"round_prefer_floor").decode()
        return _gathered(node, axes, _index_text(coordinates, rounding), (coordinates, rounding))
    if types[node.input[0]].elem_type not in RESIZED_TYPES or "keep_aspect_ratio_policy" in attributes:
        return []
    if not all(axis.source and axis.target for axis in axes):
        return []
    return _multiplied(node, axes, types[node.input[0]], opset)


def _axes(
    node: onnx.NodeProto, types: dict[str, onnx.TypeProto.Tensor], known: dict[str, NDArray[Any]]
) -> list[_Axis] | None:
    """The axes that are resized; None where the graph does not tell how."""
    attributes = attributes_of(node)
    if node.input[0] not in types or not types[node.input[0]].HasField("shape"):
        return None
    source = [dim.dim_value for dim in types[node.input[0]].shape.dim]
    target = [0] * len(source)
    if node.output[0] in types and types[node.output[0]].HasField("shape"):
        target = [dim.dim_value for dim in types[node.output[0]].shape.dim]
    numbers = [axis % len(source) for axis in attributes.get("axes", range(len(source)))]
    scales: list[Fraction | None] = [None] * len(numbers)
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch")
    if not (len(node.input) > 3 and node.input[3]):
        if node.input[2] not in known:
            return None
        scales = [Fraction(float(scale)) for scale in known[node.input[2]]]
    elif policy != b"stretch":
        sizes = known.get(node.input[3])
        if sizes is None or not all(source[axis] for axis in numbers):
            return None
        kept = [Fraction(int(size), source[axis]) for size, axis in zip(sizes, numbers, strict=True)]
        scales = [(min if policy == b"not_larger" else max)(kept)] * len(numbers)
    axes = [
        _Axis(axis, source[axis], target[axis], scale, place)
        for place, (axis, scale) in enumerate(zip(numbers, scales, strict=True))
    ]
    is_kept = [(one.scale is None and one.source and one.source == one.target) or one.scale == 1 for one in axes]
    # a batch that is not known is not resized either, whatever its size is called
    return [one for one, kept in zip(axes, is_kept, strict=True) if not kept and (one.number > 0 or one.source)]


def _gathered(node: onnx.NodeProto, axes: list[_Axis], index_text: str, mode: tuple[str, str]) -> list[onnx.NodeProto]:
    """The nodes that select: a `Gather` for each axis."""
    nodes: list[onnx.NodeProto] = []
    current, result = node.input[0], node.output[0]
    for axis in axes:
        prefix = f"{result}/axis{axis.number}/"
        if axis.source and axis.target:
            scale = axis.scale or Fraction(axis.target, axis.source)
            table = nearest_table(axis.source, axis.target, scale, *mode)
            nodes.append(_constant_node(f"{prefix}index", table))
        else:
            nodes += _lengths(node, axis, prefix)
            body = onnx.parser.parse_model(index_text).graph.node
            names = {name for part in body for name in (*part.input, *part.output)}
            rename(body, {name: prefix + name for name in names})
            nodes += body
        gathered = f"{prefix}selected"
        nodes.append(onnx.helper.make_node("Gather", [current, f"{prefix}index"], [gathered], axis=axis.number))
        current = gathered
    return [*nodes, onnx.helper.make_node("Identity", [current], [result], name=node.name)]


def _lengths(node: onnx.NodeProto, axis: _Axis, prefix: str) -> list[onnx.NodeProto]:
    """The nodes that compute the int64 scalars `w`, `W`, `d` and `n` of an axis."""
    make = onnx.helper.make_node
    nodes = [
        make("Shape", [node.input[0]], [f"{prefix}shape"]),
        _constant_node(f"{prefix}number", np.array(axis.number)),
        make("Gather", [f"{prefix}shape", f"{prefix}number"], [f"{prefix}w"]),
    ]
    if axis.scale is None:
        return [
            *nodes,
            _constant_node(f"{prefix}place", np.array(axis.place)),
            make("Gather", [node.input[3], f"{prefix}place"], [f"{prefix}W"]),
            make("Identity", [f"{prefix}W"], [f"{prefix}d"]),
            make("Identity", [f"{prefix}w"], [f"{prefix}n"]),
        ]
    return [
        *nodes,
        _constant_node(f"{prefix}d", np.array(axis.scale.numerator)),
        _constant_node(f"{prefix}n", np.array(axis.scale.denominator)),
        make("Mul", [f"{prefix}w", f"{prefix}d"], [f"{prefix}wd_"]),
        make("Div", [f"{prefix}wd_", f"{prefix}n"], [f"{prefix}W"]),
    ]


def _index_text(coordinates: str, rounding: str) -> str:
    """The text of a model from int64 scalars w, W, d, n to `index` int64 [W]; an axis of scale 1 stays as it is."""
    return f"""
    <ir_version: {FUNCTION_IR_VERSION}, opset_import: ["" : 13]>
    nearest (int64 w, int64 W, int64 d, int64 n) => (int64[W_] index)
    {{
      zero = Constant <value_int = 0> ()
      one = Constant <value_int = 1> ()
      two = Constant <value_int = 2> ()
      j = Range (zero, W, one)
      even = Mul (two, j)
      odd = Add (even, one){_POSITIONS[coordinates]}
      position = Max (a, zero){_ROUNDINGS[rounding]}
      most = Sub (w, one)
      limited = Min (unlimited, most)
      is_kept = Equal (d, n)
      index = Where (is_kept, j, limited)
    }}"""


def _multiplied(
    node: onnx.NodeProto, axes: list[_Axis], source: onnx.TypeProto.Tensor, opset: int
) -> list[onnx.NodeProto]:
    """The nodes that sum: a product with a matrix for each axis, which stands last meanwhile."""
    nodes: list[onnx.NodeProto] = []
    rank = len(source.shape.dim)
    current, result = node.input[0], node.output[0]
    for axis in axes:
        prefix = f"{result}/axis{axis.number}/"
        order = [one for one in range(rank) if one != axis.number] + [axis.number]
        back = [order.index(one) for one in range(rank)]
        nodes += [
            _constant_node(f"{prefix}weights", _matrix(node, axis, opset)),
            onnx.helper.make_node("Cast", [f"{prefix}weights"], [f"{prefix}matrix"], to=source.elem_type),
            onnx.helper.make_node("Transpose", [current], [f"{prefix}last"], perm=order),
            onnx.helper.make_node("MatMul", [f"{prefix}last", f"{prefix}matrix"], [f"{prefix}resized"]),
            onnx.helper.make_node("Transpose", [f"{prefix}resized"], [f"{prefix}back"], perm=back),
        ]
        current = f"{prefix}back"
    return [*nodes, onnx.helper.make_node("Identity", [current], [result], name=node.name)]


def _matrix(node: onnx.NodeProto, axis: _Axis, opset: int) -> NDArray[np.float32]:
    """What one axis of the node does, float32 [source, target]: its result for each unit vector."""
    one = onnx.NodeProto()
    one.CopyFrom(node)
    del one.attribute[:]
    one.attribute.extend(attribute for attribute in node.attribute if attribute.name != "axes")
    by_size = axis.scale is None
    one.input[:] = ["unit", "", "", "sizes"] if by_size else ["unit", "", "scales"]
    one.output[:] = ["weights"]
    amounts = (
        onnx.numpy_helper.from_array(np.array([axis.source, axis.target], np.int64), "sizes")
        if by_size
        else onnx.numpy_helper.from_array(np.array([1, float(axis.scale or 1)], np.float32), "scales")
    )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [one],
        "axis",
        [value("unit", onnx.TensorProto.FLOAT, [axis.source, axis.source])],
        [value("weights", onnx.TensorProto.FLOAT, [axis.source, axis.target])],
        [amounts],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=FUNCTION_IR_VERSION)
    return np.asarray(session(model).run(None, {"unit": np.eye(axis.source, dtype=np.float32)})[0], np.float32)


def _constant_node(name: str, values: NDArray[Any]) -> onnx.NodeProto:
    return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(values))
