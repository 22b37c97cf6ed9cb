"""Operators that compute; `tests/cases/test_models_that_act.py` has models that do more."""

from __future__ import annotations

import pytest
from conftest import package

from trtpost.convert import operators
from trtpost.convert.operators import check_flex_operators, check_graph_def, is_computing
from trtpost.errors import ModelError


@pytest.fixture(scope="module", autouse=True)
def tf():
    return package("tensorflow")


@pytest.mark.parametrize(
    ("operator", "computes"),
    [
        *[(name, True) for name in ("Conv2D", "Erf", "If", "ReadVariableOp", "HashTableV2", "ResourceApplyAdam")],
        *[(name, True) for name in ("Conv2DBackpropFilter", "ReluGrad", "ScatterAdd", "ResourceScatterNdUpdate")],
        *[
            (name, False)
            for name in ("ReadFile", "WriteFile", "PyFunc", "PrintV2", "RestoreV2", "Abort", "DebugIdentityV2")
        ],
        *[(name, False) for name in ("ImmutableConst", "TFRecordDataset", "NoSuchOperator", "")],
    ],
)
def test_operators(operator, computes):
    assert is_computing(operator) == computes


def graph(tf, *calls: tuple[str, str]):
    """Functions by name, each with the operators of its nodes; the one without a name is the graph itself."""
    definition = tf.compat.v1.GraphDef()
    for name, ops in calls:
        if name:
            function = definition.library.function.add()
            function.signature.name = name
        nodes = function.node_def if name else definition.node
        for index, op in enumerate(ops.split()):
            nodes.add(name=f"n{index}", op=op)
    return definition


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([("", "Conv2D Relu")], None),
        ([("", "ReadFile")], r"the operator ReadFile \(node 'n0'\)"),
        ([("", "own"), ("own", "Relu")], None),
        ([("", "own"), ("own", "Relu WriteFile")], "WriteFile .node 'n1' of function 'own'"),
        ([("", "WriteFile"), ("WriteFile", "Relu")], "the operator WriteFile"),  # no function takes TensorFlow's names
        ([("own", "own")], "call"),
    ],
)
def test_graphs_and_their_functions(tf, calls, said):
    if said is None:
        check_graph_def(graph(tf, *calls))
    else:
        with pytest.raises(ModelError, match=said):
            check_graph_def(graph(tf, *calls))


@pytest.mark.parametrize("limit", [8, 7])
def test_functions_expand_to_so_many_nodes_and_no_more(tf, monkeypatch, limit):
    monkeypatch.setattr(operators, "MAX_NODES", limit)
    doubling = graph(tf, ("", "two two"), ("two", "one one"), ("one", "Relu Relu"))
    if limit == 8:
        check_graph_def(doubling)
    else:
        with pytest.raises(ModelError, match="expand to 8 nodes; more than 7"):
            check_graph_def(doubling)


@pytest.mark.parametrize(
    ("custom", "said"),
    [
        ([("FlexErf", b""), ("MediaPipe's", b"anything")], None),
        ([("FlexReadFile", b"")], "ReadFile"),
        ([("FlexErf", b"damaged")], "cannot be read"),
    ],
)
def test_operators_of_tensorflow_in_tflite(custom, said):
    if said is None:
        check_flex_operators(custom)
    else:
        with pytest.raises(ModelError, match=said):
            check_flex_operators(custom)
