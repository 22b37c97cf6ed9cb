"""The network of a baked graph: its names, its input at the size of the spec, and logits in the shape they mean."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from nets import kernel, nchw, net, nhwc

from trtpost.graph.baking.cut_at_logits import network_of
from trtpost.graph.head.locate import locate
from trtpost.graph.proto import graphs_inside
from trtpost.spec import Pre

IMAGE = "float[1,3,8,12] image"


def cut(model: onnx.ModelProto, size: tuple[int, int] = (8, 12)) -> onnx.ModelProto:
    network = network_of(model, locate(model), Pre(*size))
    onnx.checker.check_model(network, full_check=True)
    return network


def shape(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]


LABELS = net(
    "x = Conv (image, k)\n ids = ArgMax <axis = 1> (x)\n labels = Cast <to = 6> (ids)",
    IMAGE,
    "int32[1,1,8,12] labels",
    k=kernel(4),
)


def test_every_name_has_the_prefix():
    names = {name for node in cut(nhwc()).graph.node for name in (node.name, *node.input, *node.output)}
    assert {name for name in names if not name.startswith("network/")} <= {""}


@pytest.mark.parametrize(
    ("model", "size", "source", "logits"),
    [
        (nchw(), (8, 12), [1, 3, 8, 12], [1, 4, 8, 12]),
        (nchw(size="H,W", batch="N"), (16, 20), ["N", 3, 16, 20], ["N", 4, 16, 20]),
        (nhwc(), (8, 12), [1, 8, 12, 3], [1, 4, 8, 12]),
        (LABELS, (8, 12), [1, 3, 8, 12], [1, 8, 12]),
    ],
    ids=["fixed", "dynamic", "channels last", "labels"],
)
def test_shapes(model, size, source, logits):
    graph = cut(model, size).graph
    assert (shape(graph.input[0]), shape(graph.output[0])) == (source, logits)


def test_pixels_that_are_cast_at_once_come_as_float32():
    model = net(
        "x = Cast <to = 1> (image)\n logits = Conv (x, k)",
        "uint8[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
    )
    assert cut(model).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_weights_of_a_subgraph_are_not_repeated_in_it():
    model = net(
        """x = Conv (image, k)
           y = Add (x, bias)
           logits = If (on) <then_branch = one () => (float[1,4,8,12] p) { p = Add (y, bias) },
                             else_branch = two () => (float[1,4,8,12] q) { q = Mul (y, bias) }>""",
        f"{IMAGE}, bool on",
        "float[1,4,8,12] logits",
        k=kernel(4),
        bias=np.float32(3),
    )
    model.graph.input.pop()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "on"))
    network = cut(model)
    onnxruntime.InferenceSession(network.SerializeToString())
    inner = list(graphs_inside(network.graph.node))
    assert len(inner) == 2
    assert not any(graph.initializer for graph in inner)
