"""Loads TensorFlow's file formats with TensorFlow itself: for converting them, and for running them as they are.

The functions import TensorFlow, and raise whatever it raises over a damaged file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtpost.errors import ModelError


def saved_model_function(path: Path, signature: str | None) -> tuple[Any, Any, list[str]]:
    """The model, its function to convert, and the names of the outputs where it has any."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    signatures = dict(loaded.signatures)
    if signature is None and len(signatures) > 1:
        signature = "serving_default"
    if signature is not None:
        if signature not in signatures:
            raise ModelError(
                f"the SavedModel has no signature '{signature}': "
                f"choose one with --signature from {', '.join(sorted(signatures)) or 'none'}"
            )
        function = signatures[signature]
    elif signatures:
        (function,) = signatures.values()
    else:
        function = _only_concrete_function(loaded)
    outputs = function.structured_outputs
    return loaded, function, sorted(outputs) if isinstance(outputs, dict) else []  # in the order of tf.nest.flatten


def _only_concrete_function(loaded: Any) -> Any:
    """Of a SavedModel without signatures: its one function that was traced."""
    traced = [loaded, *vars(loaded).values()]
    functions = [one for value in traced for one in _concrete_functions(value)]
    if len(functions) != 1:
        raise ModelError(
            f"the SavedModel has no signature and {len(functions)} concrete functions: "
            "export it with tf.saved_model.save(model, path, signatures=...)"
        )
    return functions[0]


def _concrete_functions(value: Any) -> list[Any]:
    function = value.__call__ if callable(value) and not hasattr(value, "concrete_functions") else value
    return list(getattr(function, "concrete_functions", []))


def keras_function(path: Path, input_size: Sequence[int] | None) -> tuple[Any, Any, list[str]]:
    import keras
    import tensorflow as tf

    try:
        model = keras.models.load_model(path, compile=False)  # safe mode: no code from the file is run
    except (TypeError, ValueError) as error:
        missing = _missing_code(error)
        if missing is None:
            raise
        raise ModelError(
            f"the Keras file needs code that is not run out of a file: {missing}; "
            "where that code is, call model.export(folder) and give the SavedModel folder"
        ) from None
    try:
        inputs = model.inputs
    except (AttributeError, ValueError):
        inputs = None
    if not inputs:
        raise ModelError("the Keras model does not know its input shape: call it once on an image, then save it again")
    specs = [tf.TensorSpec(_sized(tensor.shape, input_size), tensor.dtype, name=tensor.name) for tensor in inputs]

    def call(*tensors: Any) -> Any:
        return model(tensors[0] if len(tensors) == 1 else list(tensors), training=False)

    function = tf.function(call, autograph=False).get_concrete_function(*specs)
    # Keras 3 calls every output keras_tensor_N; the layer that made it has the name that people know
    layers = {id(tensor): layer.name for layer in model.layers for tensor in tf.nest.flatten(layer.output)}
    return model, function, [layers.get(id(tensor), tensor.name) for tensor in tf.nest.flatten(model.outputs)]


def _sized(shape: tuple[int | None, ...], size: Sequence[int] | None) -> tuple[int | None, ...]:
    """An image shape [N, H, W, C] whose dynamic height and width are `size`."""
    if size is None or len(shape) != 4:
        return shape
    return (shape[0], shape[1] or size[0], shape[2] or size[1], shape[3])


def _missing_code(error: Exception) -> str | None:
    """The class or Lambda layer whose code Keras does not have, out of its message."""
    found = re.search(r"Could not locate (?:class|function) '([^']+)'", str(error))
    if found:
        return f"layer '{found.group(1)}'"
    return "a Lambda layer" if "`Lambda`" in str(error) else None


def frozen_graph(path: Path) -> tuple[Any, list[str], list[str]]:
    """A frozen GraphDef, the names of its placeholders, and those of the nodes that end it."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
    except DecodeError:
        raise ModelError("it does not parse as a frozen GraphDef") from None
    placeholders = [node.name for node in graph.node if node.op == "Placeholder"]
    used = {name.split(":")[0].lstrip("^") for node in graph.node for name in node.input}
    ends = [
        node.name
        for node in graph.node
        if node.name not in used and node.op not in ("Const", "NoOp", "Assert", "Placeholder")
    ]
    if not placeholders or not ends:
        raise ModelError("the frozen graph has no Placeholder to feed or no node that ends it")
    return graph, placeholders, ends
