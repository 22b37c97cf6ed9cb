"""Networks that were exported while they were trained are refused; those that only look like it are not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from trtpost.errors import ModelError
from trtpost.graph.reading.training import check_trained

MOMENTS = """mean = ReduceMean <axes = [0, 2, 3]> (x)
             centred = Sub (x, mean)
             square = Mul (centred, centred)
             y = ReduceMean <axes = [0, 2, 3]> (square)"""


def parsed(body: str, batch: str = "N") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> net (float[{batch},4,8,12] x) => (float[N,4,8,12] y)
            <float[4] k = {{1, 1, 1, 1}}, float half = {{0.5}}, bool on = {{1}}, bool off = {{0}}> {{ {body} }}"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 2, 3]), "axes"))
    return model


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("y, a, b = BatchNormalization <training_mode = 1> (x, k, k, k, k)", r"'y' \(BatchNormalization\) is in train"),
        ("y, mask = Dropout (x, half, on)", r"'y' \(Dropout\) draws random numbers"),
        ("r = RandomNormalLike (x)\n y = Add (x, r)", r"'r' \(RandomNormalLike\) draws random numbers"),
        (MOMENTS, "'mean' takes mean and variance over the photos"),
        (MOMENTS.replace("ReduceMean <axes = [0, 2, 3]> (square)", "ReduceSum (square, axes)"), "'mean' takes mean"),
    ],
)
def test_refused(body, says):
    with pytest.raises(ModelError, match=f"net: node {says}.*for inference"):
        check_trained(parsed(body), "net")


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        ("y = BatchNormalization (x, k, k, k, k)", "N"),
        ("y, mask = Dropout (x, half, off)", "N"),
        ("y = Dropout (x)", "N"),
        (MOMENTS, "1"),
        (MOMENTS.replace("[0, 2, 3]", "[1, 2, 3]"), "N"),
    ],
    ids=["statistics it has learnt", "switched off", "no switch", "batch of one", "each photo's own"],
)
def test_taken(body, batch):
    check_trained(parsed(body, batch), "net")
