"""Graphs that give more than they did."""

from __future__ import annotations

import numpy as np
from nets import nchw, net

from trtpost.graph.emulate import runnable, session, with_outputs


def test_named_tensors_come_after_the_models_own_outputs_and_none_twice():
    model = net("x = Neg (image)\n out = Abs (x)", "float[1,3,2,2] image", "float[1,3,2,2] out")
    more = with_outputs(model, ["x", "out"])
    assert [value.name for value in more.graph.output] == ["out", "x"]
    assert [value.name for value in model.graph.output] == ["out"]
    out, x = session(more).run(["out", "x"], {"image": np.ones((1, 3, 2, 2), np.float32)})
    assert (out == 1).all()
    assert (x == -1).all()


def test_what_the_cpu_can_run_is_left_as_it_is():
    model = nchw()
    assert runnable(model) is model
