"""What is asked of protobufs: one look inside nodes, one order, one renaming, and parts that keep all they use."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest
from nets import kernel, nchw, net

from trtpost.errors import ModelError
from trtpost.graph.proto import (
    attributes_of,
    behind,
    called_functions,
    check_calls,
    constants_of,
    depending_on,
    graphs_of,
    name_apart,
    part_of,
    rename,
    replace,
    sort_nodes,
    used_by,
    used_inside,
)

IO = ("float[1,3,8,12] image", "float[1,4,8,12] logits")
BRANCH = """logits = If (z) <
               then_branch = one () => (float[1,4,8,12] p) { p = Add (y, bias) },
               else_branch = two () => (float[1,4,8,12] q) {
                 q = If (z) <
                   then_branch = three () => (float[1,4,8,12] r) { r = Relu (y) },
                   else_branch = four () => (float[1,4,8,12] s) { s = Neg (deep) }
                 >
               }
             >"""


@pytest.mark.parametrize("branch", [True, False])
def test_what_only_a_subgraph_uses_comes_along(branch):
    """Values, weights, and what makes them, at any depth: onnx's own extractor leaves them out."""
    model = net(
        f"""y = Conv (image, k)
            h = Relu (y)
            deep = Mul (h, bias)
            z = Identity (switch)
            {BRANCH}
            mask = ArgMax <axis = 1> (logits)""",
        IO[0],
        "int64[1,1,8,12] mask",
        k=kernel(4),
        bias=np.float32(3),
        switch=np.array(branch),
    )
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 4, 8, 12]))
    part = part_of(model, ["image"], ["logits"])
    onnx.checker.check_model(part, full_check=True)
    image = np.random.default_rng(0).standard_normal((1, 3, 8, 12)).astype(np.float32)
    y = np.einsum("kc,nchw->nkhw", kernel(4)[:, :, 0, 0], image)
    expected = y + 3 if branch else -3 * np.maximum(y, 0)
    (found,) = onnx.reference.ReferenceEvaluator(part).run(None, {"image": image})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "ArgMax" not in {node.op_type for node in part.graph.node}


def test_what_is_not_needed_stays():
    """Nodes, weights and functions that do not lead to the outputs."""
    model = net(
        """y = Conv (image, k)
           logits = Relu (y)
           other = Mul (y, other_weight)""",
        IO[0],
        f"{IO[1]}, float[1,4,8,12] other",
        k=kernel(4),
        other_weight=np.float32(2),
    )
    part = part_of(model, ["image"], ["logits"])
    assert [node.op_type for node in part.graph.node] == ["Conv", "Relu"]
    assert [one.name for one in part.graph.initializer] == ["k"]
    assert [one.name for one in part_of(model, ["y"], ["logits"]).graph.input] == ["y"]


def test_a_tensor_without_a_type():
    with pytest.raises(ModelError, match="type of tensor 'nothing' is not known"):
        part_of(nchw(), ["image"], ["nothing"])


NESTED = """y = If (on) <
              then_branch = first () => (float[4] a) {
                a = If (on) <then_branch = second () => (float[4] b) { b = Relu (x) },
                             else_branch = third () => (float[4] c) { c = Mul (k, own) }> },
              else_branch = fourth () => (float[4] x) <float[4] k = {1, 1, 1, 1}> { d = Neg (k) }>"""


def parsed(body: str, weights: str = "", functions: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
            net (float[4] x, bool on) => (float[4] y) <{weights}> {{ {body} }} {functions}"""
    )


def either(yes: str, no: str) -> str:
    """An If of two nodes."""
    return f"""y = If (on) <then_branch = one () => (float[4] p) {{ p = {yes} }},
                            else_branch = two () => (float[4] q) {{ q = {no} }}>"""


def test_attributes_and_constants():
    model = parsed(
        "a = Constant <value_ints = [1, 2]> ()\n b = Constant <value = float {3}> ()\n y = Relu (w)", "float w = {5}"
    )
    assert attributes_of(model.graph.node[0]) == {"value_ints": [1, 2]}
    found = constants_of(model.graph, {"a", "b", "w", "y"})
    assert {name: value.tolist() for name, value in found.items()} == {"a": [1, 2], "b": 3, "w": 5}


def test_every_graph_comes_once_and_before_those_inside_it():
    assert [graph.name for graph in graphs_of(parsed(NESTED))] == ["net", "first", "second", "third", "fourth"]


def test_a_graph_may_be_changed_when_it_comes():
    model, seen = parsed(NESTED), []
    for graph in graphs_of(model):
        replace(graph.node, list(graph.node))
        seen.append(graph.name)
    assert seen == ["net", "first", "second", "third", "fourth"]


def test_names_that_a_node_uses():
    (node,) = parsed(NESTED).graph.node
    assert used_by(node) >= {"on", "x", "k", "own"}
    assert "k" not in used_inside(parsed(NESTED.replace("Mul (k, own)", "Relu (own)")).graph.node[0])
    assert used_by(onnx.helper.make_node("Resize", ["x", "", "s"], ["y"])) == {"x", "s"}


def test_what_depends_on_values_and_not_on_shapes():
    model = parsed("s = Shape (x)\n t = Cast <to = 1> (s)\n r = Relu (x)\n " + either("Neg (r)", "Neg (t)"))
    assert depending_on(model.graph, {"x"}) == {"x", "r", "y"}


@pytest.mark.parametrize(("name", "found"), [("y", "x"), ("b", "x"), ("x", "x"), ("other", "other"), ("p", "p")])
def test_what_is_behind_a_chain(name, found):
    body = "b = Identity (x)\n c = Cast <to = 1> (b)\n y = Identity (c)\n other = Relu (c)"
    circle = "p = Identity (q)\n q = Identity (p)"
    made = {output: node for node in parsed(f"{body}\n{circle}").graph.node for output in node.output}
    assert behind(made, name, ("Identity", "Cast")) == found


def test_renaming_reaches_every_depth():
    model = parsed(NESTED)
    rename(model.graph.node, {"x": "X", "y": "Y", "on": "ON"})
    assert list(model.graph.node[0].output) == ["Y"]
    assert used_by(model.graph.node[0]) >= {"ON", "X", "k", "own"}
    assert used_by(model.graph.node[0]).isdisjoint({"on", "x", "y"})
    assert list(graphs_of(model))[-1].output[0].name == "X"


def test_names_that_are_shared_are_told_apart():
    model = parsed("a = Relu (x)\n b = Relu (a)\n c = Relu (b)\n y = Relu (c)")
    for node, name in zip(model.graph.node, ["same", "same", "same_1", ""], strict=True):
        node.name = name
    name_apart(model)
    assert [node.name for node in model.graph.node] == ["same", "same_2", "same_1", ""]


@pytest.mark.parametrize(
    ("body", "order"),
    [
        ("a = Relu (x)\n b = Relu (x)\n y = Add (b, a)", "aby"),
        ("y = Add (b, a)\n a = Relu (x)\n b = Relu (x)", "aby"),
        ("y = Add (a, b)\n c = Neg (x)\n a = Relu (b)\n b = Relu (x)", "bayc"),
        ("y = Relu (a)\n a = Relu (y)\n b = Relu (x)", "yab"),
        (either("Neg (a)", "Neg (x)") + "\n a = Relu (x)", "ay"),
    ],
    ids=["sorted", "as they were", "backwards", "circle", "inside"],
)
def test_order(body, order):
    model = parsed(body)
    sort_nodes(model)
    assert "".join(node.output[0] for node in model.graph.node) == order


FUNCTIONS = """<domain: "own", opset_import: ["" : 17, "own" : 1]> outer (a) => (b) { b = own.inner (a) }
               <domain: "own", opset_import: ["" : 17, "own" : 1]> inner (a) => (b) { b = Relu (a) }
               <domain: "own", opset_import: ["" : 17, "own" : 1]> other (a) => (b) { b = own.other (a) }"""


def test_functions_that_nodes_call():
    model = parsed(either("own.outer (x)", "Neg (x)"), functions=FUNCTIONS)
    assert [one.name for one in called_functions(model, model.graph.node)] == ["outer", "inner"]
    with pytest.raises(ModelError, match="net: function 'other' calls itself"):
        check_calls(model, "net")
