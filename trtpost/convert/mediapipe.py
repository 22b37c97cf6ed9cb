"""MediaPipe's operator in terms that TensorFlow's own TFLite interpreter knows.

`Convolution2DTransposeBias` is a transposed convolution with a bias: TFLite's `TRANSPOSE_CONV`, which takes the bias as
its fourth input since version 3. The runtime of MediaPipe registers the operator; TensorFlow's does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trtpost.storage.files import open_regular

CUSTOM = b"Convolution2DTransposeBias"


def without_custom_ops(source: Path) -> bytes:
    """The content of a TFLite file, with `Convolution2DTransposeBias` written as `TRANSPOSE_CONV`; else unchanged."""
    with open_regular(source) as file:
        content = file.read()
    if CUSTOM not in content:
        return content
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    for index, code in enumerate(model.operatorCodes):
        if code.customCode != CUSTOM:
            continue
        code.customCode, code.version = None, 3
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.TRANSPOSE_CONV
        for graph in model.subgraphs:
            for operator in graph.operators:
                if operator.opcodeIndex == index:
                    _rewrite(model, graph, operator, schema)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _rewrite(model: Any, graph: Any, operator: Any, schema: Any) -> None:
    """Reorder data, weights, bias to output shape, weights, data, bias; find stride and padding from the shapes."""
    data, weights, bias = operator.inputs
    shape_in, shape_out = graph.tensors[data].shape, graph.tensors[operator.outputs[0]].shape
    options = schema.TransposeConvOptionsT()
    same = shape_out[1] % shape_in[1] == 0
    options.padding = schema.Padding.SAME if same else schema.Padding.VALID
    taps = graph.tensors[weights].shape
    strides = [
        out // size if same else (out - tap) // max(size - 1, 1)
        for size, out, tap in zip(shape_in[1:3], shape_out[1:3], taps[1:3], strict=True)
    ]
    options.strideH, options.strideW = strides
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.asarray(shape_out, np.int32).tobytes(), np.uint8)
    model.buffers.append(buffer)
    shape = schema.TensorT()
    shape.name, shape.shape, shape.type = f"{graph.tensors[data].name.decode()}/shape", [4], schema.TensorType.INT32
    shape.buffer = len(model.buffers) - 1
    graph.tensors.append(shape)
    operator.inputs = np.array([len(graph.tensors) - 1, weights, data, bias], np.int32)
    operator.customOptions = None
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.TransposeConvOptions, options
