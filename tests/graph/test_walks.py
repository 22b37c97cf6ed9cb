"""Shapes, types and constants of tensors, and the walk back from them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from nets import ending

from trtpost.graph import walks

SCORES = "float[1,4,8,12] out"


@pytest.mark.parametrize(("dim", "expected"), [(3, 3), (0, 0), (-1, 0), ("N", 0)])
def test_a_dynamic_dimension_is_0(dim, expected):
    assert walks.number(dim) == expected


@pytest.mark.parametrize(("shape", "expected"), [((1, "N"), (1, "N")), ((), ()), (None, ())])
def test_an_unknown_shape_is_empty(shape, expected):
    assert walks.dims(gs.Variable("x", np.float32, shape)) == expected


@pytest.mark.parametrize(
    ("dtype", "name", "whole"),
    [
        (np.float32, "float32", False),
        (np.int64, "int64", True),
        (np.uint8, "uint8", True),
        (np.bool_, "bool", True),
        (None, "unknown", False),
        (onnx.TensorProto.BFLOAT16, "unknown", False),  # numpy has none
    ],
)
def test_types_by_name(dtype, name, whole):
    value = gs.Variable("x", dtype)
    assert (walks.dtype_name(value), walks.is_whole(value)) == (name, whole)


@pytest.mark.parametrize("constant", ["value_float = 0.5", "value_floats = [0.5]", "value = float {0.5}"])
def test_constants_as_nodes(constant):
    out = ending(f"c = Constant <{constant}> ()\n out = Mul (y, c)", SCORES)
    value = out.inputs[0].inputs[1]
    assert walks.is_constant(value)
    assert walks.constant_values(value) == 0.5


def test_constants_as_weights():
    out = ending("out = Mul (y, c)", SCORES, c=np.float32(2))
    y, c = out.inputs[0].inputs
    assert (walks.is_constant(c), walks.constant_values(c)) == (True, 2)
    assert (walks.is_constant(y), walks.constant_values(y)) == (False, None)


def test_the_maker_of_inputs_and_weights_is_none():
    y = ending("out = Relu (y)", SCORES).inputs[0].inputs[0]
    assert walks.maker_of(y).op == "Conv"
    assert [walks.maker_of(value) for value in y.inputs[0].inputs] == [None, None]


@pytest.mark.parametrize(
    ("onward", "expected"),
    [
        ({"a": "bc", "b": "d", "c": "e", "d": "e"}, "abcde"),  # the nearest first
        ({"a": "bb", "b": "a"}, "ab"),  # each once
        ({}, "a"),
    ],
)
def test_what_is_reached(onward, expected):
    assert "".join(walks.reached("a", lambda name: onward.get(name, ""), key=str)) == expected


def test_the_last_way_may_go_first():
    onward = {"a": "bc", "b": "d", "c": "e"}
    assert "".join(walks.reached("a", lambda name: onward.get(name, ""), key=str, last_first=True)) == "acebd"


@pytest.mark.parametrize(
    ("refuted", "expected"),
    [((), True), (("Add",), False), (("Relu",), False), (("Conv",), True)],  # nobody asks that one
)
def test_what_holds_of_a_tensor_where_it_holds_of_others(refuted, expected):
    out = ending("a = Abs (y)\n b = Relu (y)\n out = Add (a, b)", SCORES)

    def premises(value: gs.Tensor) -> list[gs.Tensor] | None:
        op = value.inputs[0].op
        return None if op in refuted else list(value.inputs[0].inputs) if op == "Add" else []

    assert walks.proven(out, premises) is expected


def test_nobody_asks_for_more_than_is_wanted():
    asked = []
    assert next(walks.reached("a", lambda name: asked.append(name) or "", key=str)) == "a"
    assert asked == []


@pytest.mark.parametrize(
    ("body", "ops", "chain"),
    [
        ("out = Relu (y)", {"Relu"}, ["Relu"]),
        ("a = Relu (y)\n b = Abs (a)\n out = Relu (b)", {"Relu"}, ["Relu"]),
        ("a = Relu (y)\n b = Abs (a)\n out = Relu (b)", {"Relu", "Abs"}, ["Relu", "Abs", "Relu"]),
        ("a = Abs (y)\n b = Relu (y)\n out = Add (a, b)", {"Add", "Relu", "Abs"}, ["Add", "Abs"]),  # by the first input
        ("out = Relu (y)", {"Abs"}, []),
    ],
)
def test_chains(body, ops, chain):
    out = ending(body, SCORES)
    assert [node.op for node in walks.chain_before(out, ops)] == chain
    assert walks.behind(out, ops) is (walks.chain_before(out, ops)[-1].inputs[0] if chain else out)


def test_a_chain_may_begin_with_the_input():
    out = ending("out = Relu (y)", SCORES)
    assert walks.behind(out, {"Relu", "Conv"}).name == "image"


def test_nodes_before_by_several_inputs():
    out = ending("a = Abs (y)\n b = Relu (y)\n out = Add (a, b)", SCORES)
    nodes = walks.nodes_before(out, lambda node: node.inputs)
    assert [node.op for node in nodes] == ["Add", "Abs", "Relu", "Conv"]


def made(op: str, *inputs: gs.Tensor, **attrs: object) -> gs.Variable:
    return gs.Node(op, attrs=attrs, inputs=list(inputs), outputs=[gs.Variable(op)]).outputs[0]


IMAGE, WEIGHT = gs.Variable("image", np.float32, (1, 3, 8, 12)), gs.Constant("c", np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (IMAGE, True),
        (made("Mul", WEIGHT, made("Relu", IMAGE)), True),  # by the second input
        (made("Shape", IMAGE), True),
        (made("Mul", WEIGHT, made("Relu", WEIGHT)), False),
        (made("Relu", gs.Variable("image", np.float32, (1, 3, 8, 12))), False),  # another of the same name
        (made("If", WEIGHT, then_branch=gs.Graph()), True),  # what a subgraph uses is not listed
    ],
)
def test_what_depends_on_the_image(value, expected):
    assert walks.depends_on(value, IMAGE) is expected


def test_either_branch_of_an_if():
    one, two = gs.Variable("one"), gs.Variable("two")
    node = gs.Node(
        "If", attrs={"then_branch": gs.Graph(outputs=[one, two]), "else_branch": gs.Graph(outputs=[two, one])}
    )
    node.outputs = [gs.Variable("first"), gs.Variable("second")]
    assert [value.name for value in walks.branches_of(node.outputs[0])] == ["one", "two"]
    assert [value.name for value in walks.branches_of(node.outputs[1])] == ["two", "one"]
    assert walks.branches_of(one) == []
