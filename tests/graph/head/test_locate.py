"""The logits are found where people's exporters leave them."""

from __future__ import annotations

import numpy as np
import pytest
from nets import kernel, nchw, net, nhwc, rescaled

from trtpost.errors import ModelError
from trtpost.graph.head.locate import locate


def test_nchw_logits():
    found = locate(nchw(4))
    assert (found.input, found.input_layout, found.input_size, found.batch) == ("image", "NCHW", (8, 12), 1)
    assert (found.logits, found.layout, found.head, found.classes) == ("logits", "NCHW", "argmax", 4)


def test_a_trailing_transpose_is_skipped():
    found = locate(nhwc(4))
    assert (found.input_layout, found.logits, found.layout) == ("NHWC", "y", "NCHW")
    assert found.dropped == ("Transpose",)


@pytest.mark.parametrize("op", ["Softmax <axis = 3> (logits)", "Softmax <axis = -1> (logits)", "Sigmoid (logits)"])
def test_what_argmax_makes_needless_is_dropped(op):
    found = locate(nhwc(4, f"out = {op}"))
    assert found.logits == "y"
    assert found.dropped == (op.split()[0], "Transpose")


def test_a_model_without_an_image_is_refused():
    model = net("out = Relu (x)", "float[1,100] x", "float[1,100] out")
    with pytest.raises(ModelError, match="no image input"):
        locate(model)


def test_normalisation_inside_the_network_is_seen():
    assert locate(rescaled()).expects == "pixels"
    assert locate(nchw()).expects == ""


@pytest.mark.parametrize(
    ("chain", "expects"),
    [
        ([("Div", 255)], "pixels"),
        ([("Div", 127.5), ("Sub", 1)], "pixels"),
        ([("Sub", [123.7, 116.3, 103.5]), ("Div", [58.4, 57.1, 57.4])], "pixels"),
        ([("Sub", [103.9, 116.8, 123.7])], "pixels"),  # Caffe's means, no deviation
        ([("Sub", [0.485, 0.456, 0.406]), ("Div", [0.229, 0.224, 0.225])], "unit"),
        ([("Mul", 2), ("Sub", 1)], "unit"),
    ],
)
def test_what_range_the_networks_own_normalisation_is_made_for(chain, expects):
    body, current, weights = "", "image", {}
    for step, (op, values) in enumerate(chain):
        weights[f"c{step}"] = np.array(values, np.float32).reshape(-1, 1, 1)
        body += f"x{step} = {op} ({current}, c{step})\n"
        current = f"x{step}"
    weights["k"] = kernel(4)
    model = net(f"{body} logits = Conv ({current}, k)", "float[1,3,8,12] image", "float[1,4,8,12] logits", **weights)
    assert locate(model).expects == expects
