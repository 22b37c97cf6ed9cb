"""A bundle's graph in standard ops: the same mask in every runtime, and nothing replaced that is not ours."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from conftest import package, skip, trtpost
from nets import kernel, nchw, net, nhwc, save

import trtpost as tp
from trtpost.bundle.folder import load_bundle
from trtpost.errors import ModelError
from trtpost.export import export_onnx
from trtpost.graph.baking.postprocess import size_inputs
from trtpost.letterbox import Region

CASES = [
    {"resize": resize, "size": size, "match": match, "fit": fit}
    for resize in ("nearest", "bilinear")
    for size in ("runtime", (20, 31), "image")
    for match in ("tf", "opencv")
    for fit in ("stretch", "letterbox")
    if size != "image" or (fit == "stretch" and match == "tf")
]


def channels_last():
    """Logits [N, h, w, C], and no Transpose after them."""
    return net(
        "logits = MatMul (image, k)", "float[1,8,12,3] image", "float[1,8,12,4] logits", k=kernel(4)[:, :, 0, 0].T
    )


def in_openvino(path, feeds):
    openvino = package("openvino")
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled(feeds)[0]


def in_opencv(path, feeds):
    cv2 = package("cv2")
    if int(cv2.__version__.split(".")[0]) < 5:
        skip("OpenCV before 5 takes no graph whose sizes are computed")
    network = cv2.dnn.readNetFromONNX(str(path))
    for name, value in feeds.items():
        network.setInput(value, name)
    return network.forward("mask")


def in_reference(path, feeds):
    return onnx.reference.ReferenceEvaluator(onnx.load(path)).run(None, feeds)[0]


def in_onnxruntime(path, feeds):
    return onnxruntime.InferenceSession(path).run(None, feeds)[0]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Builds a bundle and exports it: (bundle, file, inputs, ONNX Runtime's mask of the bundle)."""
    folder = tmp_path_factory.mktemp("exported")
    known = {}

    def get(make, settings):
        key = make.__name__, *settings.items()
        if key not in known:
            source = save(make(), folder / f"{len(known)}.onnx")
            bundle = tp.build(source, folder / f"{len(known)}.trtpost", flavour="none", normalize="unit", **settings)
            size = (41, 67) if settings["size"] == "image" else (8, 12)
            feeds = {"image": np.random.default_rng(7).integers(0, 256, (1, *size, 3), np.uint8)}
            if settings["size"] == "runtime":
                feeds |= size_inputs(bundle.passport.post, Region(1, 2, 5, 6), (20, 31))
            path = export_onnx(bundle, folder / f"{len(known)}.inlined.onnx")
            known[key] = bundle, path, feeds, in_onnxruntime(bundle.model, feeds)
        return known[key]

    return get


@pytest.mark.parametrize("settings", CASES, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.parametrize("make", [nchw, nhwc, channels_last])
@pytest.mark.parametrize("run", [in_onnxruntime, in_reference, in_openvino, in_opencv])
def test_every_runtime_gives_the_mask_of_the_bundle(exported, make, run, settings):
    _, path, feeds, expected = exported(make, settings)
    mask = run(path, feeds)
    assert mask.dtype == expected.dtype
    assert mask.shape == expected.shape
    np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("make", [nchw, channels_last])
def test_the_file_holds_standard_ops_and_no_functions(exported, make):
    _, path, _, _ = exported(make, CASES[0])
    model = onnx.load(path)
    assert not model.functions
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert [entry.domain for entry in model.opset_import] in ([""], ["ai.onnx"])
    onnx.checker.check_model(model, full_check=True)


def test_openvino_takes_the_export_and_not_the_bundle(exported):
    bundle, path, feeds, _ = exported(nchw, CASES[0])
    in_openvino(path, feeds)
    with pytest.raises(Exception, match="ArgMaxResize"):
        in_openvino(bundle.model, feeds)


def test_the_file_is_named_after_the_bundle_and_infer_runs_it(exported, tmp_path):
    bundle, _, _, _ = exported(nchw, CASES[0])
    run = trtpost("export", "onnx", bundle.place, cwd=tmp_path)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, f"{bundle.place.stem}.inlined.onnx", "")
    again = trtpost("export", "onnx", run.stdout.strip(), "-o", "again.onnx", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    photo = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)
    with tp.Segmenter(bundle.place, backend="onnxruntime") as ours:
        expected = ours(photo).mask
    with tp.Segmenter(tmp_path / "again.onnx") as theirs:
        np.testing.assert_array_equal(theirs(photo).mask, expected)


def test_only_a_graph_of_ours_is_replaced(exported, tmp_path):
    bundle, path, _, _ = exported(nchw, CASES[0])
    assert export_onnx(bundle, path) == path
    other = save(nchw(), tmp_path / "other.onnx")
    (tmp_path / "notes.onnx").write_text("notes")
    before = bundle.model.read_bytes()
    for target, words in (
        (other, "is no graph that trtpost wrote"),
        (tmp_path / "notes.onnx", "is no graph that trtpost wrote"),
        (bundle.model, "lies in an engine bundle"),
        (bundle.place / "more.onnx", "lies in an engine bundle"),
        (tmp_path, "is a folder"),
    ):
        content = target.read_bytes() if target.is_file() else None
        with pytest.raises(ModelError, match=words):
            export_onnx(bundle, target)
        assert content is None or target.read_bytes() == content
    assert bundle.model.read_bytes() == before


def test_a_baked_file_is_not_written_over_itself(exported, tmp_path):
    bundle, _, _, _ = exported(nchw, CASES[0])
    alone = tmp_path / "model.onnx"
    alone.write_bytes(bundle.model.read_bytes())
    with pytest.raises(ModelError, match="is the graph that is exported"):
        export_onnx(load_bundle(alone), alone)


def test_what_is_no_bundle_is_refused_in_a_sentence(tmp_path):
    save(nchw(), tmp_path / "net.onnx")
    for name, words in (("net.onnx", "is a model, not an engine bundle"), ("nothing", "no such engine bundle")):
        run = trtpost("export", "onnx", name, cwd=tmp_path)
        assert (run.returncode, run.stdout) == (1, "")
        assert words in run.stderr
        assert "Traceback" not in run.stderr
    assert not list(tmp_path.glob("*.inlined.onnx"))
