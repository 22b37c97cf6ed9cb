"""The network in fewer bits: precision is a property of the typed graph, and an engine computes in its types.

What stays float32, in every precision: arithmetic on shapes and coordinates, the scales of a Resize, and what sums up
or takes powers, where float16 overflows (`_FLOAT32_OPS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from numpy.typing import NDArray

from trtpost.errors import ModelError, SpecError, reason
from trtpost.graph.baking.bake import source_name
from trtpost.graph.baking.preprocess import pixel_model
from trtpost.graph.emulate import BFLOAT16, FLOAT, FLOAT16, session, with_outputs
from trtpost.graph.precision.float_quantization import is_asymmetric, with_float_quantization
from trtpost.graph.proto import graphs_of, rename_inside, subgraphs_of, used_inside
from trtpost.graph.reading.model import opset_of
from trtpost.spec import PRECISIONS, Located, Pre, Precision

BFLOAT16_OPSET, BFLOAT16_IR_VERSION = 22, 10
"""The first in which convolutions take bfloat16."""

PERCENTILE = 99.99
"""Of a tensor's magnitudes, the one that becomes int8's largest step."""

_FLOAT32_OPS = (
    *("Softmax", "LogSoftmax", "Exp", "Log", "Softplus", "Pow", "Reciprocal"),
    *("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
    *("ReduceLogSum", "ReduceLogSumExp", "CumSum", "Einsum"),
    # a variance is a sum of squares, and its epsilon may be below the smallest float16
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LpNormalization"),
    # coordinates
    *("GridSample", "AffineGrid", "RoiAlign", "Range", "Upsample"),
    # of the converter's own list, those that can be in a segmentation network. It also has Min and Max, for runtimes
    # of long ago; a Sigmoid is not here because its own overflow ends in the right 0 or 1
    *("NonMaxSuppression", "TopK", "RandomUniformLike", "QuantizeLinear", "DequantizeLinear"),
)

_NO_BFLOAT16_OPS = ("ConvTranspose", "HardSwish", "Mish")
"""TensorRT refuses them in bfloat16 (measured with TensorRT for RTX 1.7); in float32 it takes them."""

_BOUND_OPS = frozenset({"Clip", "Min", "Max", "Where", "Pad", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"})
"""To these a constant beyond the range of float16 means `no bound` or `never`; so does the largest float16."""

_MOVING_OPS = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Pad"})
"""What may stand between the last Sigmoid and the end of a network, its constant background included."""

_WEIGHTED_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def reduced(
    network: onnx.ModelProto,
    precision: Precision,
    calibration: Iterable[NDArray[Any]] = (),
    *,
    on_photo: Callable[[], None] | None = None,
) -> onnx.ModelProto:
    """The network in another precision; its names stay, and its input stays as it is (uint8 pixels become float32).

    Args:
        network: as `network_of` gives it, in float32. Quantised as TFLite does it, it becomes fp16 or bf16 with its
            own quantisation kept; of float16, it stays as it is for fp32 and fp16.
        precision: `fp32` gives the network itself. With `fp16` and `bf16` the logits are of that type, but the
            probabilities of a Sigmoid that ends the network float32; `int8` is quantised by `QuantizeLinear` and
            `DequantizeLinear` pairs around convolutions, with float32 between them.
        calibration: for int8, photos as the network takes them (`network_inputs`), each read once.
        on_photo: is called after each of them.

    Raises:
        ModelError: this network cannot be had in this precision.
        SpecError: int8 without photos, or no such precision.
    """
    if precision not in PRECISIONS:
        raise SpecError(f"precision must be one of {', '.join(PRECISIONS)}, not '{precision}'")
    if precision == "fp32":
        return network
    if spoilt := spoilt_weights(network):
        raise ModelError(
            f"weight '{spoilt[0]}' holds NaN or infinities, which no other precision mends: export the network anew"
        )
    types = _element_types(network)
    operators = {node.op_type for node in network.graph.node}
    if FLOAT16 in types or BFLOAT16 in types:
        if precision == "fp16" and BFLOAT16 not in types:
            return network
        raise ModelError(
            f"the network is in 16-bit floating point already, and --precision {precision} would round it once more: "
            "leave --precision out, or export the network in float32"
        )
    if "QuantizeLinear" in operators or "DequantizeLinear" in operators:
        if not is_asymmetric(network):
            if precision == "int8":
                return network
            raise ModelError(
                f"the network is quantised to int8 already, which is faster than {precision}: leave --precision out"
            )
        if precision == "int8":
            raise ModelError(
                "the network is quantised already, as TFLite does it (uint8, or zero points), which TensorRT does not "
                "take: use --precision fp16, or give the float model it was made from and --precision int8"
            )
        network = with_float_quantization(network)
        # TensorRT has UINT8 at the edges of an engine alone, and whole numbers are exact in float32
        network.graph.input[0].type.tensor_type.elem_type = FLOAT
    model = _tidy(network)
    if precision == "int8":
        return _checked(_quantized(model, calibration, on_photo), network)
    return _checked(_in_16_bits(model, precision), network)


def network_inputs(photos: Iterable[NDArray[np.uint8]], pre: Pre, located: Located) -> Iterator[NDArray[Any]]:
    """Photos as the network takes them: uint8 [h, w, C] at network resolution to its own layout, type and batch."""
    model = pixel_model(pre, layout=located.input_layout, dtype=located.input_dtype, batch="N", resize=False, opset=17)
    run = session(model).run
    for photo in photos:
        batch = np.repeat(photo[None], located.batch or 1, axis=0)
        yield run(None, {"image": batch})[0]


def _in_16_bits(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    """Types by ONNX Runtime's converter, which knows float16 alone; for bfloat16 its float16 is replaced after.

    Probabilities of a Sigmoid that ends the network stay float32: near 1 there are too few numbers of 16 bits to tell
    which class has the largest. Logits are of 16 bits: with everything from the last convolution on in float32, 0.01 %
    more of the pixels keep their class in fp16 and 0.13 % in bf16 (DeepLab; of three other networks less), for twice
    the bytes.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    if precision == "fp16":
        _refuse_large_weights(model)
    else:
        model = _raised(model)
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer if one.data_type == FLOAT}
    ending = _nodes_from_sigmoid(model)
    model = onnx.shape_inference.infer_shapes(model)
    wide = [*_FLOAT32_OPS, *_ops_without(precision, model)]
    captured = _capture(model, wide)
    try:
        result: onnx.ModelProto = convert_float_to_float16(
            model,
            keep_io_types=[value.name for value in model.graph.input],
            disable_shape_infer=True,  # a Loop of more inputs than it has values is not valid
            op_block_list=wide,
            node_block_list=[*_nodes_without_pixels(model), *ending, *captured],
        )
    except Exception as error:  # it asserts, and its assertions have no message
        raise ModelError(f"the network cannot be converted to {precision}: {reason(error)}") from None
    _remove_detours(result)
    _release(result, captured)
    if ending:
        _leave_in_float32(result)
    if precision == "bf16":
        _replace_float16(result, weights)
    return result


def _ops_without(precision: Precision, model: onnx.ModelProto) -> list[str]:
    """Operators of the model that take float32, and not the type of this precision."""
    kind, found = ("tensor(float16)", []) if precision == "fp16" else ("tensor(bfloat16)", list(_NO_BFLOAT16_OPS))
    for op, domain in {(node.op_type, node.domain) for graph in graphs_of(model) for node in graph.node}:
        try:
            schema = onnx.defs.get_schema(op, opset_of(model), domain)
        except onnx.defs.SchemaError:  # of a runtime alone
            allowed = {"tensor(float16)"}
        else:
            names = {one.type_str for one in (*schema.inputs[:1], *schema.outputs[:1])}
            kinds = [set(one.allowed_type_strs) for one in schema.type_constraints if one.type_param_str in names]
            # a float32 that is not the first input, such as the scales of a Resize, is the converter's to know
            wide = [one for one in kinds if "tensor(float)" in one]
            allowed = set.intersection(*wide) if wide else {kind}
        if kind not in allowed:
            found.append(op)
    return found


def _capture(model: onnx.ModelProto, wide: Iterable[str]) -> dict[str, list[str]]:
    """In place: what the inside of a node takes from outside becomes inputs of it, by the names of such nodes.

    They are Loop and Scan, whose values go round, and an If with operators inside that stay float32, `wide`. All that
    is inside stays float32 then; the converter, which looks at inputs alone, casts for it what comes from outside.
    """
    tensors = {name for node in model.graph.node for name in node.output} | {value.name for value in model.graph.input}
    tensors |= {one.name for one in model.graph.initializer}
    captured = {}
    for node in model.graph.node:
        inner = {one.op_type for graph in subgraphs_of(node) for one in graph.node}
        if node.op_type in ("Loop", "Scan") or (inner and not inner.isdisjoint((*wide, "If", "Loop", "Scan"))):
            captured[node.name] = sorted(used_inside(node) & tensors)
            node.input.extend(captured[node.name])
    return captured


def _release(model: onnx.ModelProto, captured: dict[str, list[str]]) -> None:
    """In place: the inputs of `_capture` go, and the inside takes what the converter made of them."""
    for node in model.graph.node:
        if names := captured.get(node.name):
            given = list(node.input)[-len(names) :]
            del node.input[-len(names) :]
            rename_inside(node, dict(zip(names, given, strict=True)))
        for graph in subgraphs_of(node):
            del graph.value_info[:]  # it repeats the types that what is outside had


def _raised(model: onnx.ModelProto) -> onnx.ModelProto:
    if opset_of(model) >= BFLOAT16_OPSET:
        return model
    try:
        raised = onnx.version_converter.convert_version(model, BFLOAT16_OPSET)
    except Exception as error:  # the converter has errors of several libraries
        raise ModelError(
            f"bfloat16 needs opset {BFLOAT16_OPSET}, and the network cannot be raised to it ({reason(error)}): use "
            f"--precision fp16, or export the network with opset {BFLOAT16_OPSET}"
        ) from None
    raised.ir_version = max(model.ir_version, BFLOAT16_IR_VERSION)
    return raised


def spoilt_weights(model: onnx.ModelProto) -> list[str]:
    """Names of weights of convolutions and matrix products that hold NaN or infinities."""
    used = {name for node in model.graph.node if node.op_type in _WEIGHTED_OPS for name in node.input}
    return [
        source_name(one.name)
        for one in model.graph.initializer
        if one.name in used and not np.isfinite(onnx.numpy_helper.to_array(one).astype(np.float32)).all()
    ]


def _refuse_large_weights(model: onnx.ModelProto) -> None:
    large = {}
    for one in model.graph.initializer:
        if one.data_type == FLOAT:
            magnitudes = np.abs(onnx.numpy_helper.to_array(one))
            largest = magnitudes.max(initial=0, where=np.isfinite(magnitudes))
            if largest > np.finfo(np.float16).max:
                large[one.name] = largest
    for node in model.graph.node:
        name = next((name for name in node.input if name in large), None)
        if name is not None and node.op_type not in (*_BOUND_OPS, *_FLOAT32_OPS):
            raise ModelError(
                f"weight {large[name]:g} in '{source_name(name)}', an input of {node.op_type}, is beyond the range of "
                "float16 (65504): use --precision bf16, which has the range of float32"
            )


def _nodes_from_sigmoid(model: onnx.ModelProto) -> list[str]:
    """Names of the Sigmoid that ends a network and of what moves its values about; empty where none does."""
    made = {name: node for node in model.graph.node for name in node.output}
    names, name = [], model.graph.output[0].name
    while name in made and made[name].op_type in _MOVING_OPS | {"Sigmoid"}:
        names.append(made[name].name)
        if made[name].op_type == "Sigmoid":
            return names
        name = made[name].input[0]
    return []


def _leave_in_float32(model: onnx.ModelProto) -> None:
    """Take away the converter's Cast to float16 that ends a network whose last nodes compute in float32."""
    (output,) = model.graph.output
    *nodes, cast = sorted(model.graph.node, key=lambda node: output.name in node.output)
    for node in nodes:
        node.output[:] = [output.name if name == cast.input[0] else name for name in node.output]
    _set_nodes(model.graph, nodes)
    output.type.tensor_type.elem_type = FLOAT


def _nodes_without_pixels(model: onnx.ModelProto) -> list[str]:
    """Names of nodes that depend on no pixel, but on constants and shapes: coordinates and scales are made by them."""
    from_pixels = {value.name for value in model.graph.input}
    names = []
    for node in model.graph.node:
        if node.op_type not in ("Shape", "Size") and (
            from_pixels.intersection(node.input) or any(one.HasField("g") for one in node.attribute)
        ):
            from_pixels.update(node.output)
        else:
            names.append(node.name)
    return names


def _remove_detours(model: onnx.ModelProto) -> None:
    """Between two nodes that stay float32 the converter goes by way of float16, where the value may not fit."""
    graph = model.graph
    made = {name: node for node in graph.node for name in node.output}
    wide: dict[str, str] = {}  # what a Cast to float16 and back again gives, to what it was given
    for node in graph.node:
        before = made.get(node.input[0]) if _casts_to(node, FLOAT) else None
        if before is not None and before.name.endswith("_cast_to_fp16_node"):
            wide[node.output[0]] = before.input[0]
    for node in graph.node:
        node.input[:] = [wide.get(name, name) for name in node.input]
    taken = {name for node in graph.node for name in _taken(node) if node.output[0] not in wide}
    taken |= {value.name for value in graph.output}
    # where nobody takes the float16, the float32 gets its name back
    names: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if node.output[0] in wide:
            continue
        if node.name.endswith("_cast_to_fp16_node") and node.output[0] not in taken:
            names[node.input[0]] = node.output[0]
            continue
        kept.append(node)
    for node in kept:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    _set_nodes(graph, kept)


def _casts_to(node: onnx.NodeProto, kind: int) -> bool:
    return node.op_type == "Cast" and any(one.name == "to" and one.i == kind for one in node.attribute)


def _replace_float16(model: onnx.ModelProto, weights: dict[str, NDArray[np.float32]]) -> None:
    """Every float16 as bfloat16; `weights` are the values from before they were clipped to the range of float16."""
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        for one in graph.initializer:
            if one.data_type == FLOAT16:
                values = weights.get(one.name, onnx.numpy_helper.to_array(one).astype(np.float32))
                one.CopyFrom(_bfloat16(values, one.name))
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == FLOAT16:
                value.type.tensor_type.elem_type = BFLOAT16
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            if attribute.name in ("to", "dtype") and attribute.i == FLOAT16:
                attribute.i = BFLOAT16
            if attribute.HasField("t") and attribute.t.data_type == FLOAT16:
                values = onnx.numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(_bfloat16(values, attribute.t.name))
            if attribute.HasField("g"):
                graphs.append(attribute.g)


def _bfloat16(values: NDArray[np.float32], name: str) -> onnx.TensorProto:
    """The upper half of each float32, rounded to even."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return onnx.helper.make_tensor(name, BFLOAT16, values.shape, halves.tobytes(), raw=True)


def _quantized(
    model: onnx.ModelProto, calibration: Iterable[NDArray[Any]], on_photo: Callable[[], None] | None
) -> onnx.ModelProto:
    """Inputs and weights of convolutions and matrix products in int8, each with a scale and no zero point.

    Measured on four networks, 20 photos for the calibration and 20 to 25 others for the agreement with float32:
    - the 99.99th percentile of magnitudes beats the largest on three of four (portrait: 0.935 and 0.883, selfie: 0.977
      and 0.962, DeepLab: 0.979 and 0.983), and entropy is in between;
    - quantising outputs too costs up to 6 % of the pixels; TensorRT fuses what follows a convolution, and quantises
      where the next one begins;
    - depthwise convolutions stay float32: the ranges of their channels differ most, and they are bound by memory, so
      that int8 gains little (now portrait: 0.961, selfie: 0.984, DeepLab: 0.987, scenes: 0.998);
    - the convolution that makes the logits is quantised like the others: in float32 it gains 0.4 % at most.
    """
    from onnxruntime.quantization import CalibrationMethod, QDQQuantizer, QuantType, TensorData, TensorsData

    weights = {one.name: one for one in model.graph.initializer if one.data_type == FLOAT}
    chosen = [node for node in model.graph.node if _is_quantizable(node, weights)]
    if not chosen:
        raise ModelError(
            "the network has no convolution or matrix product with constant float32 weights (outside of its If, Loop "
            "and Scan), so there is nothing to quantise: leave --precision int8 out"
        )
    scales = _ranges(model, {node.input[0] for node in chosen}, calibration, on_photo)
    quantizer = QDQQuantizer(
        model,
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range=TensorsData(
            CalibrationMethod.MinMax,
            {name: TensorData(lowest=-largest, highest=largest) for name, largest in scales.items()},
        ),
        nodes_to_quantize=[node.name for node in chosen],
        nodes_to_exclude=[],
        op_types_to_quantize=list(_WEIGHTED_OPS),
        extra_options={
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "QuantizeBias": False,  # TensorRT takes no int32 constants as biases
            "MatMulConstBOnly": True,
            "OpTypesToExcludeOutputQuantization": list(_WEIGHTED_OPS),
        },
    )
    quantizer.quantize_model()
    result: onnx.ModelProto = quantizer.model.model
    return result


def _is_quantizable(node: onnx.NodeProto, weights: dict[str, onnx.TensorProto]) -> bool:
    if node.op_type not in _WEIGHTED_OPS or node.input[1] not in weights or node.input[0] in weights:
        return False
    groups = next((one.i for one in node.attribute if one.name == "group"), 1)
    return groups == 1 or (node.op_type == "Conv" and weights[node.input[1]].dims[1] > 1)


def _ranges(
    model: onnx.ModelProto,
    names: set[str],
    calibration: Iterable[NDArray[Any]],
    on_photo: Callable[[], None] | None,
) -> dict[str, NDArray[np.float32]]:
    """The largest magnitude that int8 shall hold, of each tensor: the largest of the photos' `PERCENTILE`.

    ONNX Runtime's own calibrators are not used: they hold the tensors of every photo, or histograms that grow without
    bound after a first photo of one colour. This holds those of one photo.
    """
    (source,) = model.graph.input
    inner = sorted(names - {source.name})
    run = session(with_outputs(model, inner)).run
    dtype = onnx.helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type)
    found: dict[str, NDArray[np.float32]] = {}
    for given in calibration:
        photo = given.astype(dtype, copy=False)
        tensors = dict(zip(inner, run(inner, {source.name: photo}), strict=True)) if inner else {}
        for name in names:
            magnitudes = np.abs(tensors.get(name, photo).astype(np.float32).ravel())
            kth = min(int(np.ceil(magnitudes.size * PERCENTILE / 100)), magnitudes.size) - 1
            largest = np.partition(magnitudes, kth)[kth]
            if not np.isfinite(largest):
                raise ModelError(
                    f"tensor '{source_name(name)}' is not finite on a calibration photo, in float32 already: check "
                    "--normalize and the photo"
                )
            found[name] = max(found.get(name, largest), largest)
        if on_photo is not None:
            on_photo()
    if not found:
        raise SpecError(
            "--precision int8 needs photos to calibrate with: give a folder of typical ones (--calibration)"
        )
    return found


def _tidy(network: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for the converters: every node has a name of its own, constants are initializers, regions of Resize gone.

    A Resize reads its region (`roi`) in one mode alone, but its type is checked always, and is never bfloat16.
    """
    model = onnx.ModelProto()
    model.CopyFrom(network)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        value = next((one.t for one in node.attribute if one.name == "value" and node.op_type == "Constant"), None)
        if value is not None:
            value.name = node.output[0]
            model.graph.initializer.append(value)
            continue
        node.name = node.output[0]
        if node.op_type == "Resize" and not any(one.s == b"tf_crop_and_resize" for one in node.attribute):
            node.input[1] = ""
        model.graph.node.append(node)
    used = {name for node in model.graph.node for name in _taken(node)} | {value.name for value in model.graph.output}
    kept = [one for one in model.graph.initializer if one.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


def _checked(result: onnx.ModelProto, network: onnx.ModelProto) -> onnx.ModelProto:
    """Nodes in order, types inferred anew, the metadata that converters leave removed."""
    _sort(result.graph)
    known = {entry.key: entry.value for entry in network.metadata_props}
    del result.metadata_props[:]
    onnx.helper.set_model_props(result, known)
    del result.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(result, data_prop=True)


def _sort(graph: onnx.GraphProto) -> None:
    """Each node after those whose results it takes: the converters append their Casts at the end."""
    producers = {name: node for node in graph.node for name in node.output}
    ordered: list[onnx.NodeProto] = []
    done: set[str] = set()
    for root in graph.node:
        stack = [root]
        while stack:
            node = stack[-1]
            waiting = [
                producers[name] for name in _taken(node) if name in producers and producers[name].output[0] not in done
            ]
            if node.output[0] in done or not waiting:
                stack.pop()
                if node.output[0] not in done:
                    done.add(node.output[0])
                    ordered.append(node)
            else:
                stack += waiting
    _set_nodes(graph, ordered)


def _set_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto() for _ in nodes]  # nodes of the graph itself go when it is emptied
    for copy, node in zip(copies, nodes, strict=True):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)


def _taken(node: onnx.NodeProto) -> list[str]:
    """Names of the tensors that a node reads, in its subgraphs too."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += [name for inner in attribute.g.node for name in _taken(inner)]
    return names


def _element_types(network: onnx.ModelProto) -> set[int]:
    values = (*network.graph.input, *network.graph.value_info, *network.graph.output)
    return {value.type.tensor_type.elem_type for value in values} | {one.data_type for one in network.graph.initializer}
