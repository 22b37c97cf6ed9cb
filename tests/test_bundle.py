"""Bundles are whole, and say so when they are not."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import onnx
import pytest
from conftest import in_threads
from nets import nchw, save

from trtpost.builder import build
from trtpost.bundle import PASSPORT, load_bundle, newest_bundle, write_bundle
from trtpost.errors import BundleError


@pytest.fixture
def bundle(tmp_path):
    return build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none")


def test_reads_back_what_was_written(bundle):
    assert load_bundle(bundle.path) == bundle
    assert bundle.plan is None


def test_the_baked_graph_alone_is_enough(bundle, tmp_path):
    alone = tmp_path / "alone.onnx"
    alone.write_bytes(bundle.model.read_bytes())
    passport = load_bundle(alone).passport
    assert passport.pre == bundle.passport.pre
    assert passport.post == bundle.passport.post
    assert passport.classes == bundle.passport.classes


def test_missing_and_edited_files(bundle):
    model = bundle.path / "model.onnx"
    content = model.read_bytes()
    model.write_bytes(content + b"\0")
    with pytest.raises(BundleError, match="not the file that was built"):
        load_bundle(bundle.path)
    model.unlink()
    with pytest.raises(BundleError, match=r"incomplete: model\.onnx is missing"):
        load_bundle(bundle.path)
    (bundle.path / PASSPORT).unlink()
    with pytest.raises(BundleError, match="not an engine bundle"):
        load_bundle(bundle.path)
    with pytest.raises(BundleError, match="no such engine bundle"):
        load_bundle(bundle.path / "nothing")


PLAN = {"flavour": "tensorrt", "version": "11", "target": ["8.9"], "layers": {}, "precisions": {"fp16": 1}}


def edit(**changes):
    def change(values):
        values.update(changes)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edit(format=99), "format 99"),
        (edit(pre={}), "damaged"),
        (edit(pre=None), "damaged"),
        (edit(post={"head": "guess"}), "damaged"),
        (edit(classes=[]), "damaged"),
        (edit(classes=5), "damaged"),
        (edit(files={}), "list of files"),
        (edit(files=None), "damaged"),
        (edit(max_size=[0, 5]), "damaged"),
        (edit(source="other.onnx"), "not the passport that was built"),
        (edit(max_batch="8"), "max_batch"),
        (edit(plan={"flavour": "x"}), "damaged"),
        (edit(plan={**PLAN, "post": "x"}), r"plan\.post"),
        (edit(plan={**PLAN, "precisions": {"fp16": "all"}}), r"plan\.precisions"),
        (lambda values: values.pop("located"), "damaged"),
    ],
)
def test_edited_passports(bundle, change, says):
    card = bundle.path / PASSPORT
    values = json.loads(card.read_text())
    change(values)
    card.write_text(json.dumps(values))
    with pytest.raises(BundleError, match=says):
        load_bundle(bundle.path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '"x"', "{", "\x00\xff", "[" * 100_000])
def test_passports_that_are_none(bundle, text):
    (bundle.path / PASSPORT).write_text(text)
    with pytest.raises(BundleError, match="damaged"):
        load_bundle(bundle.path)


def test_files_that_are_no_bundle(tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"garbage")
    with pytest.raises(BundleError, match="neither an engine bundle"):
        load_bundle(tmp_path / "x.onnx")
    with pytest.raises(BundleError, match="was not baked by trtpost"):
        load_bundle(save(nchw(), tmp_path / "plain.onnx"))


def test_the_newest_is_taken(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    with pytest.raises(BundleError, match="no engine bundle"):
        newest_bundle(tmp_path)
    for age, name in enumerate(["old", "older"]):
        built = build(source, tmp_path / f"{name}.trtpost", flavour="none")
        os.utime(built.path / PASSPORT, (1000 - age, 1000 - age))
    assert newest_bundle(tmp_path).name == "old.trtpost"


def test_what_is_not_ours_is_not_overwritten(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    (tmp_path / "precious.trtpost").mkdir()
    (tmp_path / "precious.trtpost" / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match=r"holds thesis\.txt, which is no part"):
        build(source, tmp_path / "precious.trtpost", flavour="none")
    assert (tmp_path / "precious.trtpost" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("passport", ['{"name": "holiday"}', '{"request": "x"}'])
def test_a_folder_that_holds_more_is_not_overwritten(tmp_path, passport):
    source, folder = save(nchw(), tmp_path / "net.onnx"), tmp_path / "project"
    folder.mkdir()
    (folder / PASSPORT).write_text(passport)
    if "request" in passport:
        (folder / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"not an engine bundle|holds notes\.txt"):
        build(source, folder, flavour="none")
    assert (folder / PASSPORT).read_text() == passport


def test_many_builds_into_one_name(tmp_path, bundle):
    model = onnx.load(bundle.model)

    def work(_):
        for _ in range(20):
            write_bundle(tmp_path / "shared.trtpost", model, None, bundle.passport)

    in_threads(4, work)
    assert load_bundle(tmp_path / "shared.trtpost").passport.pre == bundle.passport.pre
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.trtpost", "shared.trtpost"]


def test_a_link_stays_a_link(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    build(source, tmp_path / "real.trtpost", flavour="none")
    (tmp_path / "link.trtpost").symlink_to("real.trtpost")
    build(source, tmp_path / "link.trtpost", flavour="none", resize="bilinear")
    assert (tmp_path / "link.trtpost").is_symlink()
    assert load_bundle(tmp_path / "real.trtpost").passport.post.resize == "bilinear"


def test_an_unwritable_place_leaves_nothing(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match="cannot write the engine bundle"):
        build(source, tmp_path / "file" / "net.trtpost", flavour="none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "net.onnx"]


def test_metadata_hold_no_more_than_the_passport(bundle):
    model = onnx.load(bundle.model)
    assert [entry.key for entry in model.metadata_props] == ["trtpost.passport"]


def test_a_name_that_says_what_a_plan_is(bundle):
    passport = bundle.passport
    whole = json.loads(passport.to_name(4095))["trtpost"]
    assert whole["classes"] == list(passport.classes)
    assert whole["request"] == passport.request
    classes = tuple(f"class\u00e4 {index}" for index in range(500))
    long = replace(passport, classes=classes, post=replace(passport.post, classes=500))
    name = long.to_name(4095)
    assert len(name.encode()) <= 4095
    short = json.loads(name)["trtpost"]
    assert (short["class_count"], short["version"]) == (500, passport.version)
    assert short["post"]["resize"] == "nearest"
    assert short["classes_sha256"] != json.loads(passport.to_name(1500))["trtpost"].get("classes_sha256")
    assert json.loads(passport.to_name(10))["trtpost"]["request"] == passport.request
