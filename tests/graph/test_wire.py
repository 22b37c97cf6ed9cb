"""Protocol buffers read and written as bytes, against protobuf itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from nets import nchw, save

from trtpost.builder.build import build
from trtpost.bundle.folder import read_bundle
from trtpost.graph.baked import Baked
from trtpost.graph.baking.seam import split
from trtpost.graph.wire import WireError, fields, integer, messages, single, text, written


def test_every_field_is_found_and_put_together_again():
    """All wire types that ONNX has: numbers up to 64 bits and negative, floats, texts, messages."""
    node = onnx.helper.make_node("Op", ["a", ""], ["b"], name="é" * 200, i=-1, f=1.5, g=[1 << 62, 7])
    content = memoryview(node.SerializeToString())
    assert b"".join(field.raw for field in fields(content)) == content
    assert text(content, 3) == "é" * 200
    assert [bytes(one) for one in messages(content, 1)] == [b"a", b""]
    values = {text(one, 1): integer(one, 3) for one in messages(content, 5)}
    assert values["i"] == (1 << 64) - 1
    again = onnx.NodeProto.FromString(b"".join(field.raw for field in fields(content)))
    assert again == node
    graph = onnx.GraphProto.FromString(written(1, [content]))
    assert graph.node[0] == node


@pytest.mark.parametrize(
    "content",
    [
        *(b"\x0a", b"\x0a\x05abc", b"\x08", b"\x08" + b"\xff" * 10 + b"\x01", b"\x0d\0\0", b"\x09\0\0\0\0"),
        *(b"\x0b", b"\x0c", b"\x0e\0", b"\x02\x01a", b"\x80", b"\x0a" + b"\xff" * 9 + b"\x01"),
    ],
)
def test_what_is_no_message(content):
    """Cut short, of wire types that are not used, field 0, numbers without an end."""
    with pytest.raises(WireError):
        list(fields(memoryview(content)))


def test_what_other_readers_would_merge_is_refused():
    """A message that is there twice would be another one to ONNX Runtime than to us."""
    twice = memoryview(written(7, [b"\x08\x01"]) * 2)
    with pytest.raises(WireError, match="2 times"):
        single(twice, 7)
    with pytest.raises(WireError):
        integer(memoryview(b"\x08\x01\x08\x02"), 1)
    with pytest.raises(WireError, match="no text"):
        text(memoryview(b"\x0a\x01\xff"), 1)
    model = nchw()
    content = model.SerializeToString()
    with pytest.raises(WireError):
        Baked(content + written(7, [b""]))


SETTINGS = [
    {},
    {"resize": "bilinear"},
    {"size": "image"},
    {"size": (9, 7)},
    {"match": "pil"},
    {"match": "pil", "size": (9, 7)},
    {"fit": "letterbox"},
    {"precision": "fp16"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_both_parts_are_those_that_onnx_cuts(tmp_path, settings):
    """The two halves of the bytes give the logits and the mask that the halves of the parsed graph give."""
    made = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", **settings)
    contents = read_bundle(made.path)
    photo = np.random.default_rng(0).integers(0, 256, (1, 8, 12, 3), np.uint8)
    feeds = {"output_size": np.array([9, 7]), "region": np.array([0, 0, 8, 12])}
    feeds |= {"rows": np.arange(9) % 8, "cols": np.arange(7)}
    results = []
    for network, mask in (contents.baked.split(), [one.SerializeToString() for one in split(contents.model)]):
        onnx.checker.check_model(network)
        onnx.checker.check_model(mask)
        first = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
        (logits,) = first.run(None, {"image": photo})
        assert [one.name for one in first.get_inputs()] == ["image"]
        assert first.get_outputs()[0].name == contents.baked.logits
        second = onnxruntime.InferenceSession(mask, providers=["CPUExecutionProvider"])
        given = {one.name: feeds.get(one.name, logits) for one in second.get_inputs()}
        results.append((logits, second.run(["mask"], given)[0], sorted(given)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert results[0][2] == results[1][2]


def test_inputs_and_outputs_as_onnx_says_them(tmp_path):
    """Types and shapes, of an inlined graph too, whose passport lies between other entries."""
    made = build(
        save(nchw(batch="N"), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", lowering="inline"
    )
    contents = read_bundle(made.path)
    assert contents.baked.is_inlined
    assert contents.baked.inputs["image"].shape == (0, 8, 12, 3)
    for value in (*contents.model.graph.input, *contents.model.graph.output):
        assert contents.baked.known[value.name].kind == value.type.tensor_type.elem_type
    with pytest.raises(WireError, match="it has 0 nodes"):
        contents.baked.split()
