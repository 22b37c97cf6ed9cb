"""Files of Keras 2, which Keras 3 reads in part alone: `tf_keras`, its continuation, loads them as they are meant.

Releases of it import whichever module a file names, and call whichever function of TensorFlow. So classes and functions
are looked at before, and what is not known to compute is refused.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trtpost.convert import keras_file
from trtpost.convert.operators import is_computing
from trtpost.convert.tflite_file import UNPACKED
from trtpost.errors import ModelError
from trtpost.storage.files import open_regular

_NAMESPACES = re.compile(
    r"(math|nn|image|linalg|signal|bitwise|quantization)\.[a-z]\w*"
    r"|__operators__\.(add|eq|getitem|ne)"
    r"|keras\.activations\.(?!(deserialize|get|serialize)$)[a-z]\w*"
)
"""Names of functions of TensorFlow where all of a kind compute, and do nothing else."""

_FUNCTIONS = frozenset(
    {
        *("abs", "acos", "acosh", "add", "add_n", "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atan2"),
        *("atanh", "batch_to_space", "boolean_mask", "broadcast_to", "cast", "ceil", "clip_by_norm", "clip_by_value"),
        *("complex", "concat", "cos", "cosh", "cumprod", "cumsum", "depth_to_space", "div", "div_no_nan", "divide"),
        *("einsum", "ensure_shape", "equal", "erf", "erfc", "exp", "expand_dims", "expm1", "extract_image_patches"),
        *("eye", "fft2d", "fill", "floor", "floor_div", "floordiv", "floormod", "gather", "gather_nd", "greater"),
        *("greater_equal", "identity", "ifft2d", "is_finite", "is_inf", "is_nan", "less", "less_equal", "linspace"),
        *("log", "log1p", "log_sigmoid", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul"),
        *("matrix_band_part", "matrix_inverse", "matrix_transpose", "maximum", "meshgrid", "minimum", "mod"),
        *("multiply", "negative", "norm", "not_equal", "one_hot", "ones", "ones_like", "pad", "pow", "range", "rank"),
        *("realdiv", "reciprocal", "reduce_all", "reduce_any", "reduce_logsumexp", "reduce_max", "reduce_mean"),
        *("reduce_min", "reduce_prod", "reduce_sum", "repeat", "reshape", "reverse", "rint", "roll", "round", "rsqrt"),
        *("saturate_cast", "scalar_mul", "scatter_nd", "searchsorted", "sequence_mask", "shape", "sigmoid", "sign"),
        *("sin", "sinh", "size", "slice", "sort", "space_to_batch", "space_to_batch_nd", "space_to_depth", "split"),
        *("sqrt", "square", "squared_difference", "squeeze", "stack", "stop_gradient", "strided_slice", "subtract"),
        *("tan", "tanh", "tensordot", "tile", "to_double", "to_float", "to_int32", "to_int64", "transpose", "truediv"),
        *("truncatediv", "truncatemod", "unstack", "where", "where_v2", "zeros", "zeros_like"),
    }
)
"""Those of TensorFlow's other functions that do."""

_OF_BACKEND = frozenset(
    {
        *("abs", "all", "any", "argmax", "argmin", "batch_dot", "batch_flatten", "batch_normalization", "bias_add"),
        *("cast", "clip", "concatenate", "conv2d", "conv2d_transpose", "cos", "depthwise_conv2d", "dot", "elu"),
        *("equal", "exp", "expand_dims", "flatten", "gather", "greater", "greater_equal", "hard_sigmoid"),
        *("l2_normalize", "less", "less_equal", "log", "max", "maximum", "mean", "min", "minimum", "not_equal"),
        *("one_hot", "ones_like", "permute_dimensions", "pool2d", "pow", "prod", "relu", "repeat", "repeat_elements"),
        *("reshape", "resize_images", "reverse", "round", "separable_conv2d", "shape", "sigmoid", "sign", "sin"),
        *("softmax", "softplus", "softsign", "spatial_2d_padding", "sqrt", "square", "squeeze", "stack", "std"),
        *("stop_gradient", "sum", "tanh", "tile", "transpose", "var", "zeros_like"),
    }
)
"""Those of `keras.backend`."""

_FUNCTION_LAYERS = ("TFOpLambda", "SlicingOpLambda")
"""Layers of functions of TensorFlow, which the file names."""

_VALUES = frozenset({"TensorShape", "__tuple__", "__ellipsis__", "__bytes__", "__tensor__", "__numpy__"})
"""What stands where a class does, and is a value."""

_ACTING = frozenset({"Lambda", "TextVectorization", "StringLookup", "IntegerLookup"})
"""Layers of Keras's that run code out of the file, or read another."""

_UNKNOWN = "which is not known to compute and nothing else, so the model is not loaded; export the network without it"


def version_of(path: Path) -> str | None:
    """The version of Keras that wrote a file; None where it does not say."""
    found: object = None
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        if keras_file.is_archive(path):
            with open_regular(path) as file, zipfile.ZipFile(file) as archive:
                if archive.getinfo("metadata.json").compress_type in UNPACKED:
                    with archive.open("metadata.json") as entry:
                        found = json.loads(entry.read(1 << 16)).get("keras_version")
        else:
            import h5py  # type: ignore[import-untyped]

            with h5py.File(path) as file:
                found = file.attrs.get("keras_version")
    return found.decode(errors="replace") if isinstance(found, bytes) else found if isinstance(found, str) else None


def is_keras_2(version: str | None) -> bool:
    """Was it written by Keras before 3?"""
    return version is not None and re.match(r"[012]\.", version) is not None


def is_installed() -> bool:
    """Is `tf_keras` there?"""
    return find_spec("tf_keras") is not None


def how_to_install(version: str | None) -> str:
    """A sentence on a file that needs `tf_keras`, where that is missing."""
    import tensorflow as tf

    release = ".".join(tf.__version__.split(".")[:2])
    return (  # with what it depends on, pip would put the full TensorFlow beside the one for the CPU
        f"it is a file of Keras {version}, and Keras 3 does not load it; tf_keras does: "
        f"pip install --no-deps 'tf_keras=={release}.*'"
    )


def check_classes(config: dict[str, Any]) -> None:
    """Refuse classes and functions that are not `tf_keras`'s own, and those of them that do more than compute.

    Raises:
        ModelError: naming the layer.
    """
    classes, functions = _own()
    # what a model is trained with is not loaded
    for value in keras_file.dicts_in({key: one for key, one in config.items() if key != "compile_config"}):
        code, inner = value.get("class_name"), value.get("config")
        if not isinstance(code, str) or code in _VALUES:
            continue
        name, known = (str(inner), functions) if code == "function" else (code, classes)
        if name not in known:
            raise ModelError(
                f"{keras_file.described(config, name)} is not one of Keras's own; {keras_file.how_to_export()}"
            )
        stated = inner if isinstance(inner, dict) else {}
        layer = f"layer '{stated.get('name')}'"
        if code in _ACTING:
            raise ModelError(
                f"{layer} is a {code}, which may run code or read another file; {keras_file.how_to_export()}"
            )
        if code in _FUNCTION_LAYERS and not _computes(function := stated.get("function")):
            raise ModelError(f"{layer} calls 'tf.{function}', {_UNKNOWN}")
        if code == "TensorFlowOpLayer" and not is_computing(operator := _operator(stated.get("node_def"))):
            raise ModelError(f"{layer} holds the operator {operator}, {_UNKNOWN}")


def load(path: Path) -> Any:
    """The model in a `.keras` or `.h5` file, whose configuration was checked, without what it was trained with."""
    import tf_keras

    return tf_keras.models.load_model(path, compile=False)


def _computes(function: object) -> bool:
    """Does a function of TensorFlow, by the name that files give it, nothing but compute?"""
    if not isinstance(function, str):
        return False
    name = function.removeprefix("compat.v1.")
    backend = name.removeprefix("keras.backend.")
    known = backend in _OF_BACKEND if backend != name else name in _FUNCTIONS
    return known or _NAMESPACES.fullmatch(name) is not None


def _operator(node: object) -> str:
    """The operator of a node, as layers of TensorFlow 2.0 to 2.3 hold it; empty where that cannot be read."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    if isinstance(node, dict):
        return str(node.get("op"))
    with contextlib.suppress(DecodeError):
        return str(NodeDef.FromString(node.encode()).op) if isinstance(node, str) else ""
    return ""


@cache
def _own() -> tuple[frozenset[str], frozenset[str]]:
    """Names of the classes and of the functions of `tf_keras` that a configuration may hold."""
    import tf_keras

    parts = (tf_keras.initializers, tf_keras.regularizers, tf_keras.constraints, tf_keras.mixed_precision)
    trained = (tf_keras.optimizers, tf_keras.optimizers.legacy, tf_keras.optimizers.schedules)
    calculated = (tf_keras.activations, tf_keras.losses, tf_keras.metrics, *parts)
    classes = {"Functional", "TensorFlowOpLayer", "BatchNormalizationV1", "BatchNormalizationV2", *_FUNCTION_LAYERS}
    for module in (tf_keras, tf_keras.layers, tf_keras.models, *calculated, *trained):
        classes |= {name for name, value in vars(module).items() if inspect.isclass(value)}
    functions = {
        name
        for module in calculated
        for name, value in vars(module).items()
        if inspect.isfunction(value) and name not in ("get", "serialize", "deserialize")
    }
    return frozenset(classes), frozenset(functions)
