"""Integers in types that the runtimes take: where they are widened, and that the numbers stay the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx.reference
import onnx_graphsurgeon as gs
import pytest
from nets import kernel

from trtpost.graph.reading.integer_types import with_known_integers

IMAGE = np.random.default_rng(1).standard_normal((1, 3, 8, 12)).astype(np.float32)


def network(body: str, out: str, image: str = "float[1,3,8,12]", **weights: np.ndarray) -> onnx.ModelProto:
    """A model as it is before integers are looked at."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 19]> net ({image} image) => ({out}[] out) {{ {body} }}'
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def types(model: onnx.ModelProto) -> dict[str, str]:
    """Type of every tensor by its name."""
    return {name: np.dtype(value.dtype).name for name, value in gs.import_onnx(model).tensors().items()}


IDS = "y = Conv (image, k)\n i = ArgMax <axis = 1> (y)\n"
SMALL = f"{IDS} s = Cast <to = 2> (i)\n"


@pytest.mark.parametrize(
    ("body", "out", "expected"),
    [
        (f"{SMALL} out = Transpose (s)", "uint8", {"s": "int32"}),
        (f"{SMALL} t = Transpose (s)\n out = Squeeze (t)", "uint8", {"s": "int32", "t": "int32"}),
        (f"{SMALL} t = Transpose (s)\n out = Add (t, one)", "uint8", {"s": "int32", "t": "int32"}),  # until it computes
        (f"{SMALL} t = Add (s, one)\n out = Transpose (t)", "uint8", {"s": "int32", "t": "uint8"}),
        (f"{SMALL} t = Gather (table, s)\n out = Transpose (t)", "uint8", {"s": "int32", "t": "uint8"}),  # an index
        (f"{IDS} out = Cast <to = 2> (i)", "uint8", None),
        (f"{IDS} s = Cast <to = 6> (i)\n out = Transpose (s)", "int32", None),
        (f"{IDS} t = Transpose (i)\n s = Cast <to = 2> (t)\n out = Transpose (s)", "uint8", {"s": "int32"}),
        (f"{IDS} t = Abs (i)\n s = Cast <to = 2> (t)\n out = Transpose (s)", "uint8", None),  # no ArgMax's any more
        ("y = Conv (image, k)\n s = Cast <to = 2> (y)\n i = ArgMax (y)\n out = Transpose (s)", "uint8", None),
        # a nearest resize
        (f"{IDS} out = Resize (i, , larger)", "int64", {"i/as_int32": "int32", "out/in_int32": "int32"}),
        (f"{IDS} s = Cast <to = 6> (i)\n out = Resize (s, , larger)", "int32", None),
        (f"{IDS} f = Cast <to = 1> (i)\n out = Resize (f, , larger)", "float", None),
    ],
)
def test_class_ids_are_int32_until_something_computes(body, out, expected):
    weights = {"k": kernel(4), "one": np.uint8(1), "table": np.arange(4, dtype=np.uint8)}
    model = network(body, out, larger=np.array([1, 1, 2, 2], np.float32), **weights)
    widened = with_known_integers(model)
    assert (widened is model) is (expected is None)
    assert (expected or {}).items() <= types(widened).items()
    assert types(widened)["out"] == types(model)["out"]
    before, after = (onnx.reference.ReferenceEvaluator(one).run(None, {"image": IMAGE})[0] for one in (model, widened))
    assert before.dtype == after.dtype
    assert (before == after).all()


@pytest.mark.parametrize(("classes", "widened"), [(256, True), (257, False)])
def test_ids_that_the_small_type_does_not_hold_stay(classes, widened):
    model = network(f"{SMALL} out = Transpose (s)", "uint8", k=kernel(classes))
    assert (with_known_integers(model) is not model) is widened


INT8 = "int8[1,3,8,12]"


@pytest.mark.parametrize(
    ("body", "zero", "raised"),
    [
        ("f = DequantizeLinear (image, scale, zero)\n out = Relu (f)", -128, 0),
        ("f = DequantizeLinear (image, scale, zero)\n out = Relu (f)", 5, 133),
        ("f = DequantizeLinear (image, scale)\n out = Relu (f)", 0, 128),
        ("t = Transpose (image)\n f = DequantizeLinear (t, scale, zero)\n out = Relu (f)", 5, 133),
        ("s = Shape (image)\n f = DequantizeLinear (image, scale, zero)\n out = Relu (f)", 5, 133),
        ("t = Cast <to = 1> (image)\n out = Relu (t)", 5, None),
        ("f = DequantizeLinear (image, scale, zero)\n t = Cast <to = 1> (image)\n out = Add (f, t)", 5, None),
    ],
)
def test_an_int8_image_becomes_uint8(body, zero, raised):
    model = network(body, "float", INT8, scale=np.float32(0.5), zero=np.int8(zero))
    unsigned = with_known_integers(model)
    assert types(unsigned)["image"] == ("int8" if raised is None else "uint8")
    if raised is not None:
        points = {one.name: onnx.numpy_helper.to_array(one) for one in unsigned.graph.initializer}
        assert points["f/zero_point"] == raised
        image = np.arange(-128, 160).clip(-128, 127).astype(np.int8).reshape(1, 3, 8, 12)
        before = onnx.reference.ReferenceEvaluator(model).run(None, {"image": image})[0]
        pixels = (image.astype(np.int16) + 128).astype(np.uint8)
        assert (onnx.reference.ReferenceEvaluator(unsigned).run(None, {"image": pixels})[0] == before).all()
