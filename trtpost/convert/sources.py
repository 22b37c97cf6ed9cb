"""Source models ready to run in TensorFlow and in its TFLite interpreter, for the check of what they became."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.convert.check import Runner, Source
from trtpost.convert.mediapipe import without_custom_ops
from trtpost.convert.tflite_file import is_dynamic_range


def of_function(function: Any, names: list[str]) -> Source:
    """A concrete function of one picture, whose outputs have these names."""
    import tensorflow as tf

    by_name = function.structured_input_signature[1]
    keyword = next(iter(by_name)) if by_name else None

    def run(picture: NDArray[Any]) -> list[NDArray[Any]]:
        given = tf.constant(picture)
        found = function(given) if keyword is None else function(**{keyword: given})
        return [np.asarray(one) for one in tf.nest.flatten(found)]

    return Source(f"TensorFlow {tf.__version__}", names, run)


def of_graph(graph: Any, inputs: list[str], outputs: list[str], names: list[str]) -> Source:
    """A frozen graph between tensors; `names` are those of its outputs."""
    import tensorflow as tf

    def imported() -> None:
        tf.compat.v1.import_graph_def(graph, name="")

    function = tf.compat.v1.wrap_function(imported, []).prune(inputs, outputs)
    return Source(
        f"TensorFlow {tf.__version__}",
        names,
        lambda picture: [np.asarray(one) for one in function(tf.constant(picture))],
    )


def of_tflite(path: Path) -> Source:
    """A TFLite model; its reference kernels, which round in another way, are those of `another`."""
    import tensorflow as tf

    content = without_custom_ops(path)
    kinds = tf.lite.experimental.OpResolverType
    interpreter = _interpreter(content, kinds.AUTO)
    outputs = interpreter.get_output_details()
    integers = [np.dtype(one["dtype"]).kind in "iu" for one in outputs]
    return Source(
        f"TensorFlow Lite's interpreter of TensorFlow {tf.__version__}",
        [one["name"] for one in outputs],
        _run(lambda: interpreter),
        _run(lambda: _interpreter(content, kinds.BUILTIN_REF)),
        is_dynamic_range(path),
        tuple(one["quantization"][0] if integer else 0.0 for one, integer in zip(outputs, integers, strict=True)),
    )


def _interpreter(content: bytes, kernels: Any) -> Any:
    import tensorflow as tf

    return tf.lite.Interpreter(model_content=content, experimental_op_resolver_type=kernels)


def _run(interpreter: Callable[[], Any]) -> Runner:
    def run(picture: NDArray[Any]) -> list[NDArray[Any]]:
        runner = interpreter()
        (taken,) = runner.get_input_details()
        if tuple(taken["shape"]) != picture.shape:
            runner.resize_tensor_input(taken["index"], picture.shape)
        runner.allocate_tensors()
        runner.set_tensor(taken["index"], picture)
        runner.invoke()
        return [runner.get_tensor(one["index"]) for one in runner.get_output_details()]

    return run
