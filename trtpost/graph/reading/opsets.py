"""Raises old operator sets to one that the rest of trtpost knows, and keeps the meaning and the names of tensors.

`onnx.version_converter` does most of it. What it gets wrong or refuses (measured with onnx 1.23) is put right here:

- `Upsample` and the first `Resize` (opset 10) have no pixel centres: output pixel j lies at `j / scale`. The converter
  leaves them the defaults of their successor, which are others. Nearest rounds down where it enlarges, and up where it
  makes smaller; so do ONNX's own test cases and ONNX Runtime.
- `Hardmax` before opset 13 works on the flattened tensor, as `Softmax` does, of which the converter takes care.
- `BatchNormalization` with `spatial = 0` (opset 7 and 8) has statistics for each pixel.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import onnx.version_converter

from trtpost.errors import ModelError
from trtpost.graph.proto import attributes_of, constants_of, rename, replace

LAST_WITHOUT_CENTRES = 10
"""The last opset whose resizing has no coordinate modes."""


def raised(model: onnx.ModelProto, opset: int, target: int) -> onnx.ModelProto:
    """A copy of a model of `opset` in the opset `target`; what the converter raises over it is passed on.

    Raises:
        ModelError: an operator means what no later one can say.
    """
    source = onnx.ModelProto()
    source.CopyFrom(model)
    _say_otherwise(source.graph)
    result: onnx.ModelProto = onnx.version_converter.convert_version(source, target)
    if opset <= LAST_WITHOUT_CENTRES:
        _restore_resizes(source.graph, result.graph)
    return result


def _say_otherwise(graph: onnx.GraphProto) -> None:
    """In place: what the converter cannot raise is said by other operators of the same set."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "Hardmax":
            nodes += _flat_hardmax(node)
        elif node.op_type == "BatchNormalization" and attributes_of(node).get("spatial", 1) == 0:
            nodes += _pixelwise_normalization(graph, node)
        else:
            nodes.append(node)
    replace(graph.node, nodes)


def _flat_hardmax(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    (source,), (result,) = node.input, node.output
    axis = attributes_of(node).get("axis", 1)
    flat, largest, shape = (f"{result}/{name}" for name in ("flat", "largest", "shape"))
    return [
        onnx.helper.make_node("Shape", [source], [shape]),
        onnx.helper.make_node("Flatten", [source], [flat], axis=axis),
        onnx.helper.make_node("Hardmax", [flat], [largest], name=node.name, axis=1),
        onnx.helper.make_node("Reshape", [largest, shape], [result]),
    ]


def _pixelwise_normalization(graph: onnx.GraphProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    source, *names = node.input
    known = constants_of(graph, set(names))
    if missing := [name for name in names if name not in known]:
        raise ModelError(f"'{missing[0]}', an input of BatchNormalization with spatial = 0, is not a constant")
    scale, bias, mean, variance = (known[name] for name in names)
    (result,) = node.output[:1]
    factor = scale / np.sqrt(variance + attributes_of(node).get("epsilon", 1e-5))
    constants = {f"{result}/factor": factor, f"{result}/term": bias - mean * factor}
    for name, values in constants.items():
        tensor = onnx.numpy_helper.from_array(values.astype(scale.dtype), name)
        graph.initializer.append(tensor)
        graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))  # IR version 3
    scaled = f"{result}/scaled"
    return [
        onnx.helper.make_node("Mul", [source, f"{result}/factor"], [scaled]),
        onnx.helper.make_node("Add", [scaled, f"{result}/term"], [result]),
    ]


def _restore_resizes(source: onnx.GraphProto, result: onnx.GraphProto) -> None:
    """In place: the converted nodes mean what the old ones meant, and get their names back."""
    old = [node for node in source.node if node.op_type in ("Upsample", "Resize")]
    new = [node for node in result.node if node.op_type == "Resize"]
    names: dict[str, str] = {}
    known = constants_of(source, {name for node in old for name in node.input[1:]})
    for before, after in zip(old, new, strict=True):  # the converter keeps the order
        is_nearest = attributes_of(after).get("mode", b"nearest") == b"nearest"
        scales = attributes_of(before).get("scales") or known.get(before.input[-1])
        del after.attribute[:]
        attributes = {"mode": "nearest" if is_nearest else "linear", "coordinate_transformation_mode": "asymmetric"}
        if is_nearest:
            attributes["nearest_mode"] = _rounding(before, scales)
        after.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())
        names[after.output[0]] = before.output[0]
    rename(result.node, names)
    for value in (*result.value_info, *result.output):
        value.name = names.get(value.name, value.name)


def _rounding(node: onnx.NodeProto, scales: Iterable[float] | None) -> str:
    """How the node rounds: `floor` where it enlarges, or its scales are not known, for people resize up to join."""
    factors = [1.0, *(scales if scales is not None else ())]
    if min(factors) < 1 < max(factors):
        raise ModelError(
            f"{node.op_type} '{node.output[0]}' makes one axis smaller and another larger, and no later operator "
            "rounds as this one does: export the model with opset 11 or later"
        )
    return "ceil" if min(factors) < 1 else "floor"
