"""What decides a bundle: everything that changes its hash, and when a bundle that is there is what was asked for."""

from __future__ import annotations

import hashlib

import onnx
import pytest
from nets import nchw, save

from trtpost.builder import request
from trtpost.builder.build import build
from trtpost.builder.options import BuildOptions
from trtpost.builder.request import content_of, labels_hash, request_for, request_hash, up_to_date
from trtpost.errors import ModelError, SpecError


@pytest.fixture
def source(tmp_path):
    return save(nchw(), tmp_path / "net.onnx")


def test_weights_beside_the_model_are_its_content(tmp_path, source):
    assert content_of(source, "onnx") == hashlib.sha256(source.read_bytes()).hexdigest()
    onnx.save(nchw(), source, save_as_external_data=True, location="weights.bin", size_threshold=0)
    first = content_of(source, "onnx")
    (tmp_path / "weights.bin").write_bytes(bytes((tmp_path / "weights.bin").stat().st_size))
    assert content_of(source, "onnx") != first


def test_a_file_that_no_model_can_be_is_not_read(source, monkeypatch):
    monkeypatch.setattr(request, "LARGEST", source.stat().st_size - 1)
    with pytest.raises(ModelError, match="a file of its format can have"):
        content_of(source, "onnx")


@pytest.mark.parametrize(
    "change",
    [
        lambda asked: ["other", *asked[1:]],
        lambda asked: [asked[0], BuildOptions(flavour="tensorrt", max_batch=4), *asked[2:]],
        lambda asked: [*asked[:2], None, *asked[3:]],
        lambda asked: [*asked[:4], "names"],
    ],
    ids=["model", "options", "flavour", "labels"],
)
def test_everything_that_decides_changes_the_hash(change):
    asked = ["model", BuildOptions(flavour="tensorrt"), "tensorrt", (), ""]
    assert request_hash(*change(asked)) != request_hash(*asked)


@pytest.mark.parametrize("package", ["trtpost", "onnx", "tensorrt_rtx"])
def test_the_versions_of_what_builds_change_the_hash(package, monkeypatch):
    asked = ["model", BuildOptions(), "tensorrt_rtx", (), ""]
    before = request_hash(*asked)
    monkeypatch.setattr(request, "__version__", "9.9" if package == "trtpost" else request.__version__)
    found = request.installed_version
    monkeypatch.setattr(request, "installed_version", lambda name: "9.9" if name == package else found(name))
    assert request_hash(*asked) != before


def test_labels_that_cannot_be_read_have_no_hash(tmp_path):
    (tmp_path / "labels.txt").write_text("sky")
    assert labels_hash(tmp_path / "labels.txt") == hashlib.sha256(b"sky").hexdigest()
    assert [labels_hash(one) for one in (None, tmp_path, tmp_path / "none")] == ["", "", ""]


def test_names_beside_the_model_count_unless_they_are_given(source):
    asked = [BuildOptions(flavour="none"), BuildOptions(flavour="none", labels=("a", "b", "c", "d"))]
    before = [request_for(source, "onnx", options).sha256 for options in asked]
    (source.parent / "labels.txt").write_text("sky")
    after = [request_for(source, "onnx", options).sha256 for options in asked]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_an_onnx_model_has_no_signature(source):
    with pytest.raises(SpecError, match="an ONNX model has none"):
        request_for(source, "onnx", BuildOptions(flavour="none", signature="x"))


def test_a_bundle_is_what_was_asked_for(source, tmp_path):
    bundle = build(source, tmp_path / "a.trtpost", flavour="none", normalize="unit")
    asked = request_for(source, "onnx", BuildOptions(flavour="none", normalize="unit"))
    assert up_to_date(bundle.path, asked) == bundle
    assert up_to_date(tmp_path / "b.trtpost", asked) is None
    assert up_to_date(bundle.path, request_for(source, "onnx", BuildOptions(flavour="none", normalize="none"))) is None
    bundle.model.write_bytes(b"")
    assert up_to_date(bundle.path, asked) is None
