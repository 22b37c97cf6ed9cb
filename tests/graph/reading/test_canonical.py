"""Forms of ONNX that a plain graph can say become plain; what computes nothing, or for ever, is refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from trtpost.errors import ModelError
from trtpost.graph.reading.canonical import (
    keep_computed,
    refuse_endless_loops,
    without_functions,
    without_optionals,
    write_out_sparse,
)


def parsed(body: str, inputs: str = "float[4] x", outputs: str = "float[4] y", weights: str = "") -> onnx.ModelProto:
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
    return onnx.parser.parse_model(f"{header} net ({inputs}) => ({outputs}) <{weights}> {{ {body} }}")


def loop(count: str, condition: str = "go = Identity (again)", before: str = "") -> onnx.ModelProto:
    weights = "int64 many = {4611686018427387904}, int64 few = {3}, bool on = {1}, int32 narrow = {2000000000}"
    return parsed(
        f"""{before}
            y = Loop ({count}, on, x) <body = inside (int64 i, bool again, float[4] v) => (bool go, float[4] w) {{
              {condition}
              w = Relu (v)
            }}>""",
        weights=weights,
    )


CHAIN = "\n".join(f"c{index + 1} = Identity (c{index})" for index in range(3000))


@pytest.mark.parametrize(
    "model",
    [
        loop("many"),
        loop(""),
        loop("n", before="n = Constant <value_int = 4611686018427387904> ()"),
        loop("n", before="n = Cast <to = 7> (narrow)"),
        loop("c3000", before=f"c0 = Identity (many)\n{CHAIN}"),
        loop("many", "go = Constant <value_int = 1> ()"),
    ],
    ids=["number", "none", "node", "cast", "long chain", "constant condition"],
)
def test_endless_loops(model):
    with pytest.raises(ModelError, match=r"net: node 'y' \(Loop\) goes on for"):
        refuse_endless_loops(model, "net")


@pytest.mark.parametrize(
    "model",
    [
        loop("few"),
        loop("n", before="n = Size (x)"),
        loop("many", "go = Not (again)"),
        loop("a", before="a = Identity (b)\n b = Identity (a)"),
        loop("many", "go = Identity (other)\n other = Identity (go)"),
    ],
    ids=["few", "computed", "computed condition", "circle", "circle inside"],
)
def test_loops_that_may_end(model):
    refuse_endless_loops(model, "net")


@pytest.mark.parametrize(
    ("body", "inputs", "outputs", "left"),
    [
        ("y = Relu (x)", "float[4] x, float[4] unused", "float[4] y", (["x"], ["y"])),
        ("y = Relu (x)\n z = Identity (x)", "float[4] x", "float[4] y, float[4] z, float[4] x", (["x"], ["y"])),
        ("y = Relu (x)\n z = Relu (k)", "float[4] x", "float[4] z, float[4] y", (["x"], ["y"])),
    ],
    ids=["input", "copies", "constants"],
)
def test_what_is_not_computed_goes(body, inputs, outputs, left):
    model = parsed(body, inputs, outputs, "float k = {1}")
    keep_computed(model, "net")
    assert ([one.name for one in model.graph.input], [one.name for one in model.graph.output]) == left


def test_a_model_that_computes_nothing():
    with pytest.raises(ModelError, match="net computes nothing"):
        keep_computed(parsed("y = Identity (x)"), "net")


def sparse(*shape: int) -> onnx.SparseTensorProto:
    values = onnx.numpy_helper.from_array(np.array([5.0, 7.0], np.float32), "k")
    return onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array([1, 3])), shape)


def test_sparse_tensors_are_written_out():
    model = parsed("y = Mul (x, k)")
    model.graph.sparse_initializer.append(sparse(2, 2))
    write_out_sparse(model, "net")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), [[0, 5], [0, 7]])
    model.graph.sparse_initializer.append(sparse(1 << 15, 1 << 15))
    with pytest.raises(ModelError, match=r"net: the sparse tensor 'k' \[32768, 32768\] is too large"):
        write_out_sparse(model, "net")


def test_optionals_become_their_tensors():
    model = parsed("o = Optional (x)\n y = OptionalGetElement (o)")
    without_optionals(model)
    assert [node.op_type for node in model.graph.node] == ["Identity", "Identity"]


def test_functions_become_their_bodies():
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> net (float[4] x) => (float[4] y) { y = own.twice (x) }
           <domain: "own", opset_import: ["" : 17]> twice (a) => (b) { c = Relu (a)
             b = Neg (c) }"""
    )
    assert [node.op_type for node in without_functions(model).graph.node] == ["Relu", "Neg"]
