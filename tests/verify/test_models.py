"""The real models in their own frameworks against bundles of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import package

from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle
from trtpost.verify.run import verify

OURS = Path(__file__).parents[2] / "models" / "scenes.keras"


@pytest.fixture(scope="module")
def photos(shared, tmp_path_factory):
    """A folder with the smaller photos."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("cat_1080p.jpg", "bird.bmp", "riders_257.jpg", "portrait.bmp"):
        (folder / name).symlink_to(shared / "photos" / name)
    return folder


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("model", ["deeplabv3_257.tflite", "portrait_256.tflite", "selfie_256.tflite"])
def test_tflite_models_agree_on_every_pixel_but_ties(shared, built, photos, model, resize):
    package("tensorflow")
    report = verify(built(model, resize=resize, flavour="none"), shared / "models" / model, photos)
    assert report.total.real == 0
    assert report.passed
    assert report.minimum == 1
    assert report.total.ties < 0.001 * report.total.pixels
    assert report.blame is None
    assert "interpreter" in report.framework


@pytest.mark.parametrize("model", ["saved_model", "keras"])
def test_tensorflow_models_agree_on_every_pixel_but_ties(shared, photos, tmp_path, model):
    package("tensorflow")
    source = OURS if model == "keras" else shared / "models" / "deeplabv3_257_saved_model"
    bundle = build(source, tmp_path / "bundle.trtpost", flavour="none")
    report = verify(bundle, source, photos)
    assert report.total.real == 0
    assert report.framework.startswith("TensorFlow 2")
    score = load_bundle(bundle.path).passport.verification
    assert (score.agreement, score.real, score.photos) == (report.total.agreement, 0, 4)


@pytest.mark.parametrize(("precision", "least"), [("fp16", 0.999), ("int8", 0.95)])
def test_lower_precisions_differ_in_the_network(shared, built, photos, precision, least):
    package("tensorflow")
    bundle = built("deeplabv3_257.tflite", precision=precision, calibration=photos, flavour="none")
    report = verify(bundle, shared / "models" / "deeplabv3_257.tflite", photos)
    assert least < report.total.agreement_apart_from_ties < 1
    assert report.total.overlap.mean_iou > least - 0.02
    assert report.passed
    assert report.minimum < 1
    assert report.blame.begins == "network"
    assert f"in {precision}" in report.blame.verdict


def test_a_quantised_model_agrees_but_for_a_step(shared, built, photos):
    """Its interpreter computes in integers, whose roundings ONNX does not have: 0.03 % apart from ties."""
    package("tensorflow")
    report = verify(
        built("deeplabv3_513_uint8.tflite", flavour="none"), shared / "models" / "deeplabv3_513_uint8.tflite", photos
    )
    assert report.passed
    assert report.minimum == 0.999
    assert 0.9995 < report.total.agreement_apart_from_ties < 1
    assert report.total.tied > 5 * report.total.real
    assert report.blame.begins == "network"


def test_a_wrong_normalisation_is_found_and_named(shared, built, photos):
    package("tensorflow")
    bundle = built("deeplabv3_257.tflite", normalize="imagenet", channels="bgr", flavour="none")
    report = verify(bundle, shared / "models" / "deeplabv3_257.tflite", photos)
    assert not report.passed
    assert report.blame.begins == "preprocessing"
    assert "channels are swapped, bgr" in report.verdict
    assert "'imagenet' where the reference has 'signed'" in report.verdict
    assert [stage.differs for stage in report.blame.stages] == [True, False, False]


def test_the_passport_is_readable_json_that_loads_again(built, shared, photos):
    package("tensorflow")
    bundle = built("selfie_256.tflite", flavour="none")
    verify(bundle, shared / "models" / "selfie_256.tflite", photos)
    card = json.loads((bundle.path / "passport.json").read_text())
    assert card["verification"]["against"] == "selfie_256.tflite"
    assert load_bundle(bundle.path).passport.verification.real == 0
