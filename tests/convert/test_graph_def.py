"""What a frozen graph must not hold; `tests/cases/test_convert.py` has exported models."""

from __future__ import annotations

import pytest
from conftest import package

from trtpost.convert.graph_def import check_graph, layer_of
from trtpost.errors import ModelError


def graph(op: str, *, inside: bool = False, dtype: str | None = None, training: bool | None = None) -> object:
    tf = package("tensorflow")
    definition = tf.compat.v1.GraphDef()
    nodes = definition.library.function.add().node_def if inside else definition.node
    node = nodes.add(name="StatefulPartitionedCall/net/layer", op=op)
    if dtype is not None:
        node.attr["T"].type = getattr(tf, dtype).as_datatype_enum
    if training is not None:
        node.attr["is_training"].b = training
    return definition


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("op", "attributes", "said"),
    [
        ("FusedBatchNormV3", {"training": False}, None),
        ("FusedBatchNormV3", {"training": True}, "is in training mode"),
        ("FusedBatchNorm", {}, "is in training mode"),  # by default
        ("RandomUniform", {}, "draws random numbers"),
        ("StatelessRandomUniformV2", {}, "draws random numbers"),
        ("TruncatedNormal", {}, "draws random numbers"),
        ("Conv2D", {"dtype": "float32"}, None),
        ("Conv2D", {"dtype": "half"}, None),
        ("Conv2D", {"dtype": "bfloat16"}, "computes in bfloat16"),
        ("MatMul", {"dtype": "float64"}, "computes in float64"),
        ("Add", {"dtype": "float64"}, None),
    ],
)
def test_what_onnx_cannot_say(op, attributes, said, inside):
    if said is None:
        check_graph(graph(op, inside=inside, **attributes))
    else:
        with pytest.raises(ModelError, match=f"^'net/layer' .{op}. {said}"):
            check_graph(graph(op, inside=inside, **attributes))


@pytest.mark.parametrize(
    ("node", "layer"),
    [
        ("a/b", "a/b"),
        ("PartitionedCall/a/StatefulPartitionedCall/b", "a/b"),
        ("PartitionedCall_1/a", "PartitionedCall_1/a"),
    ],
)
def test_names_as_people_know_them(node, layer):
    assert layer_of(node) == layer
