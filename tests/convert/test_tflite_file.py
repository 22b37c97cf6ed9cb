"""What a TFLite file says of itself, in tables that are written here."""

from __future__ import annotations

import io
import json
import zipfile

import flatbuffers
import pytest

from trtpost.convert import tflite_file
from trtpost.convert.tflite_file import Metadata, custom_operators, read_metadata
from trtpost.errors import ModelError

MODEL = b"\x1c\0\0\0TFL3"


def table(builder: flatbuffers.Builder, **fields: int) -> int:
    """A table of offsets by field number."""
    builder.StartObject(12)
    for name, offset in fields.items():
        builder.PrependUOffsetTRelativeSlot(int(name.removeprefix("f")), offset, 0)
    return builder.EndObject()


def tables(builder: flatbuffers.Builder, *offsets: int) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def model(*names: str) -> bytes:
    """One with custom operators, each called once."""
    builder = flatbuffers.Builder(0)
    codes = tables(builder, *[table(builder, f1=builder.CreateString(name)) for name in names])
    operators = []
    for index, name in enumerate(names):
        options = builder.CreateByteVector(name.encode())
        builder.StartObject(12)
        builder.PrependUint32Slot(0, index, 0)
        builder.PrependUOffsetTRelativeSlot(5, options, 0)
        operators.append(builder.EndObject())
    graph = table(builder, f3=tables(builder, *operators))
    builder.Finish(table(builder, f1=codes, f2=tables(builder, graph)), b"TFL3")
    return bytes(builder.Output())


def packed(labels: bytes, *, name: str = "labels.txt", compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr(name, labels)
    return stream.getvalue()


def test_operators_of_tensorflow_come_with_their_options(tmp_path):
    (tmp_path / "net").write_bytes(model("FlexErf", "Own"))
    names, options = [("FlexErf", b""), ("Own", b"")], [("FlexErf", b"FlexErf"), ("FlexErf", b"")]
    assert custom_operators(tmp_path / "net") == names + options  # within the tables, and none behind them


def test_damage_is_one_sentence_and_no_metadata(tmp_path):
    content = model("FlexErf")
    for length in (0, 3, 8, len(content) // 2):
        (tmp_path / "net").write_bytes(content[:length])
        with pytest.raises(ModelError, match="damaged or cut short"):
            custom_operators(tmp_path / "net")
        assert read_metadata(tmp_path / "net") == Metadata()


@pytest.mark.parametrize(
    ("limit", "value", "names"),
    [("_MOST_TABLES", 2, ("a", "b")), ("_LONGEST_TEXT", 3, ("abc",))],
)
def test_limits(tmp_path, monkeypatch, limit, value, names):
    (tmp_path / "net").write_bytes(model(*names))
    monkeypatch.setattr(tflite_file, limit, value)
    assert [name for name, _ in custom_operators(tmp_path / "net")] == list(names)
    monkeypatch.setattr(tflite_file, limit, value - 1)
    with pytest.raises(ModelError):
        custom_operators(tmp_path / "net")


@pytest.mark.parametrize(
    ("archive", "labels"),
    [
        (packed(b"sky\ntree\n"), ("sky", "tree")),
        (packed(b"sky", compression=zipfile.ZIP_STORED), ("sky",)),
        (packed(b"sky", compression=zipfile.ZIP_LZMA), ()),
        (packed(b"sky", name="Labelmap.txt"), ("sky",)),
        (packed(b"sky", name="labels.csv"), ()),
        (packed(b"sky", name="readme.txt"), ()),
        (packed(b"sky")[:-5], ()),
    ],
)
def test_class_names_in_the_archive_behind_the_model(tmp_path, archive, labels):
    (tmp_path / "net").write_bytes(MODEL + archive)
    assert read_metadata(tmp_path / "net").labels == labels


@pytest.mark.parametrize("extra", [0, 1])
def test_labels_that_unpack_to_more_than_any_are_left(tmp_path, monkeypatch, extra):
    monkeypatch.setattr(tflite_file, "_LARGEST_LABELS", 10)
    (tmp_path / "net").write_bytes(MODEL + packed(b"a" * (10 + extra)))
    assert bool(read_metadata(tmp_path / "net").labels) == (not extra)


@pytest.mark.parametrize(
    ("facts", "properties"),
    [
        (Metadata(), {}),
        (Metadata(mean=(1.0,)), {}),
        (Metadata((1.0,), (2.0,)), {"normalization": {"mean": [1.0], "std": [2.0]}}),
        (Metadata(labels=("a",)), {"labels": ["a"]}),
    ],
)
def test_what_onnx_keeps_of_it(facts, properties):
    assert {key: json.loads(value) for key, value in facts.to_properties().items()} == properties
