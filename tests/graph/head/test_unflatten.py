"""Rows, columns and classes of tensors that have other axes."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import ending, kernel, net

from trtpost.errors import ModelError
from trtpost.graph.head.unflatten import Unfolded, unfolded

SIZE = (8, 12)
T = "t = Transpose <perm = [0, 2, 3, 1]> (y)\n"
ONE = "m = ReduceMax <axes = [1]> (y)\n"
IDS = "i = ArgMax <axis = 1> (y)\n"


@pytest.mark.parametrize(
    ("body", "shape", "expected"),
    [
        ("out = Reshape (y, s)", (1, 4, 96), ((1, 4, 8, 12), "NCHW", 1)),
        (f"{T} out = Reshape (t, s)", (1, 96, 4), ((1, 8, 12, 4), "NHWC", 2)),
        (f"{T} out = Reshape (t, s)", (96, 4), ((1, 8, 12, 4), "NHWC", 1)),  # without its batch axis
        ("out = Reshape (y, s)", (4, 8, 12), ((1, 4, 8, 12), "NCHW", 0)),
        (f"{T} out = Reshape (t, s)", (8, 12, 4), ((1, 8, 12, 4), "NHWC", 2)),
        ("out = Reshape (y, s)", (1, 384), ((1, 4, 8, 12), "NCHW", 1)),  # in the order before it
        (f"{T} out = Reshape (t, s)", (1, 384), ((1, 8, 12, 4), "NHWC", 1)),
        (f"{T} u = Reshape (t, flat)\n out = Reshape (u, s)", (384,), ((1, 8, 12, 4), "NHWC", 0)),
        ("out = Reshape (y, s)", (1, 4, 1, 96), ((1, 4, 8, 12), "NCHW", 1)),  # another axis of one
        (f"{ONE} out = Reshape (m, s)", (1, 96), ((1, 1, 8, 12), "NCHW", None)),
        (f"{ONE} out = Reshape (m, s)", (1, 8, 12), ((1, 1, 8, 12), "NCHW", None)),
        # what may stand behind it
        ("r = Reshape (y, s)\n out = Sigmoid (r)", (1, 4, 96), ((1, 4, 8, 12), "NCHW", 1)),
        ("r = Reshape (y, s)\n out = Mul (halves, r)", (1, 4, 96), ((1, 4, 8, 12), "NCHW", 1)),
        ("r = Reshape (y, s)\n out = CumSum (r, axis)", (1, 4, 96), None),
        # what has rows and columns already, or never had them
        ("out = Relu (y)", None, None),
        ("out = Reshape (y, s)", (1, 8, 48), None),
        ("g = GlobalMaxPool (y)\n out = Reshape (g, s)", (1, 4), None),
    ],
)
def test_scores(body, shape, expected):
    weights = {"flat": np.array([1, 96, 4]), "halves": np.full((1, 1, 1), 0.5, np.float32), "axis": np.array(2)}
    tensor = ending(body, "float[] out", s=np.array(shape or [1]), **weights)
    assert unfolded(tensor, SIZE) == (None if expected is None else Unfolded(*expected))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 96), (1, 8, 12)), ((96,), (1, 8, 12)), ((1, 1, 96), (1, 8, 12)), ((1, 8, 12), None)],
)
def test_labels(shape, expected):
    tensor = ending(f"{IDS} out = Reshape (i, s)", "int64[] out", s=np.array(shape))
    view = unfolded(tensor, SIZE, labels=True)
    assert (None if view is None else (view.shape, view.classes)) == (expected and (expected, 1))


@pytest.mark.parametrize(("shape", "batch"), [((2, 4, 96), 2), ((3, 4, 64), None), ((1, 4, 192), None)])
def test_a_fixed_batch_is_the_networks(shape, batch):
    model = net(
        "y = Conv (image, k)\n out = Reshape (y, s)",
        "float[2,3,8,12] image",
        "float[] out",
        k=kernel(4),
        s=np.array(shape),
    )
    view = unfolded(gs.import_onnx(model).outputs[0], SIZE)
    assert (view and view.shape[0]) == batch


@pytest.mark.parametrize(("layout", "axis"), [(None, None), ("NCHW", 1), ("NHWC", 2)])
def test_as_many_classes_as_pixels(layout, axis):
    tensor = ending("out = Reshape (y, s)", "float[] out", classes=96, s=np.array([1, 96, 96]))
    if layout is None:
        with pytest.raises(ModelError, match=r"say --layout NHWC \(the last\) or --layout NCHW"):
            unfolded(tensor, SIZE)
    else:
        view = unfolded(tensor, SIZE, layout=layout)
        assert (view.layout, view.class_axis, view.classes) == (layout, axis, 96)


@pytest.mark.parametrize(
    ("shape", "guess", "expected"),
    [
        ((1, 24, 5), True, ((1, 4, 6, 5), "NHWC", 2)),
        ((1, 5, 24), True, ((1, 5, 4, 6), "NCHW", 1)),
        ((1, 24, 5), False, None),
        ((1, 25, 5), True, None),
        (("N", 24, 5), True, (("N", 4, 6, 5), "NHWC", 2)),
        ((1, 24), True, ((1, 1, 4, 6), "NCHW", 0)),
        ((), True, None),
    ],
)
def test_guessed_by_the_proportions_of_the_input(shape, guess, expected):
    view = unfolded(gs.Variable("x", np.float32, shape), SIZE, guess=guess)
    assert view == (None if expected is None else Unfolded(*expected))


def test_nothing_is_guessed_of_labels_and_of_single_pixels():
    assert unfolded(gs.Variable("x", np.int64, (1, 24, 5)), SIZE, labels=True, guess=True) is None
    assert unfolded(gs.Variable("x", np.float32, (1, 1, 5)), (8, 8), guess=True) is None
