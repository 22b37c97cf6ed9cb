"""Pixels become what the network takes, whatever its layout, type, channels and size."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from trtpost.graph.baking.preprocess import pixel_model
from trtpost.spec import Pre

PHOTO = np.random.default_rng(0).integers(0, 256, (1, 4, 6, 3), np.uint8)


def pixels(pre: Pre, photo: np.ndarray = PHOTO, **settings) -> list[np.ndarray]:
    settings = {"layout": "NHWC", "dtype": "float32", "batch": "N", "resize": False, "opset": 17} | settings
    model = pixel_model(pre, **settings)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": photo})


@pytest.mark.parametrize(
    ("pre", "settings", "expected"),
    [
        ({}, {}, PHOTO),
        ({"mean": (1, 2, 3), "std": (2, 2, 4)}, {}, (PHOTO - np.array([1.0, 2, 3])) / [2, 2, 4]),
        ({"channels": "bgr"}, {}, PHOTO[..., ::-1]),
        ({}, {"layout": "NCHW"}, PHOTO.transpose(0, 3, 1, 2)),
        ({}, {"dtype": "uint8"}, PHOTO),
        ({"mean": (127.5,), "std": (127.5,)}, {"dtype": "float16"}, (PHOTO / 127.5 - 1).astype(np.float16)),
    ],
    ids=["as they are", "normalised", "bgr", "channels first", "uint8", "float16"],
)
def test_values(pre, settings, expected):
    (found,) = pixels(Pre(4, 6, **pre), **settings)
    assert found.dtype == np.dtype(settings.get("dtype", "float32"))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_an_image_of_any_size_is_resized_to_whole_levels():
    photo = np.random.default_rng(0).integers(0, 256, (2, 9, 5, 3), np.uint8)
    found, size = pixels(Pre(4, 6), photo, resize=True)
    assert found.shape == (2, 4, 6, 3)
    assert size.tolist() == [9, 5]
    np.testing.assert_array_equal(found, np.round(found))
