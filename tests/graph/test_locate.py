"""The logits are found where people's exporters leave them."""

from __future__ import annotations

import numpy as np
import pytest
from nets import kernel, nchw, net, nhwc, rescaled

from trtpost.errors import ModelError
from trtpost.graph.locate import locate


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


def test_softmax_over_the_wrong_axis_is_kept():
    found = locate(nhwc(4, "out = Softmax <axis = 2> (logits)"))
    assert (found.logits, found.layout, found.head) == ("out", "NHWC", "argmax")


@pytest.mark.parametrize(("shape", "layout"), [("float[1,3,12,12] out", "NCHW"), ("float[1,12,12,12] out", "NCHW")])
def test_the_graph_decides_the_layout_where_the_shape_cannot(shape, layout):
    """Three classes, or as many classes as rows: shapes are ambiguous, convolutions are not."""
    classes = int(shape.split(",")[1])
    model = net("out = Conv (image, k)", "float[1,3,12,12] image", shape, k=kernel(classes))
    assert locate(model).layout == layout
    assert locate(model).classes == classes


def test_layout_that_cannot_be_told_is_asked_for():
    model = net(
        "s = Constant <value_ints = [1, 12, 12, 12]> ()\n out = Reshape (image, s)",
        "float[1,3,24,24] image",
        "float[1,12,12,12] out",
    )
    with pytest.raises(ModelError, match="--layout NHWC or --layout NCHW"):
        locate(model)
    assert locate(model, layout="NHWC").layout == "NHWC"


def test_one_channel_is_thresholded():
    probability = nhwc(1, "out = Sigmoid (logits)")
    logit = nhwc(1)
    assert (locate(probability).head, locate(probability).probability) == ("threshold", True)
    assert (locate(logit).head, locate(logit).probability) == ("threshold", False)
    assert locate(probability).logits == "out", "the probability is what people threshold"


@pytest.mark.parametrize(
    ("tail", "out"),
    [
        ("out = ArgMax <axis = 3, keepdims = 0> (logits)", "int64[1,8,12] out"),
        ("out = ArgMax <axis = 3, keepdims = 1> (logits)", "int64[1,8,12,1] out"),
        ("a = ArgMax <axis = 3, keepdims = 0> (logits)\n out = Cast <to = 1> (a)", "float[1,8,12] out"),
        ("a = ArgMax <axis = 3, keepdims = 0> (logits)\n out = Cast <to = 2> (a)", "uint8[1,8,12] out"),
    ],
)
def test_labels_are_used_as_they_are(tail, out):
    found = locate(nhwc(4, tail, out))
    assert (found.head, found.classes) == ("labels", 4)


def test_the_logits_before_a_final_argmax_can_be_had():
    model = nhwc(4, "out = ArgMax <axis = 3, keepdims = 0> (logits)", "int64[1,8,12] out")
    found = locate(model, before_argmax=True)
    assert (found.head, found.logits, found.dropped) == ("argmax", "y", ("ArgMax", "Transpose"))


def two_heads(names: str, first: int = 4, second: int = 4) -> object:
    one, two = names.split()
    return net(
        f"{one} = Conv (image, a)\n {two} = Conv (image, b)",
        "float[1,3,8,12] image",
        f"float[1,{first},8,12] {one}, float[1,{second},8,12] {two}",
        a=kernel(first),
        b=kernel(second, seed=1),
    )


def test_an_auxiliary_head_is_not_taken():
    assert locate(two_heads("logits aux_logits")).logits == "logits"


def test_two_equal_heads_are_listed():
    with pytest.raises(ModelError, match=r"'left' float32 .* 'right' float32 .*--logits"):
        locate(two_heads("left right", 4, 5))
    assert locate(two_heads("left right", 4, 5), logits="right").classes == 5


def test_logits_and_their_argmax_are_one_head():
    model = net(
        "logits = Conv (image, k)\n labels = ArgMax <axis = 1, keepdims = 0> (logits)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits, int64[1,8,12] labels",
        k=kernel(4),
    )
    assert locate(model).logits == "logits"


def test_a_wrong_name_suggests_the_right_one():
    with pytest.raises(ModelError, match=r"no tensor 'logit'.*did you mean 'logits'"):
        locate(nchw(), logits="logit")


def test_a_classifier_is_refused():
    model = net("p = GlobalAveragePool (image)\n out = Flatten (p)", "float[1,3,8,12] image", "float[1,3] out")
    with pytest.raises(ModelError, match="no output looks like a segmentation head"):
        locate(model)


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


def test_labels_that_were_moved_after_argmax_stay_labels():
    """A crop or a transpose after ArgMax is part of the mask: the logits before it are of another picture."""
    for tail, out in [
        ("i = Constant <value_ints = [0, 2, 4]> ()\n out = Gather <axis = 1> (a, i)", "int64[1,3,12] out"),
        ("out = Transpose <perm = [0, 2, 1]> (a)", "int64[1,12,8] out"),
    ]:
        model = nhwc(4, f"a = ArgMax <axis = 3, keepdims = 0> (logits)\n {tail}", out)
        assert locate(model, before_argmax=True).head == "labels"


def test_integer_logits_are_not_labels():
    model = nhwc(4, "out = Cast <to = 2> (logits)", "uint8[1,8,12,4] out")
    assert locate(model).head == "argmax"
    with pytest.raises(ModelError, match="cannot be labels"):
        locate(model, head="labels")


def test_other_outputs_are_remembered():
    assert locate(two_heads("logits aux_logits")).others == ("aux_logits",)
