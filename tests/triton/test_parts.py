"""A bundle as models: what is in each, whatever is done with them."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from nets import nchw, save

import trtpost as tp
from trtpost.bundle.folder import MODEL, PASSPORT, read_bundle
from trtpost.triton.parts import _labels, _tensor, engine_parts, segmenter_part


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    tp.build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none")
    return read_bundle(folder / "net.trtpost")


def test_the_files_of_each_model(contents):
    whole = segmenter_part(contents, "net", 1, 8, 1000)
    assert set(whole.files) == {"model.py", f"bundle.trtpost/{MODEL}", f"bundle.trtpost/{PASSPORT}"}
    parts = engine_parts(contents, "net", "onnxruntime_onnx", 1, None, 1000)
    assert {part.config.name: set(part.files) for part in parts} == {
        "net_photo": {"model.py", PASSPORT},
        "net_engine": {"model.onnx"},
        "net": set(),
    }
    assert [set(part.beside) for part in parts] == [set(), {"labels.txt", "warmup/output_size"}, {"labels.txt"}]


@pytest.mark.parametrize(
    ("name", "joined", "form", "dims", "shape"),
    [
        ("image", False, "onnxruntime_onnx", (-1, 8, 3), False),
        ("image", True, "onnxruntime_onnx", (8, 3), False),
        ("output_size", False, "onnxruntime_onnx", (-1, 8, 3), False),
        ("output_size", False, "tensorrt_plan", (-1, 8, 3), True),
        ("rows", False, "tensorrt_plan", (-1, 8, 3), False),
    ],
)
def test_tensors(name, joined, form, dims, shape):
    """Where Triton counts the batch, it is no dimension; TensorRT reads sizes on the host."""
    tensor = _tensor(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["N", 8, 3]), joined, form)
    assert (tensor.name, tensor.dtype, tensor.dims, tensor.shape) == (name, "int64", dims, shape)


def test_a_label_is_a_line(contents):
    passport = replace(contents.bundle.passport, classes=("a\nb", "c", "d", "e"))
    assert _labels(replace(contents.bundle, passport=passport))["labels.txt"].count(b"\n") == 4
