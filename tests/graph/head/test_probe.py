"""What a run on zeros tells of a network."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from nets import kernel, nchw, net

from trtpost.graph.head import probe


def network(body: str, out: str, *, batch: str = "1", size: str = "8,12", **weights: np.ndarray) -> onnx.ModelProto:
    """A convolution that gives `y` [batch, 4, size], and what follows it."""
    return net(f"y = Conv (image, k)\n{body}", f"float[{batch},3,{size}] image", out, k=kernel(4), **weights)


def computed(batch: str = "1", size: str = "8,12") -> onnx.ModelProto:
    """Logits [batch, 4, 8, 12] whose last side is a maximum, which no shape inference tells."""
    body = """s = Shape <start = 0, end = 1> (y)
              width = ReduceMax <keepdims = 0> (twelve)
              u = Unsqueeze (width, zero)
              shape = Concat <axis = 0> (s, planes, u)
              r = Reshape (y, shape)
              logits = Relu (r)"""
    weights = {"zero": np.array([0]), "twelve": np.array([12, 5]), "planes": np.array([4, 8])}
    return network(body, "float[N,C,H,W] logits", batch=batch, size=size, **weights)


def shape_of(model: onnx.ModelProto, name: str) -> list[int | str]:
    for value in (*model.graph.value_info, *model.graph.output):
        if value.name == name:
            return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
    return []


@pytest.mark.parametrize(
    ("batch", "expected"), [("1", [1, 4, 8, 12]), ("2", [2, 4, 8, 12]), ("N", ["N", 4, 8, 12]), ("B", ["B", 4, 8, 12])]
)
def test_shapes_that_the_graph_does_not_tell(batch, expected):
    model = computed(batch)
    assert shape_of(model, "logits") != expected
    settled = probe.settled(model, None)
    assert (shape_of(settled, "logits"), shape_of(settled, "r")) == (expected, expected)


def test_the_named_tensor_matters_as_much_as_the_outputs():
    model = computed()
    model.graph.node.append(onnx.helper.make_node("Abs", ["r"], ["beside"]))
    assert shape_of(probe.settled(model, None), "beside") == []
    assert shape_of(probe.settled(model, "beside"), "beside") == [1, 4, 8, 12]


@pytest.mark.parametrize(("near", "known"), [(1, False), (2, True)])
def test_only_what_is_near_the_outputs_is_asked_for(monkeypatch, near, known):
    monkeypatch.setattr(probe, "_NEAR", near)
    assert (shape_of(probe.settled(computed(), None), "r") == [1, 4, 8, 12]) is known


@pytest.mark.parametrize(
    "model",
    [
        nchw(),
        nchw(batch="N"),
        computed(size="H,W"),
        net(
            "r = Add (image, a)\n out = Reshape (r, s)",
            "float[1,3,8,12] image, float[1,3,8,12] a, int64[4] s",
            "float[N,C,H,W] out",
        ),
    ],
    ids=["all known", "open batch", "open sides", "several inputs"],
)
def test_what_is_left_as_it_is(model):
    assert probe.settled(model, None) is model


def switch(condition: str) -> onnx.ModelProto:
    """Relu where a condition is true, else Abs."""
    branches = ", ".join(
        f"{name}_branch = {name} () => (float[1,4,8,12] {name}_y) {{ {name}_y = {op} (y) }}"
        for name, op in (("then", "Relu"), ("else", "Abs"))
    )
    return network(
        f"{condition}\n chosen = If (b) <{branches}>\n logits = Identity (chosen)",
        "float[1,4,8,12] logits",
        two=np.array(2),
        height=np.array(8),
        limit=np.float32(0),
    )


HEIGHT = "s = Shape (y)\n h = Gather (s, two)\n"


@pytest.mark.parametrize(
    ("condition", "op"),
    [
        (f"{HEIGHT} b = Equal (h, height)", "Relu"),
        (f"{HEIGHT} b = Less (h, height)", "Abs"),
        ("m = ReduceMax <keepdims = 0> (image)\n b = Greater (m, limit)", "If"),  # the photo decides
    ],
)
def test_the_branch_that_the_size_decides(condition, op):
    model = probe.settled(switch(condition), None)
    assert {node.op_type for node in model.graph.node} & {"If", "Relu", "Abs"} == {op}
    assert shape_of(model, "logits") == [1, 4, 8, 12]
