"""Bundles are whole, and say so when they are not."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import onnx
import pytest
from nets import nchw, save

from trtpost.builder.build import build
from trtpost.bundle.folder import PASSPORT, load_bundle, newest_bundle
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


def test_the_newest_is_taken(tmp_path):
    source = save(nchw(), tmp_path / "net.onnx")
    with pytest.raises(BundleError, match="no engine bundle"):
        newest_bundle(tmp_path)
    for age, name in enumerate(["old", "older"]):
        built = build(source, tmp_path / f"{name}.trtpost", flavour="none")
        os.utime(built.path / PASSPORT, (1000 - age, 1000 - age))
    assert newest_bundle(tmp_path).name == "old.trtpost"


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
