"""Small ONNX networks whose faults are made on purpose, and what the command line says of them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from browser import chromium
from conftest import package, trtpost
from nets import kernel, nchw, net, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle
from trtpost.errors import ImageError, ModelError, SpecError
from trtpost.spec import MATCHES
from trtpost.verify.html_report import Gallery, write_page
from trtpost.verify.run import Replaced, verify


@pytest.fixture
def place(tmp_path):
    """A folder with a model, photos, and ground truth."""
    save(nchw(), tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    for folder in ("photos", "labels"):
        (tmp_path / folder).mkdir()
    for name in ("a", "b"):
        Image.fromarray(rng.integers(0, 256, (40, 61, 3), np.uint8)).save(tmp_path / "photos" / f"{name}.png")
        Image.fromarray(rng.integers(0, 4, (40, 61), np.uint8)).save(tmp_path / "labels" / f"{name}.png")
    return tmp_path


def verified(place, replaced=None, model="net.onnx", **settings):
    """Build with settings, verify without."""
    bundle = build(place / model, place / "b.trtpost", flavour="none", **({"normalize": "signed"} | settings))
    return verify(bundle, place / model, place / "photos", replaced=replaced or Replaced(normalize="signed"))


@pytest.mark.parametrize("lowering", ["function", "inline"])
@pytest.mark.parametrize(("resize", "match"), [(resize, match) for resize in MATCHES for match in MATCHES[resize]])
def test_a_right_bundle_is_equal(place, resize, match, lowering):
    report = verified(place, Replaced("signed", match=match), resize=resize, match=match, lowering=lowering)
    assert report.total.real == 0
    assert report.passed
    assert report.blame is None


@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
@pytest.mark.parametrize("size", ["runtime", (40, 61)])
def test_the_bundles_own_fit_and_size_are_kept(place, fit, size):
    Image.effect_mandelbrot((50, 90), (-2, -1, 1, 1), 50).convert("RGB").save(place / "photos/tall.png")
    assert verified(place, fit=fit, size=size).total.real == 0


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("network", ["8,12", "48,64"])
def test_the_engine_that_takes_whole_photos_is_equal(place, network, channels):
    save(
        net(
            "logits = Conv (image, k)",
            f"float[1,{channels},{network}] image",
            f"float[1,4,{network}] logits",
            k=kernel(4, channels),
        ),
        place / "net.onnx",
    )
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (720, 1280, 3), np.uint8)).save(place / "photos/c.png")
    assert verified(place, size="image").total.real == 0


@pytest.mark.parametrize(
    ("settings", "stage", "words"),
    [
        ({"normalize": "unit"}, "preprocessing", "another scale and offset, 'unit' where the reference has 'signed'"),
        ({"channels": "bgr"}, "preprocessing", "the channels are swapped, bgr where the reference has rgb"),
        ({"match": "tf1"}, "post-processing", "the bundle follows the convention 'tf1', the reference 'tf'"),
        ({"match": "tf1", "resize": "bilinear"}, "post-processing", "follows the convention 'tf1', the reference 'tf'"),
        ({"layout": "NHWC"}, "post-processing", "the bundle reads the logits as NHWC, and they are NCHW"),
    ],
)
def test_each_fault_is_blamed_on_its_stage(place, settings, stage, words):
    report = verified(place, **settings)
    assert report.blame.begins == stage
    assert words in report.verdict
    assert [one.name for one in report.blame.stages if one.differs] == [stage]
    assert not report.passed


def test_other_choices_of_the_replaced_pipeline_are_named(place):
    Image.effect_mandelbrot((50, 90), (-2, -1, 1, 1), 50).convert("RGB").save(place / "photos/tall.png")
    assert (
        "resize 'nearest', the reference 'bilinear'" in verified(place, Replaced("signed", resize="bilinear")).verdict
    )
    assert (
        "fit 'stretch' where the reference has 'letterbox'"
        in verified(place, Replaced("signed", fit="letterbox")).verdict
    )


def test_a_frozen_graph_runs_in_tensorflow(place):
    tf = package("tensorflow")
    graph = tf.Graph()
    with graph.as_default():
        image = tf.compat.v1.placeholder(tf.float32, (1, 8, 12, 3), "image")
        weights = tf.constant(kernel(4).transpose(2, 3, 1, 0))
        tf.identity(tf.nn.conv2d(image, weights, 1, "SAME"), "logits")
    (place / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    report = verified(place, model="frozen.pb")
    assert report.total.real == 0
    assert report.framework.startswith("TensorFlow 2")


def test_a_threshold_is_named(place):
    model = net("logits = Conv (image, k)", "float[1,3,8,12] image", "float[1,1,8,12] logits", k=kernel(1))
    save(model, place / "one.onnx")
    assert verified(place, model="one.onnx").total.real == 0
    report = verified(place, model="one.onnx", threshold=0.7)
    assert "the bundle has threshold 0.7, the reference 0" in report.verdict


def test_a_softmax_and_labels_at_the_end(place):
    softmax = net(
        "x = Conv (image, k)\n out = Softmax <axis = 1> (x)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] out",
        k=kernel(4),
    )
    labels = net(
        "x = Conv (image, k)\n out = ArgMax <axis = 1, keepdims = 0> (x)",
        "float[2,3,8,12] image",
        "int64[2,8,12] out",
        k=kernel(4),
    )
    for name, model in (("softmax", softmax), ("labels", labels)):
        save(model, place / f"{name}.onnx")
        for resize in ("nearest", "bilinear"):
            report = verified(place, model=f"{name}.onnx", resize=resize)
            assert report.total.real == 0, (name, resize)
            assert report.total.ties is not None


def test_another_network_is_blamed_and_warned_of(place):
    save(nchw(k=kernel(4, seed=5)), place / "other.onnx")
    bundle = build(place / "net.onnx", place / "b.trtpost", flavour="none", normalize="signed")
    report = verify(bundle, place / "other.onnx", place / "photos", replaced=Replaced("signed"))
    assert report.blame.begins == "network"
    assert any("is not the file that the bundle was built from (net.onnx" in note for note in report.notes)


def test_an_assumed_normalisation_is_said(place):
    report = verified(place, Replaced(), normalize="unit")
    assert "ASSUMED" in report.verdict
    assert any("ASSUMED" in note for note in report.notes)


def test_ground_truth_scores_both(place):
    bundle = build(place / "net.onnx", place / "b.trtpost", flavour="none", normalize="signed")
    report = verify(
        bundle, place / "net.onnx", place / "photos", labels=place / "labels", replaced=Replaced("signed", match="tf1")
    )
    reference, ours = report.total.truth
    assert 0.05 < reference.mean_iou < 0.3  # chance
    assert reference.mean_iou != ours.mean_iou


def test_faults_are_one_sentence(place):
    bundle = build(place / "net.onnx", place / "b.trtpost", flavour="none", normalize="signed")
    (place / "empty").mkdir()
    with pytest.raises(SpecError, match=r"--images .*empty holds no photo"):
        verify(bundle, place / "net.onnx", place / "empty")
    with pytest.raises(SpecError, match=r"--images .*nowhere is not a folder"):
        verify(bundle, place / "net.onnx", place / "nowhere")
    with pytest.raises(ModelError, match="no such model"):
        verify(bundle, place / "nothing.onnx", place / "photos")
    with pytest.raises(SpecError, match="--min-agreement must be from 0 to 1"):
        verify(bundle, place / "net.onnx", place / "photos", min_agreement=2)
    with pytest.raises(ImageError, match=r"--labels .*empty has no a.png.*2 of 2"):
        verify(bundle, place / "net.onnx", place / "photos", labels=place / "empty")
    with pytest.raises(ImageError, match="is not a folder"):
        verify(bundle, place / "net.onnx", place / "photos", labels=place / "nowhere")


def test_photos_that_do_not_fit_are_left_out(place):
    bundle = build(place / "net.onnx", place / "b.trtpost", flavour="none", normalize="signed", size=(40, 61))
    Image.new("RGB", (10, 10)).save(place / "photos/c.png")
    report = verify(bundle, place / "net.onnx", place / "photos", replaced=Replaced("signed"))
    assert len(report.photos) == 2
    assert any("left out" in note and "40x61" in note for note in report.notes)


def test_the_command_line_fails_under_min_agreement_and_inspect_shows_the_score(place):
    build(place / "net.onnx", place / "net.trtpost", flavour="none", normalize="signed", match="tf1")
    common = ("--against", "net.onnx", "--images", "photos", "--normalize", "signed")
    done = trtpost("verify", "net.trtpost", *common, cwd=place)
    assert done.returncode == 1, done.stderr
    assert "failed" in done.stdout
    assert "it begins in the post-processing: the bundle follows the convention 'tf1'" in done.stdout
    assert trtpost("verify", *common, "--min-agreement", "0.1", cwd=place).returncode == 0
    done = trtpost("verify", *common, "--match", "tf1", "--json", cwd=place)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["passed"]
    assert found["total"]["really_different"] == 0
    assert load_bundle(place / "net.trtpost").passport.verification.real == 0
    shown = trtpost("inspect", "net.trtpost", cwd=place).stdout
    assert re.search(r"verified +100.0000% of the pixels of 2 photos have the class that net.onnx gives", shown)
    assert "--against" in trtpost("verify", cwd=place).stderr


def test_what_is_refused_before_there_is_any_work(place):
    build(place / "net.onnx", place / "net.trtpost", flavour="none", normalize="signed")
    save(nchw(batch="N"), place / "other.onnx")
    common = ("--against", "net.onnx", "--images", "photos")
    photo = (place / "photos/a.png").read_bytes()
    for arguments, words in [
        (("verify", *common, "--html", "photos/a.png"), "would replace a file that is no page"),
        (("verify", *common, "--html", "photos"), "is a folder: name a file in it"),
        (("verify", *common, "--html", "net.onnx/report.html"), "is a file, not a folder"),
        (("bench", "post", "--html", "photos/a.png"), "would replace a file that is no page"),
        (("verify", "--orders", *common, "--labels", "labels", "--html", "o.html"), "leave --html out"),
        (("bench", "pipeline", "other.onnx", "-e", "net.trtpost"), "was built from another model (net.onnx)"),
    ]:
        done = trtpost(*arguments, cwd=place)
        assert done.returncode == 1
        assert done.stderr.startswith("trtpost: ")
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
    assert (place / "photos/a.png").read_bytes() == photo


def test_a_folder_called_dot_and_names_of_any_alphabet(place):
    build(place / "net.onnx", place / "net.trtpost", flavour="none", normalize="signed")
    (place / "photos/b.png").rename(place / "photos/é😀.png")
    done = trtpost(
        *("verify", "../net.trtpost", "--against", "../net.onnx", "--images", ".", "--normalize", "signed", "--json"),
        cwd=place / "photos",
    )
    assert done.returncode == 0, done.stderr
    assert {one["photo"] for one in json.loads(done.stdout)["photos"]} == {"a.png", "é😀.png"}


def test_the_report_is_one_file_that_a_browser_shows(place):
    package("jinja2")
    bundle = build(place / "net.onnx", place / "b.trtpost", flavour="none", normalize="unit")
    gallery = Gallery(bundle.passport.classes)
    report = verify(
        bundle,
        place / "net.onnx",
        place / "photos",
        labels=place / "labels",
        replaced=Replaced("signed"),
        show=gallery.show,
    )
    page = place / "report.html"
    write_page(report, gallery, page)
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "http" not in text
    assert "url(" not in text
    dom = chromium(page, "--dump-dom")
    assert len(re.findall(r"<img ", dom)) == 8
    assert "another scale and offset" in dom
    assert re.search(r'<div class="verdict bad" id="verdict">\s*<b>Failed</b>', dom)
    names = re.findall(r"<td>([ab]\.png)</td>", dom)
    assert names == [one.photo.name for one in report.photos]  # worst first
    shot = place / "shot.png"
    chromium(page, f"--screenshot={shot}")
    with Image.open(shot) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (1600, 1280, 3)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000  # the pictures are there
