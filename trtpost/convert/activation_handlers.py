"""Activations in ONNX that tf2onnx has no handlers for, or not for the operator set that we write."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx


def gelu(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """TFLite's `GELU(x)`: x times the normal distribution's cumulative one, exactly or by the usual `tanh`."""
    (source,), (result,) = node.input, node.output
    shapes, dtypes = node.output_shapes, node.output_dtypes
    dtype = onnx.helper.tensor_dtype_to_np_dtype(dtypes[0])
    by_tanh = bool(node.get_attr_value("approximate", 0))
    ctx.remove_node(node.name)

    def make(op: str, *inputs: str) -> str:
        return str(ctx.make_node(op, list(inputs)).output[0])

    def const(name: str, value: float) -> str:
        return str(ctx.make_const(f"{node.name}/{name}", np.array(value, dtype)).output[0])

    half, one = const("half", 0.5), const("one", 1)
    if by_tanh:
        cube = make("Mul", make("Mul", source, source), source)
        inner = make("Add", source, make("Mul", cube, const("cubic", 0.044715)))
        curve = make("Tanh", make("Mul", inner, const("scale", math.sqrt(2 / math.pi))))
    else:
        curve = make("Erf", make("Mul", source, const("scale", math.sqrt(0.5))))
    halved = make("Mul", source, half)
    product = [halved, make("Add", curve, one)]
    ctx.make_node("Mul", product, name=node.name, outputs=[result], shapes=shapes, dtypes=dtypes)


def erfc(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """`Erfc(x) = 1 - Erf(x)`: what TensorFlow's exact GELU is made of."""
    (source,), (result,) = node.input, node.output
    shapes, dtypes = node.output_shapes, node.output_dtypes
    one = ctx.make_const(f"{node.name}/one", np.array(1, onnx.helper.tensor_dtype_to_np_dtype(dtypes[0]))).output[0]
    ctx.remove_node(node.name)
    erf = ctx.make_node("Erf", [source]).output[0]
    ctx.make_node("Sub", [one, erf], name=node.name, outputs=[result], shapes=shapes, dtypes=dtypes)
