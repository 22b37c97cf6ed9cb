"""Numbers that come out subtly wrong elsewhere: order, conventions, overflow, types."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package
from nets import kernel, net, save

from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.backends.tensorrt.build import Profile, build_plan
from trtpost.backends.tensorrt.flavour import logger_of, strongly_typed
from trtpost.backends.tensorrt.lane import check_engine
from trtpost.backends.tensorrt.resize_rewriting import for_tensorrt, nearest_table
from trtpost.builder.agreement import Wrong, check, compare
from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle
from trtpost.convert import convert
from trtpost.errors import BackendError, BundleError, ModelError
from trtpost.graph.baking.bake import bake
from trtpost.graph.baking.seam import inlined
from trtpost.graph.head.locate import locate
from trtpost.graph.precision.reduce import reduced
from trtpost.graph.reading.model import normalized
from trtpost.kernels import reference
from trtpost.segment import Segmenter
from trtpost.spec import MATCHES, Post, Pre

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (33, 50, 3), np.uint8)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def masks_of(logits: np.ndarray, size: tuple[int, int], post: Post, tmp_path) -> list[np.ndarray]:
    """What every engine makes of logits [1, C, h, w]: the reference, the function, standard ops, the kernel."""
    _, classes, height, width = logits.shape
    body = "zeros = Mul (image, zero)\n one = ReduceSum (zeros, axes)\n logits = Add (one, values)"
    model = net(
        body,
        f"float[1,1,{height},{width}] image",
        f"float[1,{classes},{height},{width}] logits",
        zero=np.float32(0),
        axes=np.array([1, 2, 3]),
        values=logits,
    )
    found = locate(model, logits="logits", layout="NCHW", head="argmax")
    graph = bake(model, found, Pre(height, width, channels="gray"), post)
    feeds = {"image": np.zeros((1, height, width, 1), np.uint8), "output_size": np.array(size)}
    bundle = build(
        save(model, tmp_path / "net.onnx"),
        tmp_path / f"{post.resize}.trtpost",
        flavour="none",
        resize=post.resize,
        layout="NCHW",
        head="argmax",
        logits="logits",
    )
    photo = np.zeros((*size, 3), np.uint8)
    return [
        reference.argmax_resize(logits, size, post)[0],
        session(graph).run(["mask"], feeds)[0][0],
        session(inlined(graph)).run(["mask"], feeds)[0][0],
        Segmenter(bundle, backend="onnxruntime")(photo).mask,
    ]


def test_argmax_before_or_after_the_resize_differs(tmp_path):
    """2x2 to 3x3 by hand: class 1 wins by a little in one corner, class 0 by much in the others, and between them."""
    logits = np.zeros((1, 2, 2, 2), np.float32)
    logits[0, 0] = [[9, 9], [9, 0]]
    logits[0, 1] = [[0, 0], [0, 1]]
    for mask in masks_of(logits, (3, 3), Post(), tmp_path):
        assert mask.tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]
    for mask in masks_of(logits, (3, 3), Post(resize="bilinear"), tmp_path):
        assert mask.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("resize", "match"), [(resize, match) for resize, matches in MATCHES.items() for match in matches]
)
@pytest.mark.parametrize("head", ["argmax", "labels", "threshold"])
def test_no_class_is_invented(head, resize, match):
    """Classes 0, 2 and 5 alone: whatever the head and the convention, nothing between them comes out."""
    if (head, resize) == ("labels", "bilinear"):
        return  # refused when the spec is made: tests/cases/test_specs.py
    labels = RNG.choice([0, 2, 5], (1, 8, 12))
    scores = np.where(labels[:, None] == np.arange(6)[:, None, None], 1, RNG.random((1, 6, 8, 12)) / 2)
    given = {
        "labels": labels,
        "argmax": scores.astype(np.float32),
        "threshold": (labels[:, None] > 0).astype(np.float32),
    }
    post = Post(head=head, classes=2 if head == "threshold" else 6, resize=resize, match=match)
    for size in ((33, 50), (5, 7), (1, 1), (8, 12), (64, 3)):
        mask = reference.argmax_resize(given[head], size, post)
        # interpolated logits may let a class win that wins at no corner, by its name; never one that has no logits
        allowed = {0, 1} if head == "threshold" else {0, 2, 5} if resize == "nearest" else set(range(6))
        assert set(np.unique(mask)) <= allowed


@pytest.mark.parametrize("tail", ["", "rounded", "squeezed"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("code", [onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64])
def test_class_ids_that_the_network_resizes_itself_are_not_interpolated(tmp_path, code, mode, tail):
    """A linear or cubic Resize behind the ArgMax would make class 1 of 0 and 2: the ids are taken before it."""
    kind = onnx.TensorProto.DataType.Name(code).lower()
    body = f"""scores = Conv (image, k)
        ids = ArgMax <axis = 1> (scores)
        typed = Cast <to = {code}> (ids)
        large = Resize <mode = "{mode}"> (typed, , , sizes)"""
    output = f"{kind}[1,1,16,24] large"
    if tail == "rounded" and code == onnx.TensorProto.FLOAT:
        body, output = f"{body}\n whole = Round (large)\n out = Cast <to = 6> (whole)", "int32[1,1,16,24] out"
    if tail == "squeezed":
        body, output = f"{body}\n out = Squeeze (large)", f"{kind}[16,24] out"
    weights = kernel(6)
    model = net(body, "float[1,3,8,12] image", output, k=weights, sizes=np.array([1, 1, 16, 24]))
    bundle = build(save(model, tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", normalize="none")
    photo = RNG.integers(0, 256, (8, 12, 3), np.uint8)
    ids = np.einsum("hwc,dc->dhw", photo.astype(np.float32), weights[:, :, 0, 0]).argmax(0)
    mask = Segmenter(bundle, backend="onnxruntime")(photo).mask
    assert set(np.unique(mask)) <= set(np.unique(ids))
    if mode != "nearest":
        np.testing.assert_array_equal(mask, ids)


def test_class_ids_that_are_interpolated_and_then_moved_are_refused():
    """Cropping comes after the resize, so taking the ids before it would move them: the message names the tensor."""
    model = net(
        """scores = Conv (image, k)
           ids = ArgMax <axis = 1> (scores)
           typed = Cast <to = 1> (ids)
           large = Resize <mode = "linear"> (typed, , , sizes)
           cut = Slice (large, starts, ends, axes)
           out = Cast <to = 6> (cut)""",
        "float[1,3,8,12] image",
        "int32[1,1,10,24] out",
        k=kernel(6),
        sizes=np.array([1, 1, 16, 24]),
        starts=np.array([2]),
        ends=np.array([12]),
        axes=np.array([2]),
    )
    with pytest.raises(ModelError, match=r"interpolates its class ids \('large', a linear Resize\).*--logits 'typed'"):
        locate(model)
    assert locate(model, logits="ids").classes == 6


def resizes_of(tf) -> dict[str, object]:
    """Every way in which TensorFlow resizes, from images [N, h, w, C] and a size."""
    v1, found = tf.compat.v1.image, {}
    for align, half in ((False, False), (True, False), (False, True)):
        for op in (v1.resize_bilinear, v1.resize_nearest_neighbor, v1.resize_bicubic):
            how = {"align_corners": align, "half_pixel_centers": half}
            found[f"{op.__name__}_{align}_{half}"] = lambda x, size, op=op, how=how: op(x, size, **how)
    found["resize_area"] = v1.resize_area
    for method, antialias in product(("bilinear", "nearest", "bicubic", "area", "lanczos3"), (False, True)):
        found[f"tf2_{method}_{antialias}"] = lambda x, size, method=method, antialias=antialias: tf.image.resize(
            x, size, method, antialias=antialias
        )
    return found


@pytest.mark.usefixtures("in_this_process")
def test_every_resize_of_tensorflows_inside_the_network(tmp_path):
    """33 to 65 to 513 pixels and down to 40, by every method and convention, to 1e-4 of TensorFlow: one conversion."""
    tf = package("tensorflow")
    resizes = resizes_of(tf)

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 33, 33, 1), tf.float32, "image")])
        def __call__(self, image):
            large = {name: resize(resize(image, (65, 65)), (513, 513)) for name, resize in resizes.items()}
            return large | {f"{name}_down": resize(large[name], (40, 37)) for name, resize in resizes.items()}

    module = Net()
    tf.saved_model.save(module, str(tmp_path / "net"), signatures=module.__call__)
    image = np.random.default_rng(0).standard_normal((1, 33, 33, 1)).astype(np.float32)
    expected = {name: value.numpy() for name, value in module(tf.constant(image)).items()}
    model = normalized(convert(tmp_path / "net"), "net")
    names = [value.name for value in model.graph.output]
    assert set(names) == set(expected)
    for name, found in zip(names, session(model).run(names, {"image": image}), strict=True):
        np.testing.assert_allclose(found, expected[name], atol=1e-4, err_msg=name)


# ---- resizes that TensorRT's parser refuses --------------------------------------------------------------------------


def resize(mode, coordinates, rounding="floor", source=(5, 7), target=(8, 11), code=1, scales=False, **attributes):
    """A network that is one Resize of [1, 3, h, w]."""
    attributes |= {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    values = np.array([1, 1, *(np.array(target) / source)], np.float32) if scales else np.array([1, 3, *target])
    node = onnx.helper.make_node("Resize", ["x", "", *(["s"] if scales else ["", "s"])], ["y"], **attributes)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "net",
        [value("x", code, [1, 3, *source])],
        [value("y", code, None)],
        [onnx.numpy_helper.from_array(values, "s")],
    )
    opset = onnx.helper.make_opsetid("", 19)
    return onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9))


def parsed(model: onnx.ModelProto) -> bool:
    """Whether TensorRT's parser takes a model."""
    trt = package("tensorrt_rtx")
    network = trt.Builder(logger_of("tensorrt_rtx")).create_network(strongly_typed(trt))
    return trt.OnnxParser(network, logger_of("tensorrt_rtx")).parse(model.SerializeToString())


def index_by_hand(source: int, target: int, scale: Fraction, coordinates: str, rounding: str) -> list[int]:
    """The ONNX specification's formulas, in fractions."""
    found = []
    for j in range(target):
        position = {
            "half_pixel": (j + Fraction(1, 2)) / scale - Fraction(1, 2),
            "pytorch_half_pixel": (j + Fraction(1, 2)) / scale - Fraction(1, 2) if target > 1 else Fraction(0),
            "align_corners": Fraction(j * (source - 1), max(target - 1, 1)),
            "asymmetric": j / scale,
            "tf_half_pixel_for_nn": (j + Fraction(1, 2)) / scale,
            "half_pixel_symmetric": Fraction(source, 2) * (1 - target / (source * scale))
            + (j + Fraction(1, 2)) / scale
            - Fraction(1, 2),
        }[coordinates]
        up, down = position.__ceil__(), position.__floor__()
        is_half = position - down == Fraction(1, 2)
        nearest = down if position - down < Fraction(1, 2) else up
        index = {
            "floor": down,
            "ceil": up,
            "round_prefer_floor": down if is_half else nearest,
            "round_prefer_ceil": up if is_half else nearest,
        }[rounding]
        found.append(min(max(index, 0), source - 1))
    return found


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", [*COORDINATES, "tf_half_pixel_for_nn", "half_pixel_symmetric"])
def test_tables_of_nearest_are_exact_for_every_ratio(coordinates, rounding):
    """Floats miss an index where a position lies on a boundary (14 to 39); whole numbers do not."""
    rng = np.random.default_rng(1)
    pairs = [(14, 39), (14, 1), (1, 7), (33, 65), (65, 513), *rng.integers(2, 90, (12, 2)).tolist()]
    for source, target in pairs:
        for scale in (Fraction(target, source), Fraction(float(np.float32(target / source)))):
            table = nearest_table(source, target, scale, coordinates, rounding).tolist()
            expected = index_by_hand(source, target, scale, coordinates, rounding)
            if scale == 1:
                expected = list(range(source))  # an axis that stays is not looked at
            assert table == expected, f"{source} -> {target} by {scale}"


REFUSED = [
    *({"mode": "nearest", "coordinates": "tf_half_pixel_for_nn", "rounding": one} for one in ROUNDINGS),
    *({"mode": "nearest", "coordinates": "half_pixel_symmetric", "rounding": one} for one in ROUNDINGS),
    *({"mode": one, "coordinates": "half_pixel_symmetric"} for one in ("linear", "cubic")),
    {"mode": "linear", "coordinates": "half_pixel_symmetric", "scales": True, "target": (12, 15)},
    *({"mode": one, "coordinates": "half_pixel", "antialias": 1} for one in ("linear", "cubic")),
    {"mode": "linear", "coordinates": "half_pixel", "antialias": 1, "target": (3, 2)},
    {"mode": "cubic", "coordinates": "align_corners", "antialias": 1, "target": (3, 2), "exclude_outside": 1},
    *(
        {"mode": "nearest", "coordinates": "half_pixel", "keep_aspect_ratio_policy": one}
        for one in ("not_larger", "not_smaller")
    ),
    *({"mode": "nearest", "coordinates": one, "code": onnx.TensorProto.INT32} for one in COORDINATES),
    {"mode": "nearest", "coordinates": "tf_half_pixel_for_nn", "code": onnx.TensorProto.FLOAT16},
]


@pytest.mark.parametrize("how", REFUSED, ids=lambda how: "-".join(map(str, how.values())))
def test_a_resize_that_tensorrt_refuses_is_rewritten(how):
    """Built with the parser itself: it refuses the node, takes what replaces it, and the pixels stay ONNX Runtime's."""
    model = resize(**how)
    if "keep_aspect_ratio_policy" in how:  # of these two axes
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("axes", [2, 3]))
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([8, 11]), "s"))
        model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, None))
        model = onnx.shape_inference.infer_shapes(model)
    rewritten = onnx.shape_inference.infer_shapes(for_tensorrt(model))
    code = model.graph.input[0].type.tensor_type.elem_type
    image = (RNG.standard_normal((1, 3, 5, 7)) * 9).astype(onnx.helper.tensor_dtype_to_np_dtype(code))
    (expected,), (found,) = (session(one).run(None, {"x": image}) for one in (model, rewritten))
    if how["mode"] == "nearest":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert parsed(rewritten)
    assert not parsed(model) or code == onnx.TensorProto.INT32  # which fails later, in the builder


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_a_resize_that_tensorrt_takes_is_left_alone(coordinates, rounding):
    """Neighbours of those above: nothing is rewritten that need not be."""
    for mode in ("nearest", "linear", "cubic"):
        model = resize(mode, coordinates, rounding)
        assert for_tensorrt(model) is model
        assert parsed(model)


def test_sizes_that_are_known_only_when_the_network_runs():
    """Then the indices are computed in the graph, for sizes and for scales."""
    value = onnx.helper.make_tensor_value_info
    image = RNG.standard_normal((1, 3, 14, 7)).astype(np.float32)
    for coordinates, rounding in product(("tf_half_pixel_for_nn", "half_pixel_symmetric"), ROUNDINGS):
        node = resize("nearest", coordinates, rounding).graph.node[0]
        inputs = [value("x", 1, [1, 3, "h", "w"]), value("s", onnx.TensorProto.INT64, [4])]
        graph = onnx.helper.make_graph([node], "net", inputs, [value("y", 1, None)])
        opset = onnx.helper.make_opsetid("", 19)
        model = onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9))
        rewritten = onnx.shape_inference.infer_shapes(for_tensorrt(model))
        (found,) = session(rewritten).run(None, {"x": image, "s": np.array([1, 3, 39, 4])})
        rows, columns = (
            index_by_hand(source, target, Fraction(target, source), coordinates, rounding)
            for source, target in ((14, 39), (7, 4))
        )
        np.testing.assert_array_equal(found, image[:, :, rows][..., columns])
        assert parsed(rewritten)


def test_a_resize_that_cannot_be_had_otherwise_is_refused_in_one_sentence():
    """Regions: what the parser says, without its conditions."""
    package("tensorrt_rtx")
    model = net(
        """x = Conv (image, k)
           logits = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">
               (x, region, , sizes)""",
        "float[1,3,8,12] image",
        "float[1,4,16,24] logits",
        k=kernel(4),
        region=np.array([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9], np.float32),
        sizes=np.array([1, 4, 16, 24]),
    )
    graph = bake(model, locate(model), Pre(8, 12), Post(classes=4))
    with pytest.raises(BackendError, match=r"does not take the operator Resize \(node [^)]*\): [^&=]*; build without"):
        build_plan(graph, Profile(1, (64, 64)), "tensorrt_rtx")


def test_the_portable_graph_keeps_the_node_and_the_plan_gets_the_tables(tmp_path):
    """TensorFlow 1's nearest in the middle of a network, as tf2onnx wrote it for opset 11, through the whole build."""
    package("tensorrt_rtx")
    model = net(
        """x = Conv (image, k)
           logits = Resize <mode = "nearest", coordinate_transformation_mode = "tf_half_pixel_for_nn",
                            nearest_mode = "floor"> (x, roi, , sizes)""",
        "float[1,3,14,12] image",
        "float[1,4,39,24] logits",
        opset=12,
        k=kernel(4),
        roi=np.zeros(0, np.float32),
        sizes=np.array([1, 4, 39, 24]),
    )
    bundle = build(
        save(model, tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="tensorrt_rtx", normalize="none"
    )
    assert "GATHER" in bundle.passport.plan.layers
    assert any(node.op_type == "Resize" for node in onnx.load(bundle.model).graph.node)


# ---- overflow and types ----------------------------------------------------------------------------------------------


def hot(weight: float = 300) -> onnx.ModelProto:
    """Two 1x1 convolutions whose weights overflow in float16: 300 * 127.5 * 3, and 300 times that."""
    return net(
        "x = Conv (image, first)\n y = Relu (x)\n logits = Conv (y, second)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        first=np.full((3, 3, 1, 1), weight, np.float32) * np.sign(kernel(3)),
        second=np.full((4, 3, 1, 1), weight, np.float32) * np.sign(kernel(4, seed=3)),
    )


@pytest.mark.parametrize("given", [0, 3])
def test_an_overflow_in_float16_is_found_and_named_with_and_without_photos(given):
    """Infinities in the middle of the network: the gate names where they begin, and bf16 passes it."""
    model, rng = hot(), np.random.default_rng(0)
    found = locate(model)
    pre, post = Pre(8, 12, mean=(127.5,)), Post(classes=4)
    graphs = {
        precision: bake(model, found, pre, post, reduce=lambda one, precision=precision: reduced(one, precision, ()))
        for precision in ("fp32", "fp16", "bf16")
    }
    photos = [rng.integers(0, 256, (8, 12, 3), np.uint8) for _ in range(given)]
    agreement = compare(graphs["fp32"], graphs["fp16"], photos)
    assert agreement.wrong == Wrong("x", "Conv", float("inf"), 0.0)
    assert agreement.non_finite >= 2
    assert agreement.photos == given
    assert (agreement.share is None) == (not given)
    with pytest.raises(ModelError, match=r"--precision fp16 makes NaN or infinities of tensor 'x' \(Conv\).*bf16"):
        check(agreement, "fp16", 0.0)
    check(compare(graphs["fp32"], graphs["bf16"], photos, minimum=0.9), "bf16", 0.9)


TYPES = ["int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", TYPES)
def test_labels_of_every_integer_type_are_read_as_what_they_are(tmp_path, dtype):
    """Bytes of int64 read as int32 show every second label as 0: the mask is compared with numpy's, label by label."""
    classes = 100 if dtype in ("int8", "uint8") else 300
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ids = RNG.integers(0, classes, (3, 3)).astype(np.int64)
    ids[0, :2] = classes - 1, 1
    model = net(
        f"""least = ReduceMin <keepdims = 0> (image)
            nothing = Sub (least, least)
            whole = Cast <to = 7> (nothing)
            sum = Add (ids, whole)
            hot = OneHot <axis = 1> (sum, depth, values)
            best = ArgMax <axis = 1, keepdims = 0> (hot)
            out = Cast <to = {code}> (best)""",
        "float[1,3,8,12] image",
        f"{onnx.TensorProto.DataType.Name(code).lower()}[1,3,3] out",
        ids=ids[None],
        depth=np.array(classes),
        values=np.array([0, 1], np.float32),
    )
    for logits in (None, "out", "best"):
        bundle = build(
            save(model, tmp_path / "net.onnx"),
            tmp_path / "net.trtpost",
            flavour="none",
            normalize="none",
            logits=logits,
            labels=tuple(f"class {index}" for index in range(classes)),
        )
        engine = OnnxRuntimeEngine(bundle)
        pixels = np.zeros((1, 8, 12, 3), np.uint8)
        assert engine.logits(pixels).dtype.kind in "iu"
        np.testing.assert_array_equal(engine.logits(pixels)[0], ids)
        mask = Segmenter(bundle, backend="onnxruntime")(np.zeros((6, 6, 3), np.uint8)).mask
        np.testing.assert_array_equal(mask, ids.repeat(2, 0).repeat(2, 1))
        assert mask.dtype == (np.int32 if classes > 256 else np.uint8)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "bool"])
def test_labels_that_the_network_resizes_itself_become_a_plan(dtype):
    """TensorRT resizes floats and int8; every other type of labels is gathered."""
    package("tensorrt_rtx")
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = net(
        f"""scores = Conv (image, k)
            ids = ArgMax <axis = 1> (scores)
            typed = Cast <to = {code}> (ids)
            large = Resize <mode = "nearest"> (typed, , , sizes)
            out = Cast <to = 7> (large)""",
        "float[1,3,8,12] image",
        "int64[1,1,16,24] out",
        k=kernel(2),
        sizes=np.array([1, 1, 16, 24]),
    )
    graph = bake(model, locate(model), Pre(8, 12), Post(head="labels", classes=2))
    assert build_plan(graph, Profile(1, (64, 64)), "tensorrt_rtx")[0]


def test_a_graph_whose_mask_has_another_type_than_its_passport_says_is_refused(tmp_path):
    """ONNX Runtime's side of the same: 300 classes do not fit the uint8 that a passport of 5 would read."""
    bundles = []
    for classes in (5, 300):
        model = net(
            "logits = Conv (image, k)", "float[1,3,8,12] image", f"float[1,{classes},8,12] logits", k=kernel(classes)
        )
        source = save(model, tmp_path / f"{classes}.onnx")
        bundles.append(build(source, tmp_path / f"{classes}.trtpost", flavour="none", normalize="none"))
    for one, other in (bundles, bundles[::-1]):
        with pytest.raises(BundleError, match="does not give the mask that its passport speaks of: build the bundle"):
            OnnxRuntimeEngine(replace(one, passport=other.passport))


@pytest.mark.parametrize("classes", [5, 300])
def test_the_type_of_a_plans_mask_is_the_one_that_is_read(tmp_path, classes):
    """TensorRT's ArgMax is int64: the plan ends in a Cast, and a plan that does not is refused before its bytes are."""
    trt = package("tensorrt_rtx")
    model = net(
        "scores = Conv (image, k)\n out = ArgMax <axis = 1, keepdims = 0> (scores)",
        "float[1,3,8,12] image",
        "int64[1,8,12] out",
        k=kernel(classes),
    )
    bundle = build(
        save(model, tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="tensorrt_rtx", normalize="none"
    )
    network = trt.Builder(logger_of("tensorrt_rtx")).create_network(strongly_typed(trt))
    parser = trt.OnnxParser(network, logger_of("tensorrt_rtx"))
    assert parser.parse(bundle.model.read_bytes())
    read = "INT32" if classes > 256 else "UINT8"
    assert network.get_output(0).dtype.name == read

    passport = load_bundle(bundle.path).passport
    for given in ("INT64", "INT32", "UINT8", "FLOAT", "HALF"):
        types = {"image": "UINT8", "output_size": "INT64", "mask": given}
        shapes = {"image": (1, 8, 12, 3), "output_size": (2,), "mask": (1, -1, -1)}
        engine = SimpleNamespace(
            name="",
            num_io_tensors=3,
            get_tensor_name=lambda index, names=tuple(types): names[index],
            get_tensor_mode=lambda name: SimpleNamespace(name="OUTPUT" if name == "mask" else "INPUT"),
            get_tensor_shape=shapes.get,
            get_tensor_dtype=lambda name, types=types: SimpleNamespace(name=types[name]),
        )
        if given == read:
            check_engine(engine, passport)
        else:
            with pytest.raises(BackendError, match="not the plan of this bundle"):
                check_engine(engine, passport)
