"""Pixels become what the network takes, whatever its layout, type, channels and size."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

from trtpost.graph.baking.preprocess import pixel_model
from trtpost.kernels.reference import bilinear
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


def expected(photos: np.ndarray, pre: Pre) -> np.ndarray:
    return np.stack([np.rint(bilinear(photo, (pre.height, pre.width))) for photo in photos])


LARGE = [(1, 1080, 1920, 3), (1, 720, 1280, 3), (1, 2160, 3840, 3), (1, 3024, 4032, 1)]
SMALL = [(2, 9, 5, 3), (3, 47, 65, 1), (2, 48, 64, 3), (1, 1, 1, 3), (1, 1, 300, 1), (1, 300, 1, 3)]


@pytest.mark.parametrize("network", [(48, 64), (65, 33), (1, 1), (257, 131)])
@pytest.mark.parametrize("shape", LARGE + SMALL)
def test_a_photo_of_any_size_is_resized_to_the_levels_of_tensorflow(shape, network):
    photos = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    pre = Pre(*network, channels="rgb" if shape[3] == 3 else "gray")
    found, size = pixels(pre, photos, resize=True)
    assert size.tolist() == list(shape[1:3])
    np.testing.assert_array_equal(found, expected(photos, pre))


@pytest.mark.parametrize("shape", SMALL)
def test_onnx_itself_finds_the_same_levels(shape):
    photos = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    pre = Pre(13, 31, channels="rgb" if shape[3] == 3 else "gray")
    model = pixel_model(pre, layout="NHWC", dtype="float32", batch="N", resize=True, opset=17)
    found, _ = onnx.reference.ReferenceEvaluator(model).run(None, {"image": photos})
    np.testing.assert_array_equal(found, expected(photos, pre))


def test_a_large_photo_is_never_held_as_floats():
    model = pixel_model(Pre(48, 64), layout="NHWC", dtype="float32", batch="N", resize=True, opset=17)
    assert {node.op_type for node in model.graph.node if "image" in node.input} == {"Shape", "Gather"}
