"""Joins preprocessing, network and post-processing into one graph."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.compose

from trtpost.errors import ModelError, SpecError, reason
from trtpost.graph.baked import DOMAIN
from trtpost.graph.baking.cut_at_logits import network_of
from trtpost.graph.baking.postprocess import node_model, spatial
from trtpost.graph.baking.preprocess import pixel_model
from trtpost.graph.baking.seam import checked
from trtpost.graph.proto import replace
from trtpost.graph.reading.model import opset_of
from trtpost.letterbox import region_of
from trtpost.spec import Located, Post, Pre


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
    network = network_of(model, located, pre, post)
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
        dtype=onnx.helper.tensor_dtype_to_np_dtype(network.graph.input[0].type.tensor_type.elem_type).name,
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
    replace(merged.opset_import, map(onnx.helper.make_opsetid, versions, versions.values()))
    return merged
