"""Find the head: what ends a network, in every form in which exporters leave it.

Every mask is compared with what NumPy makes of the output that ONNX Runtime gives for the very file: with what people
would write after their own network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from conftest import package, skip
from heads import (
    NCHW,
    NHWC,
    PHOTO,
    SIZE,
    Ears,
    Read,
    built,
    check,
    exceeding,
    first,
    gray,
    last,
    mask_of,
    output_of,
    written,
)
from nets import kernel, nchw, net, nhwc, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle
from trtpost.cli.inspect import inspect_path
from trtpost.cli.tables import facts_text
from trtpost.convert import Conversion
from trtpost.describe import describe_located
from trtpost.errors import ModelError, SpecError
from trtpost.graph.head.locate import locate
from trtpost.graph.reading.model import load_model, normalized, set_metadata
from trtpost.progress import Progress
from trtpost.segment import Segmenter
from trtpost.verify.run import Replaced, verify

# --- layout


@pytest.mark.parametrize("head", [NCHW, NHWC], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("tail", "out", "read"),
    [
        ('out = Resize <mode = "linear"> (y, , by_two)', "float[1,4,16,24] out", first),
        (
            'r = Resize <mode = "linear"> (y, , by_two)\n out = Transpose <perm = [0,2,3,1]> (r)',
            "float[1,16,24,4] out",
            last,
        ),
        (
            't = Transpose <perm = [0,2,3,1]> (y)\n out = Resize <mode = "linear"> (t, , last_by_two)',
            "float[1,16,24,4] out",
            last,
        ),
        (
            't = Transpose <perm = [0,2,3,1]> (y)\n r = Resize <mode = "linear"> (t, , last_by_two)\n'
            "s = Softmax <axis = 3> (r)\n out = Identity (s)",
            "float[1,16,24,4] out",
            last,
        ),
        (
            "t = Transpose <perm = [0,2,3,1]> (y)\n u = Transpose <perm = [0,3,1,2]> (t)\n"
            'out = Resize <mode = "linear"> (u, , by_two)',
            "float[1,4,16,24] out",
            first,
        ),
    ],
    ids=["resize", "resize-transpose", "transpose-resize", "transpose-resize-softmax", "back-and-forth"],
)
def test_logits_behind_resize_and_transpose(tmp_path, head, tail, out, read):
    """Layout is followed through what exporters put between the last convolution and the output."""
    body, image = head
    scales = {"by_two": [1, 1, 2, 2], "last_by_two": [1, 2, 2, 1]}
    used = {name: np.array(values, np.float32) for name, values in scales.items() if f" {name})" in tail}
    path = written(tmp_path / "n.onnx", body + tail, image, out, k=kernel(4), **used)
    assert locate(load_model(path)).classes == 4
    check(path, read)


TURNED = {
    "softmax": ("s = Softmax <axis = 3> (t)\n out = Transpose <perm = [0,3,2,1]> (s)", "float[1,4,8,12] out", first),
    "sigmoid": ("s = Sigmoid (t)\n out = Transpose <perm = [0,3,2,1]> (s)", "float[1,4,8,12] out", first),
    "to the other layout": ("s = Softmax (t)\n out = Transpose <perm = [0,2,1,3]> (s)", "float[1,8,12,4] out", last),
    "argmax": (
        "s = ArgMax <axis = 3> (t)\n out = Transpose <perm = [0,3,2,1]> (s)",
        "int64[1,1,8,12] out",
        lambda values: values[0, 0],
    ),
    "argmax of a softmax": (
        "s = Softmax (t)\n a = ArgMax <axis = 3, keepdims = 0> (s)\n out = Transpose <perm = [0,2,1]> (a)",
        "int64[1,8,12] out",
        lambda values: values[0],
    ),
}


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("end", TURNED)
def test_classes_that_are_led_away_and_back(tmp_path, end, opset):
    """`softmax(dim=1)` of older exporters, Transposes [0,3,2,1] around it: logits are interpolated, and shown."""
    tail, out, read = TURNED[end]
    body = f"y = Conv <pads = [2,2,2,2]> (image, k)\n t = Transpose <perm = [0,3,2,1]> (y)\n {tail}"
    weights = np.random.default_rng(3).standard_normal((4, 3, 5, 5)).astype(np.float32)
    path = written(tmp_path / "n.onnx", body, NCHW[1], out, opset=opset, k=weights)
    check(path, read)
    head = body.partition("\n")[0]
    plain = written(tmp_path / "p.onnx", head, NCHW[1], "float[1,4,8,12] y", opset=opset, k=weights)
    found = locate(load_model(path), before_argmax=True)
    assert (found.logits, found.layout, found.head) == ("y", "NCHW", "argmax")
    larger = np.random.default_rng(1).integers(0, 256, (40, 70, 3), np.uint8)
    smooth = (mask_of(one, larger, resize="bilinear") for one in (path, plain))
    np.testing.assert_array_equal(*smooth)
    (tmp_path / "photos").mkdir()
    Image.fromarray(PHOTO).resize((31, 20)).save(tmp_path / "photos/a.png")
    for resize in ("nearest", "bilinear"):
        report = verify(built(path, resize=resize), path, tmp_path / "photos", replaced=Replaced(normalize="unit"))
        assert report.total.real == 0


@pytest.mark.parametrize("classes", [3, 8, 12])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_as_many_classes_as_colours_rows_or_columns(tmp_path, classes, layout):
    """Shapes that fit both layouts are decided by the graph: convolutions are not ambiguous."""
    body, image = NCHW
    if layout == "NHWC":
        tail, out, read = "out = Transpose <perm = [0,2,3,1]> (y)", f"float[1,8,12,{classes}] out", last
    else:
        tail, out, read = "out = Identity (y)", f"float[1,{classes},8,12] out", first
    check(written(tmp_path / "n.onnx", body + tail, image, out, k=kernel(classes)), read)
    square = net("out = Conv (image, k)", "float[1,3,12,12] image", f"float[1,{classes},12,12] out", k=kernel(classes))
    assert (locate(square).layout, locate(square).classes) == ("NCHW", classes)


def test_a_layout_that_cannot_be_told_is_asked_for():
    """Where neither graph nor shape tells, the user is asked, and a wrong guess is not made."""
    model = net(
        "s = Constant <value_ints = [1, 12, 12, 12]> ()\n out = Reshape (image, s)",
        "float[1,3,24,24] image",
        "float[1,12,12,12] out",
    )
    with pytest.raises(ModelError, match="--layout NHWC or --layout NCHW"):
        locate(model)
    assert locate(model, layout="NHWC").layout == "NHWC"


# --- what ends a network


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("axis", [None, 1, 2, 3])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_on_any_axis(tmp_path, layout, opset, axis, op):
    """Softmax is dropped where all classes of a pixel are divided by the same, and kept where they are not; before
    opset 13 it flattens all axes from its own on."""
    axis_text = "" if axis is None else f"<axis = {axis}>"
    source, shape = ("t", "1,8,12,4") if layout == "NHWC" else ("y", "1,4,8,12")
    turn = "t = Transpose <perm = [0,2,3,1]> (y)\n" if layout == "NHWC" else ""
    path = written(
        tmp_path / "n.onnx",
        f"{NCHW[0]} {turn} out = {op} {axis_text} ({source})",
        NCHW[1],
        f"float[{shape}] out",
        opset=opset,
        k=kernel(4) * np.array([1, 2, 3, 4], np.float32).reshape(-1, 1, 1, 1),
    )
    classes_at = 3 if layout == "NHWC" else 1
    at = (1 if opset < 13 else 3) if axis is None else axis
    dropped = classes_at >= at if opset < 13 else classes_at == at
    assert (op in locate(load_model(path)).dropped) == dropped
    check(path, last if layout == "NHWC" else first)


ONE = {
    "logit": ("out = Identity (y)", "float[1,1,8,12] out", 0.0),
    "logit-nhwc": ("out = Transpose <perm = [0,2,3,1]> (y)", "float[1,8,12,1] out", 0.0),
    "tanh": ("out = Tanh (y)", "float[1,1,8,12] out", 0.0),
    "sigmoid": ("out = Sigmoid (y)", "float[1,1,8,12] out", 0.5),
    "sigmoid-nhwc": ("t = Transpose <perm = [0,2,3,1]> (y)\n out = Sigmoid (t)", "float[1,8,12,1] out", 0.5),
    "hard-sigmoid": ("out = HardSigmoid <alpha = 0.2, beta = 0.5> (y)", "float[1,1,8,12] out", 0.5),
    "clipped": (
        "c = Constant <value_float = 0.0> ()\n d = Constant <value_float = 1.0> ()\n out = Clip (y, c, d)",
        "float[1,1,8,12] out",
        0.5,
    ),
    "levels": (
        "p = Sigmoid (y)\n c = Constant <value_float = 255.0> ()\n out = Mul (p, c)",
        "float[1,1,8,12] out",
        127.5,
    ),
    "sigmoid-in-parts": (
        "n = Neg (y)\n e = Exp (n)\n one = Constant <value_float = 1.0> ()\n d = Add (one, e)\n out = Div (one, d)",
        "float[1,1,8,12] out",
        0.5,
    ),
    "sigmoid-resized": (
        "p = Sigmoid (y)\n s = Constant <value_floats = [1.0, 1.0, 1.0, 1.0]> ()\n"
        'out = Resize <mode = "linear"> (p, , s)',
        "float[1,1,8,12] out",
        0.5,
    ),
    "swish": ("p = Sigmoid (y)\n out = Mul (p, y)", "float[1,1,8,12] out", 0.0),
    "squeezed-logit": ("a = Constant <value_ints = [1]> ()\n out = Squeeze (y, a)", "float[1,8,12] out", 0.0),
    "squeezed-sigmoid": (
        "p = Sigmoid (y)\n a = Constant <value_ints = [0, 1]> ()\n out = Squeeze (p, a)",
        "float[8,12] out",
        0.5,
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_one_channel_is_thresholded(tmp_path, name):
    """A probability is foreground above 0.5, a logit above 0, in any layout and with axes squeezed away."""
    tail, out, threshold = ONE[name]
    path = written(tmp_path / "n.onnx", NCHW[0] + tail, NCHW[1], out, k=gray(1))
    for settings, limit in (({}, threshold), ({"threshold": 0.25}, 0.25)):
        found = built(path, **settings).passport
        assert (found.post.head, found.post.threshold) == ("threshold", limit)
        assert found.classes == ("background", "foreground")
        check(path, lambda values, limit=limit: (values.reshape(SIZE) > np.float32(limit)).astype(np.uint8), **settings)


def test_the_foreground_of_two_classes_is_a_probability(tmp_path):
    """One class of a Softmax, taken out inside the network, is thresholded at 0.5 and not at 0."""
    body = NCHW[0] + "p = Softmax <axis = 1> (y)\n one = Constant <value_int = 1> ()\n out = Gather <axis = 1> (p, one)"
    path = written(tmp_path / "n.onnx", body, NCHW[1], "float[1,8,12] out", k=gray(2))
    assert 0 < mask_of(path).mean() < 1
    check(path, lambda values: (values[0] > 0.5).astype(np.uint8))


def test_a_softmax_of_one_class_is_refused(tmp_path):
    """It is 1 everywhere, a beginner's mistake: what to take instead is said."""
    path = written(
        tmp_path / "n.onnx", NCHW[0] + "out = Softmax <axis = 1> (y)", NCHW[1], "float[1,1,8,12] out", k=gray(1)
    )
    with pytest.raises(ModelError, match=r"Softmax of one class, which is 1 everywhere: .* --logits 'y'"):
        built(path)
    logits = written(tmp_path / "y.onnx", NCHW[0] + "out = Identity (y)", NCHW[1], "float[1,1,8,12] out", k=gray(1))
    np.testing.assert_array_equal(mask_of(path, logits="y"), output_of(logits)[0, 0] > 0)


@pytest.mark.parametrize(("element", "zero", "low"), [("uint8", np.uint8(0), 0), ("int8", np.int8(-128), -128)])
@pytest.mark.parametrize("classes", [1, 4])
def test_quantised_probabilities_are_no_labels(tmp_path, element, zero, low, classes):
    """Integers that stand for real numbers are compared as these, not taken for class ids."""
    body = NHWC[0] + "t = Transpose <perm = [0,2,3,1]> (y)\n p = Sigmoid (t)\n out = QuantizeLinear (p, scale, zero)"
    path = written(
        tmp_path / "n.onnx",
        body,
        NHWC[1],
        f"{element}[1,8,12,{classes}] out",
        k=kernel(classes),
        scale=np.float32(1 / 256),
        zero=zero,
    )
    output = (output_of(path)[0].astype(np.float32) - low) / 256
    mask = mask_of(path, **({} if classes == 1 else {"head": "multilabel"}))
    best = output.max(-1)
    expected = np.where(best > 0.5, output.argmax(-1) + 1, 0)
    ties = np.abs(best - 0.5) <= 1 / 256
    if classes > 1:
        ties |= np.diff(np.sort(output, -1)[..., -2:])[..., 0] <= 1 / 256
    assert ties.mean() < 0.2
    np.testing.assert_array_equal(mask[~ties], expected[~ties])


# --- a Sigmoid a class, and no background


def sigmoids(path: Path, layout: str = "NHWC", tail: str = "Sigmoid", scale: float = 1.0, classes: int = 4) -> Path:
    turn = "t = Transpose <perm = [0,2,3,1]> (y)" if layout == "NHWC" else "t = Identity (y)"
    return written(
        path,
        f"y = Conv (image, k, b)\n {turn}\n out = {tail} (t)",
        NCHW[1],
        f"float[1,8,12,{classes}] out" if layout == "NHWC" else f"float[1,{classes},8,12] out",
        k=gray(classes) * np.float32(scale),
        b=np.full(classes, -0.15 * scale, np.float32),
    )


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("scale", [1.0, 400.0], ids=["", "saturated"])
@pytest.mark.parametrize("threshold", [None, 0.7, 0.0])
def test_a_sigmoid_a_class_without_background(tmp_path, layout, scale, threshold):
    """Classes by themselves: the largest of those that pass the threshold, else background; probabilities that are
    equal, as where Sigmoids are 1.0, fall to the first class as they do outside."""
    path = sigmoids(tmp_path / "n.onnx", layout, scale=scale)

    def read(values: np.ndarray) -> np.ndarray:
        last_axis = values[0] if layout == "NHWC" else values[0].transpose(1, 2, 0)
        return exceeding(last_axis, 0.5 if threshold is None else threshold)

    check(path, read, head="multilabel", threshold=threshold)
    expected = read(output_of(path))
    if scale > 1:
        values = output_of(path)[0].reshape(-1, 4) if layout == "NHWC" else output_of(path)[0].reshape(4, -1).T
        assert ((values == 1).sum(-1) > 1).any(), "several are 1.0"
    if threshold != 0.0:
        assert 0 < (expected == 0).mean() < 1


def test_scores_a_class_that_are_logits(tmp_path):
    """Without a Sigmoid the scores are logits: what exceeds 0, or the threshold in their own unit."""
    path = sigmoids(tmp_path / "n.onnx", tail="Identity")
    check(path, lambda values: exceeding(values[0], 0.0), head="multilabel")
    check(path, lambda values: exceeding(values[0], -0.5), head="multilabel", threshold=-0.5)


def test_a_softmax_of_which_the_largest_must_exceed_a_threshold(tmp_path):
    """A network that is not sure of any class says background, where that is asked for."""
    path = sigmoids(tmp_path / "n.onnx", tail="Softmax <axis = 3>")
    check(path, lambda values: exceeding(values[0], 0.4), head="multilabel", threshold=0.4)


def test_a_threshold_of_float16_probabilities(tmp_path):
    """The threshold is not rounded to the type of the scores."""
    body = NCHW[0] + "t = Transpose <perm = [0,2,3,1]> (y)\n h = Cast <to = 10> (t)\n out = Sigmoid (h)"
    path = written(tmp_path / "n.onnx", body, NCHW[1], "float16[1,8,12,4] out", k=gray(4))
    middle = np.sort(output_of(path)[0].max(-1).ravel())[48].astype(np.float32)
    threshold = float(middle) * (1 - 1e-5)
    check(
        path, lambda values: exceeding(values[0].astype(np.float32), threshold), head="multilabel", threshold=threshold
    )


def test_one_class_by_itself_is_a_threshold(tmp_path):
    """`multilabel` of one channel is what one channel always is."""
    path = sigmoids(tmp_path / "n.onnx", classes=1)
    assert built(path, head="multilabel").passport.post == built(path).passport.post


def test_the_argmax_of_sigmoids_inside_the_network_is_undone(tmp_path):
    """A network that takes the ArgMax itself can still be given a background."""
    path = tmp_path / "n.onnx"
    probabilities = sigmoids(tmp_path / "p.onnx")
    model = onnx.load(probabilities)
    model.graph.node.append(onnx.helper.make_node("ArgMax", ["out"], ["labels"], axis=3))
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("labels", onnx.TensorProto.INT64, (1, 8, 12, 1)))
    save(model, path)
    np.testing.assert_array_equal(mask_of(path, head="multilabel"), exceeding(output_of(probabilities)[0]))


def bilinear(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Half-pixel bilinear of [h, w, C], in float64."""
    for axis, (n, m) in enumerate(zip(size, values.shape[:2], strict=True)):
        at = np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1)
        low = np.floor(at).astype(int)
        part = (at - low).reshape([-1 if one == axis else 1 for one in range(3)])
        values = np.take(values, low, axis) * (1 - part) + np.take(values, np.minimum(low + 1, m - 1), axis) * part
    return values


@pytest.mark.parametrize("lowering", ["function", "inline"])
def test_probabilities_are_interpolated_before_the_threshold(tmp_path, lowering):
    """Bilinear: probabilities at the photo's size are compared, in the fused kernel and in standard ops."""
    path = sigmoids(tmp_path / "n.onnx")
    photo = np.asarray(Image.fromarray(PHOTO).resize((60, 41), Image.Resampling.NEAREST))
    bundle = built(path, head="multilabel", resize="bilinear", lowering=lowering)
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        mask = segmenter(photo).mask
    resized = Image.fromarray(photo)  # as the network saw it: bilinear, not antialiased, rounded
    pixels = np.rint(bilinear(np.asarray(resized, np.float64), SIZE)).astype(np.uint8)
    values = bilinear(output_of(path, pixels)[0].astype(np.float64), photo.shape[:2])
    ranked = np.sort(np.concatenate([values, np.full((*values.shape[:2], 1), 0.5)], -1), -1)
    clear = ranked[..., -1] - ranked[..., -2] > 1e-4
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(mask[clear], exceeding(values)[clear])


LABELS = {
    (): ("argmax", ("class 0", "class 1", "class 2")),
    ("cat", "dog", "cow"): ("argmax", ("cat", "dog", "cow")),
    ("background", "cat", "dog"): ("argmax", ("background", "cat", "dog")),
    ("nothing", "cat", "dog", "cow"): ("multilabel", ("nothing", "cat", "dog", "cow")),
}


@pytest.mark.parametrize("names", LABELS)
@pytest.mark.parametrize("stated", [False, True], ids=["given", "in the model"])
def test_names_tell_whether_there_is_a_background(tmp_path, names, stated):
    """One name more than Sigmoids is the background's; where the names leave it open, that is said, with the flags."""
    path, ears = sigmoids(tmp_path / "n.onnx", classes=3), Ears()
    if stated:
        model = onnx.load(path)
        set_metadata(model, {"labels": json.dumps(names)})
        save(model, path)
    passport = built(path, progress=ears, **({} if stated else {"labels": names})).passport
    head, classes = LABELS[names]
    assert ((passport.located.background is not None), passport.classes) == (head == "multilabel", classes)
    open_question = [text for text in ears.warned if "--head multilabel" in text and "--head argmax" in text]
    assert len(open_question) == (head == "argmax" and "background" not in names)
    ears = Ears()
    chosen = built(path, progress=ears, head="multilabel", **({} if stated else {"labels": names})).passport
    assert chosen.classes[1:] == (names[1:] if len(names) == 4 else names or ("class 1", "class 2", "class 3"))
    assert not ears.warned
    if len(names) < 4:
        built(path, progress=ears, head="argmax", **({} if stated else {"labels": names}))
        assert not ears.warned


@pytest.mark.parametrize(
    ("tail", "open_question"),
    [
        ('p = Sigmoid (y)\n out = Resize <mode = "linear"> (p, , s)', True),
        ('p = HardSigmoid (y)\n out = Resize <mode = "linear"> (p, , s)', True),
        ('p = Softmax <axis = 1> (y)\n out = Resize <mode = "linear"> (p, , s)', False),
        ("p = Sigmoid (y)\n a = ArgMax <axis = 1> (p)\n out = Cast <to = 2> (a)", False),
    ],
)
def test_sigmoids_before_other_ends_leave_the_background_open(tmp_path, tail, open_question):
    """Whether classes may all be absent is asked wherever they have Sigmoids, but for networks that answer it."""
    scales = {"s": np.ones(4, np.float32)} if "Resize" in tail else {}
    out = "uint8[1,1,8,12] out" if "ArgMax" in tail else "float[1,4,8,12] out"
    path, ears = written(tmp_path / "n.onnx", NCHW[0] + tail, NCHW[1], out, k=gray(4), **scales), Ears()
    built(path, progress=ears)
    assert any("--head multilabel" in text for text in ears.warned) == open_question
    if "Resize" in tail:
        check(path, lambda values: exceeding(values[0].transpose(1, 2, 0)), head="multilabel")


def test_settings_of_the_background_that_have_no_meaning(tmp_path):
    """What does not fit is refused with the flag that does."""
    path = sigmoids(tmp_path / "n.onnx")
    logits = sigmoids(tmp_path / "l.onnx", tail="Identity")
    for source, settings, says in [
        (path, {"threshold": 0.5}, "--head multilabel"),
        (path, {"head": "multilabel", "threshold": 5}, "no sense for a probability"),
        (path, {"head": "multilabel", "threshold": float("nan")}, "threshold must be finite"),
        (path, {"head": "multilabel", "labels": ("a", "b")}, "5 classes, but 2 class names"),
        (logits, {"labels": tuple("abcde")}, "no channel for it, say --head multilabel"),
        (path, {"head": "multi"}, "head must be one of argmax, threshold, labels, multilabel"),
    ]:
        with pytest.raises(SpecError, match=says):
            built(source, **settings)
    assert not list(tmp_path.glob("*.trtpost"))


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(3):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 31, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def test_verify_knows_classes_without_background(tmp_path, photos):
    """The replaced pipeline thresholds as the bundle does; another threshold or head is named where it begins."""
    path = sigmoids(tmp_path / "n.onnx")
    unit = Replaced(normalize="unit")
    for settings in ({}, {"resize": "bilinear"}, {"lowering": "inline"}):
        report = verify(built(path, head="multilabel", **settings), path, photos, replaced=unit)
        assert (report.total.real, report.blame) == (0, None)
        assert "the largest that is > 0.5, else background" in report.pipeline
        assert len(report.total.overlap.ious) == 5
    bundle = built(path, head="multilabel", threshold=0.6)
    report = verify(bundle, path, photos, replaced=unit)
    assert report.blame.begins == "post-processing"
    assert "the bundle has threshold 0.6, the reference 0.5" in report.verdict
    assert verify(bundle, path, photos, replaced=Replaced(normalize="unit", threshold=0.6)).passed
    for settings, other in (({"head": "multilabel"}, "argmax"), ({"head": "argmax"}, "multilabel")):
        report = verify(built(path, **settings), path, photos, replaced=Replaced(normalize="unit", head=other))
        assert report.blame.begins == "post-processing"
        assert f"the bundle has head '{settings['head']}', the reference '{other}'" in report.verdict


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_saturated_sigmoids_in_every_precision(tmp_path, photos, precision):
    """Near 1 there are few numbers of 16 bits: probabilities stay float32, so that the largest is still the largest."""
    path = sigmoids(tmp_path / "n.onnx", scale=8)
    bundle = built(path, head="multilabel", precision=precision, calibration=photos, min_agreement=0.0)
    assert bundle.passport.agreement > {"fp16": 0.995, "bf16": 0.97, "int8": 0.97}[precision]
    made = {value.name: value.type.tensor_type.elem_type for value in onnx.load(bundle.model).graph.value_info}
    assert made["network/out/Pad"] == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("settings", [{}, {"precision": "fp16"}, {"post": "kernel"}, {"resize": "bilinear"}], ids=str)
def test_tensorrt_takes_the_constant_background(tmp_path, settings):
    """TensorRT for RTX builds a plan of it; nothing but the network's graph knows of the background."""
    package("tensorrt_rtx")
    path = sigmoids(tmp_path / "n.onnx", "NCHW")
    bundle = build(path, tmp_path / "b.trtpost", flavour="tensorrt_rtx", head="multilabel", **settings)
    assert bundle.plan is not None
    assert load_bundle(bundle.path).passport.located.background == 0.5


@pytest.mark.parametrize(
    ("tail", "named", "says"),
    [
        ("out = Softmax <axis = 1> (y)", None, "logits of 4 classes, taken before its Softmax"),
        ("out = Softmax <axis = 1> (y)", "out", "probabilities of 4 classes"),
        ("out = Softmax <axis = 3> (y)", None, "probabilities of 4 classes"),
        ("out = Relu (y)", None, "logits of 4 classes"),
    ],
)
def test_probabilities_are_not_called_logits(tmp_path, tail, named, says):
    """What is said of the tensor that the mask is made of."""
    path = written(tmp_path / "n.onnx", NCHW[0] + tail, NCHW[1], "float[1,4,8,12] out", k=kernel(4))
    assert describe_located(locate(load_model(path), logits=named)).endswith(says)


def test_what_is_said_of_the_head(tmp_path):
    """`inspect` says what was found, what was decided, and what a build would leave open."""
    path = sigmoids(tmp_path / "n.onnx")
    found = facts_text(inspect_path(path, Progress()))
    assert "say --head multilabel" in found
    found = facts_text(inspect_path(built(path, labels=("sky", "a", "b", "c", "d")).path, Progress()))
    assert "a probability for each of 4 classes, and none for the background" in found
    assert "the largest that is > 0.5, else background" in found
    assert "5: sky, a, b, c, d" in found


# --- flat outputs


FLAT = {
    "[1, h*w, C]": ("n = Reshape (t, s)", [1, 96, 4], lambda v: v.reshape(8, 12, 4)),
    "[1, C, h*w]": ("n = Reshape (y, s)", [1, 4, 96], lambda v: v.reshape(4, 8, 12).transpose(1, 2, 0)),
    "[1, h*w*C]": ("n = Reshape (t, s)", [1, 384], lambda v: v.reshape(8, 12, 4)),
    "[1, C*h*w]": ("n = Flatten (y)", [1, 384], lambda v: v.reshape(4, 8, 12).transpose(1, 2, 0)),
    "[h*w, C]": ("n = Reshape (t, s)", [96, 4], lambda v: v.reshape(8, 12, 4)),
    "[h, w, C]": ("n = Reshape (t, s)", [8, 12, 4], lambda v: v.reshape(8, 12, 4)),
    "[C, h, w]": ("n = Reshape (y, s)", [4, 8, 12], lambda v: v.reshape(4, 8, 12).transpose(1, 2, 0)),
    "[1, h*w, 1, C]": ("n = Reshape (t, s)", [1, 96, 1, 4], lambda v: v.reshape(8, 12, 4)),
    "[1, 1, C, h, w]": ("n = Reshape (y, s)", [1, 1, 4, 8, 12], lambda v: v.reshape(4, 8, 12).transpose(1, 2, 0)),
    "permuted": (
        "m = Reshape (y, s)\n n = Transpose <perm = [0, 2, 1]> (m)",
        [1, 4, 96],
        lambda v: v.reshape(8, 12, 4),
    ),
    "permuted, flattened": (
        "m = Reshape (t, s)\n o = Transpose <perm = [0, 2, 1]> (m)\n n = Flatten (o)",
        [1, 96, 4],
        lambda v: v.reshape(4, 8, 12).transpose(1, 2, 0),
    ),
}
SHAPES = {"permuted": "1,96,4", "permuted, flattened": "1,384"}


def flat(path: Path, name: str, tail: str = "Identity", classes: int = 4) -> Path:
    body, shape, _ = FLAT[name]
    out = SHAPES.get(name) or ",".join(map(str, shape))
    return written(
        path,
        f"{NCHW[0]} t = Transpose <perm = [0,2,3,1]> (y)\n {body}\n out = {tail} (n)",
        NCHW[1],
        f"float[{out}] out",
        k=gray(classes),
        **({"s": np.array(shape)} if ", s)" in body else {}),
    )


@pytest.mark.parametrize("name", FLAT)
def test_flat_outputs_are_unfolded(tmp_path, name):
    """Rows, columns and classes in fewer axes, as Reshape, Flatten and squeezes leave them: the mask is the same."""
    read = FLAT[name][2]
    path = flat(tmp_path / "n.onnx", name)
    check(path, lambda values: read(values).argmax(-1))
    check(flat(tmp_path / "s.onnx", name, "Sigmoid"), lambda values: exceeding(read(values)), head="multilabel")
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.fromarray(PHOTO).resize((31, 20)).save(photos / "a.png")
    for resize in ("nearest", "bilinear"):
        report = verify(built(path, resize=resize), path, photos, replaced=Replaced(normalize="unit"))
        assert report.total.real == 0


@pytest.mark.parametrize(
    ("name", "axis"), [("[1, h*w, C]", 2), ("[1, h*w, C]", 1), ("[1, C, h*w]", 1), ("permuted", -1)]
)
def test_softmax_of_flat_outputs(tmp_path, name, axis):
    """A Softmax over the classes is dropped, one over the pixels is not."""
    path = flat(tmp_path / "n.onnx", name, f"Softmax <axis = {axis}>")
    over_classes = FLAT[name][1][axis] == 4 or name == "permuted"
    assert ("Softmax" in locate(load_model(path)).dropped) == over_classes
    check(path, lambda values: FLAT[name][2](values).argmax(-1))


@pytest.mark.parametrize("tail", ["Identity", "Sigmoid"])
@pytest.mark.parametrize("shape", [[1, 96], [1, 96, 1], [1, 1, 96], [96], [8, 12], [1, 8, 12]], ids=str)
def test_one_flat_channel(tmp_path, shape, tail):
    """One value a pixel is thresholded, whatever axes it has left."""
    path = written(
        tmp_path / "n.onnx",
        f"{NCHW[0]} n = Reshape (y, s)\n out = {tail} (n)",
        NCHW[1],
        f"float{shape} out".replace(" ", "", len(shape) - 1),
        k=kernel(1),
        s=np.array(shape),
    )
    check(path, lambda values: (values.reshape(SIZE) > (0.5 if tail == "Sigmoid" else 0)).astype(np.uint8))


@pytest.mark.parametrize("shape", [[1, 96], [1, 96, 1], [1, 1, 96], [96], [8, 12], [1, 8, 12]], ids=str)
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_flat_labels(tmp_path, shape, resize):
    """Class ids in one axis, made by ArgMax over the classes of flat logits; these can still be interpolated."""
    body = f"{NCHW[0]} t = Transpose <perm = [0,2,3,1]> (y)\n n = Reshape (t, f)\n a = ArgMax <axis = 2> (n)"
    path = written(
        tmp_path / "n.onnx",
        f"{body}\n out = Reshape (a, s)",
        NCHW[1],
        f"int64{shape} out".replace(" ", "", len(shape) - 1),
        k=kernel(4),
        f=np.array([1, 96, 4]),
        s=np.array(shape),
    )
    found = locate(load_model(path), before_argmax=resize == "bilinear")
    assert (found.head, found.classes) == ("argmax" if resize == "bilinear" else "labels", 4)
    check(path, lambda values: values.reshape(SIZE), resize=resize)


def test_a_flat_output_of_a_transformer_is_a_guess(tmp_path):
    """Pixels that were never flattened in the graph are told by the input's proportions, but only where the user says
    that they are pixels: queries of a detector look alike."""
    path = written(
        tmp_path / "n.onnx",
        "p = Reshape (image, s)\n out = MatMul (p, k)",
        "float[1,8,12,3] image",
        "float[1,24,4] out",
        s=np.array([1, 24, 12]),
        k=np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32),
    )
    with pytest.raises(ModelError, match=r"\[1, 24, 4\]; name the logits' tensor with --logits"):
        built(path)
    check(path, lambda values: values.reshape(4, 6, 4).argmax(-1), logits="out")


def test_classes_that_may_be_either_axis_of_a_flat_output(tmp_path):
    """As many classes as pixels: the user is asked, and both answers are followed."""
    path = written(
        tmp_path / "n.onnx",
        f"{NCHW[0]} t = Transpose <perm = [0,2,3,1]> (y)\n out = Reshape (t, s)",
        NCHW[1],
        "float[1,96,96] out",
        k=kernel(96),
        s=np.array([1, 96, 96]),
    )
    with pytest.raises(ModelError, match=r"--layout NHWC .*or --layout NCHW"):
        built(path)
    check(path, lambda values: values.reshape(8, 12, 96).argmax(-1), layout="NHWC")
    check(path, lambda values: values.reshape(96, 8, 12).argmax(0), layout="NCHW")


def test_a_classifier_is_refused():
    """Numbers that are not one a pixel are no mask, flat or not."""
    for tail, out in [
        ("p = GlobalAveragePool (image)\n out = Flatten (p)", "float[1,3] out"),
        (
            "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (image)\n f = Flatten (p)\n out = MatMul (f, m)",
            "float[1,96] out",
        ),
    ]:
        weights = {"m": np.zeros((72, 96), np.float32)} if "MatMul" in tail else {}
        model = net(tail, "float[1,3,8,12] image", out, **weights)
        with pytest.raises(ModelError, match="no output looks like a segmentation head"):
            locate(model)


KERAS = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
from keras import layers
keras.utils.set_random_seed(1)
image = keras.Input((8, 12, 3), name="photo")
y = layers.Conv2D(4, 3, padding="same", name="y")(image)
one = layers.Conv2D(1, 3, padding="same", name="one")(image)
ends = {
    "reshape": layers.Activation("softmax", name="reshape")(layers.Reshape((96, 4), name="a")(y)),
    "permute": layers.Activation("softmax", name="permute")(
        layers.Permute((2, 1), name="b")(layers.Reshape((4, 96), name="c")(layers.Permute((3, 1, 2), name="d")(y)))
    ),
    "flatten": layers.Flatten(name="flatten")(y),
    "row": layers.Reshape((96,), name="row")(layers.Activation("sigmoid")(one)),
    "independent": layers.Activation("sigmoid", name="independent")(y),
}
model = keras.Model(image, list(ends.values()))
model.save("net.keras")
photo = np.load("photo.npy")
np.savez("expected.npz", **dict(zip(ends, model.predict(photo, verbose=0), strict=True)))
from trtpost.convert.worker import answer
assert "error" not in answer(json.load(sys.stdin))
"""
KERAS_ENDS: dict[str, Read] = {
    "reshape": lambda values: values.reshape(8, 12, 4).argmax(-1),
    "permute": lambda values: values.reshape(8, 12, 4).argmax(-1),
    "flatten": lambda values: values.reshape(8, 12, 4).argmax(-1),
    "row": lambda values: values.reshape(8, 12) > 0.5,
    "independent": lambda values: exceeding(values[0]),
}


@pytest.fixture(scope="module")
def keras_ends(tmp_path_factory):
    """A folder with a Keras network of several ends, as ONNX, and what Keras says at each; one start of TensorFlow."""
    for name in ("tensorflow", "tf2onnx"):
        if find_spec(name) is None:
            skip(f"{name} is not installed")
    folder = tmp_path_factory.mktemp("keras")
    np.save(folder / "photo.npy", PHOTO.astype(np.float32)[None] / np.float32(255))
    request = {"kind": "keras", "source": "net.keras", "result": "net.onnx", "opset": 17, "signature": None}
    subprocess.run(
        [sys.executable, "-c", KERAS],
        cwd=folder,
        input=json.dumps(request | {"input_size": None, "check": False}),
        text=True,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.parametrize("end", KERAS_ENDS)
def test_keras_ends(keras_ends, tmp_path, end):
    """Ends of Keras networks, converted for real: masks are those that NumPy makes of what Keras says."""
    model = onnx.load(keras_ends / "net.onnx")
    outputs = [value for value in model.graph.output if value.name == end]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    path = save(model, tmp_path / "n.onnx")
    settings = {"head": "multilabel"} if end == "independent" else {}
    with np.load(keras_ends / "expected.npz") as expected:
        np.testing.assert_array_equal(mask_of(path, **settings), KERAS_ENDS[end](expected[end]))


# --- labels


RANKS = {
    "[h, w]": "[8,12]",
    "[1, h, w]": "[1,8,12]",
    "[1, 1, h, w]": "[1,1,8,12]",
    "[1, h, w, 1]": "[1,8,12,1]",
}
TYPES = {
    **{"uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "uint32": 12, "uint64": 13},
    **{"bool": 9, "float": 1, "float16": 10, "double": 11},
}


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("element", TYPES)
def test_labels_of_any_rank_and_type(tmp_path, rank, element):
    """Class ids are class ids, in every type that can hold them and with every axis that they need not have."""
    classes = 2 if element == "bool" else 4
    path = written(
        tmp_path / "n.onnx",
        f"{NCHW[0]} a = ArgMax <axis = 1> (y)\n c = Cast <to = {TYPES[element]}> (a)\n r = Reshape (c, s)\n"
        "out = Transpose (r)",
        NCHW[1],
        f"{element}{RANKS[rank]} out",
        k=kernel(classes),
        s=np.array(json.loads(RANKS[rank])[::-1]),
    )
    model = onnx.load(path)
    model.graph.node[-1].attribute.append(
        onnx.helper.make_attribute("perm", list(range(len(json.loads(RANKS[rank]))))[::-1])
    )
    save(model, path)
    found = built(path).passport
    assert (found.post.head, found.post.classes) == ("labels", classes)
    check(path, lambda values: values.reshape(SIZE).astype(int))


@pytest.mark.parametrize(
    ("tail", "out"),
    [
        ("out = ArgMax <axis = 1, keepdims = 0> (y)", "int64[1,8,12] out"),
        ("a = ArgMax <axis = 1, keepdims = 0> (y)\n out = Cast <to = 1> (a)", "float[1,8,12] out"),
        (
            "a = ArgMax <axis = 1> (y)\n c = Cast <to = 2> (a)\n z = Constant <value_ints = [0, 1]> ()\n"
            "out = Squeeze (c, z)",
            "uint8[8,12] out",
        ),
        ("a = ArgMax <axis = -3> (y)\n out = Transpose <perm = [0, 2, 3, 1]> (a)", "int64[1,8,12,1] out"),
    ],
)
def test_casts_and_squeezes_after_argmax(tmp_path, tail, out):
    """What only retypes labels is stepped over, and the logits before them can be had for bilinear."""
    path = written(tmp_path / "n.onnx", NCHW[0] + tail, NCHW[1], out, k=kernel(4))
    check(path, lambda values: values.reshape(SIZE).astype(int))
    if "Transpose" not in tail:
        found = locate(load_model(path), before_argmax=True)
        assert (found.head, found.logits, found.dropped[0]) == ("argmax", "y", "ArgMax")


def test_labels_that_were_moved_after_argmax_stay_labels():
    """A crop or a transpose after ArgMax is part of the mask: the logits before it are of another picture."""
    for tail, out in [
        ("i = Constant <value_ints = [0, 2, 4]> ()\n out = Gather <axis = 1> (a, i)", "int64[1,3,12] out"),
        ("out = Transpose <perm = [0, 2, 1]> (a)", "int64[1,12,8] out"),
        ("s = Constant <value_ints = [1, 12, 8]> ()\n out = Reshape (a, s)", "int64[1,12,8] out"),
    ]:
        model = nhwc(4, f"a = ArgMax <axis = 3, keepdims = 0> (logits)\n {tail}", out)
        assert locate(model, before_argmax=True).head == "labels"


def test_labels_by_a_comparison(tmp_path):
    """A threshold inside the network gives booleans: labels of two classes."""
    body = NCHW[0] + "zero = Constant <value_float = 0.0> ()\n out = Greater (y, zero)"
    path = written(tmp_path / "n.onnx", body, NCHW[1], "bool[1,1,8,12] out", k=kernel(1))
    assert built(path).passport.post.head == "labels"
    check(path, lambda values: values.reshape(SIZE).astype(int))


def test_integer_logits_are_not_labels():
    """Integers with a class axis are logits."""
    model = nhwc(4, "out = Cast <to = 2> (logits)", "uint8[1,8,12,4] out")
    assert locate(model).head == "argmax"
    with pytest.raises(ModelError, match="cannot be labels"):
        locate(model, head="labels")


@pytest.mark.parametrize("classes", [255, 256, 257, 300])
def test_more_classes_than_a_byte_holds(tmp_path, classes):
    """Up to 256 ids fit into uint8; with more the mask is int32, and no id wraps round."""
    path = sigmoids(tmp_path / "n.onnx", tail="Identity", classes=classes)
    model = onnx.load(path)
    weights = np.zeros((classes, 3, 1, 1), np.float32)
    weights[[classes - 1, classes - 2, 3], [0, 1, 2]] = 1
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "k"))
    save(model, path)
    for settings, count in (({}, classes), ({"head": "multilabel"}, classes + 1)):
        mask = mask_of(path, **settings)
        assert mask.dtype == (np.uint8 if count <= 256 else np.int32)
        assert mask.max() == count - 1
        check(path, last if not settings else lambda values: exceeding(values[0], 0.0), **settings)


# --- several outputs, and their names


def two_heads(names: str, second: int = 4, size: str = "8,12", tail: str = "Identity") -> onnx.ModelProto:
    one, two = names.split()
    pool = (
        "b = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (image)"
        if size != "8,12"
        else "b = Identity (image)"
    )
    return net(
        f"{one} = Conv (image, k)\n {pool}\n c = Conv (b, l)\n {two} = {tail} (c)",
        "float[1,3,8,12] image",
        f"float[1,{second},{size}] {two}, float[1,4,8,12] {one}",
        k=kernel(4),
        l=kernel(second, seed=1),
    )


@pytest.mark.parametrize("name", ["aux", "aux_logits", "logits_aux", "Auxiliary", "deep_supervision_1", "head_aux_2"])
def test_an_auxiliary_head_is_not_taken(tmp_path, name):
    """Heads that only training needs are left out, and that is said."""
    ears = Ears()
    path = save(two_heads(f"logits {name}"), tmp_path / "n.onnx")
    found = built(path, progress=ears).passport.located
    assert (found.output, found.others) == ("logits", (name,))
    assert f"'{name}'" in ears.warned[-1]


def test_the_finest_of_several_resolutions_is_taken():
    """Deep supervision without telling names: the head at full resolution, wherever it is listed."""
    assert locate(two_heads("full half", size="4,6")).output == "full"


def test_a_mask_beside_numbers_that_are_none():
    """Class scores, boxes and maps without a class axis beside logits are no heads."""
    model = net(
        "logits = Conv (image, k)\n p = GlobalAveragePool (image)\n scores = Flatten (p)\n"
        "d = ReduceMean <axes = [1], keepdims = 0> (logits)",
        "float[1,3,8,12] image",
        "float[1,3] scores, float[1,8,12] d, float[1,4,8,12] logits",
        k=kernel(4),
    )
    assert locate(model).output == "logits"


@pytest.mark.parametrize("sure", ["ReduceMax <axes = [1]> (y)", "ReduceMax <axes = [1], keepdims = 0> (y)"])
def test_how_sure_the_network_is_of_its_labels_is_no_mask(tmp_path, sure):
    """Labels beside the largest probability: the labels are the mask, by ArgMax or TopK."""
    best = "sure, out = TopK <axis = 1> (y, one)"
    for body in (f"sure = {sure}\n out = ArgMax <axis = 1> (y)", best):
        path = written(
            tmp_path / "n.onnx",
            f"{NCHW[0]} one = Constant <value_ints = [1]> ()\n {body}",
            NCHW[1],
            f"int64[1,1,8,12] out, float[{'1,8,12' if 'keepdims' in body else '1,1,8,12'}] sure",
            k=kernel(4),
        )
        found = built(path).passport
        assert (found.located.output, found.post.head, found.post.classes) == ("out", "labels", 4)
        check(path, lambda values: values.reshape(SIZE))


def test_two_equal_heads_are_listed():
    """Where nothing tells which, the user is asked, with names and shapes."""
    with pytest.raises(ModelError, match=r"'right' float32 .* 'left' float32 .*--logits"):
        locate(two_heads("left right", 5))
    assert locate(two_heads("left right", 5), logits="right").classes == 5


def test_logits_and_their_argmax_are_one_head():
    """A network that gives its logits, their Softmax and their ArgMax has one head."""
    model = net(
        "logits = Conv (image, k)\n p = Softmax <axis = 1> (logits)\n labels = ArgMax <axis = 1, keepdims = 0> (p)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits, float[1,4,8,12] p, int64[1,8,12] labels",
        k=kernel(4),
    )
    assert locate(model).logits == "logits"


FORMS = {
    "labels and probabilities": (
        "a = ArgMax <axis = 1, keepdims = 0> (y)\n l = Cast <to = 6> (a)\n p = Softmax <axis = 1> (y)",
        ["int32[1,8,12] l", "float[1,4,8,12] p"],
    ),
    "logits and labels": (
        "t = Transpose <perm = [0,2,3,1]> (y)\n l = ArgMax <axis = 1> (y)",
        ["float[1,8,12,4] t", "int64[1,1,8,12] l"],
    ),
    "of both layouts": (
        "t = Transpose <perm = [0,2,3,1]> (y)\n p = Softmax (t)\n a = ArgMax <axis = 1, keepdims = 0> (y)\n"
        "u = Unsqueeze (a, last)",
        ["float[1,8,12,4] p", "int64[1,8,12,1] u"],
    ),
    "all, away and back": (
        "t = Transpose <perm = [0,3,2,1]> (y)\n s = Softmax (t)\n p = Transpose <perm = [0,3,2,1]> (s)\n"
        "l = ArgMax <axis = 1> (y)\n m = Transpose <perm = [0,2,3,1]> (y)",
        ["int64[1,1,8,12] l", "float[1,4,8,12] p", "float[1,8,12,4] m"],
    ),
    "without a batch": (
        "a = ArgMax <axis = 1, keepdims = 0> (y)\n s = Squeeze (a, first)\n p = Softmax <axis = 1> (y)",
        ["int64[8,12] s", "float[1,4,8,12] p"],
    ),
}


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("forms", FORMS)
def test_forms_of_one_mask_are_no_question(tmp_path, forms, resize):
    """Logits, probabilities and class ids beside each other, below Transposes, Casts and squeezes: the logits."""
    body, outputs = FORMS[forms]
    axes = {"last": np.array([3]), "first": np.array([0])}
    used = {name: axis for name, axis in axes.items() if f", {name})" in body}
    plain = mask_of(written(tmp_path / "p.onnx", NCHW[0], NCHW[1], "float[1,4,8,12] y", k=kernel(4)), resize=resize)
    for order in (outputs, outputs[::-1]):
        path = written(tmp_path / "n.onnx", NCHW[0] + body, NCHW[1], ", ".join(order), k=kernel(4), **used)
        assert locate(load_model(path)).logits == "y"
        np.testing.assert_array_equal(mask_of(path, resize=resize), plain)


@pytest.mark.parametrize(
    "body",
    [
        "p = Softmax <axis = 1> (y)\n l = ArgMax <axis = 1, keepdims = 0> (z)",  # of other scores
        "p = Softmax <axis = 1> (y)\n t = Transpose <perm = [0,1,3,2]> (y)\n l = ArgMax <axis = 1, keepdims = 0> (t)",
        "p = Softmax <axis = 1> (y)\n l = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (y)",
    ],
)
def test_forms_of_two_masks_are_asked_about(tmp_path, body):
    """Of other scores, on its side, or of other equals; what else is open is asked in the same sentence."""
    body = f"{NCHW[0]} z = Neg (y)\n {body}"
    for size, more in (
        ("12,12", ""),
        ("H,W", ".*and the network's resolution, which is dynamic, with --input-size HxW"),
    ):
        outputs = f"float[1,4,{size}] p, int64[1,{size}] l"
        path = written(tmp_path / "n.onnx", body, f"float[1,3,{size}] image", outputs, k=kernel(4))
        with pytest.raises(ModelError, match=f"several outputs may be .*--logits NAME{more}$"):
            built(path)


def test_verify_takes_the_tensor_that_the_bundle_names(tmp_path):
    """What had to be said to build is not asked for again; what the user says then counts."""
    path = save(two_heads("left right"), tmp_path / "n.onnx")
    (tmp_path / "photos").mkdir()
    Image.fromarray(PHOTO).save(tmp_path / "photos/a.png")
    bundle, unit = built(path, logits="left"), Replaced(normalize="unit")
    assert load_bundle(bundle.path).passport.located.is_named
    assert verify(bundle, path, tmp_path / "photos", replaced=unit).passed
    other = verify(bundle, path, tmp_path / "photos", replaced=Replaced(normalize="unit", logits="right"))
    assert not other.passed


NAMES = [
    ("serving_default_image:0", "StatefulPartitionedCall:0", "a/b:0"),
    ("my image", "the mask", "a b c"),
    ("image", "mask", "output_size"),
    ("mask", "image", "logits"),
    ("pixels", "classes", "network/mask"),
    ("output_size", "region", "rows"),
    ("画像", "マスク", "größe"),
    ("N", "H", "post/classes"),
    ('a"b', "c'd", "x{y}"),
]


@pytest.mark.parametrize(("image", "output", "inner"), NAMES)
@pytest.mark.parametrize("size", ["runtime", "image", "tables"])
def test_names_of_any_kind(tmp_path, image, output, inner, size):
    """Names with colons, slashes, spaces, in other scripts, and our own: the mask is the same under every name."""
    model = nchw()
    for old, new in (("image", image), ("logits", output), ("k", inner)):
        for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
            value.name = new if value.name == old else value.name
        for node in model.graph.node:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]
            node.name = ""
    for dim, name in ((0, "H"), (2, "output_size")):  # and of axes
        model.graph.input[0].type.tensor_type.shape.dim[dim].dim_param = name
    settings = {"match": "opencv"} if size == "tables" else {"size": size}
    path = save(model, tmp_path / "n.onnx")
    mask = mask_of(path, input_size=SIZE, **settings)
    plain = mask_of(save(nchw(), tmp_path / "plain.onnx"), **settings)
    np.testing.assert_array_equal(mask, plain)
    located = built(path, input_size=SIZE, logits=output).passport.located
    assert (located.input, located.output) == (image, output)


def test_nodes_of_one_name_or_none(tmp_path, capfd):
    """Exporters leave nodes without names, or give several the same; TensorRT for RTX takes them too."""
    package("tensorrt_rtx")
    model = nhwc(4, "out = Sigmoid (logits)")
    expected = last(output_of(save(model, tmp_path / "named.onnx")))
    for name in ("", "node", "post/mask"):
        for node in model.graph.node:
            node.name = name
        path = save(model, tmp_path / "n.onnx")
        np.testing.assert_array_equal(mask_of(path), expected)
        assert build(path, tmp_path / "p.trtpost", flavour="tensorrt_rtx", normalize="unit").plan is not None
    assert not capfd.readouterr().err, "the libraries warn of what is mended"


def test_a_tensor_is_found_with_and_without_its_number():
    """TensorFlow's names end in `:0`, ONNX's often do not: --logits takes either."""
    for name, asked in (("head", "head:0"), ("head:0", "head"), ("head:0", "head:0")):
        model = nchw()
        model.graph.node[0].output[0] = model.graph.output[0].name = name
        assert locate(normalized(model, "net"), logits=asked).logits == name
    with pytest.raises(ModelError, match=r"no tensor 'logit'.*did you mean 'logits'"):
        locate(nchw(), logits="logit")


# --- sizes


@pytest.mark.parametrize("tail", ["Identity", "Sigmoid"])
def test_a_dynamic_batch_stays_dynamic(tmp_path, tail):
    """Several photos in one call, each with the mask that it has alone, with a constant background too."""
    model = net(
        f"y = Conv (image, k)\n out = {tail} (y)",
        "float[N,3,8,12] image",
        "float[N,4,8,12] out",
        k=kernel(4),
    )
    photos = np.random.default_rng(1).integers(0, 256, (5, *SIZE, 3), np.uint8)
    bundle = built(save(model, tmp_path / "n.onnx"), head="multilabel" if tail == "Sigmoid" else None)
    session = onnxruntime.InferenceSession(str(bundle.model))
    size = np.array((21, 17))
    together = session.run(None, {"image": photos, "output_size": size})[0]
    assert together.shape == (5, 21, 17)
    for photo, mask in zip(photos, together, strict=True):
        np.testing.assert_array_equal(session.run(None, {"image": photo[None], "output_size": size})[0][0], mask)


def test_a_batch_that_the_network_fixes_inside(tmp_path):
    """A Reshape to a batch of one makes the batch one, whatever the input says, where it cannot be stepped over."""
    shape = np.array([1, 4, 96])
    for tail, batch in (("out = Identity (r)", 0), ("out = ArgMax <axis = 1, keepdims = 0> (r)", 1)):
        path = written(
            tmp_path / "n.onnx",
            f"y = Conv (image, k)\n r = Reshape (y, s)\n {tail}",
            "float[N,3,8,12] image",
            "int64[1,96] out" if batch else "float[1,4,96] out",
            k=gray(4),
            s=shape,
        )
        assert built(path).passport.located.batch == batch
        check(path, lambda values: values.reshape(SIZE) if values.size == 96 else values.reshape(4, *SIZE).argmax(0))


def unet(stride: int, size: str = "height,width", *, layout: str = "NCHW") -> onnx.ModelProto:
    """What was halved and doubled again is joined with what it was."""
    turn = layout == "NHWC"
    return net(
        ("x = Transpose <perm = [0,3,1,2]> (image)\n" if turn else "x = Identity (image)\n")
        + f"d = MaxPool <kernel_shape = [{stride}, {stride}], strides = [{stride}, {stride}]> (x)\n"
        "u = Resize (d, , s)\n c = Concat <axis = 1> (x, u)\n out = Conv (c, k)",
        f"float[N,{size},3] image" if turn else f"float[N,3,{size}] image",
        "float[N,4,h,w] out",
        k=kernel(4, 6),
        s=np.array([1, 1, stride, stride], np.float32),
    )


@pytest.mark.parametrize(
    ("stride", "asked", "nearest"),
    [
        (32, "250x250", "224x224 or 256x256"),
        (32, "250x256", "224x256 or 256x256"),
        (32, "20x300", "32x320"),
        (8, "33x70", "32x64 or 40x72"),
        (2, "5x4", "4x4 or 6x4"),
    ],
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_sizes_that_a_network_cannot_have(tmp_path, stride, asked, nearest, layout):
    """A network whose sides must be multiples of something says of what, and the nearest; nothing is written."""
    path = save(unet(stride, layout=layout), tmp_path / "n.onnx")
    size = tuple(map(int, asked.split("x")))
    with pytest.raises(ModelError) as found:
        build(path, tmp_path / "b.trtpost", flavour="none", input_size=size)
    assert str(found.value) == (
        f"the network cannot run at {asked}: its height and width must be multiples of {stride}; "
        f"nearest to what was asked for is --input-size {nearest}"
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["n.onnx"]
    fitting = tuple(map(int, nearest.split(" or ")[-1].split("x")))
    assert build(path, tmp_path / "b.trtpost", flavour="none", input_size=fitting).passport.pre.height == fitting[0]


def test_one_side_that_is_fixed_is_left_alone(tmp_path):
    """Where the network fixes one side, sizes are offered for the other."""
    path = save(unet(8, "32,width"), tmp_path / "n.onnx")
    with pytest.raises(ModelError, match=r"--input-size 32x64 or 32x72"):
        build(path, tmp_path / "b.trtpost", flavour="none", input_size=(32, 70))


def test_a_network_of_one_size_though_it_says_it_has_any(tmp_path):
    """Where no size nearby runs either, the reason is given."""
    model = net(
        "y = Conv (image, k)\n out = Add (y, c)",
        "float[1,3,height,width] image",
        "float[1,4,h,w] out",
        k=kernel(4),
        c=np.zeros((1, 4, 37, 41), np.float32),
    )
    path = save(model, tmp_path / "n.onnx")
    with pytest.raises(ModelError, match=r"nor at multiples of up to 128 around it, .*that it was trained with"):
        build(path, tmp_path / "b.trtpost", flavour="none", input_size=(250, 250))
    assert build(path, tmp_path / "b.trtpost", flavour="none", input_size=(37, 41))


def test_a_size_that_tensorflow_refuses(tmp_path, monkeypatch):
    """Keras checks sizes while it converts: the answer is the same, out of the network with dynamic sizes."""
    asked = []

    def conversion(
        _: Path, *, signature: str | None = None, input_size: tuple[int, int] | None = None, **_more: object
    ) -> Conversion:
        asked.append((signature, input_size))
        if input_size is not None:
            raise ModelError("Dimension 1 in both shapes must be equal, but are 250 and 248")
        return Conversion(unet(4, layout="NHWC"))

    monkeypatch.setattr("trtpost.builder.decide.conversion", conversion)
    monkeypatch.setattr("trtpost.builder.decide.convert", lambda source: conversion(source).model)
    source = tmp_path / "net.keras"
    source.write_bytes(b"not looked at")
    with pytest.raises(ModelError, match=r"multiples of 4; .* --input-size 248x248 or 252x252"):
        build(source, tmp_path / "b.trtpost", flavour="none", input_size=(250, 250))
    assert asked == [(None, (250, 250)), (None, None)]


def test_a_dynamic_network_asks_for_its_size(tmp_path):
    """Without a size of its own, and none given, the network's resolution is asked for."""
    path = save(nchw(size="height,width"), tmp_path / "net.onnx")
    with pytest.raises(ModelError, match="--input-size HxW"):
        build(path, tmp_path / "a.trtpost", flavour="none")
    passport = build(path, tmp_path / "a.trtpost", flavour="none", input_size=(16, 24)).passport
    assert (passport.pre.height, passport.pre.width) == (16, 24)
