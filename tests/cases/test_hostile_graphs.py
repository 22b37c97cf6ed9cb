"""Files of graphs and labels that would cost minutes: each is read in one pass, or refused in a sentence."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace

import onnx
import pytest
from nets import nchw, save
from onnx import TensorProto, helper

from trtpost.builder.build import build
from trtpost.builder.request import content_of
from trtpost.bundle.folder import load_bundle, write_bundle
from trtpost.bundle.passport import Plan
from trtpost.errors import BundleError, ModelError, SpecError
from trtpost.graph.baked import MAX_DEPTH, MAX_NODES
from trtpost.graph.proto import check_calls
from trtpost.storage.files import read_limited

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]

READ = """
import sys
from pathlib import Path
from trtpost.errors import ModelError
from trtpost.graph.reading.model import load_model
try:
    print(len(load_model(Path(sys.argv[1])).graph.node))
except ModelError as error:
    print(error)
"""


def function(name: str, calls: list[str]) -> onnx.FunctionProto:
    """Calls the others one after the other."""
    names = ["a", *(f"b{index}" for index in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(call, [names[index]], [names[index + 1]], domain="" if call == "Relu" else "f")
        for index, call in enumerate(calls)
    ]
    return helper.make_function("f", name, ["a"], ["b"], nodes, OPSETS)


def model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 8, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "graph", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=9)


def calling(functions: int, times: int) -> onnx.ModelProto:
    """Functions each of which calls the next one so many times."""
    bodies = [[f"F{index + 1}"] * times for index in range(functions - 1)] + [["Relu"] * times]
    call = helper.make_node("F0", ["x"], ["y"], domain="f")
    return model([call], [function(f"F{index}", body) for index, body in enumerate(bodies)])


def backwards(count: int) -> onnx.ModelProto:
    names = ["x", *(f"t{index}" for index in range(count - 1)), "y"]
    nodes = [helper.make_node("Relu", [names[index]], [names[index + 1]], name="same") for index in range(count)]
    return model(nodes[::-1], [])


def unused(count: int) -> onnx.ModelProto:
    """Nodes of one name whose results nobody takes."""
    nodes = [helper.make_node("Relu", ["x"], [f"u{index}"], name="same") for index in range(count - 1)]
    return model([*nodes, helper.make_node("Relu", ["x"], ["y"], name="same")], [])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: calling(4000, 1), "4000 deep"),
        (lambda: calling(60, 2), "more than"),
        (lambda: calling(12, 2), "4096"),
        (lambda: calling(16, 2), "65536"),
        (lambda: backwards(10_000), "10000"),
        (lambda: unused(50_000), "50000"),
        (lambda: unused(200_000), "it has 200000 nodes; more than 131072"),
    ],
    ids=["chained", "doubling", "few doublings", "many doublings", "backwards", "unused", "too many"],
)
def test_squares_are_none(tmp_path, made, said):
    """In a process that ends when it takes long."""
    onnx.save(made(), tmp_path / "net.onnx")
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "net.onnx")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert said in done.stdout


def test_both_sides_of_the_limits():
    """Of depth, and of nodes."""
    check_calls(calling(MAX_DEPTH, 1), "net")
    with pytest.raises(ModelError, match="deep"):
        check_calls(calling(MAX_DEPTH + 1, 1), "net")
    doublings = MAX_NODES.bit_length() - 1
    check_calls(calling(doublings, 2), "net")
    with pytest.raises(ModelError, match="expand to"):
        check_calls(calling(doublings + 1, 2), "net")


def test_a_label_file_is_not_read_beyond_its_limit(tmp_path):
    """A sparse file of 100 GB takes no memory and no time."""
    with (tmp_path / "labels").open("wb") as file:
        file.truncate(100 << 30)
    with pytest.raises(SpecError, match="more than 16 MiB, and no label file"):
        read_limited(tmp_path / "labels", "label file", 16 << 20, SpecError)
    (tmp_path / "labels").write_bytes(b"a\n" * (8 << 20))
    assert len(read_limited(tmp_path / "labels", "label file", 16 << 20, SpecError)) == 16 << 20


def test_a_plan_that_cannot_run_here_is_not_read(tmp_path):
    """Three gigabytes of one: on a machine without a GPU they cost neither memory nor seconds."""
    bundle = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", normalize="unit")
    passport = replace(bundle.passport, plan=Plan("tensorrt", "11.4.0", ("8.9",), {}, {}))
    bundle = write_bundle(bundle.path, onnx.load(bundle.model), b"plan", passport)
    with (bundle.path / "engine.plan").open("r+b") as file:
        file.truncate(3 << 30)
    code = (
        "import sys, numpy as np; from trtpost.segment import Segmenter\n"
        "with Segmenter(sys.argv[1], backend=sys.argv[2]) as one: print(one(np.zeros((9, 7, 3), np.uint8)).mask.shape)"
    )
    for backend in ("auto", "onnxruntime"):
        done = subprocess.run(
            [sys.executable, "-c", code, bundle.path, backend],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "(9, 7)\n", done.stderr
    with (bundle.path / "engine.plan").open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(BundleError, match="not the file that was built"):
        load_bundle(bundle.path)


@pytest.mark.parametrize("name", ["net.onnx", "net.tflite", "net.pb"])
def test_a_model_file_that_no_format_can_have(tmp_path, name):
    """A hundred gigabytes of nothing are refused before they are read."""
    kinds = {"net.onnx": "onnx", "net.tflite": "tflite", "net.pb": "graph_def"}
    with (tmp_path / name).open("wb") as file:
        file.truncate(100 * 10**9)
    with pytest.raises(ModelError, match=r"has 100\.0 GB, and a file of its format can have 2\.1 GB"):
        content_of(tmp_path / name, kinds[name])
