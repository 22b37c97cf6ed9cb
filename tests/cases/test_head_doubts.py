"""Find the head: ends that look like another one, ends that are a guess, and ends that are none.

Where the graph tells, the mask is what NumPy makes of the file's own output; where it is a guess, the build says so and
names the flag; where it is nonsense, it is refused with what to take instead.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.parser
import pytest
from heads import NCHW, SIZE, Ears, Read, built, check, exceeding, gray, mask_of, output_of, written
from nets import kernel, save

from trtpost.errors import ModelError, SpecError

IMAGE = NCHW[1]
ONE = "float[1,1,8,12] out"


def one_channel(path: Path, tail: str, out: str = ONE, classes: int = 1, **weights: np.ndarray) -> Path:
    """What follows a convolution `y` and its Sigmoid `p`, of which about half is above 0 and 0.5."""
    return written(path, f"{NCHW[0]} p = Sigmoid (y)\n {tail}", IMAGE, out, k=gray(classes), **weights)


def warned(path: Path, **settings: object) -> str:
    """All warnings of a build."""
    ears = Ears()
    built(path, progress=ears, **settings)
    return "\n".join(ears.warned)


def above(threshold: float) -> Read:
    """What people write of one channel."""

    def read(values: np.ndarray) -> np.ndarray:
        return (values.reshape(values.shape[-2:]) > np.float32(threshold)).astype(np.uint8)

    return read


HALF = np.float32(0.5)
PROBABILITIES = {
    "power": ("out = Pow (p, w)", {"w": np.float32(2)}),
    "root": ("out = Sqrt (p)", {}),
    "product": ("q = Sigmoid (y)\n out = Mul (p, q)", {}),
    "mean": ("out = Mean (p, p, p)", {}),
    "half a sum": ("s = Sum (p, p)\n out = Mul (s, w)", {"w": HALF}),
    "largest": ("z = Mul (y, w)\n q = Sigmoid (z)\n out = Max (p, q)", {"w": np.float32(0.3)}),
    "least": ("out = Min (p, p)", {}),
    "absolute": ("out = Abs (p)", {}),
    "mean of a stack": ("c = Concat <axis = 1> (p, p)\n out = ReduceMean <axes = [1]> (c)", {}),
    "log of a sigmoid": ("n = Neg (y)\n s = Softplus (n)\n m = Neg (s)\n out = Exp (m)", {}),
    "normal distribution": ("e = Erf (y)\n a = Add (e, o)\n out = Mul (a, w)", {"o": np.float32(1), "w": HALF}),
    "min-max": (
        "a = ReduceMax (y)\n b = ReduceMin (y)\n d = Sub (y, b)\n r = Sub (a, b)\n e = Add (r, w)\n out = Div (d, e)",
        {"w": np.float32(1e-8)},
    ),
    "by the largest": ("m = ReduceMax (p)\n out = Div (p, m)", {}),
    "gate": ("g = Greater (p, w)\n f = Cast <to = 1> (g)\n out = Mul (p, f)", {"w": np.float32(0.3)}),
    "where": ("g = Greater (p, w)\n out = Where (g, p, z)", {"w": np.float32(0.3), "z": np.float32(0)}),
    "comparison": ("g = Greater (p, w)\n n = Not (g)\n o = Not (n)\n out = Cast <to = 1> (o)", {"w": HALF}),
    "rounded": ("out = Round (p)", {}),
    "leaky": ("out = LeakyRelu (p)", {}),
    "tile": ("out = Tile (p, s)", {"s": np.array([1, 1, 1, 1])}),
    "expand": ("out = Expand (p, s)", {"s": np.array([1, 1, 8, 12])}),
    "scatter": ("out = ScatterND (p, i, u)", {"i": np.array([[0, 0, 0, 0]]), "u": np.float32([0.7])}),
    "reverse": ("out = ReverseSequence <batch_axis = 0, time_axis = 1> (p, s)", {"s": np.array([1])}),
    "pad": (
        "c = Slice (p, a, b, x)\n out = Pad (c, n)",
        {"a": np.array([1, 1]), "b": np.array([7, 11]), "x": np.array([2, 3]), "n": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
    "blur": ("out = Conv <pads = [1, 1, 1, 1]> (p, w)", {"w": np.full((1, 1, 3, 3), 1 / 9, np.float32)}),
    "average": ("out = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (p)", {}),
    "transposed convolution": ("out = ConvTranspose (p, w)", {"w": np.ones((1, 1, 1, 1), np.float32)}),
    "batch norm": (
        "out = BatchNormalization <epsilon = 0.0> (p, s, b, b, s)",
        {"s": np.ones(1, np.float32), "b": np.zeros(1, np.float32)},
    ),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_probabilities_stay_probabilities(tmp_path, name):
    """What operators leave between 0 and 1 is a probability after them too: foreground above 0.5, and no warning."""
    tail, weights = PROBABILITIES[name]
    path = one_channel(tmp_path / "n.onnx", tail, **weights)
    assert not warned(path)
    check(path, above(0.5))


def test_operators_outside_the_standard_that_bound(tmp_path):
    """A quantised Sigmoid is one."""
    path = one_channel(
        tmp_path / "n.onnx",
        "q = QuantizeLinear (y, a, z)\n s = Relu (q)\n out = DequantizeLinear (s, b, o)",
        a=np.float32(0.05),
        z=np.uint8(128),
        b=np.float32(1 / 256),
        o=np.uint8(0),
    )
    model = onnx.load(path)
    node = model.graph.node[3]
    node.op_type, node.domain = "QLinearSigmoid", "com.microsoft"
    node.input.extend(["a", "z", "b", "o"])
    model.opset_import.append(oh.make_opsetid("com.microsoft", 1))
    model.graph.value_info.append(oh.make_tensor_value_info("s", onnx.TensorProto.UINT8, (1, 1, 8, 12)))
    check(save(model, path), above(0.5))


ENLARGED = {
    "linear": "f = Identity (p)",
    "cubic": "f = Identity (p)",
    "linear of a comparison": "g = Greater (p, w)\n f = Cast <to = 1> (g)",
    "linear of a choice": "g = Greater (p, w)\n f = Where (g, o, z)",
    "linear of what was rounded": "f = Round (p)",
}


@pytest.mark.parametrize("name", ENLARGED)
def test_enlarged_probabilities(tmp_path, name):
    """Between 0 and 1 there is 0.5, also where a Resize made the values between, or overshoots."""
    resize = f'\n out = Resize <mode = "{name.split()[0]}"> (f, , s)'
    constants = {"w": HALF, "o": np.float32(1), "z": np.float32(0)}
    tail = ENLARGED[name] + resize
    used = {key: value for key, value in constants.items() if f" {key})" in tail or f" {key}," in tail}
    path = one_channel(tmp_path / "n.onnx", tail, "float[1,1,16,24] out", s=np.float32([1, 1, 2, 2]), **used)
    check(path, above(0.5))


def test_the_sum_of_several_classes_of_a_softmax_is_a_probability(tmp_path):
    """All that is not background, taken together."""
    tail = "q = Softmax <axis = 1> (y)\n c = Slice (q, a, b, a)\n out = ReduceSum (c, a)"
    path = one_channel(tmp_path / "n.onnx", tail, classes=4, a=np.array([1]), b=np.array([4]))
    assert not warned(path)
    check(path, above(0.5))


GUESSES = {
    "gate times logits": ("out = Mul (p, y)", 0.0, "nothing tells between which limits"),
    "inverse": ("out = Reciprocal (y)", 0.0, "nothing tells between which limits"),
    "depth by Relu": ("out = Relu (y)", 0.0, "as those of depth"),
    "depth by Softplus": ("out = Softplus (y)", 0.0, "as those of depth"),
    "distance by Exp": ("out = Exp (y)", 0.0, "as those of depth"),
    "running sum": ("out = CumSum (p, x)", 0.0, "as those of depth"),
    "three probabilities": ("out = Sum (p, p, p)", 1.5, "between 0 and 3"),
    "Relu6": ("out = Clip (y, z, m)", 3.0, "between 0 and 6"),
}


@pytest.mark.parametrize("name", GUESSES)
def test_a_threshold_that_is_a_guess_is_said(tmp_path, name):
    """Where nothing tells what foreground exceeds, the guess is said with the flag, and a given one is not doubted."""
    tail, threshold, says = GUESSES[name]
    constants = {"x": np.int64(2), "z": np.float32(0), "m": np.float32(6)}
    used = {key: value for key, value in constants.items() if f" {key})" in tail or f" {key}," in tail}
    path = one_channel(tmp_path / "n.onnx", tail, **used)
    text = warned(path)
    assert says in text
    assert "ASSUMED; settle it with --threshold" in text
    check(path, above(threshold))
    assert not warned(path, threshold=0.25, force=True)


@pytest.mark.parametrize(
    "tail",
    [
        "out = Identity (y)",
        "m = Mul (y, w)\n out = Add (m, w)",
        'out = Resize <mode = "linear"> (y, , s)',
        "c = Concat <axis = 1> (y, y)\n out = Conv (c, l)",
    ],
)
def test_plain_logits_are_no_guess(tmp_path, tail):
    """Logits of the last layer turn at 0: there is nothing to say."""
    constants = {"w": HALF, "s": np.ones(4, np.float32), "l": kernel(1, 2)}
    used = {key: value for key, value in constants.items() if f" {key})" in tail}
    path = one_channel(tmp_path / "n.onnx", tail, **used)
    assert not warned(path)
    check(path, above(0.0))


@pytest.mark.parametrize(
    ("tail", "out"),
    [
        ("q = Mul (p, w)\n out = Cast <to = 2> (q)", "uint8[1,1,8,12] out"),
        (
            "q = Mul (p, w)\n r = Round (q)\n c = Clip (r, z, w)\n d = Cast <to = 2> (c)\n out = Squeeze (d)",
            "uint8[8,12] out",
        ),
        ("q = Mul (p, w)\n c = Cast <to = 6> (q)\n out = Cast <to = 1> (c)", ONE),
    ],
)
def test_levels_of_a_probability_are_no_class_ids(tmp_path, tail, out):
    """A probability as a grey image, 0 to 255, is thresholded in its middle."""
    weights = {"w": np.float32(255)} | ({"z": np.float32(0)} if " z," in tail else {})
    path = one_channel(tmp_path / "n.onnx", tail, out, **weights)
    assert built(path).passport.post.head == "threshold"
    check(path, above(127.5))
    assert not warned(path, force=True)


def test_levels_without_limits_are_a_guess(tmp_path):
    """Integers that were real numbers without limits: that the middle of their type is meant is said."""
    path = one_channel(tmp_path / "n.onnx", "q = Mul (y, w)\n out = Cast <to = 2> (q)", "uint8[1,1,8,12] out", w=HALF)
    assert "threshold 127.5, the middle, is ASSUMED; settle it with --threshold" in warned(path)


def test_integers_without_limits_are_asked_for(tmp_path):
    """Rounded real numbers may be class ids, or scores: the user says which."""
    tail = "r = Abs (y)\n q = Round (r)\n out = Cast <to = 6> (q)"
    path = one_channel(tmp_path / "n.onnx", tail, "int32[1,1,8,12] out")
    with pytest.raises(ModelError, match="--head labels, or --head threshold"):
        built(path)
    check(path, lambda values: values.reshape(SIZE), head="labels")


def test_sums_of_comparisons_may_be_class_ids(tmp_path):
    """Two thresholds make three values: that they may be class ids is said."""
    tail = "g = Greater (y, z)\n h = Greater (y, w)\n a = Cast <to = 1> (g)\n b = Cast <to = 1> (h)\n out = Add (a, b)"
    path = one_channel(tmp_path / "n.onnx", tail, z=np.float32(0), w=np.float32(0.3))
    assert "say --head labels if they are class ids" in warned(path)
    check(path, lambda values: values.reshape(SIZE).astype(int), head="labels", force=True)


# --- class ids that were computed with


ARGMAX = "a = ArgMax <axis = 1> (y)\n "
SURE = "q = Softmax <axis = 1> (y)\n m = ReduceMax <axes = [1]> (q)\n g = Greater (m, t)\n f = Cast <to = 1> (a)\n "
T, F0, F1 = np.float32(0.5), np.float32(0), np.float32(1)
COMPUTED = {
    "plus one": ("b = Add (a, w)\n out = Cast <to = 1> (b)", "float", {"w": np.int64(1)}),
    "plus one as float": ("b = Cast <to = 1> (a)\n out = Add (b, w)", "float", {"w": F1}),
    "gray levels": ("b = Cast <to = 1> (a)\n out = Mul (b, w)", "float", {"w": np.float32(85)}),
    "the largest nearby": (
        "b = Cast <to = 1> (a)\n out = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b)",
        "float",
        {},
    ),
    "at most": ("b = Cast <to = 1> (a)\n out = Min (b, w)", "float", {"w": np.float32(2)}),
    "clipped": ("b = Cast <to = 1> (a)\n out = Clip (b, z, w)", "float", {"z": F0, "w": np.float32(2)}),
    "none where unsure": (SURE + "out = Where (g, f, z)", "float", {"t": T, "z": F0}),
    "none where unsure, by a product": (SURE + "h = Cast <to = 1> (g)\n out = Mul (f, h)", "float", {"t": T}),
    "255 where unsure": (SURE + "out = Where (g, a, z)", "int64", {"t": T, "z": np.int64(255)}),
    "a table": ("out = Gather (w, a)", "float", {"w": np.float32([7, 8, 11, 0])}),
    "a table of integers": ("out = Gather (w, a)", "int32", {"w": np.int32([7, 8, 11, 300])}),
    "a table of bytes": ("out = Gather (w, a)", "uint8", {"w": np.uint8([7, 8, 11, 0])}),
    "turned": (
        "b = Add (a, w)\n out = Transpose <perm = [0, 2, 3, 1]> (b)",
        "turned",
        {"w": np.int64(1)},
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_class_ids_that_were_computed_with_are_class_ids(tmp_path, name):
    """Whatever was made of an ArgMax, the mask holds its whole numbers, and no threshold of them."""
    tail, element, weights = COMPUTED[name]
    out = "int64[1,8,12,1] out" if element == "turned" else f"{element}[1,1,8,12] out"
    path = written(tmp_path / "n.onnx", NCHW[0] + ARGMAX + tail, IMAGE, out, k=kernel(4), **weights)
    check(path, lambda values: values.reshape(SIZE).astype(int))
    expected = output_of(path)
    assert len(np.unique(expected)) > 1 or "nearby" in name


def test_class_ids_inside_a_function_or_a_branch(tmp_path):
    """What is taken in a function of the model, or in both branches of an If, is found there."""
    float_ids = [oh.make_node("ArgMax", ["y"], ["i"], axis=1), oh.make_node("Cast", ["i"], ["o"], to=1)]
    value = oh.make_tensor_value_info("o", onnx.TensorProto.FLOAT, (1, 1, 8, 12))
    branches = {}
    for name, op in (("then_branch", "ArgMax"), ("else_branch", "ArgMin")):
        nodes = [oh.make_node(op, ["y"], ["i"], axis=1), oh.make_node("Cast", ["i"], ["o"], to=1)]
        branches[name] = oh.make_graph(nodes, name, [], [value])
    path = one_channel(tmp_path / "f.onnx", "out = Relu (y)", classes=4)
    model = onnx.load(path)
    model.functions.append(oh.make_function("own", "Head", ["y"], ["o"], float_ids, [oh.make_opsetid("", 17)]))
    model.opset_import.append(oh.make_opsetid("own", 1))
    model.graph.node[-1].op_type, model.graph.node[-1].domain = "Head", "own"
    check(save(model, path), lambda values: values.reshape(SIZE).astype(int))
    model = onnx.load(
        one_channel(tmp_path / "i.onnx", "m = ReduceMean (image)\n g = Greater (m, w)\n out = Relu (y)", w=HALF)
    )
    del model.graph.initializer[0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel(4), "k"))
    model.graph.node[2].attribute.append(oh.make_attribute("keepdims", 0))
    model.graph.node[-1].CopyFrom(oh.make_node("If", ["g"], ["out"], **branches))
    check(save(model, tmp_path / "i.onnx"), lambda values: values.reshape(SIZE).astype(int))


@pytest.mark.parametrize(
    "tail",
    [
        "b = Cast <to = 1> (a)\n out = Mul (b, w)",
        "b = Cast <to = 1> (a)\n out = Div (b, w)",
        "b = Cast <to = 1> (a)\n c = Add (b, w)\n out = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c)",
    ],
)
def test_class_ids_that_are_no_whole_numbers_any_more(tmp_path, tail):
    """Halves and averages of class ids are no mask: the ids before them are named, and --head overrules."""
    path = written(tmp_path / "n.onnx", NCHW[0] + ARGMAX + tail, IMAGE, ONE, k=kernel(4), w=np.float32(0.4))
    with pytest.raises(ModelError, match=r"computed from the class ids 'a', .* --logits 'a', or .* --head"):
        built(path)
    assert built(path, logits="a").passport.post.head == "labels"
    assert built(path, head="threshold", threshold=0.5, force=True).passport.post.head == "threshold"


def test_class_ids_that_no_mask_holds(tmp_path):
    """Ids of more than 32 bits are refused rather than cut."""
    path = written(
        tmp_path / "n.onnx",
        NCHW[0] + ARGMAX + "out = Gather (w, a)",
        IMAGE,
        "int64[1,1,8,12] out",
        k=kernel(4),
        w=np.array([7, 8, 1 << 40, 9]),
    )
    with pytest.raises(ModelError, match=r"go from 7 to 1099511627776, and masks hold 32 bits: .* --logits 'a'"):
        built(path)


PALETTE = np.random.default_rng(0).integers(0, 256, (4, 3))
PICTURES = {
    "palette": ("s = Squeeze (a, x)\n out = Gather (w, s)", "uint8[1,8,12,3]", {"w": PALETTE.astype(np.uint8)}),
    "float palette": ("s = Squeeze (a, x)\n out = Gather (w, s)", "float[1,8,12,3]", {"w": PALETTE.astype(np.float32)}),
    "no batch": ("s = Squeeze (a)\n out = Gather (w, s)", "uint8[8,12,3]", {"w": PALETTE.astype(np.uint8)}),
    "expand": ("out = Expand (a, w)", "int64[1,3,8,12]", {"w": np.array([1, 3, 1, 1])}),
    "tile": ("b = Cast <to = 2> (a)\n out = Tile (b, w)", "uint8[1,3,8,12]", {"w": np.array([1, 3, 1, 1])}),
    "concat": ("b = Cast <to = 1> (a)\n out = Concat <axis = 1> (b, b, b)", "float[1,3,8,12]", {}),
    "beside how sure": (
        "b = Cast <to = 1> (a)\n m = ReduceMax <axes = [1]> (y)\n out = Concat <axis = 1> (b, m)",
        "float[1,2,8,12]",
        {},
    ),
}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("head", [None, "argmax"])
def test_pictures_of_class_ids_are_refused(tmp_path, name, head):
    """Colours, or copies, of class ids have channels that are no classes: the ids before them are named."""
    tail, out, weights = PICTURES[name]
    weights = weights | ({"x": np.array([1])} if "(a, x)" in tail else {})
    path = written(tmp_path / "n.onnx", NCHW[0] + ARGMAX + tail, IMAGE, f"{out} out", k=kernel(4), **weights)
    with pytest.raises(ModelError, match=r"a picture of the class ids 'a', .* --logits 'a'"):
        built(path, head=head)
    assert built(path, logits="a").passport.post.head == "labels"


@pytest.mark.parametrize(
    ("tail", "element"),
    [
        ("out = OneHot <axis = 1> (s, d, v)", "float[1,4,8,12]"),
        ("g = Gather (e, s)\n out = Transpose <perm = [0, 3, 1, 2]> (g)", "float[1,4,8,12]"),
    ],
)
def test_one_value_a_class_is_no_picture(tmp_path, tail, element):
    """A one-hot of class ids has the classes for channels, by OneHot or a table."""
    weights = {"d": np.int64(4), "v": np.float32([0, 1])} if "OneHot" in tail else {"e": np.eye(4, dtype=np.float32)}
    body = NCHW[0] + "s = ArgMax <axis = 1, keepdims = 0> (y)\n " + tail
    path = written(tmp_path / "n.onnx", body, IMAGE, f"{element} out", k=kernel(4), **weights)
    check(path, lambda values: values[0].argmax(0))


@pytest.mark.parametrize("element", ["bool", "uint8"])
def test_class_ids_cast_to_true_and_false_are_two(tmp_path, element):
    """All that is not background, by a Cast: 0 and 1 are the mask, not the ids before; they cannot be interpolated."""
    tail = "out = Cast <to = 9> (a)" if element == "bool" else "b = Cast <to = 9> (a)\n out = Cast <to = 2> (b)"
    path = written(tmp_path / "n.onnx", NCHW[0] + ARGMAX + tail, IMAGE, f"{element}[1,1,8,12] out", k=kernel(4))
    assert built(path).passport.post.classes == 2
    check(path, lambda values: values.reshape(SIZE).astype(int))
    with pytest.raises(SpecError, match="labels cannot be interpolated"):
        built(path, resize="bilinear")


def test_class_ids_cast_to_a_type_that_does_not_hold_them(tmp_path):
    """300 ids in a byte wrap round in the model, and so in the mask, and that is said."""
    tail = ARGMAX + "out = Cast <to = 2> (a)"
    path = written(tmp_path / "n.onnx", NCHW[0] + tail, IMAGE, "uint8[1,1,8,12] out", k=kernel(300))
    assert "class ids, up to 299, to uint8, where they become others" in warned(path)
    check(path, lambda values: values.reshape(SIZE))
    assert "class ids" not in warned(path, logits="a", force=True)
    assert mask_of(path, logits="a", force=True).max() > 255


# --- no segmentation


def test_an_output_that_no_image_changes(tmp_path):
    """Constants are no mask: left out, and refused where they are named."""
    body = NCHW[0] + "z = Identity (c)\n out = Neg (z)"
    path = written(
        tmp_path / "n.onnx",
        body,
        IMAGE,
        "float[1,4,8,12] out, float[1,4,8,12] y",
        k=kernel(4),
        c=np.ones((1, 4, 8, 12), np.float32),
    )
    assert built(path).passport.located.output == "y"
    with pytest.raises(ModelError, match="'out' is the same for every image"):
        built(path, logits="out", force=True)


NO_MASK = {
    "characters of a line": (
        "t = ReduceMean <axes = [2], keepdims = 0> (y)\n out = ArgMax <axis = 1, keepdims = 0> (t)",
        "int64[N,12] out",
        {},
    ),
    "the five best classes": (
        "g = GlobalAveragePool (y)\n l = Flatten (g)\n v, out = TopK <axis = 1> (l, w)",
        "int64[N,3] out",
        {"w": np.array([3])},
    ),
    "places of pixels": ("g = Greater (y, w)\n out = NonZero (g)", "int64[4,n] out", {"w": HALF}),
    "places of pixels, a row each": (
        "g = Greater (y, w)\n n = NonZero (g)\n out = Transpose <perm = [1, 0]> (n)",
        "int64[n,4] out",
        {"w": HALF},
    ),
    "boxes that were kept": (
        "b = Slice (r, z, f, o)\n s = Slice (r, z, o, o)\n t = Transpose <perm = [0, 2, 1]> (b)\n"
        "out = NonMaxSuppression (t, s, m)",
        "int64[n,3] out",
        {"z": np.array([0]), "f": np.array([4]), "o": np.array([1]), "m": np.array([5])},
    ),
}


@pytest.mark.parametrize("name", NO_MASK)
def test_integers_that_are_no_mask(tmp_path, name):
    """Indices of characters, classes, pixels and boxes have no two axes of pixels, whatever their shape."""
    tail, out, weights = NO_MASK[name]
    if "(r," in tail:
        tail, weights = "r = Reshape (y, q)\n" + tail, weights | {"q": np.array([0, 4, 96])}
    path = written(tmp_path / "n.onnx", NCHW[0] + tail, IMAGE.replace("[1", "[N"), out, k=kernel(4), **weights)
    with pytest.raises(ModelError, match="no output looks like a segmentation head"):
        built(path)


DETECTORS = {
    "prototypes": ("float[1,8,12] out", "float[1,38,300] other", 16, (38, 300)),
    "prototypes at the size of the boxes": ("float[1,8,12] out", "float[1,116,96] other", 16, (116, 96)),
    "queries": ("float[1,8,12] out", "float[1,100,134] other", 100, (100, 134)),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_masks_of_objects_are_refused(tmp_path, name):
    """Prototypes and queries are no classes: refused beside what lists the objects, unless they are named."""
    _, other, classes, (rows, columns) = DETECTORS[name]
    path = written(
        tmp_path / "n.onnx",
        "out = Conv (image, k)\n g = GlobalAveragePool (image)\n f = Reshape (g, s)\n other = MatMul (f, w)",
        IMAGE,
        f"{other}, float[1,{classes},8,12] out",
        k=kernel(classes),
        s=np.array([1, 1, 3]),
        w=np.ones((1, 3, columns), np.float32),
    )
    model = onnx.load(path)
    model.graph.node[-1].output[0] = "row"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, rows, columns]), "shape"))
    model.graph.node.append(oh.make_node("Expand", ["row", "shape"], ["other"]))
    save(model, path)
    with pytest.raises(ModelError, match=r"networks that detect objects .* say --logits 'out'"):
        built(path)
    assert built(path, logits="out").passport.post.classes == classes


def test_ids_beside_boxes_are_refused(tmp_path):
    """A class for each box is no flat mask."""
    path = written(
        tmp_path / "n.onnx",
        NCHW[0] + "r = Reshape (y, s)\n out = ArgMax <axis = 1, keepdims = 0> (r)\n b = Slice (r, z, f, o)",
        IMAGE.replace("[1", "[N"),
        "int64[N,96] out, float[N,4,96] b",
        k=kernel(9),
        s=np.array([0, 9, 96]),
        z=np.array([0]),
        f=np.array([4]),
        o=np.array([1]),
    )
    with pytest.raises(ModelError, match=r"networks that detect objects .* say --logits 'out'"):
        built(path)


def test_masks_for_one_image_of_which_there_are_several(tmp_path):
    """A mask an object, along the batch, is refused."""
    path = written(
        tmp_path / "n.onnx",
        NCHW[0] + "out = Transpose <perm = [1, 0, 2, 3]> (y)",
        IMAGE,
        "float[4,1,8,12] out",
        k=kernel(4),
    )
    with pytest.raises(ModelError, match="holds 4 masks of one image"):
        built(path)


def test_heads_of_a_detector_are_a_guess(tmp_path):
    """Three resolutions of the same channels: the finest is taken, and that it may be a detector's is said."""
    path = written(
        tmp_path / "n.onnx",
        "a = Conv (image, k)\n p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (image)\n b = Conv (p, k)\n"
        "q = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (p)\n c = Conv (q, k)",
        IMAGE,
        "float[1,6,8,12] a, float[1,6,4,6] b, float[1,6,2,3] c",
        k=kernel(6),
    )
    assert "object detectors too" in warned(path)
    assert "object detectors" not in warned(path, logits="a", force=True)


@pytest.mark.parametrize(
    ("tail", "out"),
    [
        ("out = DepthToSpace <blocksize = 2> (y)", "float[1,3,16,24] out"),
        ("r = Add (z, image)\n out = Clip (r, a, b)", "float[1,3,8,12] out"),
    ],
)
def test_a_picture_is_a_guess(tmp_path, tail, out):
    """Three channels that are larger than the image, or are added to it, look like a picture, and that is said."""
    weights = {"a": F0, "b": F1} if "Add" in tail else {}
    body = NCHW[0].replace("y =", "z =") if "Add" in tail else NCHW[0]
    path = written(tmp_path / "n.onnx", body + tail, IMAGE, out, k=kernel(3 if weights else 12), **weights)
    assert "looks like a picture" in warned(path)
    assert not warned(path, head="argmax", force=True)


# --- scores that are no plain logits


@pytest.mark.parametrize("element", ["bool", "uint8", "float"])
def test_comparisons_a_class_leave_the_background_open(tmp_path, element):
    """Sigmoids that were compared already are 0 and 1 for each class: several, or none, may be 1."""
    number = {"bool": 9, "uint8": 2, "float": 1}[element]
    cast = "out = Identity (g)" if element == "bool" else f"out = Cast <to = {number}> (g)"
    path = one_channel(
        tmp_path / "n.onnx", f"g = Greater (p, w)\n {cast}", f"{element}[1,4,8,12] out", classes=4, w=HALF
    )
    assert "--head multilabel" in warned(path)
    check(path, lambda values: values[0].argmax(0), force=True)
    check(path, lambda values: exceeding(values[0].transpose(1, 2, 0).astype(float)), head="multilabel", force=True)


def test_the_last_of_equal_classes_is_not_interpolated(tmp_path):
    """An ArgMax that takes the last of equals is not undone for a bilinear mask, which takes the first."""
    body = NCHW[0] + "r = Round (y)\n out = ArgMax <axis = 1, select_last_index = 1> (r)"
    path = written(tmp_path / "n.onnx", body, IMAGE, "int64[1,1,8,12] out", k=kernel(4))
    check(path, lambda values: values.reshape(SIZE))
    with pytest.raises(SpecError, match="labels cannot be interpolated"):
        built(path, resize="bilinear", force=True)


@pytest.mark.parametrize(("element", "most"), [("int32", 1 << 30), ("int64", 1 << 60), ("double", 1 << 52)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_scores_that_float32_does_not_tell_apart(tmp_path, element, most, layout):
    """Scores of wider types are compared in their own; where they must be interpolated, that is said."""
    number = {"int32": 6, "int64": 7, "double": 11}[element]
    turn = "out = Transpose <perm = [0, 2, 3, 1]> (d)" if layout == "NHWC" else "out = Identity (d)"
    path = written(
        tmp_path / "n.onnx",
        f"{NCHW[0]} m = Mul (y, w)\n c = Cast <to = {number}> (m)\n d = Add (c, b)\n {turn}",
        IMAGE,
        f"{element}[1,8,12,4] out" if layout == "NHWC" else f"{element}[1,4,8,12] out",
        k=kernel(4),
        w=np.float32(10),
        b=np.array(most, {"double": np.float64}.get(element, element)),
    )
    values = output_of(path)
    axis = -1 if layout == "NHWC" else 1
    assert (values.argmax(axis) != values.astype(np.float32).argmax(axis)).any()
    assert not warned(path)
    check(path, lambda values: values[0].argmax(-1 if layout == "NHWC" else 0), force=True)
    assert f" is {values.dtype}, and compared in float32" in warned(path, resize="bilinear", force=True)


@pytest.mark.parametrize(
    ("tail", "out", "head", "says"),
    [
        ("out = ArgMax <axis = 1> (y)", "int64[1,1,8,12] out", "argmax", "so --head argmax cannot be"),
        (ARGMAX + "out = Add (a, a)", "int64[1,1,8,12] out", "multilabel", "so --head multilabel cannot be"),
        ("c = Slice (y, z, o, o)\n out = Identity (c)", ONE, "argmax", "the ArgMax of one is 0 everywhere"),
        ("c = Slice (y, z, o, o)\n out = Sigmoid (c)", ONE, "labels", "so --head labels cannot be"),
        (
            "c = Slice (y, z, o, o)\n q = Softmax <axis = 1> (c)\n out = ArgMax <axis = 1> (q)",
            "int64[1,1,8,12] out",
            None,
            r"ArgMax over one class, which is 0 everywhere: .* --logits 'q'",
        ),
        (
            "c = Slice (y, z, o, o)\n out = LogSoftmax <axis = 1> (c)",
            ONE,
            None,
            r"LogSoftmax of one class, which is 0 everywhere: .* --logits 'c'",
        ),
    ],
)
def test_heads_that_cannot_be(tmp_path, tail, out, head, says):
    """What a flag says and the graph contradicts is refused, with what to do."""
    weights = {"z": np.array([0]), "o": np.array([1])} if "Slice" in tail else {}
    path = written(tmp_path / "n.onnx", NCHW[0] + tail, IMAGE, out, k=kernel(4), **weights)
    with pytest.raises(ModelError, match=says):
        built(path, head=head)
