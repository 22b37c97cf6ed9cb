"""Graphs that exporters, quantisers and people write, and nobody expects: built right, or refused in a sentence."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from conftest import package
from nets import kernel, nchw, save
from onnx import TensorProto
from onnx.helper import (
    make_function,
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_sparse_tensor,
    make_tensor_value_info,
)
from onnx.numpy_helper import from_array
from PIL import Image

from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle
from trtpost.errors import ModelError, TrtpostError
from trtpost.graph.head import probe
from trtpost.graph.reading.model import MAX_IR_VERSION, load_model, normalized, set_metadata
from trtpost.progress import Progress
from trtpost.segment import Segmenter
from trtpost.verify.run import Replaced, verify

PHOTO = np.random.default_rng(7).integers(0, 256, (8, 12, 3), np.uint8)
IMAGE, LOGITS = "float[1,3,8,12] image", "float[1,4,8,12] out"
CONV = "y = Conv (image, k)\n "


class Warnings(Progress):
    """Keeps them."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


def graph(body: str, inputs: str = IMAGE, outputs: str = LOGITS, **weights: object) -> onnx.ModelProto:
    """A model as its author wrote it: not normalised, weights by name."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => ({outputs}) {{ {body} }}'
    )
    model.graph.initializer.extend(from_array(np.asarray(value), name) for name, value in weights.items())
    return model


def source_outputs(model: onnx.ModelProto, images: int = 1) -> list[np.ndarray]:
    """What ONNX Runtime makes of the photo with the model as it was."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = (PHOTO.astype(np.float32) / np.float32(255))[None].repeat(images, 0)
    (source,) = (one for one in session.get_inputs() if one.name == "image")
    values = values if source.shape[3] == 3 else values.transpose(0, 3, 1, 2)
    return session.run(None, {"image": values})


def mask_of(model: onnx.ModelProto, folder: Path, **settings: object) -> np.ndarray:
    """The mask of the photo, by a bundle that is built for it."""
    path = save(model, folder / "net.onnx")
    settings = {"normalize": "unit", "flavour": "none"} | settings
    with Segmenter(build(path, folder / "net.trtpost", force=True, **settings), backend="onnxruntime") as engine:
        return engine(PHOTO).mask


def refused(model: onnx.ModelProto, folder: Path, pattern: str, **settings: object) -> None:
    """It is, in one sentence, and nothing is written."""
    with pytest.raises(TrtpostError, match=pattern) as caught:
        mask_of(model, folder, **settings)
    text = str(caught.value)
    assert "\n" not in text
    assert "network/" not in text, "internal names are not for people"
    assert "InferenceError" not in text
    assert [file.name for file in folder.iterdir()] == ["net.onnx"]


PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])


def best(model: onnx.ModelProto) -> np.ndarray:
    """The ArgMax of the model's own logits."""
    return source_outputs(model)[0][0].argmax(0)


def test_a_network_that_onnx_runtime_has_no_kernel_for_is_refused(tmp_path):
    """Arithmetic in a type that ONNX has, and the runtime has not: a bundle that could never run."""
    double = graph("i = Cast <to = 11> (image)\n out = Conv (i, k)", outputs="double[1,4,8,12] out", k=kernel(4) * 1.0)
    double.graph.initializer[0].CopyFrom(from_array(kernel(4).astype(np.float64), "k"))
    refused(double, tmp_path, r"has no Conv \(node 'out'\) in float64: export the network in float32")


@PRECISIONS
def test_an_operator_that_nobody_knows_is_refused(tmp_path, precision):
    """A custom operator before the logits; after them it does not matter."""
    before = graph("y = Conv (image, k)\n out = Relu (y)", k=kernel(4))
    before.graph.node[1].op_type, before.graph.node[1].domain = "Magic", "acme"
    before.opset_import.append(make_opsetid("acme", 1))
    refused(before, tmp_path, r"operator acme::Magic \(node 'out'\): replace it", precision=precision)
    mask = mask_of(before, tmp_path, logits="y", precision=precision)
    expected = best(graph("out = Conv (image, k)", k=kernel(4)))
    assert (mask == expected).mean() >= (1 if precision == "fp32" else 0.95)


@pytest.mark.parametrize("text", ["nope", "5", '"abcd"', '{"a": 1}', '[[1], {"a": 1}, null, 3]', "[" * 20_000, ""])
def test_class_names_in_the_metadata_that_are_none(tmp_path, text):
    """Of another type, or no JSON: said so, and `--labels` replaces them."""
    model = nchw()
    set_metadata(model, {"labels": text})
    refused(model, tmp_path, r"metadata entry trtpost\.labels is no list of class names.*--labels")
    assert mask_of(model, tmp_path, labels=("a", "b", "c", "d")).shape == (8, 12)


@pytest.mark.parametrize("text", ["nope", "[]", "{}", '{"mean": "1", "std": "2"}', '{"mean": [true], "std": [1]}'])
def test_a_normalisation_in_the_metadata_that_is_none(tmp_path, text):
    """The same of mean and deviation; `--normalize` replaces them."""
    model = nchw()
    set_metadata(model, {"normalization": text})
    refused(model, tmp_path, r"metadata entry trtpost\.normalization is no JSON.*--normalize", normalize=None)
    assert mask_of(model, tmp_path).shape == (8, 12)


NEGATIVE = {
    "where": "m = ReduceMax <axes = [1]> (y)\n g = Greater (m, t)\n a = ArgMax <axis = 1> (y)\n out = Where (g, a, n)",
    "sub": "a = ArgMax <axis = 1> (y)\n out = Sub (a, o)",
    "table": "a = ArgMax <axis = 1> (y)\n out = Gather (l, a)",
}


@pytest.mark.parametrize("kind", [1, 6, 7])
@pytest.mark.parametrize("ending", NEGATIVE)
def test_class_ids_below_zero_become_255(tmp_path, ending, kind):
    """`ignore`: -1 by a confidence, by classes that begin at one, by a table; a mask is unsigned."""
    name = {1: "float", 6: "int32", 7: "int64"}[kind]
    body = CONV + NEGATIVE[ending].replace("out =", "z =") + f"\n out = Cast <to = {kind}> (z)"
    constants = {"t": np.float32(0.6), "n": np.int64(-1), "o": np.int64(1), "l": np.array([-7, 3, -1, 2])}
    model = graph(body, outputs=f"{name}[1,1,8,12] out", k=kernel(4), **constants)
    expected = source_outputs(model)[0].reshape(8, 12)
    assert (expected < 0).any()
    ears = Warnings()
    mask = mask_of(model, tmp_path, progress=ears)
    np.testing.assert_array_equal(mask, np.where(expected < 0, 255, expected))
    assert any("class ids below zero become 255" in text for text in ears.texts)
    with Segmenter(tmp_path / "net.trtpost", backend="onnxruntime") as engine:
        engine(PHOTO).save_mask(tmp_path / "mask.png")
    (tmp_path / "photos").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "photos/p.png")
    bundle = load_bundle(tmp_path / "net.trtpost")
    report = verify(bundle, tmp_path / "net.onnx", tmp_path / "photos", replaced=Replaced(normalize="unit"))
    assert report.total.different == 0


def loop(
    trips: int | None, body_condition: str = "cin", size: tuple[int | str, int | str] = (8, 12)
) -> onnx.ModelProto:
    """`y`, added to its own Relu again and again."""
    flag, number = TensorProto.BOOL, TensorProto.INT64
    shape = [1, 4, *size]
    nodes = [make_node("Relu", ["cur"], ["r"]), make_node("Add", ["r", "y"], ["nxt"])]
    nodes += [make_node("Identity", [body_condition], ["cout"])]
    body = make_graph(
        nodes,
        "body",
        [
            make_tensor_value_info("it", number, []),
            make_tensor_value_info("cin", flag, []),
            make_tensor_value_info("cur", 1, shape),
        ],
        [make_tensor_value_info("cout", flag, []), make_tensor_value_info("nxt", 1, shape)],
    )
    count = "" if trips is None else "n"
    nodes = [make_node("Conv", ["image", "k"], ["y"]), make_node("Less", ["zero", "one"], ["always"])]
    nodes += [make_node("Loop", [count, "c", "y"], ["out"], body=body)]
    weights = {"k": kernel(4), "c": np.bool_(True), "zero": np.float32(0), "one": np.float32(1)}
    weights |= {} if trips is None else {"n": np.int64(trips)}
    return make_model(
        make_graph(
            nodes,
            "net",
            [make_tensor_value_info("image", 1, [1, 3, *size])],
            [make_tensor_value_info("out", 1, shape)],
            [from_array(np.asarray(value), name) for name, value in weights.items()],
        ),
        opset_imports=[make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize("size", [(8, 12), ("H", "W")])
@pytest.mark.parametrize("trips", [1 << 62, None])
def test_a_loop_without_end_is_refused(tmp_path, trips, size):
    """By an absurd number of steps, or none, where nothing else ends it."""
    sized = {} if size == (8, 12) else {"input_size": (8, 12)}
    refused(loop(trips, size=size), tmp_path, r"node 'out' \(Loop\) goes on for (4\.61e\+18|inf) steps", **sized)


def test_a_trial_run_that_does_not_end_is_ended(tmp_path, monkeypatch):
    """A condition that is computed and always true: only running it tells."""
    monkeypatch.setattr(probe, "PATIENCE", 0.3)
    before = time.monotonic()
    refused(
        loop(1 << 62, "always", ("H", "W")), tmp_path, "does not end: a run on zeros of 1x3x8x12", input_size=(8, 12)
    )
    assert time.monotonic() - before < 10


def scan() -> onnx.ModelProto:
    """A running sum over the classes."""
    plane = [1, 8, 12]
    body = make_graph(
        [make_node("Add", ["st", "x"], ["so"]), make_node("Mul", ["so", "w"], ["o"])],
        "body",
        [make_tensor_value_info("st", 1, plane), make_tensor_value_info("x", 1, plane)],
        [make_tensor_value_info("so", 1, plane), make_tensor_value_info("o", 1, plane)],
    )
    node = make_node(
        "Scan", ["z", "y"], ["f", "out"], body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1]
    )
    return inside(node, z=np.zeros(plane, np.float32), w=np.float32(0.7))


def branches(activation: str) -> onnx.ModelProto:
    """One convolution or another, after the photo's brightness; in one of them with a Softmax, say."""
    one = make_graph(
        [make_node("Conv", ["image", "k"], ["a"]), make_node(activation, ["a"], ["t"])],
        "then",
        [],
        [make_tensor_value_info("t", 1, [1, 4, 8, 12])],
    )
    two = make_graph([make_node("Neg", ["y"], ["e"])], "else", [], [make_tensor_value_info("e", 1, [1, 4, 8, 12])])
    model = inside(make_node("If", ["cond"], ["out"], then_branch=one, else_branch=two), c=np.float32(0))
    model.graph.node.insert(1, make_node("ReduceMean", ["image"], ["m"], keepdims=0))
    model.graph.node.insert(2, make_node("Greater", ["m", "c"], ["cond"]))
    return model


def inside(node: onnx.NodeProto, **weights: object) -> onnx.ModelProto:
    """A network that ends in one node of its own, after `y`."""
    weights = {"k": kernel(4)} | weights
    return make_model(
        make_graph(
            [make_node("Conv", ["image", "k"], ["y"]), node],
            "net",
            [make_tensor_value_info("image", 1, [1, 3, 8, 12])],
            [make_tensor_value_info("out", 1, [1, 4, 8, 12])],
            [from_array(np.asarray(value), name) for name, value in weights.items()],
        ),
        opset_imports=[make_opsetid("", 17)],
        ir_version=8,
    )


MODELS_WITH_BODIES = {"loop": loop(3), "scan": scan(), "if": branches("Relu"), "if in float32": branches("Exp")}


@PRECISIONS
@pytest.mark.parametrize("model", MODELS_WITH_BODIES.values(), ids=MODELS_WITH_BODIES)
def test_control_flow_in_every_precision(tmp_path, model, precision):
    """What is inside stays float32, with what it takes from outside, but for an If that needs no float32."""
    mask = mask_of(model, tmp_path, precision=precision)
    assert (mask == best(model)).mean() >= (1 if precision == "fp32" else 0.95)


def squeezed(classes: int, size: tuple[int | str, ...] = (8, 12)) -> onnx.ModelProto:
    """`squeeze(1)` as PyTorch exports it where it does not know the shape: an If whose branches have other ranks."""
    one = make_graph([make_node("Squeeze", ["y", "ax"], ["t"])], "then", [], [make_tensor_value_info("t", 1, None)])
    two = make_graph([make_node("Identity", ["y"], ["t"])], "else", [], [make_tensor_value_info("t", 1, None)])
    nodes = [make_node("Conv", ["image", "k"], ["y"]), make_node("Shape", ["y"], ["s"])]
    nodes += [make_node("Gather", ["s", "i"], ["d"]), make_node("Equal", ["d", "i"], ["cond"])]
    nodes += [make_node("If", ["cond"], ["out"], then_branch=one, else_branch=two)]
    weights = {"k": kernel(classes), "ax": np.array([1]), "i": np.int64(1)}
    return make_model(
        make_graph(
            nodes,
            "net",
            [make_tensor_value_info("image", 1, ["N", 3, *size])],
            [make_tensor_value_info("out", 1, None)],
            [from_array(np.asarray(value), name) for name, value in weights.items()],
        ),
        opset_imports=[make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize("size", [(8, 12), ("H", "W")])
@pytest.mark.parametrize("classes", [1, 4])
def test_a_branch_that_sizes_decide_is_taken_when_it_is_built(tmp_path, classes, size):
    """Its condition is the same for every photo, so the other branch is not part of the network."""
    model = squeezed(classes, size)
    scores = source_outputs(graph("out = Conv (image, k)", outputs=f"float[1,{classes},8,12] out", k=kernel(classes)))
    expected = scores[0][0].argmax(0) if classes > 1 else scores[0][0, 0] > 0
    for batch in ({}, {"max_batch": 3}):
        mask = mask_of(model, tmp_path, **batch, **({} if size == (8, 12) else {"input_size": (8, 12)}))
        np.testing.assert_array_equal(mask, expected)
    baked = onnx.load(tmp_path / "net.trtpost/model.onnx")
    assert "If" not in {node.op_type for node in baked.graph.node}


TOKENS = """f = Conv <kernel_shape = [4, 4], strides = [4, 4]> (image, k)
    shape = Shape (f)
    b = Gather (shape, zero)  h = Gather (shape, two)  w = Gather (shape, three)
    bb = Unsqueeze (b, axis)  hh = Unsqueeze (h, axis)  ww = Unsqueeze (w, axis)
    flat = Concat <axis = 0> (bb, five, minus)
    t = Reshape (f, flat)
    u = Transpose <perm = [0, 2, 1]> (t)
    v = MatMul (u, m)
    """


@pytest.mark.parametrize("size", ["8,12", "H,W"])
@pytest.mark.parametrize("batch", ["1", "N"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_tokens_of_a_transformer_are_folded_by_sizes_that_it_computes(tmp_path, layout, batch, size):
    """`reshape(B, -1, H, W)`: the graph does not tell the number of classes, a run does."""
    rng = np.random.default_rng(0)
    ending = "w4 = Concat <axis = 0> (bb, hh, ww, minus)\n out = Reshape (v, w4)"
    if layout == "NCHW":
        ending = (
            "x = Transpose <perm = [0, 2, 1]> (v)\n w4 = Concat <axis = 0> (bb, minus, hh, ww)\n out = Reshape (x, w4)"
        )
    weights = {"zero": np.int64(0), "two": np.int64(2), "three": np.int64(3), "axis": np.array([0])}
    weights |= {"five": np.array([5]), "minus": np.array([-1])}
    weights |= {"k": rng.standard_normal((5, 3, 4, 4)).astype(np.float32)}
    weights |= {"m": rng.standard_normal((5, 7)).astype(np.float32)}
    model = graph(TOKENS + ending, f"float[{batch},3,{size}] image", "float[a,b,c,d] out", **weights)
    axis = 0 if layout == "NCHW" else 2
    expected = source_outputs(model)[0][0].argmax(axis).repeat(4, 0).repeat(4, 1)
    mask = mask_of(model, tmp_path, **({} if size == "8,12" else {"input_size": (8, 12)}))
    np.testing.assert_array_equal(mask, expected)
    with Segmenter(tmp_path / "net.trtpost", backend="onnxruntime") as engine:
        assert engine.bundle.passport.located.batch == (1 if batch == "1" else 0)
        for result in engine.batch([PHOTO, PHOTO]) if batch == "N" else []:
            np.testing.assert_array_equal(result.mask, expected)


def with_sparse(values: np.ndarray, places: np.ndarray, *, constant: bool) -> onnx.ModelProto:
    model = graph("y = Conv (image, k)\n out = Add (y, s)", k=kernel(4))
    sparse = make_sparse_tensor(from_array(values, "s"), from_array(places, "places"), [1, 4, 8, 12])
    if constant:
        model.graph.node.insert(0, make_node("Constant", [], ["s"], sparse_value=sparse))
    else:
        model.graph.sparse_initializer.append(sparse)
    return model


@PRECISIONS
@pytest.mark.parametrize("constant", [True, False])
def test_sparse_weights(tmp_path, constant, precision):
    """As initializers and constants, by flat places or one index an axis; written out."""
    values, flat = np.array([9, -9, 9], np.float32), np.array([5, 100, 300])
    dense = np.zeros(384, np.float32)
    dense[flat] = values
    plain = graph("y = Conv (image, k)\n out = Add (y, s)", k=kernel(4), s=dense.reshape(1, 4, 8, 12))
    for places in (flat, np.stack(np.unravel_index(flat, (1, 4, 8, 12)), 1)):
        model = with_sparse(values, places, constant=constant)
        mask = mask_of(model, tmp_path, precision=precision)
        assert (mask == best(plain)).mean() >= (1 if precision == "fp32" else 0.95)


def test_a_sparse_tensor_that_no_memory_holds_is_refused(tmp_path):
    """A few bytes that promise any number of zeros."""
    model = with_sparse(np.ones(1, np.float32), np.array([0]), constant=False)
    model.graph.sparse_initializer[0].dims[:] = [1, 4, 1 << 20, 1 << 20]
    refused(model, tmp_path, "the sparse tensor 's' .* is too large")


def called(domain: str, versions: int = 17) -> onnx.ModelProto:
    """The head in a function of the model's own: a convolution and a Sigmoid."""
    function = make_function(
        domain,
        "Head",
        ["x", "k"],
        ["o"],
        [make_node("Conv", ["x", "k"], ["c"]), make_node("Sigmoid", ["c"], ["o"])],
        [make_opsetid("", versions)],
    )
    model = graph("out = Head (image, k)", outputs="float[1,1,8,12] out", k=kernel(1) - kernel(1).mean())
    model.graph.node[0].domain = domain
    model.functions.append(function)
    model.opset_import.append(make_opsetid(domain, 1))
    return model


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("domain", ["my.domain", "trtpost"])
def test_functions_of_the_model_s_own(tmp_path, domain, precision):
    """Searches see what they hold, every precision reaches into them."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for index in range(2):
        pixels = np.random.default_rng(index).integers(0, 256, (8, 12, 3), np.uint8)
        Image.fromarray(pixels).save(photos / f"{index}.png")
    model = called(domain)
    given = {} if precision == "fp32" else {"calibration": photos, "min_agreement": 0.5}
    mask = mask_of(model, tmp_path, precision=precision, **given)
    expected = source_outputs(model)[0].reshape(8, 12) > 0.5
    assert 0 < expected.mean() < 1
    assert (mask == expected).mean() >= (1 if precision == "fp32" else 0.95)


def test_a_function_of_another_opset():
    """A body that was written for an older operator set."""
    model = normalized(called("my.domain", 13), "net")
    assert [node.op_type for node in model.graph.node] == ["Conv", "Sigmoid"]
    assert not model.functions
    assert model.ir_version <= MAX_IR_VERSION


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_one_hot_labels(tmp_path, precision):
    """Operators that bfloat16 does not have stay float32: OneHot, of what ONNX's own definitions say."""
    body = CONV + "a = ArgMax <axis = 1, keepdims = 0> (y)\n out = OneHot <axis = -1> (a, d, v)"
    model = graph(body, outputs="float[1,8,12,4] out", k=kernel(4), d=np.int64(4), v=np.array([0, 1], np.float32))
    mask = mask_of(model, tmp_path, precision=precision)
    assert (mask == source_outputs(model)[0][0].argmax(-1)).mean() >= (1 if precision == "fp32" else 0.95)


SCORES = {
    "greater": "z = Relu (y)\n b = Greater (z, h)",
    "one hot": "m = ReduceMax <axes = [1]> (y)\n b = Equal (y, m)",
}


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("body", SCORES)
def test_scores_of_types_that_arg_max_does_not_take(tmp_path, body, kind, resize):
    """A channel a class, true where it is: the first that is true."""
    number = {"bool": 9, "int8": 3, "uint8": 2, "int16": 5, "uint16": 4}[kind]
    text = CONV + SCORES[body] + f"\n out = Cast <to = {number}> (b)"
    model = graph(text, outputs=f"{kind}[1,4,8,12] out", k=kernel(4), h=np.float32(0.3))
    mask = mask_of(model, tmp_path, resize=resize)
    np.testing.assert_array_equal(mask, best(model))


@pytest.mark.parametrize("body", ["out = Reshape (a, s)", "b = Reshape (a, s)\n out = Gather (l, b)"])
def test_labels_with_their_only_axis_last(tmp_path, body):
    """[h, w, 1], of one photo, as Keras's functions give it."""
    weights = {"k": kernel(4), "s": np.array([8, 12, 1]), "l": np.array([5, 6, 7, 8])}
    model = graph(CONV + "a = ArgMax <axis = 1, keepdims = 0> (y)\n " + body, outputs="int64[8,12,1] out", **weights)
    np.testing.assert_array_equal(mask_of(model, tmp_path), source_outputs(model)[0][:, :, 0])


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_a_softmax_of_onnx_runtime_s_own(tmp_path, resize):
    """Quantised with its operators (`QOperator`), of which ONNX has no shapes."""
    body = """q = QuantizeLinear (y, ys, yz)
        p = QLinearSoftmax (q, ys, yz, ps, pz)
        out = ArgMax <axis = 1> (p)"""
    weights = {"ys": np.float32(0.05), "yz": np.uint8(128), "ps": np.float32(1 / 256), "pz": np.uint8(0)}
    model = graph(CONV + body, outputs="int64[1,1,8,12] out", k=kernel(4), **weights)
    node = next(one for one in model.graph.node if one.op_type == "QLinearSoftmax")
    node.domain = "com.microsoft"
    node.attribute.extend([onnx.helper.make_attribute("axis", 1), onnx.helper.make_attribute("opset", 17)])
    model.opset_import.append(make_opsetid("com.microsoft", 1))
    np.testing.assert_array_equal(mask_of(model, tmp_path, resize=resize), source_outputs(model)[0].reshape(8, 12))


QDQ = """q = QuantizeLinear (image, s, z)
    x = DequantizeLinear (q, s, z)
    w = DequantizeLinear (k, s)
    bf = DequantizeLinear (b, s)
    c = Conv (x, w, bf)
    y = QuantizeLinear (c, s, z)
    out = DequantizeLinear (y, s, z)"""


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(128), np.int8(-3), np.int8(0)], ids=repr)
def test_int8_that_a_plan_loses_is_said(tmp_path, zero):
    """TensorRT takes symmetric int8 alone: others are computed in float, with what to do in the warning."""
    package("tensorrt_rtx")
    weights = {"k": np.int8([[[[9]]], [[[-7]]], [[[3]]], [[[1]]]]).repeat(3, 1), "b": np.int32([5, 500, -9, 0])}
    model = graph(QDQ, s=np.float32(1 / 128), z=zero, **weights)
    ears, asked = Warnings(), {"flavour": "tensorrt_rtx", "normalize": "unit", "progress": None}
    for precision in ("fp32", "fp16") if zero else ("fp32",):
        ears = asked["progress"] = Warnings()
        built = build(save(model, tmp_path / "net.onnx"), tmp_path / "net.trtpost", precision=precision, **asked)
        symmetric = zero.dtype == np.int8 and not zero
        assert built.passport.plan.precisions == {"int8" if symmetric else precision: 1}
        said = [text for text in ears.texts if "without the speed of int8" in text and "ActivationSymmetric" in text]
        assert bool(said) == (precision == "fp32" and not symmetric)


def test_optionals_that_hold_a_tensor(tmp_path):
    """Packed and unpacked again."""
    model = graph(CONV + "s = Optional (y)\n out = OptionalGetElement (s)", k=kernel(4))
    np.testing.assert_array_equal(mask_of(model, tmp_path), best(model))


MORE_OUTPUTS = {
    "an input": ("out = Identity (y)", "image", [1, 3, 8, 12]),
    "a weight": ("out = Identity (y)", "k", [4, 3, 1, 1]),
    "a constant": ("out = Identity (y)\n c = Constant <value = float[1,1,2,2] {1,2,3,4}> ()", "c", [1, 1, 2, 2]),
    "the same": ("out = Identity (y)", "out", [1, 4, 8, 12]),
    "the same under another name": ("out = Identity (y)\n z = Identity (y)", "z", [1, 4, 8, 12]),
    "the tensor itself": ("out = Identity (y)", "y", [1, 4, 8, 12]),
}


@pytest.mark.parametrize("more", MORE_OUTPUTS)
def test_outputs_beside_the_head_that_are_no_other_head(tmp_path, more):
    """Nothing that the network computes, which is not spoken of, or the same once more: no question which is meant."""
    body, name, shape = MORE_OUTPUTS[more]
    model = graph(CONV + body, k=kernel(4))
    expected = best(model)
    model.graph.output.append(make_tensor_value_info(name, 1, shape))
    ears = Warnings()
    np.testing.assert_array_equal(mask_of(model, tmp_path, progress=ears), expected)
    assert [text for text in ears.texts if "other outputs" in text] == [] or name in "yz"


@pytest.mark.parametrize("body", ["out = Identity (image)", "z = Identity (image)\n out = Identity (z)"])
def test_a_model_that_computes_nothing_is_refused(tmp_path, body):
    """Its output is its input."""
    refused(graph(body, outputs="float[1,3,8,12] out"), tmp_path, "computes nothing: its outputs are its inputs")


def test_inputs_that_nothing_uses(tmp_path):
    """Left over from an export; they are no second image."""
    model = graph("out = Conv (image, k)", f"{IMAGE}, float[1,3,8,12] spare, int64[2] size", k=kernel(4))
    expected = best(graph("out = Conv (image, k)", k=kernel(4)))
    np.testing.assert_array_equal(mask_of(model, tmp_path), expected)


def test_inputs_that_only_the_end_needs(tmp_path):
    """A size to resize to: refused with the way out, and with `--logits` before it not asked for."""
    model = graph(CONV + 'out = Resize <mode = "linear"> (y, , , size)', f"{IMAGE}, int64[4] size", k=kernel(4))
    refused(model, tmp_path, r"has 2 inputs.*or name a tensor that needs the image alone with --logits")
    expected = best(graph("out = Conv (image, k)", k=kernel(4)))
    np.testing.assert_array_equal(mask_of(model, tmp_path, logits="y"), expected)


WRONG = {
    "masks of objects": ("out = Transpose <perm = [1, 0, 2, 3]> (y)", 1, "float[5,1,8,12] out", "holds 5 masks"),
    "both halves": ("out = Concat <axis = 0> (y, y)", 1, "float[2,5,8,12] out", "holds 2 masks"),
    "both halves of two": ("out = Concat <axis = 0> (y, y)", 2, "float[4,5,8,12] out", "has 4 entries"),
    "tokens": (
        "g = ReduceMean <axes = [2], keepdims = 0> (y)\n out = ArgMax <axis = 1, keepdims = 0> (g)",
        4,
        "int64[4,12] out",
        "no output looks like a segmentation head",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_entries_that_are_not_one_a_photo_are_refused(tmp_path, what):
    """Masks of single objects, photos that the network sees twice, a line of labels for each of a batch."""
    body, batch, result, pattern = WRONG[what]
    refused(graph(CONV + body, f"float[{batch},3,8,12] image", result, k=kernel(5)), tmp_path, pattern)


def test_a_row_of_labels_a_photo_is_refused_by_name(tmp_path):
    """The same where the user names it."""
    model = graph(CONV + WRONG["tokens"][0], "float[4,3,8,12] image", "int64[4,12] out", k=kernel(5))
    refused(model, tmp_path, "has a row of values for each photo", logits="out")


def test_an_image_with_its_sides_swapped(tmp_path):
    """[N, h, w, C] by `perm = [0, 3, 2, 1]`: columns first inside, and back again."""
    body = "t = Transpose <perm = [0,3,2,1]> (image)\n y = Conv (t, k)\n out = Transpose <perm = [0,3,2,1]> (y)"
    model = graph(body, "float[1,8,12,3] image", "float[1,8,12,4] out", k=kernel(4))
    np.testing.assert_array_equal(mask_of(model, tmp_path), source_outputs(model)[0][0].argmax(-1))


@pytest.mark.parametrize(
    ("body", "image", "result"),
    [
        ("out = Conv (image, k)", "float[batch_size,num_channels,height,width] image", "float[N,4,H,W] out"),
        ("t = Transpose <perm = [0,3,1,2]> (image)\n out = Conv (t, k)", "float[N,H,W,C] image", "float[N,4,H,W] out"),
        ("d = Div (image, s)\n out = Conv (d, k)", "float[N,C,8,12] image", "float[N,4,8,12] out"),
        ("out = Conv <group = 3> (image, k)", "float[N,C,8,12] image", "float[N,6,8,12] out"),
    ],
)
def test_an_open_number_of_channels(tmp_path, body, image, result):
    """A name instead of a number, as transformers exports it: as many as the first convolution takes."""
    weights = {"k": kernel(4) if "group" not in body else kernel(6, 1)} | (
        {"s": np.float32(2)} if "Div" in body else {}
    )
    model = graph(body, image, result, **weights)
    fixed = graph(body, image.replace("C", "3"), result, **weights)
    settings = {} if "8,12" in image else {"input_size": (8, 12)}
    np.testing.assert_array_equal(mask_of(model, tmp_path, **settings), best(fixed))
    with Segmenter(tmp_path / "net.trtpost", backend="onnxruntime") as engine:
        assert engine.bundle.passport.located.input_channels == 3


def test_an_open_number_of_channels_that_nothing_tells(tmp_path):
    """Said before a size is tried with one channel."""
    body = "m = ReduceMean <axes = [1]> (image)\n out = Conv (m, k)"
    model = graph(body, "float[N,C,H,W] image", "float[N,4,H,W] out", k=kernel(4, 1))
    refused(model, tmp_path, "cannot tell where the channels are", input_size=(8, 12))
    four = graph("out = Conv (image, k)", "float[N,C,H,W] image", "float[N,4,H,W] out", k=kernel(4, 4))
    refused(four, tmp_path, "has 4 channels in layout NCHW", input_size=(8, 12))


@pytest.mark.parametrize("imports", [[("ai.onnx", 17)], [("ai.onnx", 17), ("", 17)]], ids=str)
@pytest.mark.parametrize("inner", ["nodes", "functions"])
def test_the_standard_operators_by_their_other_name(tmp_path, imports, inner):
    """`ai.onnx` is the empty domain: as the only import, of nodes, and inside of functions."""
    model = graph(CONV + "z = Relu (y)\n out = Softmax <axis = 1> (z)", k=kernel(4))
    expected = best(model)
    if inner == "functions":
        model = called("my.domain")
        expected = source_outputs(model)[0].reshape(8, 12) > 0.5
    for holder in (model, *model.functions):
        others = [one for one in holder.opset_import if one.domain]
        del holder.opset_import[:]
        holder.opset_import.extend([*(make_opsetid(*one) for one in imports), *others])
        for node in holder.node if holder is not model else model.graph.node:
            node.domain = node.domain or "ai.onnx"
    np.testing.assert_array_equal(mask_of(model, tmp_path, precision="fp16" if inner == "nodes" else "fp32"), expected)
    if inner == "functions":
        return  # ONNX Runtime itself does not take these
    (tmp_path / "photos").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "photos/p.png")
    bundle, unit = load_bundle(tmp_path / "net.trtpost"), Replaced(normalize="unit")
    assert verify(bundle, tmp_path / "net.onnx", tmp_path / "photos", replaced=unit, min_agreement=0.9).passed


def test_the_input_is_no_tensor_of_logits(tmp_path):
    """`--logits` with the name of the image."""
    refused(nchw(), tmp_path, r"'image' \(--logits\) is an input of the model", logits="image")


@pytest.mark.parametrize("size", ["1,1", "1,12", "12,1"])
def test_one_channel_of_one_row_is_asked_for(tmp_path, size):
    """A single pixel or line does not look like a mask."""
    refused(nchw(1, size), tmp_path, "one row or column does not tell a mask from other numbers")


def test_a_fixed_size_that_is_too_large(tmp_path):
    """The way out is one that there is."""
    refused(nchw(4, "60000,60000"), tmp_path, "else export it with a smaller size or batch")


@pytest.mark.parametrize("shape", [[1, 8, 12, 4], [1, 4, 9, 12], [1, 4]])
def test_shapes_that_a_model_states_and_does_not_have(tmp_path, shape):
    """Left over from before somebody edited it: what the operators make counts."""
    model = graph(CONV + "z = Relu (y)\n out = Add (z, y)", k=kernel(4))
    expected = best(model)
    model.graph.value_info.append(make_tensor_value_info("y", 1, shape))
    np.testing.assert_array_equal(mask_of(model, tmp_path), expected)
    model = graph(CONV + "out = Identity (y)", k=kernel(4))
    model.graph.value_info.append(make_tensor_value_info("y", 1, shape))
    np.testing.assert_array_equal(mask_of(model, tmp_path), best(graph("out = Conv (image, k)", k=kernel(4))))


def test_nodes_in_any_order(tmp_path):
    """Appended by somebody who edited the graph; a circle has no order."""
    model = graph("y = Conv (image, k)\n z = Relu (y)\n out = Add (z, y)", k=kernel(4))
    expected = best(model)
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    np.testing.assert_array_equal(mask_of(model, tmp_path), expected)
    (tmp_path / "circle").mkdir()
    circle = graph("y = Add (image, z)\n z = Relu (y)\n out = Conv (z, k)", k=kernel(4))
    refused(circle, tmp_path / "circle", "topologically sorted")


def test_a_passport_s_worth_of_names_survives(tmp_path):
    """Names in the metadata are those of the classes."""
    model = nchw()
    set_metadata(model, {"labels": json.dumps(["a", "ü", "", "d"])})
    mask_of(model, tmp_path)
    with Segmenter(tmp_path / "net.trtpost", backend="onnxruntime") as engine:
        assert engine(PHOTO).classes == ("a", "ü", "", "d")


def test_functions_are_gone_when_a_file_is_read(tmp_path):
    """`load_model` is what every command reads with."""
    assert not load_model(save(called("my.domain"), tmp_path / "net.onnx")).functions
    with pytest.raises(ModelError, match="computes nothing"):
        load_model(save(graph("out = Identity (image)", outputs="float[1,3,8,12] out"), tmp_path / "same.onnx"))
