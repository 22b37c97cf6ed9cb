"""The portable engine apart from its masks, which tests/test_segment.py and tests/cases look at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nets import nchw, save

from trtpost.backends import onnxruntime
from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.builder.build import build
from trtpost.errors import BackendError, BundleError
from trtpost.timing import Stopwatch

PIXELS = np.random.default_rng(0).integers(0, 256, (1, 8, 12, 3), np.uint8)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    return build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none", normalize="unit")


@pytest.mark.parametrize("lowering", ["function", "inline"])
def test_without_the_kernel_the_mask_is_the_same(bundle, lowering, tmp_path, monkeypatch):
    if lowering == "inline":
        bundle = build(
            save(nchw(), tmp_path / "n.onnx"), tmp_path / "b", flavour="none", normalize="unit", lowering=lowering
        )
    mask = OnnxRuntimeEngine(bundle).run(PIXELS, (20, 30), Stopwatch())
    monkeypatch.setattr(onnxruntime.cpu, "is_available", lambda: False)
    engine = OnnxRuntimeEngine(bundle)
    assert ("function body" in engine.name) == (lowering == "function")
    np.testing.assert_array_equal(engine.run(PIXELS, (20, 30), Stopwatch()), mask)


def test_logits_are_the_callers_own(bundle):
    engine = OnnxRuntimeEngine(bundle)
    first = engine.logits(PIXELS)
    kept = first.copy()
    engine.logits(255 - PIXELS)
    np.testing.assert_array_equal(first, kept)
    assert len(engine._free) == 1


def test_a_closed_engine_says_so(bundle):
    engine = OnnxRuntimeEngine(bundle)
    engine.close()
    with pytest.raises(BackendError, match="the engine is closed"):
        engine.run(PIXELS, (20, 30), Stopwatch())


def test_a_passport_of_another_mask_is_refused(bundle):
    post, names = replace(bundle.passport.post, classes=300), tuple(map(str, range(300)))
    with pytest.raises(BundleError, match="does not give the mask that its passport speaks of"):
        OnnxRuntimeEngine(replace(bundle, passport=replace(bundle.passport, post=post, classes=names)))


@pytest.mark.parametrize(("precision", "int8_kernels"), [("fp32", True), ("int8", False)])
def test_int8_masks_do_not_depend_on_the_processor(bundle, precision, int8_kernels, monkeypatch):
    asked = []
    made = onnxruntime.onnx_runtime.session
    monkeypatch.setattr(onnxruntime.onnx_runtime, "session", lambda model, **how: asked.append(how) or made(model))
    OnnxRuntimeEngine(replace(bundle, passport=replace(bundle.passport, precision=precision)), threads=2)
    assert asked[0] == {"threads": 2, "spin": False, "int8_kernels": int8_kernels}
