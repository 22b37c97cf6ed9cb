"""The reference and the baked node against the frameworks whose pixels they promise, on every pixel."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from conftest import package

from trtpost.graph.baking.postprocess import node_model, spatial
from trtpost.kernels import reference
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region
from trtpost.spec import MATCHES, Post

PAIRS = 200


def random_sizes(seed: int, count: int = PAIRS, largest: int = 400):
    """(h, w), (H, W), up and down, one-pixel sides among them."""
    rng = np.random.default_rng(seed)
    for index in range(count):
        low = 1 if index % 10 == 0 else 2
        h, w, height, width = (int(side) for side in rng.integers(low, largest, 4))
        yield rng, (h, w), (height, width)


def baked(post: Post, dtype: int = 1) -> onnxruntime.InferenceSession:
    shape = {"labels": ("N", "h", "w")}.get(post.head, ("N", "C", "h", "w") if post.layout == "NCHW" else None)
    model = node_model(post, dtype, shape or ("N", "h", "w", "C"), 17)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, post: Post, logits: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    names = [value.name for value in session.get_inputs()]
    values = [logits, *size_inputs(post, Region(0, 0, *spatial(post, logits.shape)), size).values()]
    return session.run(None, dict(zip(names, values, strict=True)))[0]


def tensorflow_nearest(labels, size):
    return package("tensorflow").image.resize(labels[..., None], size, method="nearest").numpy()[..., 0]


def tensorflow1_nearest(labels, size):
    tf = package("tensorflow")
    return tf.raw_ops.ResizeNearestNeighbor(images=labels[..., None], size=size).numpy()[..., 0]


def torch_nearest(mode):
    def resize(labels, size):
        torch = package("torch")
        tensor = torch.from_numpy(labels[:, None].astype(np.float32))
        return torch.nn.functional.interpolate(tensor, size=size, mode=mode).numpy()[:, 0].astype(np.int32)

    return resize


def opencv_nearest(labels, size):
    cv2 = package("cv2")
    return cv2.resize(labels[0].astype(np.int16), size[::-1], interpolation=cv2.INTER_NEAREST)[None]


def pillow_nearest(labels, size):
    from PIL import Image

    return np.asarray(Image.fromarray(labels[0]).resize(size[::-1], Image.Resampling.NEAREST))[None]


@pytest.mark.parametrize(
    ("match", "framework"),
    [
        pytest.param("tf", tensorflow_nearest, id="tf"),
        pytest.param("tf1", tensorflow1_nearest, id="tf1"),
        pytest.param("torch", torch_nearest("nearest"), id="torch"),
        pytest.param("opencv", opencv_nearest, id="opencv"),
        pytest.param("pil", pillow_nearest, id="pil"),
    ],
)
def test_nearest_equals_the_framework_on_every_pixel(match, framework):
    post = Post(match=match, classes=7)
    session = baked(post)
    for rng, source, size in random_sizes(seed=1):
        logits = rng.standard_normal((1, 7, *source)).astype(np.float32)
        labels = logits.argmax(1).astype(np.int32)
        expected = framework(labels, size)
        np.testing.assert_array_equal(reference.argmax_resize(logits, size, post), expected, f"{source} -> {size}")
        np.testing.assert_array_equal(run(session, post, logits, size), expected, f"baked {source} -> {size}")


def test_torch_nearest_exact_differs_from_tf_only_on_source_edges():
    """Where (j + 0.5) * w / W is a whole number; torch rounds that case in its own way."""
    resize = torch_nearest("nearest-exact")
    for source, target in [(2, 141), (6, 165), (8, 332), (10, 205), (33, 513), (257, 1920), (512, 4032)]:
        expected = resize(np.arange(source, dtype=np.int32).reshape(1, 1, -1), (1, target))[0, 0]
        ours = reference.nearest_index(source, target, "tf")
        for j in np.flatnonzero(ours != expected):
            assert (2 * int(j) + 1) * source % (2 * target) == 0, (source, target, j)


def tensorflow_bilinear(logits, size):
    return package("tensorflow").image.resize(logits.transpose(0, 2, 3, 1), size).numpy().transpose(0, 3, 1, 2)


def tensorflow1_bilinear(*, align_corners):
    def resize(logits, size):
        tf = package("tensorflow")
        images = logits.transpose(0, 2, 3, 1)
        result = tf.raw_ops.ResizeBilinear(images=images, size=size, align_corners=align_corners)
        return result.numpy().transpose(0, 3, 1, 2)

    return resize


def torch_bilinear(*, align_corners):
    def resize(logits, size):
        torch = package("torch")
        interpolate = torch.nn.functional.interpolate
        tensor = torch.from_numpy(logits)
        return interpolate(tensor, size=size, mode="bilinear", align_corners=align_corners).numpy()

    return resize


def opencv_bilinear(logits, size):
    cv2 = package("cv2")
    planes = [cv2.resize(plane, size[::-1], interpolation=cv2.INTER_LINEAR) for plane in logits[0]]
    return np.stack(planes)[None]


@pytest.mark.parametrize(
    ("match", "framework"),
    [
        pytest.param("tf", tensorflow_bilinear, id="tf"),
        pytest.param("torch", torch_bilinear(align_corners=False), id="torch"),
        pytest.param("opencv", opencv_bilinear, id="opencv"),
        pytest.param("tf1", tensorflow1_bilinear(align_corners=False), id="tf1"),
        pytest.param("align_corners", tensorflow1_bilinear(align_corners=True), id="align_corners-tf1"),
        pytest.param("align_corners", torch_bilinear(align_corners=True), id="align_corners-torch"),
    ],
)
def test_bilinear_equals_the_framework_but_for_ties(match, framework):
    post = Post(resize="bilinear", match=match, classes=5)
    session = baked(post)
    compared = 0
    for rng, source, size in random_sizes(seed=2, largest=160):
        logits = rng.standard_normal((1, 5, *source)).astype(np.float32)
        resized = framework(logits, size)
        ordered = np.sort(resized, axis=1)
        clear = ordered[:, -1] - ordered[:, -2] > 1e-4 * np.ptp(logits)
        expected = resized.argmax(1)
        for mask in (reference.argmax_resize(logits, size, post), run(session, post, logits, size)):
            np.testing.assert_array_equal(mask[clear], expected[clear], f"{source} -> {size}")
        compared += int(clear.sum())
    assert compared > 1_000_000


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("head", ["argmax", "threshold", "labels"])
def test_the_baked_node_equals_the_reference(head, layout, resize):
    if (head, resize) == ("labels", "bilinear"):
        return  # has no meaning; test_spec covers the refusal
    rng = np.random.default_rng(3)
    for match in MATCHES[resize]:
        post = Post(head=head, layout=layout, resize=resize, match=match, classes=2 if head == "threshold" else 6)
        channels = 1 if head == "threshold" else 6
        if head == "labels":
            logits = rng.integers(0, 6, (2, 9, 14))
        else:
            logits = rng.random((2, channels, 9, 14)).astype(np.float32)
            logits = logits if layout == "NCHW" else np.ascontiguousarray(logits.transpose(0, 2, 3, 1))
        mask = run(baked(post, 7 if head == "labels" else 1), post, logits, (23, 5))
        expected = reference.argmax_resize(logits, (23, 5), post)
        assert mask.dtype == np.uint8
        agreement = (mask == expected).mean()
        assert agreement == 1 if resize == "nearest" else agreement > 0.99


@pytest.mark.parametrize(
    ("match", "index"),
    [
        ("tf", [0, 1, 1]),  # centres 1/3, 1, 5/3
        ("tf1", [0, 0, 1]),  # left edges 0, 2/3, 4/3
        ("torch", [0, 0, 1]),
        ("opencv", [0, 0, 1]),
        ("pil", [0, 1, 1]),
    ],
)
def test_two_pixels_to_three_nearest(match, index):
    assert reference.nearest_index(2, 3, match).tolist() == index


@pytest.mark.parametrize(
    ("match", "values"),
    [
        ("tf", [0, 0.5, 1]),  # centres at -1/6 (clamped), 1/2, 7/6 (clamped)
        ("tf1", [0, 2 / 3, 1]),  # edges at 0, 2/3, 4/3 (clamped)
        ("align_corners", [0, 0.5, 1]),  # ends on ends
    ],
)
def test_two_pixels_to_three_bilinear(match, values):
    column = np.array([[0.0], [1.0]], np.float32)
    assert reference.bilinear(column, (3, 1), match)[:, 0] == pytest.approx(values, abs=1e-6)


def test_ties_go_to_the_lower_class():
    logits = np.ones((1, 3, 2, 2), np.float32)
    for resize in ("nearest", "bilinear"):
        assert not reference.argmax_resize(logits, (5, 5), Post(resize=resize, classes=3)).any()
