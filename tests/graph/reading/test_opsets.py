"""What onnx's converter gets wrong of old operator sets keeps its meaning and the names of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import pytest

from trtpost.errors import ModelError
from trtpost.graph.reading.opsets import raised


def old(
    body: str, opset: int, source: str = "float[1,1,2,2] x", result: str = "float[N,C,H,W] y", **weights: list[Any]
) -> onnx.ModelProto:
    arrays = {name: np.array(values, np.float32) for name, values in weights.items()}
    given = "".join(f", float{list(value.shape)} {name}" for name, value in arrays.items())  # IR version 3 wants them
    model = onnx.parser.parse_model(
        f'<ir_version: 3, opset_import: ["" : {opset}]> net ({source}{given}) => ({result}) {{ {body} }}'
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in arrays.items())
    return model


def computed(model: onnx.ModelProto, opset: int, x: np.ndarray) -> np.ndarray:
    (result,) = onnx.reference.ReferenceEvaluator(raised(model, opset, 13)).run(None, {"x": x.astype(np.float32)})
    return np.asarray(result)


PIXELS = np.array([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("body", "opset", "scales", "source", "expected"),
    [
        ('y = Upsample <mode = "nearest"> (x, s)', 9, [1, 1, 1, 2], PIXELS, [[1, 1, 2, 2], [3, 3, 4, 4]]),
        ('y = Resize <mode = "nearest"> (x, s)', 10, [1, 1, 1, 2], PIXELS, [[1, 1, 2, 2], [3, 3, 4, 4]]),
        ('y = Resize <mode = "linear"> (x, s)', 10, [1, 1, 1, 2], PIXELS, [[1, 1.5, 2, 2], [3, 3.5, 4, 4]]),
        # made smaller, nearest rounds up: 0, 1.67 and 3.33 become 0, 2 and 4
        ('y = Resize <mode = "nearest"> (x, s)', 10, [1, 1, 1, 0.6], np.arange(5)[None], [[0, 2, 4]]),
    ],
    ids=["upsample", "nearest", "linear", "smaller"],
)
def test_resizes_without_centres(body, opset, scales, source, expected):
    height, width = source.shape
    model = old(body, opset, f"float[1,1,{height},{width}] x", s=scales)
    np.testing.assert_allclose(computed(model, opset, source[None, None])[0, 0], expected)
    assert raised(model, opset, 13).graph.node[-1].output[0] == "y"


def test_a_resize_to_both_sides_is_refused():
    with pytest.raises(ModelError, match="Resize 'y' makes one axis smaller and another larger"):
        raised(old('y = Resize <mode = "nearest"> (x, s)', 10, s=[1, 1, 0.5, 2]), 10, 13)


def test_hardmax_works_on_the_flattened_tensor():
    model = old("y = Hardmax <axis = 1> (x)", 11)
    np.testing.assert_array_equal(computed(model, 11, PIXELS[None, None])[0, 0], [[0, 0], [0, 1]])


def test_batch_normalisation_of_every_pixel():
    names = "(x, scale, bias, mean, variance)"
    ones = [[[1, 1], [1, 1]]]
    weights = {"scale": [[[1, 1], [2, 2]]], "bias": [[[0, 0], [0, 1]]], "mean": [[[1, 0], [0, 0]]], "variance": ones}
    body = f"y = BatchNormalization <spatial = 0, epsilon = 0.0> {names}"
    model = old(body, 7, **weights)
    np.testing.assert_allclose(computed(model, 7, PIXELS[None, None]).ravel(), [0, 2, 6, 9])
    del model.graph.initializer[2]
    with pytest.raises(ModelError, match="'mean', an input of BatchNormalization with spatial = 0, is not a constant"):
        raised(model, 7, 13)
