"""Formats by their first bytes; `tests/cases/test_convert.py` has whole models under other names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trtpost.convert.formats import HDF5, is_saved_model, kind_of, saved_model_folder
from trtpost.errors import ModelError

GRAPH, SAVED, ONNX = b"\x0a\x00", b"\x08\x01\x12\x00", b"\x08\x08\x3a\x00"  # node; version, meta graph; version, graph


@pytest.mark.parametrize(
    ("content", "name", "kind"),
    [
        (b"\x1c\0\0\0TFL3", "a.onnx", "tflite"),
        (HDF5, "a.tflite", "keras"),
        (ONNX, "a.pb", "onnx"),
        (GRAPH, "a.onnx", "graph_def"),
        (GRAPH + b"\x12\x00\x18\x05\x22\x00\x2a\x00", "a", "graph_def"),  # library, version, versions, debug_info
        (GRAPH + b"\x32\x00", "a.pb", "graph_def"),  # a field that no graph has: by its name
        (b"node { }", "a", "graph_def"),
        (b"# a comment\n\nlibrary: { }", "a", "graph_def"),
        (b"versions{", "a", "graph_def"),
        (b"junk", "a.keras", "keras"),
        (b"junk", "a.H5", "keras"),
        (b"\xff", "a.onnx", "onnx"),
        (b"junk", "a.pbtxt", "graph_def"),
    ],
)
def test_content_comes_before_the_name(tmp_path, content, name, kind):
    (tmp_path / name).write_bytes(content)
    assert kind_of(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"x", "a.tflite", "lacks the identifier TFL3"),
        (b"x", "a.index", "is a TensorFlow checkpoint"),
        (b"x", "a.data-00000-of-00001", "is a TensorFlow checkpoint"),
        (b"x", "a.txt", "unknown model format '.txt'"),
        (b"\x80\x02}", "a.pt", "is a PyTorch file"),
        (b"ftrt", "a.onnx", "is a TensorRT plan already"),
        (b"ptrt", "a.plan", "is a TensorRT plan already"),
        (SAVED, "model.pb", "under another name"),
        (b"saved_model_schema_version: 1", "model.pbtxt", "under another name"),
        (b"ir_version: 8", "a.txt", "is an ONNX model as text"),
        (GRAPH + b"\x32\x00", "a", "unknown model format"),
        (GRAPH + b"\x0a", "a", "unknown model format"),  # cut short
        (GRAPH + b"\x0a\x01", "a", "unknown model format"),
        (b"\x0b\x00", "a", "unknown model format"),  # a wire type that is none
        (b"\x02\x00", "a", "unknown model format"),  # the field 0
        (b"\x08" + b"\xff" * 11, "a", "unknown model format"),  # a number without an end
    ],
)
def test_what_cannot_be_taken_says_what_it_is(tmp_path, content, name, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=said):
        kind_of(tmp_path / name)


@pytest.mark.parametrize(
    ("inside", "name", "kind"),
    [
        ("config.json", "a", "keras"),
        ("x", "a.keras", "keras"),
        ("archive/data.pkl", "a.keras", "is a PyTorch file"),
        ("net/saved_model.pb", "a.zip", "unpack it and give the folder"),
        ("x", "a.zip", "unknown model format"),
    ],
)
def test_archives(tmp_path, inside, name, kind):
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr(inside, b"")
    if " " not in kind:
        assert kind_of(tmp_path / name) == kind
    else:
        with pytest.raises(ModelError, match=kind):
            kind_of(tmp_path / name)


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_a_saved_model_is_its_folder(tmp_path, name):
    (tmp_path / "net").mkdir()
    with pytest.raises(ModelError, match=r"not a SavedModel$"):
        kind_of(tmp_path)
    (tmp_path / "net" / name).write_text("x")
    assert kind_of(tmp_path / "net") == kind_of(tmp_path / "net" / name) == "saved_model"
    assert saved_model_folder(tmp_path / "net" / name) == saved_model_folder(tmp_path / "net") == tmp_path / "net"
    assert is_saved_model(tmp_path / "net")
    assert not is_saved_model(tmp_path)
    with pytest.raises(ModelError, match=r"did you mean .*net\?"):
        kind_of(tmp_path)
    assert saved_model_folder(Path("a.pb")) == Path("a.pb")
