"""What is quantised inside, and by how much TensorFlow Lite's own kernels differ."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import package
from nets import kernel, nchw, net
from PIL import Image

from trtpost.builder.build import build
from trtpost.cli.tables import verify_tables
from trtpost.verify.compare import Figures, Overlap
from trtpost.verify.html_report import Gallery, write_page
from trtpost.verify.kernel_sets import Spread, computes_in_integers
from trtpost.verify.report import report_to_json
from trtpost.verify.run import Replaced, _minimum, verify

WEIGHTS = {"k": kernel(4), "s": np.float32(0.02), "z": np.uint8(128)}


@pytest.mark.parametrize(
    ("body", "kind", "integers"),
    [
        ("q = QuantizeLinear (image, s, z)\n d = DequantizeLinear (q, s, z)\n logits = Conv (d, k)", "onnx", True),
        (
            "q = QuantizeLinear (image, s, z)\n m = MaxPool <kernel_shape = [1,1]> (q)\n"
            "d = DequantizeLinear (m, s, z)\n logits = Conv (d, k)",
            "onnx",
            True,
        ),
        ("y = Conv (image, k)\n logits = QuantizeLinear (y, s, z)", "onnx", False),
        ("d = DequantizeLinear (w, s, z)\n logits = Conv (image, d)", "onnx", False),
        ("d = DequantizeLinear (w, s, z)\n logits = Conv (image, d)", "tflite", True),
        ("logits = Conv (image, k)", "tflite", False),
    ],
)
def test_integers_inside_are_found(body, kind, integers):
    typed = "uint8" if "logits = Quantize" in body else "float"
    weights = WEIGHTS | {"w": np.full((4, 3, 1, 1), 130, np.uint8)}
    model = net(body, "float[1,3,8,12] image", f"{typed}[1,4,8,12] logits", **weights)
    assert computes_in_integers(model, kind) == integers


def test_the_kernels_own_spread_lowers_what_is_asked_for():
    counts = np.array([10, 0])
    figures = Figures(1000, 40, 3, 5, Overlap(counts, counts))
    spread = Spread("default", (("reference", figures), ("XNNPACK", replace(figures, different=3))))
    assert spread.least == 1 - 37 / 1000
    assert "reference gives another class to 4.0000% of the pixels, 3.7000% apart from ties" in spread.text
    passport = type("Passport", (), {"precision": "fp32"})
    assert _minimum(None, passport, True, spread)[0] == spread.least
    assert _minimum(None, passport, True, None)[0] == 0.999
    assert _minimum(None, passport, False, None)[0] == 1
    assert _minimum(0.5, passport, True, spread)[0] == 0.5
    assert not computes_in_integers(nchw(), "tflite")


@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs were expected")
def test_a_quantised_tflite_model_is_judged_by_its_kernels(tmp_path):
    """Of edges of floats: it need not be equal, and its network is not blamed for what the kernels do as well."""
    tf, keras = package("tensorflow"), package("keras")
    package("jinja2")
    keras.utils.set_random_seed(0)
    photo = keras.Input((24, 32, 3))
    x = keras.layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(photo)
    x = keras.layers.UpSampling2D(2, interpolation="bilinear")(x)
    converter = tf.lite.TFLiteConverter.from_keras_model(keras.Model(photo, keras.layers.Conv2D(4, 1)(x)))
    rng = np.random.default_rng(0)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([rng.uniform(-1, 1, (1, 24, 32, 3)).astype("f4")] for _ in range(8))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    (tmp_path / "photos").mkdir()
    for seed in range(3):
        noise = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"photos/{seed}.png")
    bundle = build(tmp_path / "net.tflite", tmp_path / "b.trtpost", flavour="none", normalize="signed")
    gallery = Gallery(bundle.passport.classes)
    report = verify(
        bundle, tmp_path / "net.tflite", tmp_path / "photos", replaced=Replaced("signed"), show=gallery.show
    )
    assert report.minimum <= 0.999
    assert report.passed
    assert report.blame is None or report.blame.begins is None
    assert report.spread.base == "XNNPACK"
    assert [name for name, _ in report.spread.others] == ["default", "reference"]
    found = json.loads(report_to_json(report))["kernels"]
    assert found["reference_on"] == "XNNPACK"
    assert found["others"][1]["agreement"] == report.spread.others[1][1].agreement
    write_page(report, gallery, tmp_path / "report.html")
    assert "gives another class to" in (tmp_path / "report.html").read_text()
    assert any("kernels: against TensorFlow Lite" in str(line) for line in verify_tables(report).renderables)
    wrong = build(tmp_path / "net.tflite", tmp_path / "b.trtpost", flavour="none", normalize="unit")
    report = verify(wrong, tmp_path / "net.tflite", tmp_path / "photos", replaced=Replaced("signed"))
    assert not report.passed
    assert report.blame.begins == "preprocessing"
