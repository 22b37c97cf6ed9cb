"""Which class ids may be below zero, and which networks say that some are."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import kernel, net

from trtpost.graph.head.negative_ids import may_be_negative, tells_negative

IDS = "i = ArgMax <axis = 1> (y)\n b = Greater (i, one)\n"


@pytest.mark.parametrize(
    ("text", "out", "may", "tells"),
    [
        ("out = Identity (i)", "int64", False, False),
        ("out = Cast <to = 6> (i)", "int32", False, False),
        ("out = Where (b, i, minus)", "int64", True, True),
        ("w = Where (b, i, minus)\n out = Cast <to = 1> (w)", "float", True, True),
        ("w = Where (b, i, minus)\n out = Cast <to = 2> (w)", "uint8", False, False),
        ("out = Where (b, i, one)", "int64", True, False),
        ("out = Gather (table, i)", "int64", True, True),
        ("out = Add (i, minus)", "int64", True, True),
        ("out = Sub (i, one)", "int64", True, True),
        ("out = Sub (one, i)", "int64", True, False),  # of 1, nobody knows
        ("out = Sub (i, zero)", "int64", True, False),
        ("out = Mul (i, minus)", "int64", True, False),
        ("f = Cast <to = 1> (i)\n g = Add (f, half)\n out = Cast <to = 7> (g)", "int64", True, False),
    ],
)
def test_negative_class_ids(text, out, may, tells):
    numbers = {"minus": np.array(-1), "one": np.array(1), "zero": np.array(0), "half": np.float32(-0.5)}
    model = net(
        f"y = Conv (image, k)\n {IDS} {text}",
        "float[1,3,8,12] image",
        f"{out}[] out",
        k=kernel(4),
        table=np.array([0, 1, -1, 2]),
        **numbers,
    )
    assert may_be_negative(gs.import_onnx(model).outputs[0]) is may
    assert tells_negative(model, "out") is tells


@pytest.mark.parametrize(("between", "found"), [(62, True), (63, True), (64, False)])
def test_how_far_back_is_looked(between, found):
    lines = "\n".join(f"c{at + 1} = Abs (c{at})" for at in range(between))
    model = net(
        f"y = Conv (image, k)\n {IDS} c0 = Add (i, minus)\n {lines}\n out = Neg (c{between - 1})",
        "float[1,3,8,12] image",
        "int64[] out",
        k=kernel(4),
        one=np.array(1),
        minus=np.array(-1),
    )
    assert tells_negative(model, "out") is found
