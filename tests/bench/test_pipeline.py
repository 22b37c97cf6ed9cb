"""`bench pipeline`: every system runs the same network on the same file, and their masks agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import package
from nets import kernel, nchw, net, nhwc, save
from PIL import Image
from typer.testing import CliRunner

from trtpost.bench.picture import drawn, sides_of
from trtpost.bench.pipeline import bench_pipeline, bundle_of, parse_megapixels
from trtpost.bench.systems import FIELD, OPENCV, OURS
from trtpost.bench.tables import pipeline_grids
from trtpost.builder.build import build
from trtpost.cli.app import app
from trtpost.errors import ImageError, SpecError

SCENES = Path(__file__).parents[2] / "models" / "scenes.keras"
FAST = f"{OURS}, --fast-decode"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    package("tensorflow")
    return build(SCENES, tmp_path_factory.mktemp("scenes") / "scenes.trtpost", flavour="none")


def test_every_system_gives_the_mask_of_ours(scenes):
    for name in ("cv2", "torch"):
        package(name)
    example = SCENES.with_name("example.jpg")
    report = bench_pipeline(scenes, SCENES, image=example, megapixels=(), rounds=3)
    (sheet,) = report.sheets
    with Image.open(example) as image:
        assert sheet.size == image.size[::-1]
    ran = {row.name: row for row in sheet.rows if row.timing is not None}
    assert {FIELD, OPENCV, OURS, FAST} <= set(ran)
    assert len(ran) >= 6
    for row in ran.values():
        assert row.agreement is not None
        # OpenCV and PyTorch have nearest conventions of their own, which shift the mask by half a logit pixel
        assert row.agreement > (0.99 if "TensorFlow" in row.name else 0.96), row
        assert min(row.timing.decode, row.timing.preprocess, row.timing.network, row.timing.encode) > 0
        assert 0 < row.aside < row.timing.total
    assert ran[OURS].agreement == 1.0
    packed = ran[f"{OURS}, --mask packed"]
    assert packed.agreement == 1.0
    assert all(0 < row.bytes < 200_000 for row in ran.values())
    assert packed.bytes != ran[OURS].bytes
    assert sheet.ratio(ran[OURS]) == 1.0


def test_sizes_grow(scenes):
    report = bench_pipeline(scenes, None, megapixels=(0.2, 0.05), rounds=3)
    assert [sheet.photo for sheet in report.sheets] == ["0.05 megapixels", "0.2 megapixels"]
    assert report.sheets[0].bytes < report.sheets[1].bytes
    rows = {row.name: row for row in report.sheets[0].rows}
    assert "needs the model as a Keras file or SavedModel" in rows[FIELD].missing
    grids = pipeline_grids(report)
    assert len(grids) == 3
    assert any(FIELD in note for note in grids[0].notes)
    assert grids[2].columns[1:] == ("0.05 megapixels", "0.2 megapixels")


def test_a_saved_model_and_both_layouts(tmp_path):
    tensorflow = package("tensorflow")
    package("cv2")

    class Model(tensorflow.Module):
        @tensorflow.function(input_signature=[tensorflow.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            return {"logits": tensorflow.concat([image, 1 - image], -1)}

    model = Model()
    tensorflow.saved_model.save(model, str(tmp_path / "saved"), signatures={"serving_default": model.__call__})
    with bundle_of(tmp_path / "saved", None) as bundle:
        (sheet,) = bench_pipeline(bundle, tmp_path / "saved", megapixels=(0.01,), rounds=3).sheets
    assert sheet.row(FIELD)
    assert sheet.row(FIELD).agreement > 0.97
    for model in (nchw(), nhwc()):
        bundle = build(save(model, tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none")
        (sheet,) = bench_pipeline(bundle, tmp_path / "net.onnx", megapixels=(0.01,), rounds=3).sheets
        assert sheet.row(OPENCV).agreement > 0.97


@pytest.mark.parametrize("model", [nchw, nhwc])
def test_pytorch_takes_both_layouts(model, tmp_path):
    package("torch")
    bundle = build(save(model(), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none")
    (sheet,) = bench_pipeline(bundle, tmp_path / "net.onnx", megapixels=(0.01,), rounds=3).sheets
    assert sheet.row("ONNX Runtime, Pillow, PyTorch").agreement > 0.97


def test_packages_that_are_missing_get_rows_that_say_so(scenes, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    (sheet,) = bench_pipeline(scenes, SCENES, megapixels=(0.05,), rounds=3).sheets
    missing = {row.name: row.missing for row in sheet.rows if row.timing is None}
    assert "needs the package cv2" in missing[OPENCV]
    assert "needs the package torch" in missing["ONNX Runtime, Pillow, PyTorch"]


def test_what_cannot_be_compared_is_refused(tmp_path, scenes):
    source = save(nchw(), tmp_path / "net.onnx")
    for index, settings in enumerate([{"resize": "bilinear"}, {"size": "image"}, {"fit": "letterbox"}]):
        bundle = build(source, tmp_path / f"{index}.trtpost", flavour="none", **settings)
        with pytest.raises(SpecError, match="takes a bundle of the usual pipeline"):
            bench_pipeline(bundle, source)
    with pytest.raises(SpecError, match="needs a photo"):
        bench_pipeline(scenes, SCENES, megapixels=())
    with pytest.raises(ImageError, match="no such image"):
        bench_pipeline(scenes, SCENES, image=tmp_path / "missing.jpg", megapixels=())


def test_sizes_of_photos():
    assert sides_of(12) == (3000, 4000)
    assert parse_megapixels("1,12.5") == (1.0, 12.5)
    with pytest.raises(SpecError, match="takes numbers"):
        parse_megapixels("1;2")
    for wrong in (0, -1, 1e-9, 1e6, float("nan")):
        with pytest.raises(SpecError, match="photos have from"):
            sides_of(wrong)
    assert drawn(1500, 2100).shape == (1500, 2100, 3)
    np.testing.assert_array_equal(drawn(40, 50), drawn(40, 50))


@pytest.mark.parametrize(
    "arguments",
    [
        ("post", "--classes", "3", "--source", "8x8", "--size", "20x20"),
        ("pipeline", "{model}", "--megapixels", "0.01,0.02"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_pages_and_json(arguments, tmp_path):
    for name in ("jinja2", "matplotlib"):
        package(name)
    source = save(nchw(), tmp_path / "net.onnx")
    command = ["bench", *(one.format(model=source) for one in arguments), "--rounds", "3"]
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, [*command, "--html", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "trtpost" in shown.output
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == text.count("</svg>") >= 2
    assert "trtpost" in text
    assert "<script" not in text
    assert 'src="http' not in text
    printed = CliRunner().invoke(app, [*command, "--json"])
    assert printed.exit_code == 0, printed.output
    report = json.loads(printed.stdout)
    assert report["machine"]
    assert "rows" in (report["sheets"][1] if arguments[0] == "pipeline" else report)


def test_a_page_needs_its_packages(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    small = ("--classes", "3", "--source", "8x8", "--size", "20x20", "--rounds", "3")
    result = CliRunner().invoke(app, ["bench", "post", *small, "--html", str(tmp_path / "page.html")])
    assert result.exit_code
    assert "pip install 'jinja2>=3.1' 'matplotlib>=3.8'" in str(result.exception)


def test_classes_without_background_and_flat_outputs(tmp_path):
    """TensorFlow's rows threshold each class, take the largest, and unfold what the network has flattened."""
    keras = package("keras")
    weights = kernel(4, seed=4)
    weights -= weights.mean(1, keepdims=True)
    image = keras.Input((32, 48, 3))
    scores = keras.layers.Conv2D(4, 1, activation="sigmoid")(image)
    model = keras.Model(image, keras.layers.Reshape((32 * 48, 4))(scores))
    model.set_weights([weights.transpose(2, 3, 1, 0), np.full(4, -0.15, np.float32)])
    model.save(tmp_path / "net.keras")
    same = net(
        "x = Transpose <perm = [0, 3, 1, 2]> (image)\n y = Conv (x, k, b)\n p = Sigmoid (y)\n"
        "t = Transpose <perm = [0, 2, 3, 1]> (p)\n out = Reshape (t, s)",
        "float[1,32,48,3] image",
        "float[1,1536,4] out",
        k=weights,
        b=np.full(4, -0.15, np.float32),
        s=np.array([1, 32 * 48, 4]),
    )
    bundle = build(
        save(same, tmp_path / "n.onnx"), flavour="none", head="multilabel", normalize="unit", output=tmp_path / "b"
    )
    (sheet,) = bench_pipeline(bundle, tmp_path / "net.keras", megapixels=(0.02,), rounds=3).sheets
    agreements = {row.name: row.agreement for row in sheet.rows if row.timing is not None}
    assert min(agreements[name] for name in (FIELD, OPENCV, OURS)) > 0.97
