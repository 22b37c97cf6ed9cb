"""What a conversion is compared by: bounds, units, what says nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from nets import net, save

from trtpost.bundle.passport import Check
from trtpost.convert.check import Source, checked
from trtpost.describe import describe_check, describe_failed_check
from trtpost.errors import ModelError

KERNEL = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)


def scores(image: np.ndarray) -> np.ndarray:
    """What `converted` computes, as another framework would."""
    return np.einsum("nchw,kc->nkhw", image, KERNEL[:, :, 0, 0])


def converted(tmp_path, size="16,24", tail="y = Identity (x)", out="float[N,4,H,W] y", kind="float"):
    body = f"c = Cast <to = 1> (image)\n x = Conv (c, k)\n {tail}"
    return save(net(body, f"{kind}[1,3,{size}] image", out, k=KERNEL), tmp_path / "net.onnx")


def found(source: Source, path) -> Check:
    (check,) = [Check(**one) for one in checked(lambda: source, path)["checks"]]
    return check


def source(run, **facts) -> Source:
    return Source("Framework 1", ["y"], lambda image: [run(image)], **facts)


def test_the_same_numbers_pass(tmp_path):
    check = found(source(scores), converted(tmp_path))
    assert check.passed
    assert (check.output, check.unit, check.arithmetic) == ("y", "range", "float")
    assert "of its range in the quadratic mean on two pictures" in describe_check(check, 0.1)


@pytest.mark.parametrize("share", [0.002, 1])
def test_other_numbers_fail(tmp_path, share):
    """Also where a few pixels alone are wrong, or one of the two pictures."""

    def wrong(image):
        values = scores(image)
        if image.max() > 2:
            values[..., : max(1, int(share * values.shape[-1]))] *= 1.01
        return values

    check = found(source(wrong), converted(tmp_path))
    assert not check.passed
    assert "'y' differs from Framework 1 by " in describe_failed_check(check)


def test_classes_are_compared_by_pixels(tmp_path):
    path = converted(tmp_path, tail="y = ArgMax <axis = 1> (x)", out="int64[N,1,H,W] y")

    def labels(image, shift=0):
        return np.roll(scores(image).argmax(1)[:, None], shift, -1)

    assert found(source(labels), path).difference == 0
    check = found(source(lambda image: labels(image, 1)), path)
    assert check.unit == "pixels"
    assert not check.passed


def test_a_network_that_rounding_alone_changes_says_nothing(tmp_path):
    """Wherever the last digit of a pixel changes everything, no difference is a fault."""

    def chaos(image):
        return np.sin(scores(image) * 1e7)

    assert "rounding alone" in checked(lambda: source(chaos), converted(tmp_path))["unchecked"]


def test_an_ill_conditioned_network_has_a_wider_bound(tmp_path):
    """A difference that rounding in the picture makes as well is none of the conversion's."""

    def steep(image):
        return np.sin(300 * scores(image.astype(np.float64)))

    path = converted(tmp_path, tail="g = Constant <value_float = 300.0> ()\n t = Mul (x, g)\n y = Sin (t)")
    check = found(source(lambda image: steep(image * (1 + 1e-6))), path)
    assert check.passed
    assert check.bound > 1e-4


def test_other_kernels_of_a_quantised_model_say_how_far_is_normal(tmp_path):
    tail = """s = Constant <value_float = 0.05> ()  z = Constant <value = int8 {0}> ()
              q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)"""
    path = converted(tmp_path, tail=tail)
    check = found(source(lambda image: scores(image) * 0 + 3), path)
    assert check.unit == "steps"
    assert not check.passed

    def exact(image):
        return np.clip(np.rint(scores(image) / 0.05), -128, 127) * 0.05

    assert found(source(exact), path).passed
    (check,) = checked(lambda: source(lambda image: exact(image) + 0.5, another=lambda image: [exact(image)]), path)[
        "checks"
    ]
    assert check["bound"] >= check["difference"]


def test_what_fails_where_the_source_runs_is_a_fault(tmp_path):
    tail = "s = Constant <value = int64[2] {7, -1}> ()\n f = Reshape (x, s)\n y = Identity (f)"
    path = converted(tmp_path, size="H,W", tail=tail, out="float[A,B] y")
    with pytest.raises(ModelError, match="fault of the conversion"):
        checked(lambda: source(scores), path)
    with pytest.raises(ModelError, match="gives output 'y' as 1x4x16x24 instead of 1x4x8x12"):
        checked(lambda: source(lambda image: scores(image)[..., ::2, ::2]), converted(tmp_path))


def test_a_size_left_open_is_one_at_which_the_source_runs(tmp_path):
    seen = []

    def picky(image):
        seen.append(image.shape)
        if image.shape[2] == 256:
            raise ValueError("too large for it")
        return scores(image)

    assert found(source(picky), converted(tmp_path, size="H,W")).passed
    assert seen == [(1, 3, 256, 256), (1, 3, 224, 224), (1, 3, 224, 224)]


def test_what_cannot_be_compared_is_said(tmp_path):
    def broken(_image):
        raise RuntimeError("no kernel\nfor it")

    assert "no kernel" in checked(lambda: source(broken), converted(tmp_path))["unchecked"]
    assert "does not run" in checked(lambda: broken(0), converted(tmp_path))["unchecked"]
    two = net("y = Add (a, b)", "float[1,3,8,8] a, float[1,3,8,8] b", "float[1,3,8,8] y")
    onnx.save(two, tmp_path / "two.onnx")
    assert "takes 2 inputs" in checked(lambda: source(scores), tmp_path / "two.onnx")["unchecked"]


@pytest.mark.parametrize("kind", ["uint8", "int8", "float", "float16", "int32"])
def test_pictures_have_the_networks_type(tmp_path, kind):
    def run(image):
        low, high = {"int8": (-128, 127)}.get(kind, (0, 255))
        assert image.dtype == {"float": "float32"}.get(kind, kind)
        assert low <= image.min() + 1
        assert image.max() <= high
        assert np.ptp(image.astype(float)) > 1
        return scores(image.astype(np.float32))

    assert found(source(run), converted(tmp_path, kind=kind)).passed
