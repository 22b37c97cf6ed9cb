"""ONNX files as other people's tools write them: old and new operator sets, IR versions, weights beside the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from conftest import package, trtpost
from nets import kernel, nchw, save
from onnx.helper import make_node, make_tensor_value_info

from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.builder.agreement import compare
from trtpost.builder.build import build
from trtpost.errors import ModelError
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.seam import inlined, split
from trtpost.graph.head.locate import locate
from trtpost.graph.precision.reduce import PRECISIONS, network_inputs, reduced
from trtpost.graph.reading import model as models
from trtpost.graph.reading.model import MAX_IR_VERSION, load_model, normalized, save_model
from trtpost.kernels import reference
from trtpost.spec import Post, Pre

SIZE = (21, 34)
PHOTO = np.random.default_rng(1).integers(0, 256, (1, 16, 24, 3), np.uint8)
IR_VERSIONS = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7}
"""That exporters wrote with each opset; 8 to 10 later."""


class Network:
    """Writes a segmentation network as an exporter of one opset did; in numpy-checked opset 17 for the truth."""

    def __init__(self, opset: int) -> None:
        self.opset, self.nodes, self.weights = opset, [], {}
        self.rng = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        output = name or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(make_node(op, inputs, [output], **attributes))
        return output

    def weight(self, values: object, dtype: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values, dtype)
        return name

    def normal(self, *shape: int) -> str:
        return self.weight(self.rng.standard_normal(shape) * 0.3)

    def axes(self, op: str, source: str, axes: list[int], since: int, **attributes: object) -> str:
        """An operator whose axes were an attribute before the opset `since`."""
        if self.opset < since:
            return self.node(op, source, axes=axes, **attributes)
        return self.node(op, source, self.weight(axes, np.int64), **attributes)

    def resize(self, source: str, mode: str, factors: tuple[float, float], name: str = "") -> str:
        """As `Upsample` and the first `Resize` meant it: output pixel j at j / scale."""
        scales = [1.0, 1.0, *factors]
        if self.opset < 9:
            return self.node("Upsample", source, mode=mode, scales=scales, name=name)
        if self.opset < 11:
            return self.node(
                "Upsample" if self.opset == 9 else "Resize", source, self.weight(scales), mode=mode, name=name
            )
        region = self.weight([]) if self.opset < 13 else ""
        rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
        coordinates = {"coordinate_transformation_mode": "asymmetric", "mode": mode}
        return self.node("Resize", source, region, self.weight(scales), name=name, **coordinates, **rounding)

    def model(self) -> onnx.ModelProto:
        old = self.opset < 11
        x = self.node("Conv", "image", self.normal(6, 3, 3, 3), self.normal(6), pads=[1] * 4, strides=[2, 2])
        moments = [self.weight(self.rng.uniform(0.5, 2, 6)) for _ in range(4)]
        spatial = {"spatial": 1} if self.opset < 9 else {}
        x = skip = self.node("Relu", self.node("BatchNormalization", x, *moments, **spatial))
        x = self.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        ratio = [] if self.opset < 12 else [self.weight(0.3)]
        x = self.node("Dropout", x, *ratio, **({"ratio": 0.3} if self.opset < 12 else {}))
        pads = [0, 0, 1, 1, 0, 0, 1, 1]
        if old:
            x = self.node("Pad", x, pads=pads, value=0.25)
        else:
            x = self.node("Pad", x, self.weight(pads, np.int64), self.weight(0.25))
        x = self.node("Conv", x, self.normal(6, 6, 3, 3))
        if old:
            x = self.node("Clip", x, min=-1.5, max=1.5)
        else:
            x = self.node("Clip", x, self.weight(-1.5), self.weight(1.5))
        # a branch with the context of the whole photo
        context = self.axes("ReduceMean", x, [2, 3], since=18, keepdims=1)
        context = self.axes("Unsqueeze", self.axes("Squeeze", context, [2, 3], since=13), [2, 3], since=13)
        x = self.node("Add", x, context)
        if self.opset < 10:
            x = self.node("Slice", x, starts=[0], ends=[5], axes=[1])
        else:
            x = self.node("Slice", x, *(self.weight([value], np.int64) for value in (0, 5, 1)))
        x = self.resize(x, "nearest", (2.0, 2.0))
        x = self.node("Concat", x, skip, axis=1)
        x = self.node("Conv", x, self.normal(4, 11, 1, 1), name="scores")
        x = self.resize(x, "linear", (2.0, 2.0), name="logits")
        x = self.node("Transpose", x, perm=[0, 2, 3, 1])
        # flattens before opset 13, which with the last axis is no difference
        self.node("Softmax", x, axis=3, name="probabilities")
        return written(
            self.nodes, self.weights, self.opset, ("image", [1, 3, 16, 24]), ("probabilities", [1, 16, 24, 4])
        )


def written(nodes, weights, opset, source, result) -> onnx.ModelProto:
    """A model; before IR version 4 its weights are inputs as well."""
    initializers = [onnx.numpy_helper.from_array(values, name) for name, values in weights.items()]
    version = IR_VERSIONS.get(opset, 8 if opset < 19 else 9 if opset < 21 else 10)
    inputs = [make_tensor_value_info(source[0], onnx.TensorProto.FLOAT, source[1])]
    if version < 4:
        inputs += [make_tensor_value_info(one.name, one.data_type, one.dims) for one in initializers]
    outputs = [make_tensor_value_info(result[0], onnx.TensorProto.FLOAT, result[1])]
    graph = onnx.helper.make_graph(nodes, "net", inputs, outputs, initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=version)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def baked(model: onnx.ModelProto, **post) -> tuple[onnx.ModelProto, Post]:
    found = locate(model)
    spec = Post(head=found.head, layout=found.layout, classes=found.classes, **post)
    return bake(model, found, Pre(*found.input_size, mean=(127.5,), std=(127.5,)), spec), spec


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    """The network's probabilities [1, 16, 24, 4], by ONNX's reference: of opset 17, where nothing is implied."""
    pixels = (PHOTO.astype(np.float32) - np.float32(127.5)) / np.float32(127.5)
    evaluator = onnx.reference.ReferenceEvaluator(Network(17).model())
    return evaluator.run(None, {"image": pixels.transpose(0, 3, 1, 2)})[0]


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_a_network_of_every_opset_keeps_its_mask(truth, opset):
    """Operators whose form or meaning changed since opset 7: the same pixels and names through the build."""
    source = Network(opset).model()
    onnx.checker.check_model(source)
    model = normalized(source, "net")
    assert locate(model).logits == "logits"  # the converter of opsets gives tensors other names
    graph, _ = baked(model)
    assert {entry.domain: entry.version for entry in graph.opset_import} == {"": max(opset, 13), "trtpost": 1}
    assert graph.ir_version <= MAX_IR_VERSION
    for form in (graph, inlined(graph)):
        (mask,) = session(form).run(["mask"], {"image": PHOTO, "output_size": np.array(SIZE)})
        expected = reference.argmax_resize(truth.transpose(0, 3, 1, 2), SIZE, Post(classes=4))
        np.testing.assert_array_equal(mask, expected)
    network, _ = split(graph)
    (logits,) = session(network).run(None, {"image": PHOTO})
    powers = np.exp(logits - logits.max(1, keepdims=True)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(powers / powers.sum(-1, keepdims=True), truth, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 18, 21, 23])
def test_a_network_of_every_opset_becomes_a_plan(opset):
    """TensorRT's parser has its own ideas of operator sets."""
    package("tensorrt_rtx")
    graph, _ = baked(normalized(Network(opset).model(), "net"))
    assert build_plan(graph, Profile(1, (64, 64)), "tensorrt_rtx")[0]


@pytest.mark.parametrize("opset", [7, 12, 21])
def test_a_network_of_every_opset_takes_bfloat16(opset):
    """For which it is raised once more, to the first opset whose convolutions take it."""
    model = normalized(Network(opset).model(), "net")
    found, pre = locate(model), Pre(16, 24, mean=(127.5,), std=(127.5,))
    plain, lowered = (
        bake(model, found, pre, Post(classes=4), reduce=lambda network, to=to: reduced(network, to, ()))
        for to in ("fp32", "bf16")
    )
    assert compare(plain, lowered, PHOTO).share > 0.98


@pytest.mark.parametrize("factors", [(2.0, 3.0), (2.5, 3.3), (0.6, 0.7), (1.0, 0.5)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 8, 9, 10])
def test_resizes_of_before_opset_11_have_no_pixel_centres(opset, mode, factors):
    """`Upsample` and the first `Resize`: output pixel j is at j / scale, which rounds up where it makes smaller."""
    if opset < 10 and min(factors) < 1:
        return  # Upsample only enlarges
    net = Network(opset)
    net.resize("image", mode, factors, name="large")
    net.node("Identity", "large", name="out")  # so that `large` is in the middle of the graph
    size = [int(side * np.float32(factor)) for side, factor in zip((16, 24), factors, strict=True)]
    model = normalized(written(net.nodes, net.weights, opset, ("image", [1, 3, 16, 24]), ("out", [1, 3, *size])), "net")
    assert [node.output[0] for node in model.graph.node if node.op_type == "Resize"] == ["large"]
    image = PHOTO.astype(np.float32).transpose(0, 3, 1, 2)
    (found,) = session(model).run(None, {"image": image})
    rows, columns = (
        np.arange(length, dtype=np.float32) / np.float32(factor) for length, factor in zip(size, factors, strict=True)
    )
    if mode == "nearest":
        rounded = np.ceil if min(factors) < 1 else np.floor
        rows, columns = (
            np.minimum(rounded(places).astype(int), side - 1) for places, side in ((rows, 16), (columns, 24))
        )
        np.testing.assert_array_equal(found, image[:, :, rows][..., columns])
        return
    expected = image
    for axis, places in ((2, rows), (3, columns)):
        last = expected.shape[axis] - 1
        limited = np.minimum(places, last)
        lower = np.floor(limited).astype(int)
        weight = (limited - lower).reshape([-1 if one == axis else 1 for one in range(4)])
        below, above = expected.take(lower, axis), expected.take(np.minimum(lower + 1, last), axis)
        expected = below + (above - below) * weight
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_resize_that_no_later_opset_can_say_is_refused():
    """Down along one axis and up along the other, nearest, opset 10: rounds up along the one, down along the other."""
    net = Network(10)
    net.resize("image", "nearest", (0.5, 2.0), name="out")
    model = written(net.nodes, net.weights, 10, ("image", [1, 3, 16, 24]), ("out", [1, 3, 8, 48]))
    with pytest.raises(ModelError, match=r"Resize 'out' makes one axis smaller.*opset 11 or later"):
        normalized(model, "net")


@pytest.mark.parametrize("axis", [1, 2, 3, None])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_what_flattens_before_opset_13_flattens(op, axis):
    """Their axis said where rows of a matrix end, and is now the one axis that they look along."""
    attributes = {} if axis is None else {"axis": axis}
    source = written([make_node(op, ["x"], ["y"], **attributes)], {}, 12, ("x", [1, 3, 4, 6]), ("y", [1, 3, 4, 6]))
    values = np.random.default_rng(0).standard_normal((1, 3, 4, 6)).astype(np.float32)
    (found,) = session(normalized(source, "net")).run(None, {"x": values})
    flat = values.reshape(int(np.prod(values.shape[: axis or 1])), -1).astype(np.float64)
    powers = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
    expected = {"Softmax": powers, "LogSoftmax": np.log(powers), "Hardmax": flat == flat.max(1, keepdims=True)}[op]
    np.testing.assert_allclose(found, expected.reshape(values.shape), atol=1e-6)


def test_batch_normalization_with_statistics_for_each_pixel():
    """`spatial = 0` of opsets 7 and 8, which the converter of opsets does not take."""
    rng = np.random.default_rng(0)
    scale, bias, mean, variance = moments = [rng.uniform(0.5, 1.5, (3, 4, 6)).astype(np.float32) for _ in range(4)]
    weights = dict(zip("sbmv", moments, strict=True))
    node = make_node("BatchNormalization", ["x", *weights], ["y"], spatial=0, epsilon=0.1)
    source = written([node], weights, 7, ("x", [1, 3, 4, 6]), ("y", [1, 3, 4, 6]))
    values = rng.standard_normal((1, 3, 4, 6)).astype(np.float32)
    (found,) = session(normalized(source, "net")).run(None, {"x": values})
    np.testing.assert_allclose(found, scale * (values - mean) / np.sqrt(variance + 0.1) + bias, atol=1e-5)


def test_an_opset_that_the_libraries_do_not_know_is_refused(tmp_path):
    """Newer than the onnx that is installed: the sentence names the highest that runs."""
    model = nchw()
    model.opset_import[0].version = 99
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(ModelError, match=rf"opset 99, and onnx .* knows none after {newest}: export it with opset"):
        load_model(save(model, tmp_path / "net.onnx"))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_graph_of_ours_has_an_ir_version_that_runtimes_do_not_take(monkeypatch, precision):
    """A new release of onnx, whose own IR version is higher, raises ours not by one."""
    monkeypatch.setattr(onnx, "IR_VERSION", 99)
    monkeypatch.setattr(onnx.helper, "IR_VERSION", 99, raising=False)
    source = nchw()
    source.ir_version = 42
    model = normalized(source, "net")
    found = locate(model)
    pre = Pre(*found.input_size)
    inputs = network_inputs([np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)], pre, found)
    graph = bake(model, found, pre, Post(classes=4), reduce=lambda network: reduced(network, precision, inputs))
    for one in (model, graph, inlined(graph), *split(graph)):
        assert one.ir_version <= MAX_IR_VERSION
        onnx.checker.check_model(one)


def test_element_types_newer_than_the_ir_version_that_runtimes_take_are_refused(tmp_path):
    """Lowering the IR version is fine where nothing in the model needs it, and only there."""
    source = nchw()
    source.ir_version = onnx.IR_VERSION
    assert load_model(save(source, tmp_path / "new.onnx")).ir_version == MAX_IR_VERSION
    values = onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT4E2M1, [4, 3, 1, 1], [1.0] * 12)
    source.graph.initializer[0].CopyFrom(values)
    with pytest.raises(
        ModelError, match=r"tensor 'k' has the type FLOAT4E2M1.*export the network in float16 or float32"
    ):
        load_model(save(source, tmp_path / "newer.onnx"))


def test_initializers_among_the_inputs_are_constants():
    """IR version 3 demanded it; later ones mean defaults that a caller may override, even one shaped like an image."""
    net = Network(13)
    shaped = net.weight(np.random.default_rng(3).standard_normal((1, 3, 16, 24)))
    net.node("Conv", net.node("Add", "image", shaped), net.normal(4, 3, 1, 1), name="logits")
    source = written(net.nodes, net.weights, 13, ("image", [1, 3, 16, 24]), ("logits", [1, 4, 16, 24]))
    for one in source.graph.initializer:
        source.graph.input.insert(0, make_tensor_value_info(one.name, one.data_type, one.dims))
    model = normalized(source, "net")
    assert [value.name for value in model.graph.input] == ["image"]
    graph, _ = baked(model)
    (mask,) = session(graph).run(["mask"], {"image": PHOTO, "output_size": np.array((16, 24))})
    pixels = (PHOTO.astype(np.float32).transpose(0, 3, 1, 2) - 127.5) / 127.5
    logits = np.einsum("nchw,dc->ndhw", pixels + net.weights[shaped], net.weights["w1"][:, :, 0, 0])
    np.testing.assert_array_equal(mask, logits.argmax(1))


def external(folder: Path, location: str, name: str = "net.onnx") -> Path:
    """A model whose weights are in a file of their own."""
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    model = nchw()
    onnx.save_model(model, folder / name, save_as_external_data=True, location=location, size_threshold=0)
    return folder / name


def moved_to(path: Path, location: str) -> Path:
    """The same model, saying that its weights are elsewhere."""
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_in_a_subfolder_is_found_from_any_working_directory(tmp_path, monkeypatch):
    """The location is relative to the model, not to where the command runs; the bundle needs neither any more."""
    path = external(tmp_path / "model", "weights/net.bin")
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    relative = Path(os.path.relpath(path))
    bundle = build(relative, flavour="none", normalize="signed")
    done = build(relative, flavour="none", normalize="signed")
    assert done.passport == bundle.passport
    path.rename(tmp_path / "gone")
    (tmp_path / "model/weights/net.bin").unlink()
    (elsewhere / "net.trtpost").rename(tmp_path / "moved.trtpost")
    graph = onnx.load(tmp_path / "moved.trtpost/model.onnx", load_external_data=False)
    assert not any(one.external_data for one in graph.graph.initializer)
    (mask,) = session(graph).run(["mask"], {"image": PHOTO[:, :8, :12], "output_size": np.array((8, 12))})
    pixels = (PHOTO[:, :8, :12].astype(np.float32) - 127.5) / 127.5
    np.testing.assert_array_equal(mask, np.einsum("nhwc,dc->ndhw", pixels, kernel(4)[:, :, 0, 0]).argmax(1))


def test_weights_that_are_missing_are_named(tmp_path):
    """One sentence from the command line, exit code 1, and nothing written."""
    path = external(tmp_path, "weights/net.bin")
    (tmp_path / "weights/net.bin").unlink()
    done = trtpost("build", path.name, "--flavour", "none", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "trtpost: net.onnx keeps its weights in weights/net.bin, which is missing: put it there, or export the model "
        "again as one file"
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "weights"]


@pytest.mark.parametrize("location", ["../net.bin", "/etc/hostname", "", "weights/../../net.bin"])
def test_weights_outside_the_models_folder_are_not_read(tmp_path, location):
    """A model from a stranger must not read files of its reader's."""
    path = external(tmp_path / "model", "net.bin")
    (tmp_path / "net.bin").write_bytes((tmp_path / "model/net.bin").read_bytes())
    (tmp_path / "model/weights").mkdir()
    with pytest.raises(ModelError) as caught:
        load_model(moved_to(path, location))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_are_cut_short_are_refused(tmp_path):
    """A download that broke off."""
    path = external(tmp_path, "net.bin")
    (tmp_path / "net.bin").write_bytes(b"1234")
    with pytest.raises(ModelError, match=r"net\.onnx.*exceeds available data"):
        load_model(path)


def test_more_than_one_file_can_hold_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """Protocol buffers end at 2 GiB; the file of weights here has no content and a length."""
    path = external(tmp_path, "net.bin")
    os.truncate(tmp_path / "net.bin", 3 << 30)
    with pytest.raises(ModelError, match=r"has 3\.2 GB with its weights.*2\.1 GB: export the network in float16"):
        load_model(path)
    monkeypatch.setattr(models, "LARGEST", 100)
    with pytest.raises(ModelError, match="one file can have"):
        save_model(nchw(), tmp_path / "large.onnx")
    assert not (tmp_path / "large.onnx").exists()
