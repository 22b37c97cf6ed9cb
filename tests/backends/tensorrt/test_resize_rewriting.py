"""Which Resize is rewritten for TensorRT, and into what; tests/cases/test_numbers.py compares the pixels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import onnx.parser
import pytest

from trtpost.backends.tensorrt.resize_rewriting import for_tensorrt, nearest_table

SELECTS, SUMS = {"Constant", "Gather", "Identity"}, {"Constant", "Cast", "Transpose", "MatMul", "Identity"}


def resize(attributes: str, kind: str = "float", sides: str = "4,6") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 19]> net ({kind}[1,1,{sides}] x) => ({kind}[1,1,H,W] y)
            <int64[4] s = {{1, 1, 8, 6}}> {{ y = Resize <{attributes}> (x, , , s) }}"""
    )
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


HALF = 'coordinate_transformation_mode = "tf_half_pixel_for_nn"'
SYMMETRIC = 'coordinate_transformation_mode = "half_pixel_symmetric"'


@pytest.mark.parametrize(
    ("model", "operators"),
    [
        (resize(f'mode = "nearest", {HALF}'), SELECTS),
        (resize('mode = "nearest"', "int32"), SELECTS),
        (resize(f'mode = "linear", {SYMMETRIC}'), SUMS),
        (resize('mode = "cubic", antialias = 1'), SUMS),
        (resize(f'mode = "linear", {SYMMETRIC}', sides="h,w"), {"Resize"}),
        (resize('mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"', "int32"), {"Resize"}),
    ],
    ids=["mode", "integers", "linear", "antialiased", "linear of an open size", "region"],
)
def test_what_tensorrt_refuses(model, operators):
    rewritten = for_tensorrt(model)
    onnx.checker.check_model(rewritten, full_check=True)
    assert {node.op_type for node in rewritten.graph.node} == operators
    assert rewritten.graph.node[-1].output[0] == "y"
    gathers = [node for node in rewritten.graph.node if node.op_type in ("Gather", "MatMul")]
    assert len(gathers) == (operators != {"Resize"})  # of the axis that is resized alone


def test_an_open_size_is_computed_in_the_graph():
    operators = {node.op_type for node in for_tensorrt(resize(f'mode = "nearest", {HALF}', sides="h,w")).graph.node}
    assert {"Shape", "Range", "Gather"} < operators


@pytest.mark.parametrize("attributes", ['mode = "nearest"', 'mode = "linear"', 'mode = "cubic"'])
def test_what_tensorrt_takes_is_left_alone(attributes):
    model = resize(attributes)
    assert for_tensorrt(model) is model


@pytest.mark.parametrize(
    ("coordinates", "rounding", "table"),
    [
        ("asymmetric", "floor", [0, 0, 1, 1]),
        ("asymmetric", "ceil", [0, 1, 1, 1]),
        ("half_pixel", "round_prefer_floor", [0, 0, 1, 1]),
        ("align_corners", "round_prefer_ceil", [0, 0, 1, 1]),
        ("tf_half_pixel_for_nn", "floor", [0, 0, 1, 1]),
        ("tf_half_pixel_for_nn", "round_prefer_ceil", [0, 1, 1, 1]),
    ],
)
def test_tables(coordinates, rounding, table):
    found = nearest_table(2, 4, Fraction(2), coordinates, rounding)
    assert found.dtype == np.int64
    assert found.tolist() == table
