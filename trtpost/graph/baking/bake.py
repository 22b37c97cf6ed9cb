"""Join preprocessing, network and post-processing into one graph, and take them apart again at the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.compose
import onnx.inliner
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtpost.errors import ModelError, SpecError, reason
from trtpost.graph.baked import DOMAIN, NODE
from trtpost.graph.baking.postprocess import node_model, spatial
from trtpost.graph.baking.preprocess import pixel_model
from trtpost.graph.head.layout import channel_axis
from trtpost.graph.head.negative_ids import may_be_negative
from trtpost.graph.proto import graphs_of, part_of
from trtpost.graph.reading.model import FUNCTION_IR_VERSION, opset_of
from trtpost.letterbox import region_of
from trtpost.spec import IGNORED, Located, Post, Pre

NETWORK = "network/"
"""Prefix of every name that comes from the source model, so that ours can be plain: image, output_size, mask."""

_NO_LOGITS = ("bool", "uint8", "int8", "uint16", "int16")
"""Types of scores that ArgMax or TensorRT does not take, and float32 holds."""


def bake(
    model: onnx.ModelProto,
    located: Located,
    pre: Pre,
    post: Post,
    *,
    reduce: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None,
) -> onnx.ModelProto:
    """One graph from uint8 pixels to class ids.

    Inputs: `image` uint8 [N, h, w, C] at network resolution, or at any resolution with `post.size` `image`;
    with `post.size` `runtime` also what `size_inputs` gives: `output_size` int64 [2] = [H, W], and so on.
    Output: `mask` [N, H, W], uint8, or int32 where there are more than 256 classes.

    Args:
        model: the source model as `load_model` returns it.
        located: what `locate` found in it.
        pre, post: what to bake.
        reduce: rewrites the network, as `network_of` gives it, between preprocessing and post-processing, which know
            only its input and its logits: the same names and shapes; the types may be others.

    Raises:
        ModelError: the result is not a valid model.
        SpecError: the spec does not fit the model.
    """
    if (pre.fit == "letterbox") != (post.region == "runtime"):
        raise SpecError(f"fit '{pre.fit}' and region '{post.region}' do not go together")
    if pre.depth != located.input_channels:
        raise SpecError(f"channels '{pre.channels}' do not fit an input of {located.input_channels} channels")
    batch = located.batch or "N"
    network = network_of(model, located, pre)
    if reduce is not None:
        network = reduce(network)
    opset = opset_of(network)
    logits = network.graph.output[0]
    shape = _shape(logits, post, batch, located.logits)
    region = None
    try:
        source = spatial(post, shape)
        if isinstance(post.size, tuple) and pre.fit == "letterbox":
            region = region_of(post.size, (pre.height, pre.width), source)
    except ValueError:
        if isinstance(post.size, tuple) and (post.needs_tables or post.region == "runtime"):
            raise SpecError(
                f"match '{post.match}' and fit '{pre.fit}' with a fixed size need the size of the logits, which is "
                "dynamic: give the network's input size with --input-size HxW"
            ) from None
    pixels = pixel_model(
        pre,
        layout=located.input_layout,
        dtype=_dtype(network.graph.input[0]),
        batch=batch,
        resize=post.size == "image",
        opset=opset,
    )
    mask = node_model(post, logits.type.tensor_type.elem_type, shape, opset, region)
    _name_nodes(pixels, "pre/")
    _name_nodes(mask, "post/")
    pixels.ir_version = mask.ir_version = network.ir_version
    joined = _merge(pixels, network, [("pixels", network.graph.input[0].name)])
    to_mask = [(logits.name, "logits")]
    if post.size == "image":
        to_mask.append(("output_size", "output_size"))
    baked = _merge(joined, mask, to_mask)
    baked.producer_name = DOMAIN
    baked.graph.name = "segmentation"
    return checked(baked)


def network_of(model: onnx.ModelProto, located: Located, pre: Pre) -> onnx.ModelProto:
    """The source model cut at the logits: what `bake` puts between preprocessing and post-processing.

    Every name has the prefix `NETWORK`. Its one input has the network's own layout and type (float32 for uint8 pixels
    that are cast at once), at the size of `pre`; its one output is the logits in four dimensions, labels as [N, h, w],
    quantised logits and those behind a constant background as float32.
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
    for inner in list(graphs_of(network))[1:]:  # graphsurgeon repeats what they take from outside, which ONNX forbids
        for one in [one for one in inner.initializer if one.name in outer]:
            inner.initializer.remove(one)
    return network


def checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with shapes inferred, after the full check of the ONNX checker.

    Raises:
        ModelError: the checker refuses it.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, data_prop=True)
        onnx.checker.check_model(inferred, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError) as error:
        raise ModelError(f"the baked graph is not valid: {reason(error).replace(NETWORK, '')}") from None
    return inferred


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The baked graph in standard ops alone: every function call is replaced by its body."""
    return checked(onnx.inliner.inline_local_functions(model))


def split(baked: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Cut a baked graph at the logits: (`image` to logits, logits and sizes to `mask`).

    A fixed size stays with the second part; every other size is an input of it.

    Raises:
        ModelError: the graph holds no `ArgMaxResize` node.
    """
    logits, *sizes = seam(baked).input
    fixed = {initializer.name for initializer in baked.graph.initializer}
    free = [name for name in sizes if name not in fixed]
    return part_of(baked, ["image"], [logits]), part_of(baked, [logits, *free], ["mask"])


def source_name(name: str) -> str:
    """A tensor's name in the source model, for messages: without `NETWORK`."""
    return name.removeprefix(NETWORK)


def seam(baked: onnx.ModelProto) -> onnx.NodeProto:
    """The `ArgMaxResize` node of a baked graph.

    Raises:
        ModelError: there is none.
    """
    node: onnx.NodeProto
    for node in baked.graph.node:
        if node.op_type == NODE and node.domain == DOMAIN:
            return node
    raise ModelError(f"the graph holds no {DOMAIN}::{NODE} node: it was not baked, or its functions were inlined")


def is_inlined(baked: onnx.ModelProto) -> bool:
    """True where the graph holds no function of ours any more."""
    return not any(function.domain == DOMAIN for function in baked.functions)


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
    """1 for the largest logit, else 0, as float32: compared in a type that float32 does not hold."""
    axis = channel_axis(located.layout)
    shape: list[int | str] = [located.batch or "N", *located.shape[1:]]
    one: list[int | str] = [1 if at == axis else dim for at, dim in enumerate(shape)]
    best = _append(graph, "ArgMax", logits, one, {"axis": axis, "keepdims": 1}, np.int64)
    ids = np.arange(located.classes, dtype=np.int64).reshape([-1 if at == axis else 1 for at in range(4)])
    is_best = _append(graph, "Equal", best, shape, None, np.bool_, {"ids": ids})
    return _append(graph, "Cast", is_best, shape, {"to": onnx.TensorProto.FLOAT}, np.float32)


def _with_ignored(graph: gs.Graph, labels: gs.Variable) -> gs.Variable:
    """`IGNORED` for every negative label, as int32."""
    shape = labels.shape
    wide = _append(graph, "Cast", labels, shape, {"to": onnx.TensorProto.INT32}, np.int32)
    negative = _append(graph, "Less", wide, shape, None, np.bool_, {"zero": np.array(0, np.int32)})
    chosen = gs.Variable(f"{labels.name}/Where", dtype=np.int32, shape=shape)
    ignored = gs.Constant(f"{chosen.name}/ignored", np.array(IGNORED, np.int32))
    graph.nodes.append(gs.Node("Where", name=chosen.name, inputs=[negative, ignored, wide], outputs=[chosen]))
    return chosen


def _unfold(graph: gs.Graph, flat: gs.Variable, located: Located) -> gs.Variable:
    """Logits or labels in the shape that they are meant to have."""
    shape = np.array([located.batch or -1, *located.shape[1:]], np.int64)
    return _append(graph, "Reshape", flat, [*located.shape], constants={"shape": shape})


def _with_background(graph: gs.Graph, logits: gs.Variable, located: Located, value: float) -> gs.Variable:
    """A channel of one value in front: the first of equals wins an ArgMax, so a class must exceed it."""
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
    """A node after `source`, whose result has this shape (None: inferred later) and type (None: that of `source`)."""
    name = f"{source.name}/{op}"
    result = gs.Variable(name, dtype=dtype or source.dtype, shape=shape)
    inputs = [source, *(gs.Constant(f"{name}/{key}", values) for key, values in (constants or {}).items())]
    graph.nodes.append(gs.Node(op, name=name, attrs=attrs or {}, inputs=inputs, outputs=[result]))
    return result


def _dtype(value: onnx.ValueInfoProto) -> str:
    return str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _shape(logits: onnx.ValueInfoProto, post: Post, batch: int | str, name: str) -> tuple[int | str, ...]:
    dims = [dim.dim_value or 0 for dim in logits.type.tensor_type.shape.dim]
    names: tuple[str, ...] = ("N", "h", "w")
    if post.head != "labels":
        names = ("N", "C", "h", "w") if post.layout == "NCHW" else ("N", "h", "w", "C")
    if len(dims) != len(names):
        raise ModelError(f"the shape of tensor '{name}' cannot be inferred: name another with --logits")
    return (batch, *(dim or name for dim, name in list(zip(dims, names, strict=True))[1:]))


def _name_nodes(model: onnx.ModelProto, prefix: str) -> None:
    for node in model.graph.node:
        node.name = prefix + node.output[0]


def _merge(first: onnx.ModelProto, second: onnx.ModelProto, io_map: list[tuple[str, str]]) -> onnx.ModelProto:
    try:
        merged: onnx.ModelProto = onnx.compose.merge_models(first, second, io_map=io_map)
    except (ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"preprocessing, network and post-processing do not fit together: {reason(error)}") from None
    versions = {entry.domain: entry.version for entry in merged.opset_import}  # it lists those of both
    del merged.opset_import[:]
    merged.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
    return merged
