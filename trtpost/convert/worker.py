"""The process in which TensorFlow works: a request in JSON on standard input, an ONNX file and an answer out.

`python -m trtpost.convert.worker PARENT` is started by `trtpost.convert`, whose process id it is given. It is the only
place that imports TensorFlow to convert, and may write nowhere but beside its result. The last line on standard output
is JSON: `{"names": {...}}` with what `trtpost.convert.check.checked` found, where somebody asked, or
`{"error": "..."}` with a sentence for the user.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trtpost.convert import activation_handlers, fence, load, names, resize_handlers, sources
from trtpost.convert.check import Source, checked
from trtpost.convert.graph_def import check_graph, written_out
from trtpost.convert.operators import check_flex_operators
from trtpost.convert.repairs import repair
from trtpost.convert.tflite_file import custom_operators
from trtpost.errors import ModelError, reason

_INNER = "Exception encountered: "
"""How Keras begins the line of what really happened."""


def main() -> None:
    """Answer one request."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # converting is graph rewriting: leave the GPU to others
    request = json.loads(sys.stdin.read())
    fence.enclose(Path(request["result"]).parent, int(sys.argv[1]))
    print(json.dumps(answer(request)))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Convert as the request says: what its check found, and under `names` TensorFlow's that are others now.

    Under `error` there is a sentence for the user instead.
    """
    try:
        with names.followed() as renamed:
            found = _convert(**request)
    except ModelError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": fence.out_of_memory()}
    except Exception as error:  # the libraries below raise anything, and the user is owed one sentence
        if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's; it need not have been imported
            return {"error": fence.out_of_memory()}
        return {"error": f"TensorFlow cannot read or convert it: {_cause(error)}"}
    return found | {"names": renamed}


def _convert(
    kind: str, source: str, result: str, opset: int, signature: str | None, input_size: list[int] | None, check: bool
) -> dict[str, Any]:
    path, owner = Path(source), None
    repair()
    if kind == "tflite":
        runnable = _tflite(path, result, opset)
    elif kind == "graph_def":
        graph, placeholders, ends = load.frozen_graph(path, input_size)
        known = {node.name: not node.attr["shape"].shape.unknown_rank for node in graph.node}
        _check_shapes({name: known[name] for name in placeholders})
        inputs, outputs = ([f"{name}:0" for name in few] for few in (placeholders, ends))
        friendly = dict(zip((*inputs, *outputs), (*placeholders, *ends), strict=True))
        _graph(graph, inputs, outputs, friendly, result, opset)
        runnable = partial(sources.of_graph, graph, inputs, outputs, ends)
    else:
        # the model owns the variables, which the function refers to weakly: it must live until they are not needed
        owner, function, outputs = (
            load.saved_model_function(path, signature, input_size)
            if kind == "saved_model"
            else load.keras_function(path, input_size)
        )
        runnable = _function(function, outputs, result, opset)
    found = checked(runnable, Path(result)) if check else {}
    del owner
    return found


def _tflite(path: Path, result: str, opset: int) -> Callable[[], Source]:
    """Convert a TFLite model; gives what loads it for running."""
    import tf2onnx.convert

    check_flex_operators(custom_operators(path))

    tf2onnx.convert.from_tflite(
        str(path),
        opset=opset,
        output_path=result,
        custom_op_handlers={
            "TFL_Convolution2DTransposeBias": (_transpose_conv_with_bias, []),
            "TFL_GELU": (activation_handlers.gelu, []),
            **resize_handlers.HANDLERS,
        },
    )
    return partial(sources.of_tflite, path)


def _cause(error: Exception) -> str:
    """One line of an error; Keras wraps the cause, in colour, behind lines that say only where it was."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line]
    causes = [line.removeprefix(_INNER) for line in lines if line.startswith(_INNER)]
    if causes:
        return causes[-1][:400]
    if len(lines) > 1 and lines[0].startswith("Exception encountered"):
        return f"{lines[0].rstrip('.')}: {lines[1]}"[:400]
    return reason(error)


def _function(function: Any, known: list[str], result: str, opset: int) -> Callable[[], Source]:
    """Convert a concrete function; gives what makes it ready for running.

    Args:
        known: names of its outputs that people know, if there are any.
    """
    from tf2onnx import tf_loader

    tensors = load.inputs_of(function)
    _check_shapes({tensor.name.split(":")[0]: tensor.shape.rank is not None for tensor in tensors})
    inputs, outputs = [tensor.name for tensor in tensors], [tensor.name for tensor in function.outputs]
    friendly = {tensor: tensor.split(":")[0] for tensor in (*inputs, *outputs)}
    if len(known) == len(outputs):
        friendly |= dict(zip(outputs, known, strict=True))
    _graph(tf_loader.from_function(function, inputs, outputs), inputs, outputs, friendly, result, opset)
    return partial(sources.of_function, function, [friendly[tensor] for tensor in outputs])


def _check_shapes(known: dict[str, bool]) -> None:
    """Refuse inputs of which nothing is known.

    Raises:
        ModelError: one has no shape at all.
    """
    for name, is_known in known.items():
        if not is_known:
            raise ModelError(
                f"the model does not say which shape its input '{name}' has: give its size with --input-size HxW"
            )


def _graph(
    graph: Any, inputs: list[str], outputs: list[str], friendly: dict[str, str], result: str, opset: int
) -> None:
    """Convert a frozen graph between the tensors `inputs` and `outputs`; `friendly` renames tensors."""
    import tf2onnx.convert

    graph = written_out(graph, inputs, outputs)
    check_graph(graph)
    tf2onnx.convert.from_graph_def(
        graph,
        input_names=inputs,
        output_names=outputs,
        opset=opset,
        tensors_to_rename=friendly,
        custom_op_handlers={
            "Bitcast": (_bitcast_for_the_sign, []),
            "Erfc": (activation_handlers.erfc, []),
            **resize_handlers.HANDLERS,
        },
        output_path=result,
    )


def _bitcast_for_the_sign(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """`bitcast(x, int32) & sign_bit`, by which Keras 3's argmax tells -0.0 from 0.0: as -1 or 0.

    ONNX has no bitcast; where anything else is done with the bits, the node stays and is reported.
    """
    masks = ctx.find_output_consumers(node.output[0])
    sign_bit = np.iinfo(np.int32).min
    if not masks or any(
        mask.type != "BitwiseAnd" or not mask.inputs[1].is_const() or mask.inputs[1].get_tensor_value() != sign_bit
        for mask in masks
    ):
        return
    source = node.input[0]
    zero = ctx.make_const(f"{node.name}/zero", np.array(0, np.float32)).output[0]
    inverse = ctx.make_node("Reciprocal", [source]).output[0]  # -0.0 becomes minus infinity
    below = [ctx.make_node("Less", [value, zero]).output[0] for value in (source, inverse)]
    negative = ctx.make_node("Or", below).output[0]
    flag = ctx.make_node("Cast", [negative], attr={"to": onnx.TensorProto.INT32}).output[0]
    sign = ctx.make_node("Neg", [flag], shapes=[ctx.get_shape(source)], dtypes=[onnx.TensorProto.INT32]).output[0]
    for mask in masks:
        ctx.replace_all_inputs(mask.output[0], sign)  # the old nodes feed nothing now, and are dropped at the end


def _transpose_conv_with_bias(ctx: Any, node: Any, _name: str, _args: Any) -> None:
    """MediaPipe's `Convolution2DTransposeBias`: data NHWC, weights OHWI, bias, to NHWC.

    tf2onnx cannot read the operator's options (a C struct), so stride and padding are taken from the shapes:
    `out = in * stride` with padding SAME, `out = (in - 1) * stride + kernel` with VALID.
    """
    data, weights, bias = node.input
    shape_in, shape_out = ctx.get_shape(data), ctx.get_shape(node.output[0])
    kernel = ctx.get_shape(weights)[1:3]
    strides, pads_before, pads_after, extra = [], [], [], []
    for size_in, size_out, taps in zip(shape_in[1:3], shape_out[1:3], kernel, strict=True):
        if size_out % size_in == 0:
            stride = size_out // size_in
            padding = max(taps - stride, 0)
        elif size_in > 1 and (size_out - taps) % (size_in - 1) == 0:
            stride, padding = (size_out - taps) // (size_in - 1), 0
        else:
            raise ModelError(f"Convolution2DTransposeBias from {shape_in} to {shape_out}: no stride fits")
        strides.append(stride)
        pads_before.append(padding // 2)
        pads_after.append(padding - padding // 2)
        extra.append(size_out - ((size_in - 1) * stride + taps - padding))
    dtype, output = ctx.get_dtype(node.output[0]), node.output[0]
    ctx.remove_node(node.name)
    nchw = ctx.make_node("Transpose", [data], attr={"perm": [0, 3, 1, 2]}).output[0]
    iohw = ctx.make_node("Transpose", [weights], attr={"perm": [3, 0, 1, 2]}).output[0]
    attributes = {"kernel_shape": list(kernel), "strides": strides, "pads": pads_before + pads_after}
    if any(extra):
        attributes["output_padding"] = extra
    result = ctx.make_node("ConvTranspose", [nchw, iohw, bias], attr=attributes).output[0]
    ctx.make_node(
        "Transpose",
        [result],
        attr={"perm": [0, 2, 3, 1]},
        outputs=[output],
        name=node.name,
        shapes=[shape_out],
        dtypes=[dtype],
    )


if __name__ == "__main__":
    main()
