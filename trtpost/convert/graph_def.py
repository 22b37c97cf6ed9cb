"""A frozen TensorFlow graph before tf2onnx has it: what it must not hold, and calls that nobody else writes out.

tf2onnx leaves the former out without a word, or writes what nobody runs.
"""

from __future__ import annotations

import re
from typing import Any

from trtpost.errors import ModelError

_RANDOM = re.compile(
    r"^(Stateless|Stateful)?(Parameterized)?(Random|TruncatedNormal|StandardNormal|Multinomial|Uniform)"
)
_BATCH_NORM = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_HEAVY = ("Conv2D", "Conv2DBackpropInput", "DepthwiseConv2dNative", "MatMul")
_KEPT_WHOLE = ("_XlaMustCompile", "_noinline")
"""Marks of functions that Grappler does not write out where they are called. Keras wants grouped convolutions
compiled by XLA, because TensorFlow's kernels for the CPU did not have them."""

_WITHOUT_MEANING = frozenset({"StatefulPartitionedCall", "PartitionedCall"})


def check_graph(graph: Any) -> None:
    """Refuse a graph in training mode, and arithmetic that ONNX runtimes do not have.

    Raises:
        ModelError: naming the layer.
    """
    import tensorflow as tf

    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        where = f"'{layer_of(node.name)}' ({node.op})"
        if node.op in _BATCH_NORM and ("is_training" not in node.attr or node.attr["is_training"].b):  # the default
            raise ModelError(
                f"{where} is in training mode: it normalises by the photos of the batch instead of by what it has "
                "learnt, which ONNX cannot say; export the network for inference: training=False, is_training=False"
            )
        if _RANDOM.match(node.op):
            raise ModelError(
                f"{where} draws random numbers, such as those of a Dropout in training mode, so the mask would be "
                "another one each time; export the network for inference: training=False"
            )
        dtype = node.attr["T"].type if node.op in _HEAVY else 0
        if dtype in (tf.bfloat16.as_datatype_enum, tf.float64.as_datatype_enum):
            raise ModelError(
                f"{where} computes in {tf.as_dtype(dtype).name}, which ONNX runtimes do not: save the model with the "
                "dtype policy float32 (and for 16 bits build with --precision)"
            )


def written_out(graph: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The graph between the tensors `inputs` and `outputs`, with the functions inlined that were kept for XLA."""
    import tensorflow as tf
    from tf2onnx import tf_loader

    functions = graph.library.function
    everything = (*graph.node, *functions, *(node for function in functions for node in function.node_def))
    marked = [one for one in everything if any(mark in one.attr for mark in _KEPT_WHOLE)]
    if not marked:
        return graph
    for one in marked:
        for mark in _KEPT_WHOLE:
            one.attr.pop(mark, None)
    with tf.Graph().as_default():
        return tf_loader.tf_optimize(inputs, outputs, graph)


def layer_of(node: str) -> str:
    """The name of a node without the calls around it, as people know it."""
    return "/".join(part for part in node.split("/") if part not in _WITHOUT_MEANING)
