"""Where the rows and columns of logits lie on the image, against impulses, and of networks that cover it."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from nets import GRAY, SIGNS, kernel, middle, net, published

from trtpost.errors import SpecError
from trtpost.graph.head.coverage import covered
from trtpost.graph.head.locate import locate
from trtpost.graph.head.places import places_of
from trtpost.spec import Coverage, Pre


def found_in(model: onnx.ModelProto, **said: object) -> tuple[Coverage | None, tuple[str, ...]]:
    located = locate(model, logits=said.pop("logits", None))  # type: ignore[arg-type]
    result = covered(model, located, Pre(*located.input_size), said.get("given"), None)  # type: ignore[arg-type]
    return result.covers, result.doubts[len(located.doubts) :]


STEPS = {
    "valid": ("{y} = Conv ({x}, k3)", lambda size: size - 2),
    "wide": ("{y} = Conv <dilations = [2, 2]> ({x}, k3)", lambda size: size - 4),
    "same": ("{y} = Conv <pads = [1, 1, 1, 1]> ({x}, k3)", lambda size: size),
    "pool": ("{y} = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> ({x})", lambda size: size // 2),
    "stride": ("{y} = Conv <strides = [2, 2]> ({x}, k3)", lambda size: (size - 3) // 2 + 1),
    "up": (
        '{y} = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> '
        "({x}, , two)",
        lambda size: size * 2,
    ),
    "deconvolution": ("{y} = ConvTranspose <strides = [2, 2]> ({x}, ones)", lambda size: size * 2),
    "larger": ("{y} = ConvTranspose <strides = [2, 2]> ({x}, ones4)", lambda size: size * 2 + 2),
    "crop": ("{y} = Slice ({x}, three, most, spatial)", lambda size: size - 5),
    "pad": ("{y} = Pad ({x}, pads)", lambda size: size + 5),
    "negative": ("{y} = Pad ({x}, cut)", lambda size: size - 3),
}


def composed(names: list[str], side: int) -> tuple[onnx.ModelProto, int]:
    lines, size, last = ["x0 = Conv (image, gray)"], side, "x0"
    for number, name in enumerate(names):
        text, after = STEPS[name]
        lines.append(text.format(x=last, y=f"y{number}"))
        last, size = f"y{number}", after(size)
    model = net(
        "\n".join([*lines, f"logits = Conv ({last}, head)"]),
        f"float[N,3,{side},{side}] image",
        f"float[N,2,{size},{size}] logits",
        gray=GRAY,
        head=SIGNS,
        k3=middle(3),
        two=np.array([1, 1, 2, 2], np.float32),
        ones=np.ones((1, 1, 2, 2), np.float32),
        ones4=np.ones((1, 1, 4, 4), np.float32) / 4,
        three=np.array([3, 3]),
        most=np.array([-2, -2]),
        spatial=np.array([2, 3]),
        pads=np.array([0, 0, 2, 2, 0, 0, 3, 3]),
        cut=np.array([0, 0, -1, -1, 0, 0, -2, -2]),
    )
    return model, size


def centres(model: onnx.ModelProto, side: int) -> np.ndarray:
    """The middle of the columns of the image that each column of logits sees; NaN where it sees padding too."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seen = []
    for column in range(side):
        image = np.zeros((1, 3, side, side), np.float32)
        image[..., column] = 1
        (logits,) = session.run(None, {"image": image})
        seen.append(logits[0, 1, logits.shape[2] // 2])
    weights = np.array(seen)  # [columns of the image, columns of logits]
    total = weights.sum(axis=0)
    whole = np.isclose(total, total.max()) & (total > 0)
    return np.where(whole, (weights * (np.arange(side)[:, None] + 0.5)).sum(axis=0) / np.where(whole, total, 1), np.nan)


@pytest.mark.parametrize("seed", range(60))
def test_columns_lie_where_impulses_show(seed):
    draw = random.Random(seed)
    side = draw.randint(60, 75)
    while True:
        names = [draw.choice(list(STEPS)) for _ in range(draw.randint(1, 7))]
        size, sizes = side, []
        for name in names:
            size = STEPS[name][1](size)
            sizes.append(size)
        if min(sizes) > 7 and max(sizes) < 200 and size != side:
            break
    model, size = composed(names, side)
    axes = places_of(model, locate(model))
    assert axes is not None, names
    axis = axes[1]
    assert axis.size == size
    expected = [float(axis.start + axis.step * (column + Fraction(1, 2))) for column in range(size)]
    seen = centres(model, side)
    step, slack = 1.0, 0.0
    for at, name in enumerate(names):
        if name in ("pool", "stride") and "pad" in names[:at]:  # which may be meant as that window's own
            slack += 2 * step
        if name in ("up", "deconvolution", "larger"):  # two neighbours see the same
            slack, step = slack + step / 4, step / 2
        elif name in ("pool", "stride"):
            step *= 2
    assert axis.step == step
    inside = np.isfinite(seen)
    assert inside.any()
    assert np.abs(seen - expected)[inside].max() <= slack + 1e-3, names


def test_u_net_as_published():
    covers, doubts = found_in(published())
    assert covers == Coverage(92, 92, 388, 388, (572, 572))
    assert len(doubts) == 1
    assert "the 388x388 logits lie on rows 92 to 480 and columns 92 to 480 of the 572x572 input" in doubts[0]


STRIDED = """
    a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (image, first)
    b = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a, more)
    c = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (b, more)
"""
SAME = STRIDED.replace("pads = [1, 1, 1, 1]", 'auto_pad = "SAME_UPPER"')
WEIGHTS = {
    "first": np.ones((4, 3, 3, 3), np.float32),
    "more": np.ones((4, 4, 3, 3), np.float32),
    "one": kernel(5, 4),
}
ORDINARY = {
    "strides": (STRIDED + "logits = Conv (c, one)", 64, 8),
    "strides of an odd side": (STRIDED + "logits = Conv (c, one)", 65, 9),
    "SAME": (SAME + "logits = Conv (c, one)", 64, 8),
    "SAME of an odd side": (SAME + "logits = Conv (c, one)", 77, 10),
    "padded before": (
        "p = Pad (image, pads) a = Conv <strides = [2, 2]> (p, first) logits = Conv (a, one)".replace(") ", ")\n"),
        65,
        33,
    ),
    "a decoder": (
        STRIDED
        + """u = Resize <mode = "linear"> (c, , , shape)
            j = Add (u, a)
            logits = Conv (j, one)""",
        65,
        33,
    ),
    "aligned corners": (
        STRIDED
        + """u = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (c, , , shape)
            logits = Conv (u, one)""",
        65,
        33,
    ),
    "an average of the image": (
        STRIDED
        + """g = GlobalAveragePool (c)
            r = Resize <mode = "linear"> (g, , , eighth)
            s = Sigmoid (g)
            t = Mul (c, s)
            j = Add (r, t)
            logits = Conv (j, one)""",
        64,
        8,
    ),
    "normalised in groups": (
        STRIDED
        + """f = Reshape (c, groups)
            n = InstanceNormalization (f, two, two)
            m = Reshape (n, back)
            logits = Conv (m, one)""",
        64,
        8,
    ),
    "tokens": (
        STRIDED
        + """f = Reshape (c, flat)
            t = Transpose <perm = [0, 2, 1]> (f)
            k = Transpose <perm = [0, 2, 1]> (t)
            w = MatMul (t, k)
            p = Softmax (w)
            v = MatMul (p, t)
            r = Add (v, t)
            n = Transpose <perm = [0, 2, 1]> (r)
            m = Reshape (n, back)
            logits = Conv (m, one)""",
        64,
        8,
    ),
    "space to depth": ("d = SpaceToDepth <blocksize = 2> (image)\n logits = Conv (d, deep)", 64, 32),
    "every other row and column": (
        """a = Slice (image, s0, far, axes, by)
           b = Slice (image, s1, far, axes, by)
           j = Concat <axis = 1> (a, b)
           logits = Conv (j, six)""",
        64,
        32,
    ),
    "its own size": (
        'p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (image)\n u = Resize <mode = "linear"> (p, , , shape)\n'
        "logits = Conv (u, three)",
        65,
        65,
    ),
    "larger": ('u = Resize <mode = "linear"> (image, , twice)\n logits = Conv (u, three)', 32, 64),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_networks_that_cover_their_input_are_left_as_they_are(name):
    body, side, size = ORDINARY[name]
    channels = 3 if "three" in body else 4
    model = net(
        body,
        f"float[1,3,{side},{side}] image",
        f"float[1,5,{size},{size}] logits",
        **WEIGHTS,
        three=kernel(5, 3),
        deep=kernel(5, 12),
        six=kernel(5, 6),
        shape=np.array([1, channels, size, size]),
        eighth=np.array([1, 4, 8, 8]),
        twice=np.array([1, 1, 2, 2], np.float32),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        groups=np.array([1, 2, -1]),
        back=np.array([1, 4, 8, 8]),
        flat=np.array([1, 4, -1]),
        two=np.ones(2, np.float32),
        s0=np.array([0, 0]),
        s1=np.array([1, 1]),
        far=np.array([1000, 1000]),
        axes=np.array([2, 3]),
        by=np.array([2, 2]),
    )
    assert found_in(model, logits="logits") == (None, ())
    axes = places_of(model, locate(model, logits="logits"))
    assert axes is not None
    assert side == size or all(axis.covers(side) for axis in axes)


def test_what_cannot_be_followed_is_said_where_its_size_is_unusual():
    body = "a = Conv (image, first)\n b = Gather <axis = 2> (a, order)\n logits = Conv (b, one)"

    def of(rows: int) -> onnx.ModelProto:
        return net(
            body,
            "float[1,3,66,66] image",
            f"float[1,5,{rows},64] logits",
            **WEIGHTS,
            order=np.arange(rows)[::-1].copy(),
        )

    covers, doubts = found_in(of(40))
    assert covers is None
    assert "ASSUMED; settle it with --covers TOP,LEFT,HEIGHT,WIDTH" in doubts[0]
    covers, doubts = found_in(of(40), given=(1, 1, 40, 64))
    assert covers == Coverage(1, 1, 40, 64, (66, 66))
    assert doubts == ()
    for given in ((66, 1, 40, 64), (-40, 1, 40, 64), (1, 1, 1, 64)):
        with pytest.raises(SpecError, match="40 logits cannot lie on the pixels"):
            found_in(of(40), given=given)


def test_crops_of_a_computed_size_are_found_by_running():
    model = net(
        """s = Shape (image)
           h = Slice (s, two, four)
           q = Div (h, eight)
           f = Sub (h, q)
           x = Conv (image, one3)
           logits = Slice (x, q, f, axes)""",
        "float[1,3,64,64] image",
        "float[1,5,48,48] logits",
        one3=kernel(5, 3),
        two=np.array([2]),
        four=np.array([4]),
        eight=np.array([8, 8]),
        axes=np.array([2, 3]),
    )
    assert found_in(model, logits="logits")[0] == Coverage(8, 8, 48, 48, (64, 64))


def test_squares_that_show_elsewhere_are_said():
    picked = np.round((np.arange(40) + 0.5) * 64 / 40 - 0.5).astype(np.int64)

    def of(weight: float) -> onnx.ModelProto:
        return net(
            """x = Conv (image, gray)
               rows = Gather <axis = 2> (x, picked)
               all = Gather <axis = 3> (rows, picked)
               some = Slice (x, start, end, axes)
               less = Mul (all, weight)
               both = Add (less, some)
               logits = Conv (both, signs)""",
            "float[1,3,64,64] image",
            "float[1,2,40,40] logits",
            gray=GRAY,
            signs=SIGNS,
            picked=picked,
            start=np.array([0, 0]),
            end=np.array([40, 40]),
            axes=np.array([2, 3]),
            weight=np.float32(weight),
        )

    covers, doubts = found_in(of(0.01))
    assert covers == Coverage(0, 0, 40, 40, (64, 64))
    assert len(doubts) == 1
    assert "bright squares in the input show elsewhere" in found_in(of(100))[1][1]
