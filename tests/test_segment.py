"""`Segmenter`: photos of any size in any form, and real models on real photos."""

from __future__ import annotations

import io

import numpy as np
import pytest
from conftest import package
from nets import kernel, nchw, net, nhwc, save
from PIL import Image

from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle
from trtpost.errors import ImageError
from trtpost.kernels import reference
from trtpost.segment import Segmenter

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (37, 53, 3), np.uint8)


@pytest.fixture
def make(tmp_path):
    def bundle(model=None, **settings):
        source = save(model or nchw(), tmp_path / "net.onnx")
        return build(source, tmp_path / f"{len(list(tmp_path.iterdir()))}.trtpost", flavour="none", **settings)

    return bundle


def test_every_size_mode_gives_the_same_mask(make):
    expected = Segmenter(make())(PHOTO).mask
    for size in ("image", (37, 53)):
        np.testing.assert_array_equal(Segmenter(make(size=size))(PHOTO).mask, expected)
    with pytest.raises(ImageError, match="fixed at 37x53, but the photo has 10x10"):
        Segmenter(make(size=(37, 53)))(PHOTO[:10, :10])


@pytest.mark.parametrize("match", ["tf", "tf1", "opencv", "pil"])
def test_the_mask_is_the_reference_of_the_logits(make, match):
    bundle = make(match=match)
    segmenter, engine = Segmenter(bundle), OnnxRuntimeEngine(bundle)
    pixels = np.rint(reference.bilinear(PHOTO, (8, 12))).astype(np.uint8)
    expected = reference.argmax_resize(engine.logits(pixels[None]), (37, 53), bundle.passport.post)
    np.testing.assert_array_equal(segmenter(PHOTO).mask, expected[0])


def test_batches_of_any_sizes_equal_single_photos(make):
    photos = [PHOTO, PHOTO[::-1], PHOTO[:20], PHOTO[:, :9], PHOTO[:20], PHOTO, PHOTO]
    for batch in ("1", "3", "N"):
        segmenter = Segmenter(make(nchw(batch=batch), max_batch=2))
        results = segmenter.batch(photos)
        assert len(results) == len(photos)
        for photo, result in zip(photos, results, strict=True):
            assert result.mask.shape == photo.shape[:2]
            np.testing.assert_array_equal(result.mask, segmenter(photo).mask)


def test_one_pixel_photos(make):
    segmenter = Segmenter(make(resize="bilinear"))
    for shape in [(1, 1), (1, 500), (301, 1)]:
        assert segmenter(np.zeros((*shape, 3), np.uint8)).mask.shape == shape


def test_gray_networks(make):
    model = net("logits = Conv (image, k)", "float[1,1,8,12] image", "float[1,4,8,12] logits", k=kernel(4, channels=1))
    bundle = make(model)
    assert bundle.passport.pre.channels == "gray"
    gray = np.repeat(PHOTO[..., :1], 3, axis=2)
    assert Segmenter(bundle)(gray).mask.shape == (37, 53)


def test_one_channel_masks(make):
    for tail in ("out = Sigmoid (logits)", "out = Identity (logits)"):
        mask = Segmenter(make(nhwc(1, tail)))(PHOTO).mask
        assert set(np.unique(mask)) <= {0, 1}


SETTINGS = [{}, {"resize": "bilinear"}, {"match": "pil"}, {"size": (37, 53)}, {"size": "image"}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_without_the_native_kernel_the_function_body_gives_the_same_mask(make, monkeypatch, settings):
    bundle = make(**settings)
    fast = Segmenter(bundle)
    monkeypatch.setattr("trtpost.kernels.cpu.is_available", lambda: False)
    slow = Segmenter(bundle)
    assert "fused kernel" in fast.engine
    assert "function body" in slow.engine
    assert (fast(PHOTO).mask == slow(PHOTO).mask).mean() > 0.999
    if settings.get("resize") != "bilinear":
        np.testing.assert_array_equal(fast(PHOTO).mask, slow(PHOTO).mask)


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_inlined_graph_runs_whole(make, settings):
    inlined, plain = Segmenter(make(lowering="inline", **settings)), Segmenter(make(**settings))
    assert (inlined(PHOTO).mask == plain(PHOTO).mask).mean() > 0.999


@pytest.mark.parametrize(
    ("code", "name"),
    [(2, "uint8"), (3, "int8"), (4, "uint16"), (5, "int16"), (6, "int32"), (7, "int64"), (12, "uint32")],
)
def test_labels_of_every_integer_type(make, code, name):
    tail = f"a = ArgMax <axis = 3, keepdims = 0> (logits)\n b = Cast <to = 7> (a)\n out = Cast <to = {code}> (b)"
    model = nhwc(4, tail, f"{name}[1,8,12] out")
    direct = Segmenter(make(model, logits="out", head="labels", labels=tuple("abcd")))
    np.testing.assert_array_equal(direct(PHOTO).mask, Segmenter(make(nhwc(4)))(PHOTO).mask)


def test_a_network_whose_output_does_not_follow_the_batch(make):
    model = net(
        """a = Conv (image, k)
           l = ArgMax <axis = 1, keepdims = 0> (a)
           z = Constant <value_int = 0> ()
           out = Gather (l, z)""",
        "float[N,3,8,12] image",
        "int64[8,12] out",
        k=kernel(4),
    )
    segmenter = Segmenter(make(model))
    for result, photo in zip(segmenter.batch([PHOTO, PHOTO[::-1]]), [PHOTO, PHOTO[::-1]], strict=True):
        np.testing.assert_array_equal(result.mask, segmenter(photo).mask)


def test_timing_and_pictures(make):
    result = Segmenter(load_bundle(make().path))(PHOTO)
    assert result.timing.network > 0
    assert result.timing.total >= result.timing.network + result.timing.argmax_resize
    assert result.overlay().size == (53, 37)


# --- real models on real photos


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / (one | other).sum())


@pytest.mark.parametrize("size", ["runtime", "image"])
@pytest.mark.parametrize(
    ("model", "normalize"), [("deeplabv3_257.tflite", None), ("deeplabv3_257_saved_model", "signed")]
)
def test_deeplab_equals_its_golden_mask_on_every_pixel(built, shared, model, normalize, size):
    segmenter = Segmenter(built(model, normalize=normalize, size=size))
    golden = np.asarray(Image.open(shared / "photos/riders_257_golden.png"))
    np.testing.assert_array_equal(segmenter(shared / "photos/riders_257.jpg").mask, golden // 10)


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_quantised_deeplab_finds_the_bird(built, shared, resize):
    mask = Segmenter(built("deeplabv3_513_uint8.tflite", resize=resize))(shared / "photos/bird.bmp").mask
    human = np.asarray(Image.open(shared / "photos/bird_mask.bmp"))
    assert iou(mask == 3, human == 3) >= 0.90


def test_quantised_deeplab_equals_tflites_interpreter(built, shared):
    tf = package("tensorflow")
    interpreter = tf.lite.Interpreter(str(shared / "models/deeplabv3_513_uint8.tflite"))
    interpreter.allocate_tensors()
    photo = np.asarray(Image.open(shared / "photos/bird.bmp"))
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], photo[None])
    interpreter.invoke()
    expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0]
    mask = Segmenter(built("deeplabv3_513_uint8.tflite"))(photo).mask
    assert (mask == expected).mean() > 0.998  # the interpreter requantises in integers: last bits differ


@pytest.mark.parametrize(("model", "normalize"), [("portrait_256.tflite", "signed"), ("selfie_256.tflite", None)])
def test_the_person_is_found(built, shared, model, normalize):
    mask = Segmenter(built(model, normalize=normalize))(shared / "photos/portrait.bmp").mask
    assert mask.shape == (600, 512)
    assert 0.4 < mask.mean() < 0.75
    assert mask[300:, 200:300].mean() > 0.99, "the chest"
    assert mask[:40, :40].mean() < 0.01, "the corner"


def test_both_portrait_models_agree(built, shared):
    photo = shared / "photos/portrait.bmp"
    portrait = Segmenter(built("portrait_256.tflite", normalize="signed"))(photo).mask
    selfie = Segmenter(built("selfie_256.tflite"))(photo).mask
    assert iou(portrait == 1, selfie == 1) > 0.93


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_a_cat_at_1080p(built, shared, resize):
    mask = Segmenter(built("deeplabv3_257.tflite", resize=resize))(shared / "photos/cat_1080p.jpg").mask
    assert mask.shape == (1080, 1920)
    assert 0.3 < (mask == 8).mean() < 0.45
    assert (mask[500:700, 900:1200] == 8).all(), "the cat's face"


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_a_small_bird_at_20_megapixels(built, shared, resize):
    mask = Segmenter(built("deeplabv3_513_uint8.tflite", resize=resize))(shared / "photos/nuthatch_20mp.jpg").mask
    assert mask.shape == (3391, 6028)
    assert 0.005 < (mask == 3).mean() < 0.03
    assert (mask[1850:2150, 2550:2850] == 3).mean() > 0.95, "the nuthatch"


def test_exif_orientation_turns_the_mask(built, shared):
    segmenter = Segmenter(built("selfie_256.tflite"))
    upright = Image.open(shared / "photos/portrait.bmp")
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    upright.transpose(Image.Transpose.ROTATE_90).save(stream, "PNG", exif=exif)
    np.testing.assert_array_equal(segmenter(stream.getvalue()).mask, segmenter(np.asarray(upright)).mask)
