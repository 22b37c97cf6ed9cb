"""A baked graph is taken apart at our node, and an unbaked one is not."""

from __future__ import annotations

import onnx
import pytest
from nets import nchw

from trtpost.errors import ModelError
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.seam import checked, inlined, is_inlined, seam, split
from trtpost.graph.head.locate import locate
from trtpost.spec import Post, Pre


def baked(**post) -> onnx.ModelProto:
    return bake(nchw(), locate(nchw()), Pre(8, 12), Post(classes=4, **post))


def test_the_node_carries_the_spec_for_kernels():
    values = {one.name: onnx.helper.get_attribute_value(one) for one in seam(baked(resize="bilinear")).attribute}
    assert values == {"head": b"argmax", "layout": b"NCHW", "resize": b"bilinear", "match": b"tf", "threshold": 0.5}


@pytest.mark.parametrize(
    ("post", "sizes"),
    [({}, ["output_size"]), ({"match": "pil"}, ["rows", "cols"]), ({"size": (9, 7)}, [])],
)
def test_sizes_that_are_open_stay_inputs_of_the_tail(post, sizes):
    network, tail = split(baked(**post))
    logits = network.graph.output[0].name
    assert [one.name for one in network.graph.input] == ["image"]
    assert [one.name for one in tail.graph.input] == [logits, *sizes]
    assert [one.name for one in tail.graph.output] == ["mask"]


def test_inlined_graphs_have_no_seam():
    model = inlined(baked())
    assert (is_inlined(baked()), is_inlined(model)) == (False, True)
    for graph in (model, nchw()):
        with pytest.raises(ModelError, match="it was not baked, or its functions were inlined"):
            split(graph)


def test_names_in_a_refusal_are_those_of_the_source_model():
    model = baked()
    next(node for node in model.graph.node if node.op_type == "Conv").input[0] = "network/nothing"
    with pytest.raises(ModelError, match=r"the baked graph is not valid: .*'nothing'"):
        checked(model)
