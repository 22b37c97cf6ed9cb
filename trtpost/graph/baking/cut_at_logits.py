"""Cuts the source model at the logits, for the middle of a baked graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtpost.graph.baked import NETWORK
from trtpost.graph.baking.cover import with_coverage
from trtpost.graph.head.layout import channel_axis
from trtpost.graph.head.negative_ids import may_be_negative
from trtpost.graph.proto import graphs_inside, replace
from trtpost.graph.reading.model import FUNCTION_IR_VERSION
from trtpost.spec import IGNORED, Located, Post, Pre

_NO_LOGITS = ("bool", "uint8", "int8", "uint16", "int16")
"""Types of scores that ArgMax or TensorRT does not take, and float32 holds."""


def network_of(model: onnx.ModelProto, located: Located, pre: Pre, post: Post | None = None) -> onnx.ModelProto:
    """The source model cut at the logits: what `bake` puts between preprocessing and post-processing.

    Every name has the prefix `NETWORK`. Its one input has the network's own layout and type (float32 for uint8 pixels
    that are cast at once), at the size of `pre`; its one output is the logits in four dimensions, labels as [N, h, w],
    quantised logits and those behind a constant background as float32. Those that do not cover the input are brought
    onto a grid that does, as `post` resizes.
    """
    graph = gs.import_onnx(model)
    tensors = graph.tensors()
    (source,) = (value for value in graph.inputs if value.name == located.input)
    spatial_shape = [pre.height, pre.width]
    batch = located.batch or "N"
    source.shape = (
        [batch, *spatial_shape, pre.depth] if located.input_layout == "NHWC" else [batch, pre.depth, *spatial_shape]
    )
    if source.dtype == np.uint8 and all(node.op == "Cast" for node in source.outputs):
        # the same numbers; TensorRT takes UINT8 at the edge of an engine, but not between preprocessing and network
        source.dtype = np.dtype(np.float32)
    logits = tensors[located.logits]
    if located.head == "labels":
        if may_be_negative(logits):
            logits = _with_ignored(graph, logits)
        elif located.dtype.startswith("float"):
            logits = _append(graph, "Cast", logits, logits.shape, {"to": onnx.TensorProto.INT32}, np.int32)
        logits = _unfold(graph, logits, located) if located.is_flat else _rank_three(graph, logits, batch)
    else:
        if located.dtype in _NO_LOGITS or (located.background is not None and located.dtype != "float32"):
            logits = _append(graph, "Cast", logits, logits.shape, {"to": onnx.TensorProto.FLOAT}, np.float32)
        if located.is_flat:
            logits = _unfold(graph, logits, located)
        if located.is_compared_inside:
            logits = _largest(graph, logits, located)
        if located.background is not None:
            logits = _with_background(graph, logits, located, located.background)
    if post is not None:
        logits = with_coverage(graph, logits, located, post, (pre.height, pre.width))
    graph.inputs, graph.outputs = [source], [logits]
    graph.cleanup().toposort()
    for value in graph.tensors().values():
        if isinstance(value, gs.Variable) and value is not source and value is not logits:
            value.shape = None  # inferred anew, from the size and batch that the input has now
    network = gs.export_onnx(graph, do_type_check=False)
    network.ir_version = max(model.ir_version, FUNCTION_IR_VERSION)
    network = onnx.shape_inference.infer_shapes(network, data_prop=True)
    network = onnx.compose.add_prefix(network, NETWORK)
    outer = {one.name for one in network.graph.initializer}
    for inner in graphs_inside(network.graph.node):  # graphsurgeon repeats what they take from outside: ONNX forbids it
        replace(inner.initializer, [one for one in inner.initializer if one.name not in outer])
    return network


def _rank_three(graph: gs.Graph, labels: gs.Variable, batch: int | str) -> gs.Variable:
    shape = [*labels.shape]
    if len(shape) == 2:
        return _append(graph, "Unsqueeze", labels, [batch, *shape], constants={"axes": np.array([0])})
    if len(shape) == 4:
        axis = 1 if shape[1] == 1 else 3
        shape = [batch, *shape[1:axis], *shape[axis + 1 :]]
        return _append(graph, "Squeeze", labels, shape, constants={"axes": np.array([axis])})
    return labels


def _largest(graph: gs.Graph, logits: gs.Variable, located: Located) -> gs.Variable:
    """Append what gives 1 for the largest logit, else 0, as float32: it compares a type that float32 does not hold."""
    axis = channel_axis(located.layout)
    shape: list[int | str] = [located.batch or "N", *located.shape[1:]]
    one: list[int | str] = [1 if at == axis else dim for at, dim in enumerate(shape)]
    best = _append(graph, "ArgMax", logits, one, {"axis": axis, "keepdims": 1}, np.int64)
    ids = np.arange(located.classes, dtype=np.int64).reshape([-1 if at == axis else 1 for at in range(4)])
    is_best = _append(graph, "Equal", best, shape, None, np.bool_, {"ids": ids})
    return _append(graph, "Cast", is_best, shape, {"to": onnx.TensorProto.FLOAT}, np.float32)


def _with_ignored(graph: gs.Graph, labels: gs.Variable) -> gs.Variable:
    """Append what puts `IGNORED` in place of every negative label, as int32."""
    shape = labels.shape
    wide = _append(graph, "Cast", labels, shape, {"to": onnx.TensorProto.INT32}, np.int32)
    negative = _append(graph, "Less", wide, shape, None, np.bool_, {"zero": np.array(0, np.int32)})
    chosen = gs.Variable(f"{labels.name}/Where", dtype=np.int32, shape=shape)
    ignored = gs.Constant(f"{chosen.name}/ignored", np.array(IGNORED, np.int32))
    graph.nodes.append(gs.Node("Where", name=chosen.name, inputs=[negative, ignored, wide], outputs=[chosen]))
    return chosen


def _unfold(graph: gs.Graph, flat: gs.Variable, located: Located) -> gs.Variable:
    """Append what gives logits or labels the shape that they are meant to have."""
    shape = np.array([located.batch or -1, *located.shape[1:]], np.int64)
    return _append(graph, "Reshape", flat, [*located.shape], constants={"shape": shape})


def _with_background(graph: gs.Graph, logits: gs.Variable, located: Located, value: float) -> gs.Variable:
    """Append a channel of one value in front: the first of equals wins an ArgMax, so a class must exceed it."""
    axis = channel_axis(located.layout)
    pads = np.zeros(8, np.int64)
    pads[axis] = 1
    shape = [*located.shape]
    shape[axis] = located.classes
    return _append(graph, "Pad", logits, shape, constants={"pads": pads, "value": np.array(value, np.float32)})


def _append(
    graph: gs.Graph,
    op: str,
    source: gs.Variable,
    shape: list[int | str] | None,
    attrs: dict[str, int] | None = None,
    dtype: type | None = None,
    constants: dict[str, NDArray[Any]] | None = None,
) -> gs.Variable:
    """Append a node whose result has this shape (None: inferred later) and type (None: that of `source`)."""
    name = f"{source.name}/{op}"
    result = gs.Variable(name, dtype=dtype or source.dtype, shape=shape)
    inputs = [source, *(gs.Constant(f"{name}/{key}", values) for key, values in (constants or {}).items())]
    graph.nodes.append(gs.Node(op, name=name, attrs=attrs or {}, inputs=inputs, outputs=[result]))
    return result
