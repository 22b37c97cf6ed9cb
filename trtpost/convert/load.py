"""Loads TensorFlow's file formats with TensorFlow itself: for converting them, and for running them as they are.

The functions import TensorFlow, and raise whatever it raises over a damaged file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trtpost.convert import keras_2, keras_file
from trtpost.convert.formats import saved_model_folder
from trtpost.convert.operators import check_graph_def, check_saved_model
from trtpost.errors import ModelError, reason
from trtpost.storage.files import open_regular

_EXPORT = "export it with tf.saved_model.save(model, folder, signatures={example})"
_EXAMPLE = "tf.function(model).get_concrete_function(tf.TensorSpec((1, HEIGHT, WIDTH, 3), tf.float32))"

_SOME_SIZE = (256, 256)
"""A size that most networks take."""

_TRAINING_SWITCH = re.compile(r"(^|[/_])(keras_learning_phase|(is_|phase_)?train(ing)?(_phase|_mode)?)$")
"""Names of the boolean placeholders by which graphs of TensorFlow 1 are told that they are being trained."""


def saved_model_function(
    path: Path, signature: str | None, input_size: Sequence[int] | None = None
) -> tuple[Any, Any, list[str]]:
    """The model, its function to convert, and the names of the outputs where it has any.

    Args:
        path: the SavedModel's folder, or the file in it.
        signature: default `serving_default`, or the only one.
        input_size: (height, width) where the function itself leaves them open.

    Raises:
        ModelError: the function cannot be chosen, or takes no images.
    """
    folder = saved_model_folder(path)
    loaded = saved_model(folder)
    signatures = dict(loaded.signatures)
    if signature is None and len(signatures) > 1:
        signature = "serving_default"
    names = ", ".join(sorted(signatures))
    if signature is not None:
        if signature not in signatures:
            raise ModelError(
                f"the SavedModel has no signature '{signature}': choose one with --signature from {names or 'none'}"
            )
        function = signatures[signature]
    elif signatures:
        ((signature, function),) = signatures.items()
    else:
        function = _only_concrete_function(loaded)
    _check_inputs(function, signature, sorted({*signatures} - {signature}))
    if input_size is not None:
        function = _with_size(function, input_size)
    outputs = function.structured_outputs
    return loaded, function, sorted(outputs) if isinstance(outputs, dict) else []  # in the order of tf.nest.flatten


def saved_model(folder: Path) -> Any:
    """A SavedModel, loaded by TensorFlow after its operators were looked at.

    Raises:
        ModelError: it holds an operator that does more than compute, or its weights are missing or damaged.
    """
    import tensorflow as tf
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    check_saved_model(folder)
    graphs = [set(graph.meta_info_def.tags) for graph in parse_saved_model(str(folder)).meta_graphs]
    if len(graphs) > 1 and {"serve"} not in graphs:
        listing = ", ".join("+".join(sorted(tags)) for tags in graphs)
        raise ModelError(
            f"the SavedModel holds {len(graphs)} graphs ({listing}), none tagged 'serve': export one alone"
        )
    try:
        return tf.saved_model.load(str(folder), tags=["serve"] if len(graphs) > 1 else None)
    except Exception as error:  # its readers of weights raise anything
        if not (folder / "variables").is_dir():
            raise ModelError(
                "the SavedModel's weights are missing: copy its whole folder, with the folder 'variables' in it"
            ) from None
        if not re.search(r"variables|Read (less|fewer) bytes|[Cc]hecksum|TensorSlice|[Dd]ata ?loss", str(error)):
            raise
        raise ModelError(
            f"the SavedModel's weights in 'variables' are damaged or missing ({reason(error)}): copy the whole folder"
        ) from None


def _check_inputs(function: Any, signature: str | None, others: list[str]) -> None:
    """Refuse a function whose input is a photo's file instead of its pixels.

    Raises:
        ModelError: it takes strings.
    """
    import tensorflow as tf

    encoded = [spec.name for spec in tf.nest.flatten(function.structured_input_signature) if spec.dtype == tf.string]
    if encoded:
        way = (
            f"choose another with --signature from {', '.join(others)}" if others else "export the part after decoding"
        )
        raise ModelError(
            f"{f'signature {signature!r}' if signature else 'the function'} takes strings ('{encoded[0]}'), such as "
            f"encoded photos, but trtpost decodes photos itself and needs one that takes pixels: {way}"
        )


def _with_size(function: Any, size: Sequence[int]) -> Any:
    """The function traced once more, with `size` as height and width of images that leave them open."""
    import tensorflow as tf

    def sized(spec: Any) -> Any:
        return tf.TensorSpec(_sized(spec.shape, size), spec.dtype, name=spec.name)

    positional, keyword = tf.nest.map_structure(sized, function.structured_input_signature)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return tf.function(call, autograph=False).get_concrete_function(*positional, **keyword)


def _only_concrete_function(loaded: Any) -> Any:
    """The one function that was traced of a SavedModel without signatures."""
    # what makes the model callable is found twice
    functions = {one.name: one for value in (loaded, *vars(loaded).values()) for one in _concrete_functions(value)}
    if len(functions) == 1:
        return next(iter(functions.values()))
    if functions:
        shapes = ", ".join(str([tuple(tensor.shape) for tensor in inputs_of(one)]) for one in functions.values())
        raise ModelError(
            f"the SavedModel has no signature, and functions for several inputs ({shapes}): "
            + _EXPORT.format(example=_EXAMPLE)
        )
    raise ModelError(
        "the SavedModel has no signature and no function whose input shape is known, so there is nothing to convert: "
        + _EXPORT.format(example=_EXAMPLE)
    )


def _concrete_functions(value: Any) -> list[Any]:
    import tensorflow as tf

    if isinstance(value, tf.types.experimental.ConcreteFunction):  # it was saved alone
        return [value]
    function = value.__call__ if callable(value) and not hasattr(value, "concrete_functions") else value
    return list(getattr(function, "concrete_functions", []))


def inputs_of(function: Any) -> list[Any]:
    """The inputs of a concrete function, without the variables that it captures."""
    captured = {id(tensor) for tensor in function.graph.internal_captures}
    return [tensor for tensor in function.inputs if id(tensor) not in captured]


def keras_function(path: Path, input_size: Sequence[int] | None) -> tuple[Any, Any, list[str]]:
    """The Keras model, its function to convert, and the names of its outputs.

    Args:
        path: a `.keras` archive or an HDF5 file, whatever it is called.
        input_size: (height, width) where the model itself leaves them open.

    Raises:
        ModelError: the file is damaged, holds no whole model, or needs code that is not Keras's own.
    """
    import keras
    import tensorflow as tf

    config = keras_file.read_config(path)
    model = _keras_model(path, config)
    try:
        inputs = model.inputs
    except (AttributeError, ValueError):
        inputs = None
    if not inputs:  # a model with a `call` of its own remembers what it was called on
        shape = (config.get("build_config") or {}).get("input_shape")
        if not shape or len(shape) != 4:
            raise ModelError(
                "the Keras model was saved before its input shape was known, so it has no weights: call it on an array "
                "[1, HEIGHT, WIDTH, 3], or begin it with keras.Input, and save it again"
            )
        kind = keras.config.floatx()

        def trace_call(size: Sequence[int] | None) -> Any:
            spec = tf.TensorSpec(_sized(tuple(shape), size), kind, name="image")
            return tf.function(model, autograph=False).get_concrete_function(spec, training=False)

        traced = _traced(trace_call, input_size)
        check_graph_def(traced.graph.as_graph_def())
        return model, traced, []
    pack = _packing(model)

    def call(*tensors: Any) -> Any:
        return model(pack(tensors), training=False)

    def trace(size: Sequence[int] | None) -> Any:
        specs = [tf.TensorSpec(_sized(tensor.shape, size), tensor.dtype, name=tensor.name) for tensor in inputs]
        return tf.function(call, autograph=False).get_concrete_function(*specs)

    function = _traced(trace, input_size)
    check_graph_def(function.graph.as_graph_def())
    if isinstance(function.structured_outputs, dict):
        return model, function, sorted(function.structured_outputs)
    return model, function, _output_names(model)


def _traced(trace: Callable[[Sequence[int] | None], Any], size: Sequence[int] | None) -> Any:
    """What `trace` makes of a size.

    Raises:
        ModelError: it needs one, and there is none.
    """
    try:
        return trace(size)
    except Exception:  # layers raise anything over a size that they do not know
        if size is not None or not _is_traced(trace, _SOME_SIZE):
            raise
    raise ModelError(
        "the height and width of its input are dynamic, and a layer must know them: choose the network's resolution "
        "with --input-size HxW"
    )


def _is_traced(trace: Callable[[Sequence[int] | None], Any], size: Sequence[int]) -> bool:
    try:
        trace(size)
    except Exception:
        return False
    return True


def _keras_model(path: Path, config: dict[str, Any]) -> Any:
    """The model in a Keras file, by the Keras that wrote it: no code from the file is run.

    Raises:
        ModelError: it needs code that is not Keras's own, or `tf_keras`, which is missing.
    """
    version = keras_2.version_of(path)
    is_keras_2 = keras_2.is_keras_2(version)
    keras_file.check_config(config, is_keras_2=is_keras_2)
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        link = Path(folder) / f"model{'.keras' if keras_file.is_archive(path) else '.h5'}"  # Keras goes by the name
        link.symlink_to(path.resolve())
        if is_keras_2 and keras_2.is_installed():
            keras_2.check_classes(config)
            return keras_2.load(link)
        import keras

        try:
            return keras.models.load_model(link, compile=False)  # safe mode
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            if is_keras_2:
                raise ModelError(keras_2.how_to_install(version)) from None
            missing = _missing_code(error, config)
            if missing is None:
                raise
            raise ModelError(f"{missing} is not one of Keras's own; {keras_file.how_to_export()}") from None


def _packing(model: Any) -> Callable[[Sequence[Any]], Any]:
    """What makes of a model's inputs the list or dictionary that it takes."""
    import keras
    import tensorflow as tf

    if not isinstance(model, keras.Model):  # of Keras 2
        return lambda tensors: tf.nest.pack_sequence_as(model.input, list(tensors))
    structure = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    return lambda tensors: keras.tree.pack_sequence_as(structure, list(tensors))


def _output_names(model: Any) -> list[str]:
    """Names of a model's outputs as people know them: of the layers that make them."""
    import keras
    import tensorflow as tf

    if not isinstance(model, keras.Model):  # of Keras 2
        return list(model.output_names)
    # Keras 3 calls every output keras_tensor_N
    layers = {id(tensor): layer.name for layer in model.layers for tensor in tf.nest.flatten(layer.output)}
    return [layers.get(id(tensor), tensor.name) for tensor in tf.nest.flatten(model.outputs)]


def _sized(shape: Any, size: Sequence[int] | None) -> Any:
    """An image shape [N, H, W, C] whose dynamic height and width are `size`; of unknown rank, one in colour."""
    if size is None:
        return shape
    if getattr(shape, "rank", 4) is None:
        return (None, *size, 3)
    if len(shape) != 4:
        return shape
    return (shape[0], shape[1] or size[0], shape[2] or size[1], shape[3])


def _missing_code(error: Exception, config: dict[str, Any]) -> str | None:
    """The layer whose code Keras does not have, out of its message."""
    found = re.search(r"(?:Could not locate (?:class|function)|Unknown [\w ]+:) '([^']+)'", str(error))
    return None if found is None else keras_file.described(config, found.group(1))


def frozen_graph(path: Path, input_size: Sequence[int] | None = None) -> tuple[Any, list[str], list[str]]:
    """A frozen GraphDef, the names of its placeholders, and those of the nodes that end it.

    Args:
        path: a GraphDef in protobuf's binary or text form.
        input_size: (height, width) where its image placeholder leaves them open.

    Raises:
        ModelError: it is none, lacks weights, inputs or outputs, or holds an operator that does more than compute.
    """
    graph = _graph_def(path)
    variables = [node.name for node in graph.node if node.op in ("VarHandleOp", "VariableV2", "Variable")]
    if variables:
        raise ModelError(
            f"the GraphDef is not frozen: the values of variables such as '{variables[0]}' are not in it; "
            "freeze it with tf.compat.v1.graph_util.convert_variables_to_constants, or give the SavedModel"
        )
    for node in graph.node:
        if node.op == "Placeholder":
            _settle(node, input_size)
    placeholders = [node.name for node in graph.node if node.op == "Placeholder"]
    used = {name.split(":")[0].lstrip("^") for node in graph.node for name in node.input}
    ends = [
        node.name
        for node in graph.node
        if node.name not in used and node.op not in ("Const", "NoOp", "Assert", "Placeholder")
    ]
    if not placeholders or not ends:
        raise ModelError("the frozen graph has no Placeholder to feed or no node that ends it")
    check_graph_def(graph)
    return graph, placeholders, ends


def _graph_def(path: Path) -> Any:
    import tensorflow as tf
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    graph = tf.compat.v1.GraphDef()
    with open_regular(path) as file:
        content = file.read()
    try:
        graph.ParseFromString(content)
    except DecodeError:
        try:
            text_format.Parse(content, graph)
        except (text_format.ParseError, UnicodeDecodeError):
            raise ModelError("it does not parse as a frozen GraphDef") from None
    return graph


def _settle(placeholder: Any, size: Sequence[int] | None) -> None:
    """Settle a placeholder in place: a training switch becomes False, and an image of open size has `size`."""
    import tensorflow as tf

    shape = tf.TensorShape(placeholder.attr["shape"].shape)
    dtype = placeholder.attr["dtype"].type
    if dtype == tf.bool.as_datatype_enum and _TRAINING_SWITCH.search(placeholder.name):
        placeholder.op = "Const"
        del placeholder.attr["shape"]
        placeholder.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(False))
    elif size is not None:
        placeholder.attr["shape"].shape.CopyFrom(tf.TensorShape(_sized(shape, size)).as_proto())
