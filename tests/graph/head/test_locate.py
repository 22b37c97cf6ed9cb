"""The logits are found where people's exporters leave them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from nets import kernel, nchw, net, nhwc, rescaled

from trtpost.errors import ModelError
from trtpost.graph.head.locate import input_of, locate


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


def ends_in(body: str, out: str, *, classes: int = 4, batch: str = "1", **weights: np.ndarray) -> onnx.ModelProto:
    weights["k"] = kernel(classes)
    return net(f"y = Conv (image, k)\n{body}", f"float[{batch},3,8,12] image", out, **weights)


ARGMAX = "i = ArgMax <axis = 1, keepdims = 0> (y)\n"


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        ("out = Identity (y)", "float[1,4,8,12] out", ((1, 4, 8, 12), "argmax", 4, False)),
        (
            "t = Transpose <perm = [0, 2, 3, 1]> (y)\n out = Reshape (t, shape)",
            "float[96,4] out",
            ((1, 4, 8, 12), "argmax", 4, False),
        ),
        (
            "f = Reshape (y, flat)\n out = Tanh (f)",
            "float[1,4,96] out",
            ((1, 4, 8, 12), "argmax", 4, True),
        ),
        (f"{ARGMAX} out = Identity (i)", "int64[1,8,12] out", ((1, 8, 12), "labels", 4, False)),
        (f"{ARGMAX} out = Reshape (i, column)", "int64[8,12,1] out", ((1, 8, 12), "labels", 4, True)),
        (f"{ARGMAX} out = Squeeze (i)", "int64[8,12] out", ((1, 8, 12), "labels", 4, False)),
    ],
)
def test_what_the_end_means(body, out, expected):
    found = locate(ends_in(body, out, shape=np.array([96, 4]), flat=np.array([1, 4, 96]), column=np.array([8, 12, 1])))
    assert (found.shape, found.head, found.classes, found.is_flat) == expected


@pytest.mark.parametrize(("batch", "expected"), [("1", 1), ("2", 2), ("N", 0)])
def test_photos_at_once(batch, expected):
    assert locate(nchw(batch=batch)).batch == expected


@pytest.mark.parametrize(
    ("body", "out", "batch", "expected"),
    [
        ("out = Gather (i, zero)", "int64[8,12] out", "N", ((8, 12), 1)),  # a mask of one photo
        ("out = Gather <axis = 2> (i, zeros)", "int64[N,8,1] out", "N", (("N", 8, 1), 0)),  # one column of each
    ],
)
def test_labels_of_a_dynamic_batch(body, out, batch, expected):
    model = ends_in(ARGMAX + body, out, batch=batch, zero=np.array(0), zeros=np.array([0]))
    found = locate(model, logits="out")
    assert (found.shape, found.batch) == expected


def test_labels_of_one_column_are_of_one_photo():
    model = ends_in(
        f"{ARGMAX} out = Reshape (i, column)", "int64[16,12,1] out", batch="2", column=np.array([16, 12, 1])
    )
    with pytest.raises(ModelError, match="has 16 entries, but the input holds 2 photos"):
        locate(model, logits="out")


@pytest.mark.parametrize(
    ("classes", "asked", "expected"),
    [
        (4, {}, ("argmax", 4, None, None)),
        (4, {"head": "multilabel"}, ("argmax", 5, 0.5, (0, 1))),
        (4, {"head": "multilabel", "threshold": 0.3}, ("argmax", 5, 0.3, (0, 1))),
        (1, {}, ("threshold", 2, None, (0, 1))),
        (1, {"head": "multilabel"}, ("threshold", 2, None, (0, 1))),
    ],
)
def test_scores_that_exceed_a_threshold(classes, asked, expected):
    found = locate(ends_in("out = Sigmoid (y)", f"float[1,{classes},8,12] out", classes=classes), **asked)
    assert (found.head, found.classes, found.background, found.limits) == expected


@pytest.mark.parametrize(
    ("classes", "asked", "message"),
    [
        (1, {"head": "argmax"}, "has one channel, and the ArgMax of one is 0 everywhere"),
        (4, {"head": "threshold"}, "a threshold needs one channel, but .* has 4 in layout NCHW"),
        (4, {"head": "labels"}, "cannot be labels: they have a row and a column axis, and no classes"),
    ],
)
def test_a_head_that_does_not_fit(classes, asked, message):
    with pytest.raises(ModelError, match=message):
        locate(nchw(classes), **asked)


def test_a_named_tensor_is_taken_as_it_is():
    model = ends_in("p = Softmax <axis = 1> (y)\n out = Relu (p)", "float[1,4,8,12] out")
    found = locate(model, logits="p")
    assert (found.output, found.logits, found.dropped, found.others) == ("p", "p", (), ("out",))


@pytest.mark.parametrize(
    ("asked", "inside", "doubts"),
    [({}, True, 0), ({"before_argmax": True}, False, 1), ({"head": "multilabel"}, False, 1)],
)
def test_values_that_float32_does_not_tell_apart(asked, inside, doubts):
    found = locate(
        ends_in("d = Cast <to = 11> (y)\n out = Mul (d, two)", "double[1,4,8,12] out", two=np.array(2.0)), **asked
    )
    assert (found.dtype, found.is_compared_inside) == ("float64", inside)
    assert len([one for one in found.doubts if "compared in float32" in one]) == doubts


def test_input_of_the_tensor_that_is_named():
    model = net(
        "a = Conv (image, k)\n b = Add (a, extra)",
        "float[1,3,8,12] image, float[1,4,8,12] extra",
        "float[1,4,8,12] a, float[1,4,8,12] b",
        k=kernel(4),
    )
    assert input_of(model, "a") == ("image", "NCHW")
    with pytest.raises(ModelError, match="the model has 2 inputs"):
        input_of(model)


def test_a_second_input_that_is_no_image():
    body = "y = Conv (image, k)\n out = Add (y, extra)"
    model = net(body, "float[1,3,8,12] image, float[4,1,1] extra", "float[1,4,8,12] out", k=kernel(4))
    with pytest.raises(ModelError, match="the model has 2 inputs"):
        locate(model)


@pytest.mark.parametrize(("asked", "doubts"), [({}, 1), ({"head": "argmax"}, 0), ({"logits": "out"}, 1)])
def test_classes_that_may_be_colours(asked, doubts):
    model = ends_in("out = Add (y, image)", "float[1,3,8,12] out", classes=3)
    assert ["looks like a picture" in one for one in locate(model, **asked).doubts] == [True] * doubts


@pytest.mark.parametrize(("asked", "doubts"), [({}, 1), ({"head": "argmax"}, 1), ({"logits": "y"}, 0)])
def test_the_finest_of_several_resolutions(asked, doubts):
    pool = "AveragePool <kernel_shape = [{0}, {0}], strides = [{0}, {0}]> (y)"
    model = ends_in(
        f"half = {pool.format(2)}\n quarter = {pool.format(4)}",
        "float[1,4,8,12] y, float[1,4,4,6] half, float[1,4,2,3] quarter",
    )
    assert ["the finest of 3 outputs" in one for one in locate(model, **asked).doubts] == [True] * doubts
