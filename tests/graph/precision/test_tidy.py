"""A graph before and after the converters."""

from __future__ import annotations

import onnx
import onnx.parser

from trtpost.graph.precision.tidy import finished, tidied

TEXT = """<ir_version: 8, opset_import: ["" : 17]> net (float[1,1,4,4] x, bool on) => (float[1,1,8,8] y)
          <float[8] roi = {0, 0, 0, 0, 1, 1, 1, 1}, float unused = {1}, float inner = {2}> {
            s = Constant <value = float[4] {1, 1, 2, 2}> ()
            r = If (on) <then_branch = one () => (float[1,1,4,4] p) { p = Mul (x, inner) },
                         else_branch = two () => (float[1,1,4,4] x) { q = Neg (x) }>
            y = Resize <mode = "linear"> (r, roi, s) }"""


def test_before():
    model = onnx.parser.parse_model(TEXT)
    before = model.SerializeToString()
    graph = tidied(model).graph
    assert model.SerializeToString() == before
    assert [node.name for node in graph.node] == ["r", "y"]
    assert sorted(one.name for one in graph.initializer) == ["inner", "s"]
    assert list(graph.node[-1].input) == ["r", "", "s"]


def test_a_region_that_is_read_stays():
    crop = TEXT.replace('mode = "linear"', 'mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"')
    assert list(tidied(onnx.parser.parse_model(crop)).graph.node[-1].input) == ["r", "roi", "s"]


def test_after():
    network = onnx.parser.parse_model(TEXT)
    network.metadata_props.add(key="own", value="kept")
    result = tidied(network)
    result.metadata_props.add(key="converter", value="dropped")
    result.graph.node.insert(0, onnx.helper.make_node("Identity", ["y"], ["z"]))
    done = finished(result, network)
    assert [node.output[0] for node in done.graph.node] == ["r", "y", "z"]
    assert {one.key: one.value for one in done.metadata_props} == {"own": "kept"}
    assert "r" in {value.name for value in done.graph.value_info}
