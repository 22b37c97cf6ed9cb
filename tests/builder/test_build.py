"""From a model file to a bundle: what is assumed, what is refused, and when there is nothing to do."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from nets import kernel, nchw, net, nhwc, rescaled, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.builder.options import BuildOptions
from trtpost.builder.request import request_hash
from trtpost.bundle.folder import load_bundle
from trtpost.cuda import Device, Driver
from trtpost.errors import BackendError, MissingPackageError, ModelError, PrecisionError, SpecError
from trtpost.graph.reading.model import set_metadata
from trtpost.progress import Progress, Step


class Ears(Progress):
    """Keeps the steps, what they come to, and the warnings."""

    def __init__(self):
        self.steps, self.warned, self.told = {}, [], []

    @contextmanager
    def step(self, title):
        step = Step()
        step.advance = lambda fraction, what="": self.told.append((title, round(fraction, 2), what))
        yield step
        self.steps[title] = step.result

    def warn(self, text):
        self.warned.append(text)


@pytest.fixture
def source(tmp_path):
    return save(nchw(), tmp_path / "net.onnx")


def test_rebuilding_the_same_is_a_no_op(source, tmp_path):
    first = build(source, tmp_path / "a.trtpost", flavour="none")
    before = (first.path / "passport.json").stat().st_mtime_ns
    assert build(source, tmp_path / "a.trtpost", flavour="none") == first
    assert (first.path / "passport.json").stat().st_mtime_ns == before
    for change in ({"resize": "bilinear"}, {"normalize": "unit"}):
        build(source, tmp_path / "a.trtpost", flavour="none", **change)
        after = (first.path / "passport.json").stat().st_mtime_ns
        assert after > before
        before = after
    onnx.save(nchw(k=kernel(4, seed=9)), source)
    assert build(source, tmp_path / "a.trtpost", flavour="none").passport.source_sha256 != first.passport.source_sha256


def test_a_damaged_bundle_is_built_again(source, tmp_path):
    bundle = build(source, tmp_path / "a.trtpost", flavour="none")
    bundle.model.write_bytes(b"")
    assert build(source, tmp_path / "a.trtpost", flavour="none").model.stat().st_size > 0


def test_where_the_normalisation_comes_from(tmp_path):
    def origin(model, **settings):
        built = build(save(model, tmp_path / "n.onnx"), tmp_path / "n.trtpost", flavour="none", **settings).passport
        return built.normalization, built.pre.mean, built.pre.std

    stated = nchw()
    set_metadata(stated, {"normalization": json.dumps({"mean": [1, 2, 3], "std": [4, 5, 6]})})
    assert origin(nchw()) == ("assumed", (127.5,), (127.5,))
    assert origin(stated) == ("metadata", (1, 2, 3), (4, 5, 6))
    assert origin(stated, normalize="unit") == ("flag", (0.0,), (255.0,))
    assert origin(rescaled()) == ("inside", (0.0,), (1.0,))


def test_class_names(tmp_path, source):
    def classes(model=source, **settings):
        return build(model, tmp_path / "n.trtpost", flavour="none", **settings).passport.classes

    assert classes() == ("class 0", "class 1", "class 2", "class 3")
    assert classes(labels=tuple("abcd")) == tuple("abcd")
    with pytest.raises(SpecError, match="4 classes, but 2 class names"):
        classes(labels=("a", "b"))
    one_channel = save(nhwc(1, "out = Sigmoid (logits)"), tmp_path / "one.onnx")
    assert classes(one_channel) == ("background", "foreground")
    assert classes(one_channel, labels=("cat",)) == ("background", "cat")


def test_a_baked_model_is_not_baked_again(tmp_path, source):
    bundle = build(source, tmp_path / "a.trtpost", flavour="none")
    with pytest.raises(ModelError, match="baked already"):
        build(bundle.model, tmp_path / "b.trtpost")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lowering": "outline"}, "lowering"),
        ({"flavour": "lite"}, "flavour"),
        ({"max_batch": 0}, "max batch"),
        ({"max_size": (0, 10)}, "max size"),
        ({"normalize": "wild"}, "normalisation"),
        ({"resize": "bicubic"}, "resize"),
        ({"match": "caffe"}, "match"),
    ],
)
def test_options_without_meaning(settings, says):
    with pytest.raises(SpecError, match=says):
        BuildOptions(**settings)


def test_inline_lowering_leaves_standard_ops_only(tmp_path, source):
    bundle = build(source, tmp_path / "a.trtpost", flavour="none", lowering="inline")
    model = onnx.load(bundle.model)
    assert not model.functions
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}


def test_what_was_decided_and_may_be_wrong_is_said(tmp_path):
    ears = Ears()
    two = net(
        "logits = Conv (image, k)\n aux_logits = Conv (image, k)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits, float[1,4,8,12] aux_logits",
        k=kernel(4),
    )
    build(save(two, tmp_path / "n.onnx"), tmp_path / "n.trtpost", flavour="none", progress=ears)
    assumed, others = ears.warned
    assert "ASSUMED" in assumed
    assert "'aux_logits'" in others


def test_a_plan_that_cannot_be_built_leaves_the_portable_engine(tmp_path, source, monkeypatch):
    def refuse(*_, **__):
        raise BackendError("no such operator")

    monkeypatch.setattr("trtpost.builder.plan.build_plan", refuse)
    monkeypatch.setattr("trtpost.backends.tensorrt.configuration.check_builder", lambda *_: None)
    monkeypatch.setattr("trtpost.backends.tensorrt.suitable.builder_here", lambda: ("tensorrt_rtx", ""))
    for _ in range(2):  # the second time it is tried again, and says again why there is none
        ears = Ears()
        assert build(source, tmp_path / "a.trtpost", progress=ears).plan is None
        assert "no engine.plan" in ears.warned[-1]
    with pytest.raises(BackendError, match="no such operator"):  # who chooses how a plan is built wants one
        build(source, tmp_path / "c.trtpost", optimization_level=1)
    with pytest.raises(BackendError, match="no such operator"):
        build(source, tmp_path / "b.trtpost", flavour="tensorrt_rtx")
    assert not (tmp_path / "b.trtpost").exists()


@pytest.mark.parametrize(
    ("settings", "warned"), [({}, True), ({"max_size": (512, 512)}, False), ({"post": "kernel"}, False)]
)
def test_memory_for_interpolated_logits_is_said(tmp_path, source, settings, warned):
    ears = Ears()
    build(
        source,
        tmp_path / "a.trtpost",
        resize="bilinear",
        flavour="tensorrt_rtx",
        progress=ears,
        **({"max_size": (16384, 16384)} | settings),
    )
    assert any("--post kernel" in one for one in ears.warned) == warned


def test_external_weights_count_as_part_of_the_model(tmp_path):
    source = tmp_path / "net.onnx"
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(nchw(), source, **external)
    first = build(source, tmp_path / "a.trtpost", flavour="none").passport
    content = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(bytes(len(content)))
    second = build(source, tmp_path / "a.trtpost", flavour="none").passport
    assert second.source_sha256 != first.source_sha256


def test_old_models_list_their_weights_as_inputs(tmp_path):
    model = nchw()
    model.ir_version = 3
    del model.opset_import[:]
    model.opset_import.add(domain="", version=7)
    model.graph.input.append(onnx.helper.make_tensor_value_info("k", 1, (4, 3, 1, 1)))
    assert build(save(model, tmp_path / "old.onnx"), tmp_path / "a.trtpost", flavour="none").model.is_file()


def test_settings_that_do_not_fit_the_model(tmp_path, source):
    one_channel = save(nhwc(1, "out = Sigmoid (logits)"), tmp_path / "one.onnx")
    raw = save(
        net(
            "f = Cast <to = 1> (image)\n logits = Conv (f, k)",
            "uint8[1,3,8,12] image",
            "float[1,4,8,12] logits",
            k=kernel(4),
        ),
        tmp_path / "raw.onnx",
    )
    for model, settings, says in [
        (source, {"threshold": 0.5}, "networks of one channel"),
        (one_channel, {"threshold": 5}, "no sense for a probability"),
        (raw, {"normalize": "signed"}, "takes the uint8 pixels themselves"),
        (source, {"signature": "x"}, "an ONNX model has none"),
        (source, {"normalise": "unit"}, "did you mean normalize"),
        (source, {"layout": "HWC"}, "layout must be one of"),
        (source, {"channels": "rgba"}, "channels must be one of"),
    ]:
        with pytest.raises(SpecError, match=says):
            build(model, tmp_path / "a.trtpost", flavour="none", **settings)
    assert build(one_channel, tmp_path / "a.trtpost", flavour="none", threshold=np.float32(0.25)).passport


def test_a_missing_tensorrt_is_named_and_nothing_is_written(tmp_path, source, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'tensorrt>=10"):
        build(source, tmp_path / "a.trtpost", flavour="tensorrt")
    assert not (tmp_path / "a.trtpost").exists()


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(3):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 30, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_a_lower_precision_is_measured_and_recorded(tmp_path, source, photos, precision):
    ears = Ears()
    (photos / "damaged.png").write_bytes(b"\x89PNG")
    bundle = build(
        source,
        tmp_path / "a.trtpost",
        flavour="none",
        precision=precision,
        calibration=photos,
        min_agreement=0.5,
        progress=ears,
    )
    passport = load_bundle(bundle.path).passport
    assert (passport.precision, passport.photos) == (precision, 3)
    assert 0.5 <= passport.agreement <= 1
    assert list(ears.steps) == ["convert", "locate", "bake", "precision", "bundle"]
    assert f"{precision}; " in ears.steps["precision"]
    assert "of 3 photos" in ears.steps["precision"]
    assert [title for title, *_ in ears.told] == ["precision"] * (6 if precision == "int8" else 3)
    assert sum("damaged.png" in text for text in ears.warned) == 1
    types = {one.data_type for one in onnx.load(bundle.model).graph.initializer}
    assert {"fp16": 10, "bf16": 16, "int8": 3}[precision] in types


def test_without_photos_the_agreement_is_not_claimed(tmp_path, source):
    ears = Ears()
    passport = build(source, tmp_path / "a.trtpost", flavour="none", precision="fp16", progress=ears).passport
    assert (passport.agreement, passport.mean_iou, passport.photos) == (None, None, 0)
    assert any("only checked for NaN and infinities" in text for text in ears.warned)
    assert "was not measured" in ears.steps["precision"]


def test_too_little_agreement_fails_and_writes_nothing(tmp_path, photos):
    close = save(nchw(k=1 + kernel(4) * 1e-4), tmp_path / "close.onnx")  # which class it is hangs on the last bits
    with pytest.raises(ModelError, match="--min-agreement"):
        build(close, tmp_path / "a.trtpost", flavour="none", precision="bf16", calibration=photos)
    assert not (tmp_path / "a.trtpost").exists()


def test_what_makes_a_rebuild_needless(tmp_path, source, photos):
    settings = {"flavour": "none", "precision": "int8", "calibration": photos, "min_agreement": 0.0}
    first = build(source, tmp_path / "a.trtpost", **settings).passport.request
    photos = photos.rename(tmp_path / "moved")
    settings["calibration"] = str(photos)
    assert build(source, tmp_path / "a.trtpost", **settings).passport.request == first
    (photos / "2.png").unlink()
    assert build(source, tmp_path / "a.trtpost", **settings).passport.request != first


def test_a_timing_cache_does_not_decide_the_bundle():
    requests = {
        request_hash("hash", BuildOptions(flavour="tensorrt", timing_cache=cache), "tensorrt", (), "")
        for cache in (None, "a.cache", "b.cache")
    }
    assert len(requests) == 1
    assert request_hash("hash", BuildOptions(flavour="tensorrt", workspace=64), "tensorrt", (), "") not in requests


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Says which GPU there is, and records for which ones a plan of TensorRT for RTX is built, which then fails."""
    asked = []

    def refuse(_graph, _profile, _flavour, settings, **_):
        asked.append(settings.compute_capabilities)
        raise BackendError("not here")

    def on(capability):
        driver = Driver("13.0", (Device("Some GPU", capability, 8 << 30),))
        monkeypatch.setattr("trtpost.cuda.driver", lambda: driver)
        return asked

    monkeypatch.setattr("trtpost.builder.plan.build_plan", refuse)
    monkeypatch.setattr("trtpost.backends.tensorrt.configuration.check_builder", lambda *_: None)
    monkeypatch.setattr("trtpost.backends.tensorrt.suitable.builder_here", lambda: ("tensorrt_rtx", ""))
    return on


def test_a_plan_is_for_the_gpu_of_this_machine(tmp_path, source, on_a_gpu):
    """TensorRT for RTX leaves 7.5 out unless it is asked for."""
    asked = on_a_gpu("7.5")
    requests = {build(source, tmp_path / "a.trtpost").passport.request}
    on_a_gpu("8.9")
    requests.add(build(source, tmp_path / "a.trtpost").passport.request)
    assert asked == [("7.5",), ()]
    assert len(requests) == 2


def test_a_plan_for_other_gpus_is_said_before_it_is_built(tmp_path, source, on_a_gpu):
    on_a_gpu("9.0")
    ears = Ears()
    build(source, tmp_path / "a.trtpost", progress=ears)
    assert ears.warned[0].startswith(
        "the plan is for other GPUs than this machine's, where the CPU goes on: TensorRT for"
    )
    assert "-m pip install tensorrt-cu13 --extra-index-url https://pypi.nvidia.com" in ears.warned[0]


def test_a_plan_of_another_precision_is_never_only_a_warning(tmp_path, source, monkeypatch):
    def refuse(*_, **__):
        raise PrecisionError("only 0 of 1")

    monkeypatch.setattr("trtpost.builder.plan.build_plan", refuse)
    monkeypatch.setattr("trtpost.backends.tensorrt.configuration.check_builder", lambda *_: None)
    monkeypatch.setattr("trtpost.backends.tensorrt.suitable.builder_here", lambda: ("tensorrt_rtx", ""))
    with pytest.raises(PrecisionError):
        build(source, tmp_path / "a.trtpost", precision="fp16")
    assert not (tmp_path / "a.trtpost").exists()


def test_labels_leave_nothing_to_a_kernel(tmp_path):
    labels = net("a = ArgMax <axis = 1, keepdims = 0> (image)", "float[1,3,8,12] image", "int64[1,8,12] a")
    with pytest.raises(SpecError, match="ends in labels"):
        build(save(labels, tmp_path / "l.onnx"), tmp_path / "a.trtpost", flavour="tensorrt_rtx", post="kernel")
    with pytest.raises(SpecError, match="ends in labels"):
        BuildOptions(head="labels", post="kernel")


def test_weights_that_are_no_numbers_are_said(tmp_path):
    spoilt = kernel(4).copy()
    spoilt[0, 0, 0, 0] = np.nan
    text = ("logits = Conv (image, k)", "float[1,3,8,12] image", "float[1,4,8,12] logits")
    source, ears = save(net(*text, k=spoilt), tmp_path / "nan.onnx"), Ears()
    build(source, tmp_path / "a.trtpost", flavour="none", normalize="signed", progress=ears)
    assert ears.warned == ["weight 'k' holds NaN or infinities, so the mask is likely to be wrong everywhere"]
    with pytest.raises(ModelError, match="weight 'k' holds NaN"):
        build(source, tmp_path / "b.trtpost", flavour="none", normalize="signed", precision="fp16")
