"""What a made picture shows of an assumed normalisation."""

from __future__ import annotations

import numpy as np
import pytest
from nets import kernel, nchw, net, save

from trtpost.builder.build import build
from trtpost.builder.look import Look
from trtpost.errors import DoubtWarning


@pytest.mark.parametrize(
    ("look", "says"),
    [
        (Look(40.0, 0.5, 1.0), ""),
        (Look(3000.0, 1.0, 0.02), ""),  # an untrained network, and a person in no made picture
        (Look(1.2e9, 0.5, 1.0), "logits reach 1.2e+09"),
        (Look(np.inf, 1.0, 0.0), "NaN or infinities"),
        (Look(12.0, 1.0, 0.001), "one class"),
        (Look(12.0, 0.99, 0.001), ""),
    ],
)
def test_what_looks_wrong(look, says):
    assert says in look.wrong
    assert bool(says) == bool(look.wrong)


@pytest.mark.parametrize("scale", [1, 1e9])
def test_the_warning_is_harder_where_the_logits_are_absurd(tmp_path, scale):
    """An ONNX model has no TensorFlow to be compared with, and is looked at all the same."""
    save(nchw(k=kernel(4) * np.float32(scale)), tmp_path / "net.onnx")
    with pytest.warns(DoubtWarning, match="it looks WRONG: .*; settle" if scale > 1 else "ASSUMED, and a wrong guess"):
        build(tmp_path / "net.onnx", tmp_path / "a.trtpost", flavour="none")


def test_a_network_that_sees_nothing_of_the_picture(tmp_path):
    """One that wants 0..255 and is given -1..1 says nearly the same of every pixel."""
    bias = np.array([0, 5, 0, 0], np.float32)
    weights = kernel(4) / np.float32(1000)
    model = net("y = Conv (image, k, b)", "float[1,3,8,12] image", "float[1,4,8,12] y", k=weights, b=bias)
    save(model, tmp_path / "net.onnx")
    with pytest.warns(DoubtWarning, match="looks WRONG: a made picture of many colours becomes one class"):
        build(tmp_path / "net.onnx", tmp_path / "a.trtpost", flavour="none")


def test_a_normalisation_that_is_given_is_not_doubted(tmp_path, recwarn):
    save(nchw(k=kernel(4) * np.float32(1e9)), tmp_path / "net.onnx")
    build(tmp_path / "net.onnx", tmp_path / "a.trtpost", flavour="none", normalize="unit")
    assert not [one for one in recwarn if "WRONG" in str(one.message)]


@pytest.mark.parametrize("model", ["deeplabv3_257.tflite", "portrait_256.tflite", "selfie_256.tflite"])
def test_networks_of_others_are_not_suspected(converted, tmp_path, model):
    """No false alarm: of a made picture they may find no person and nothing else."""
    from trtpost.backends.onnxruntime import OnnxRuntimeEngine
    from trtpost.builder.look import look_at

    for normalize in ("signed", "unit", "imagenet"):
        bundle = build(converted(model), tmp_path / f"{normalize}.trtpost", flavour="none", normalize=normalize)
        assert look_at(OnnxRuntimeEngine(bundle), bundle.passport).wrong == ""
