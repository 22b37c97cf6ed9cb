"""`trtpost` from Python: whatever is given as a photo, a bundle or a setting, from any thread, in any order."""

from __future__ import annotations

import copy
import gc
import io
import json
import multiprocessing
import os
import pickle
import shutil
import threading
import weakref
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from conftest import in_threads, package
from nets import kernel, nchw, net, save
from PIL import Image

import trtpost as tp
from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.bundle import folder as bundles
from trtpost.bundle.folder import read_bundle
from trtpost.errors import BackendError, BundleError, ImageError, ModelError, SpecError, TrtpostError
from trtpost.kernels import reference
from trtpost.segment import Segmenter

RNG = np.random.default_rng(0)
PHOTO = RNG.integers(0, 256, (37, 53, 3), np.uint8)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    return tp.build(
        save(nchw(batch="N"), folder / "net.onnx"), folder / "net.trtpost", flavour="none", normalize="unit"
    )


@pytest.fixture
def segmenter(bundle):
    with Segmenter(bundle) as opened:
        yield opened


def expected(photo):
    """The mask by NumPy: the photo made small, the 1x1 convolution, ArgMax, and nearest neighbours."""
    small = np.rint(reference.bilinear(np.ascontiguousarray(photo), (8, 12))).astype(np.float32) / 255
    labels = np.einsum("hwc,kc->hwk", small, kernel(4)[:, :, 0, 0]).argmax(-1)
    rows, columns = (
        np.minimum(np.floor((np.arange(size) + np.float32(0.5)) * np.float32(side / size)).astype(int), side - 1)
        for size, side in zip(photo.shape, labels.shape, strict=False)
    )
    return labels[rows][:, columns]


# --- photos in every form

LAYOUTS = {
    "as it is": lambda photo: photo,
    "Fortran order": np.asfortranarray,
    "upside down": lambda photo: photo[::-1],
    "mirrored": lambda photo: photo[:, ::-1],
    "channels reversed": lambda photo: photo[..., ::-1],
    "transposed": lambda photo: photo.transpose(1, 0, 2),
    "channels moved last": lambda photo: np.ascontiguousarray(photo.transpose(2, 0, 1)).transpose(1, 2, 0),
    "every third pixel": lambda photo: photo[::3, ::3],
    "a part": lambda photo: photo[5:20, 7:30],
    "out of four channels": lambda photo: np.dstack([photo, photo])[..., :3],
    "one row repeated": lambda photo: np.broadcast_to(photo[:1], photo.shape),
    "not aligned": lambda photo: np.frombuffer(b"x" + photo.tobytes(), np.uint8, offset=1).reshape(photo.shape),
    "a subclass": lambda photo: photo.view(np.recarray),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("frozen", [False, True])
def test_arrays_of_every_memory_layout(segmenter, layout, frozen):
    """Views with any strides, writable or not: the mask is NumPy's, and the array is as it was."""
    photo = LAYOUTS[layout](PHOTO.copy())
    if frozen:
        photo.flags.writeable = False
    before = np.array(photo)
    mask = segmenter(photo).mask
    np.testing.assert_array_equal(mask, segmenter(np.array(before, order="C", subok=False)).mask)
    assert (mask == expected(before)).mean() > 0.98  # a level in the middle of two may be rounded either way
    np.testing.assert_array_equal(photo, before)


def test_an_array_that_lies_in_a_file(segmenter, tmp_path):
    """A memory-mapped photo is read, and given back as a plain array."""
    mapped = np.memmap(tmp_path / "photo", np.uint8, "w+", shape=PHOTO.shape)
    mapped[:] = PHOTO
    result = segmenter(mapped)
    np.testing.assert_array_equal(result.mask, segmenter(PHOTO).mask)
    assert type(result.photo) is np.ndarray


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "int8", "uint16", ">u2", "bool", "object", "U1"]
)
def test_arrays_of_another_type(segmenter, dtype):
    """Nothing is converted silently: a float photo may reach to 1 or to 255."""
    with pytest.raises(ImageError, match=r"must be a uint8 array .* 0\.\.255"):
        segmenter(PHOTO.astype(dtype))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((37, 53), r"np\.stack\(\[array\] \* 3"),
        ((37, 53, 1), r"np\.stack\(\[array\[\.\.\., 0\]\] \* 3"),
        ((37, 53, 4), r"array\[\.\.\., :3\]"),
        ((3, 37, 53), r"np\.moveaxis\(array, 0, -1\)"),
        ((2, 37, 53, 3), r"batch\(photos\)"),
        ((0, 53, 3), "it is empty"),
        ((37, 0, 3), "it is empty"),
        ((0,), "it is empty"),
        ((), r"not uint8 \[\]$"),
        ((37, 53, 2), r"\[37, 53, 2\]$"),
    ],
)
def test_arrays_of_another_shape(segmenter, shape, says):
    """The message says what makes a photo of it."""
    with pytest.raises(ImageError, match=says):
        segmenter(np.zeros(shape, np.uint8))


def test_a_masked_array_has_gaps(segmenter):
    """Its hidden pixels would be segmented as if they were there."""
    with pytest.raises(ImageError, match=r"array\.filled\(0\)"):
        segmenter(np.ma.masked_array(PHOTO, PHOTO > 10))


class PathLike:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


class Text(str):
    __slots__ = ()


def test_files_by_every_kind_of_path(segmenter, tmp_path):
    """str, its subclasses, Path, anything with __fspath__ of text or bytes; and the file's content."""
    path = tmp_path / "phötö 1.png"
    Image.fromarray(PHOTO).save(path)
    mask = segmenter(PHOTO).mask
    for form in (path, str(path), Text(path), PathLike(str(path)), PathLike(os.fsencode(path)), path.read_bytes()):
        result = segmenter(form)
        np.testing.assert_array_equal(result.mask, mask)
        np.testing.assert_array_equal(result.photo, PHOTO)


def encoded():
    stream = io.BytesIO()
    Image.fromarray(PHOTO).save(stream, "PNG")
    return stream


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (encoded, r"not a BytesIO: give photo\.read\(\)"),
        (lambda: bytearray(encoded().getvalue()), r"not a bytearray: give bytes\(photo\)"),
        (lambda: memoryview(encoded().getvalue()), r"not a memoryview: give bytes\(photo\)"),
        (PHOTO.tolist, r"not a list: give np\.array\(photo, np\.uint8\)"),
        (lambda: None, "not a NoneType$"),
        (lambda: 5, "not a int$"),
        (lambda: Path, "not a type$"),
    ],
)
def test_what_is_no_photo_says_what_to_write(segmenter, make, says):
    """Objects of other libraries: there is one way to give a photo, and the message is it."""
    for call in (segmenter, lambda photo: segmenter.batch([photo])):
        with pytest.raises(ImageError, match=says):
            call(make())


class Lent:
    """An array that is given by one protocol alone."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **settings):
        return self.array.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self.device


class Given:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.array, Exception):
            raise self.array
        return np.asarray(self.array, dtype)


def tensorflow_tensor(photo):
    return package("tensorflow").constant(photo)


def torch_tensor(photo):
    return package("torch").from_numpy(photo.copy())


def torch_view(photo):
    return package("torch").from_numpy(np.ascontiguousarray(photo.transpose(2, 0, 1))).permute(1, 2, 0)


@pytest.mark.parametrize("form", [Lent, Given, tensorflow_tensor, torch_tensor, torch_view])
def test_arrays_of_other_libraries(segmenter, form):
    """By DLPack, by `__array__`, contiguous or not, singly and in a batch: as the NumPy array."""
    mask = segmenter(PHOTO).mask
    result = segmenter(form(PHOTO))
    np.testing.assert_array_equal(result.mask, mask)
    np.testing.assert_array_equal(result.photo, PHOTO)
    np.testing.assert_array_equal(segmenter.batch([form(PHOTO), PHOTO])[0].mask, mask)
    with pytest.raises(ImageError, match="batch takes several photos"):
        segmenter.batch(tensorflow_tensor(PHOTO))


def test_several_photos_in_one_tensor(segmenter):
    """Four axes are a batch, as in NumPy."""
    results = segmenter.batch(tensorflow_tensor(np.stack([PHOTO, PHOTO[::-1]])))
    np.testing.assert_array_equal(results[1].mask, segmenter(PHOTO[::-1]).mask)


def test_a_read_only_array_by_dlpack(segmenter):
    """Which older protocols do not lend: it is refused in a sentence, or right."""
    photo = PHOTO.copy()
    photo.flags.writeable = False
    np.testing.assert_array_equal(segmenter(Given(photo)).mask, segmenter(PHOTO).mask)
    try:
        np.testing.assert_array_equal(segmenter(Lent(photo)).mask, segmenter(PHOTO).mask)
    except ImageError as error:
        assert "gives no array" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: Lent(PHOTO, (2, 0)), "a Lent on a GPU or another device: give it from the CPU's memory"),
        (lambda: Given(PHOTO.astype(np.float32)), r"must be a uint8 array .* not float32 \[37, 53, 3\]"),
        (lambda: Given(PHOTO.transpose(2, 0, 1)), r"not uint8 \[3, 37, 53\]: .*tensor\.permute\(1, 2, 0\)"),
        (lambda: Given(ValueError("it is secret")), "a Given that gives no array: it is secret"),
        (lambda: Given(np.ma.masked_array(PHOTO, PHOTO > 10).tolist()), "must be a uint8 array"),
    ],
)
def test_arrays_of_other_libraries_that_are_no_photo(segmenter, given, says):
    """The sentence names what was given, and what to do."""
    with pytest.raises(ImageError, match=says):
        segmenter(given())


def oriented(orientation):
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(PHOTO).save(stream, "PNG", exif=exif)
    return stream.getvalue()


def stored(image, kind):
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


LEVELS = np.arange(37 * 53, dtype=np.uint16).reshape(37, 53) * 33
IMAGES = {
    **{f"orientation {number}": oriented(number) for number in range(1, 9)},
    "palette": stored(Image.fromarray(PHOTO).quantize(16), "PNG"),
    "alpha": stored(Image.fromarray(np.dstack([PHOTO, PHOTO[..., :1]])), "PNG"),
    "gray": stored(Image.fromarray(PHOTO[..., 0]), "PNG"),
    "bilevel": stored(Image.fromarray(PHOTO[..., 0]).convert("1"), "PNG"),
    "16 bits": stored(Image.fromarray(LEVELS), "PNG"),
    "16 bits in a TIFF": stored(Image.fromarray(LEVELS), "TIFF"),
    "CMYK": stored(Image.fromarray(PHOTO).convert("CMYK"), "JPEG"),
    "CMYK in a TIFF": stored(Image.fromarray(PHOTO).convert("CMYK"), "TIFF"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_pillow_are_as_their_files(segmenter, name):
    """Opened, loaded, in a batch: the photo and the mask of the file's own bytes."""
    expected = segmenter(IMAGES[name])
    opened = Image.open(io.BytesIO(IMAGES[name]))
    for result in (segmenter(opened), segmenter(opened), segmenter.batch([Image.open(io.BytesIO(IMAGES[name]))])[0]):
        np.testing.assert_array_equal(result.photo, expected.photo)
        np.testing.assert_array_equal(result.mask, expected.mask)


def test_an_image_that_was_made(segmenter):
    """Not from a file: it has no format."""
    np.testing.assert_array_equal(segmenter(Image.fromarray(PHOTO)).mask, segmenter(PHOTO).mask)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Image.new("F", (5, 5)), "the image has floating-point pixels"),
        (lambda: Image.new("RGB", (0, 5)), "the image is empty"),
        (lambda: Image.open(io.BytesIO(stored(Image.fromarray(PHOTO), "PNG")[:800])), "the image is damaged or cut"),
        (lambda: Image.open(io.BytesIO(stored(Image.fromarray(PHOTO), "JPEG2000"))), "from JPEG 2000.*the file itself"),
    ],
)
def test_images_of_pillow_that_are_no_photo(segmenter, make, says):
    """As of files, a sentence."""
    with pytest.raises(ImageError, match=says):
        segmenter(make())


@pytest.mark.parametrize("path", ["", "no such.jpg", "a\0b", "x" * 5000, "\udcff.jpg"])
def test_paths_that_lead_nowhere(segmenter, path):
    """Empty, missing, impossible and endless names."""
    with pytest.raises(ImageError):
        segmenter(path)


# --- batches


def test_batches_in_every_form(segmenter):
    """Lists, tuples, generators, iterators, one array of four axes; empty ones too."""
    photos = [PHOTO, PHOTO[::-1], PHOTO[:20]]
    masks = [segmenter(photo).mask for photo in photos]
    for form in (photos, tuple(photos), iter(photos), (photo for photo in photos), dict(enumerate(photos)).values()):
        results = segmenter.batch(form)
        assert len(results) == 3
        for result, mask in zip(results, masks, strict=True):
            np.testing.assert_array_equal(result.mask, mask)
    stacked = segmenter.batch(np.stack([PHOTO, PHOTO[::-1]]))
    np.testing.assert_array_equal(stacked[1].mask, masks[1])
    for nothing in ([], (), iter([]), np.zeros((0, 8, 8, 3), np.uint8)):
        assert segmenter.batch(nothing) == []


@pytest.mark.parametrize(
    "single",
    [
        *(PHOTO, "photo.jpg", b"photo", bytearray(b"photo"), memoryview(b"photo"), Path("photo.jpg"), None, 5),
        *(io.BytesIO(b"photo"), Image.fromarray(PHOTO), {"a": PHOTO}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_one_photo_is_no_batch(segmenter, single):
    """A text is a sequence of letters, an array one of rows, a file one of lines, a dictionary one of its keys."""
    with pytest.raises(ImageError, match="batch takes several photos, such as a list of them"):
        segmenter.batch(single)


def test_a_bad_photo_in_a_batch(segmenter):
    """The whole batch is refused, and the next one is right; so is one whose generator fails."""

    def broken():
        yield PHOTO
        raise KeyError("mine")

    good = segmenter.batch([PHOTO])[0].mask
    with pytest.raises(ImageError, match="no such image"):
        segmenter.batch([PHOTO, "missing.jpg", PHOTO])
    with pytest.raises(KeyError, match="mine"):
        segmenter.batch(broken())
    np.testing.assert_array_equal(segmenter.batch([PHOTO])[0].mask, good)


# --- results


def test_results_are_the_caller_s(bundle):
    """Masks of all kinds of engines stay as they are over later calls, batches, changed arrays and close."""
    for settings in ({}, {"lowering": "inline"}, {"size": "image"}, {"resize": "bilinear"}):
        again = tp.build(bundle.path.parent / "net.onnx", bundle.path.parent / "r.trtpost", flavour="none", **settings)
        photos = RNG.integers(0, 256, (12, 30, 40, 3), np.uint8)
        with Segmenter(again) as segmenter:
            results = [segmenter(photo) for photo in photos[:6]] + segmenter.batch(photos[6:])
            kept = [result.mask.copy() for result in results]
            segmenter.batch(255 - photos)
            photos[:] = 0
            for result in results[:3]:
                result.mask[:] = 99  # theirs to write into
            segmenter(photos[0])
        for result, mask in list(zip(results, kept, strict=True))[3:]:
            np.testing.assert_array_equal(result.mask, mask)
            assert result.mask.flags.writeable


def test_the_photo_of_a_result_is_the_array_that_was_given(segmenter, tmp_path):
    """As documented: no copy of an array; a file's pixels are the result's own."""
    assert np.shares_memory(segmenter(PHOTO).photo, PHOTO)
    path = tmp_path / "photo.png"
    Image.fromarray(PHOTO).save(path)
    assert segmenter(path).photo.flags.writeable or segmenter(path).photo.base is not None


def test_results_and_bundles_travel(bundle, segmenter):
    """Results and bundles can be pickled and compared; a Segmenter cannot be, and says what to do."""
    result = segmenter(PHOTO)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)).mask, result.mask)
    assert pickle.loads(pickle.dumps(bundle)) == bundle
    assert result == result  # noqa: PLR0124
    assert result != segmenter(PHOTO)
    assert len({result, segmenter(PHOTO)}) == 2
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied: make one in each process"):
            way(segmenter)


# --- threads and processes


@pytest.mark.parametrize("threads", [1, None])
def test_two_threads_one_segmenter_two_hundred_images(bundle, threads):
    """Photos of many sizes, singly and in batches, from two threads: every mask as in one thread."""
    photos = [RNG.integers(0, 256, (5 + index % 23, 5 + index % 31, 3), np.uint8) for index in range(200)]
    with Segmenter(bundle, threads=threads) as segmenter:
        serial = [segmenter(photo).mask for photo in photos]
        parallel: dict[int, np.ndarray] = {}

        def work(start: int) -> None:
            for index in range(start, 200, 4):
                if start:
                    parallel[index], parallel[index + 2] = (
                        result.mask for result in segmenter.batch([photos[index], photos[index + 2]])
                    )
                else:
                    parallel[index], parallel[index + 2] = (segmenter(photos[index + step]).mask for step in (0, 2))

        in_threads(2, work)
    assert len(parallel) == 200
    for index, mask in enumerate(serial):
        np.testing.assert_array_equal(parallel[index], mask)


def test_two_segmenters_of_one_bundle(bundle):
    """Each works by itself; closing one leaves the other."""
    with Segmenter(bundle) as other:
        with Segmenter(bundle.path) as one:
            mask = one(PHOTO).mask
        np.testing.assert_array_equal(other(PHOTO).mask, mask)


def test_closing_while_another_thread_segments(bundle):
    """Calls under way end well or say that the engine is closed; nothing crashes."""
    for _ in range(5):
        segmenter, faults = Segmenter(bundle), []

        def work(segmenter=segmenter, faults=faults):
            try:
                while True:
                    segmenter(PHOTO)
            except Exception as error:
                faults.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        segmenter(PHOTO)
        segmenter.close()
        thread.join(10)
        assert not thread.is_alive()
        assert [type(fault) for fault in faults] == [BackendError]
        assert "closed" in str(faults[0])


def _in_a_child(segmenter, answers):
    for call in (segmenter, lambda photo: segmenter.batch([photo])):
        try:
            call(PHOTO)
        except BackendError as error:
            answers.put(str(error))
    segmenter.close()
    answers.put("closed")


def test_after_a_fork(bundle):
    """Threads do not survive it, so that a call would wait for ever: refused; the parent's is untouched."""
    segmenter = Segmenter(bundle)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_a_child, args=(segmenter, answers))
    child.start()
    try:
        said = [answers.get(timeout=20) for _ in range(3)]
        child.join(20)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert said[0] == said[1] == "the segmenter was made before this process was forked: make one in each process"
    assert segmenter(PHOTO).mask.shape == (37, 53)


# --- faults and the end

FAULTS = {
    "no image": lambda segmenter: segmenter(b"no image"),
    "empty": lambda segmenter: segmenter(b""),
    "wrong type": lambda segmenter: segmenter(np.zeros((3, 3))),
    "missing": lambda segmenter: segmenter("missing.jpg"),
    "a folder": lambda segmenter: segmenter(Path(__file__).parent),
    "in a batch": lambda segmenter: segmenter.batch([PHOTO, b"no image"]),
    "no layers to time": lambda segmenter: segmenter.profile(PHOTO),
    "an overlay of a fraction": lambda segmenter: replace(segmenter(PHOTO), photo=PHOTO[:5]).overlay(),
    "nowhere to save": lambda segmenter: segmenter(PHOTO).save_mask("/nowhere/\0/mask.png"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_the_next_call_right(segmenter, fault):
    """Each kind of fault is a TrtpostError, and forgotten afterwards."""
    mask = segmenter(PHOTO).mask
    with pytest.raises(TrtpostError):
        FAULTS[fault](segmenter)
    np.testing.assert_array_equal(segmenter(PHOTO).mask, mask)


def test_a_runtime_that_fails_leaves_the_next_call_right(tmp_path):
    """A network that fails over some photos, in ONNX Runtime itself."""
    model = net(
        """a = Conv (image, k)
           m = ReduceMax <keepdims = 0> (image)
           i = Cast <to = 7> (m)
           p = Gather (t, i)
           logits = Add (a, p)""",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
        t=np.zeros(200, np.float32),
    )
    built = tp.build(save(model, tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", normalize="none")
    for threads in (1, 2):
        with Segmenter(built, threads=threads) as segmenter:
            dark, bright = np.full((9, 7, 3), 100, np.uint8), np.full((9, 7, 3), 250, np.uint8)
            mask = segmenter(dark).mask
            for _ in range(3):
                with pytest.raises(BackendError, match="ONNX Runtime failed"):
                    segmenter(bright)
                np.testing.assert_array_equal(segmenter(dark).mask, mask)


def test_use_after_close(bundle):
    """Every call is refused, whatever it is given; closing again is nothing."""
    segmenter = Segmenter(bundle)
    assert segmenter(PHOTO).mask.shape == (37, 53)
    segmenter.close()
    segmenter.close()
    calls = [
        lambda: segmenter(PHOTO),
        lambda: segmenter("missing.jpg"),
        lambda: segmenter.batch([PHOTO]),
        lambda: segmenter.batch([]),
        segmenter.warm_up,
        lambda: segmenter.profile(PHOTO),
    ]
    for call in calls:
        with pytest.raises(BackendError, match="the segmenter is closed: make a new one"):
            call()
    assert segmenter.backend == "onnxruntime"
    with pytest.raises(BackendError, match="closed"), segmenter as again:
        again(PHOTO)
    engine = OnnxRuntimeEngine(bundle)
    engine.close()
    with pytest.raises(BackendError, match="the engine is closed"):  # beneath it, too
        engine.logits(np.zeros((1, 8, 12, 3), np.uint8))


def test_a_with_block_closes_whatever_happens(bundle):
    """An exception of the user's passes through, and the engine is freed."""
    with pytest.raises(KeyError, match="mine"), Segmenter(bundle) as segmenter:
        raise KeyError("mine")
    with pytest.raises(BackendError, match="closed"):
        segmenter(PHOTO)


def test_without_close_the_garbage_collector_frees_it(bundle):
    """Nothing keeps a Segmenter alive: neither its results nor its bundle."""
    segmenter = Segmenter(bundle)
    result, alive = segmenter(PHOTO), weakref.ref(segmenter)
    del segmenter
    gc.collect()
    assert alive() is None
    assert result.mask.shape == (37, 53)


def test_a_bundle_that_is_deleted_after_it_was_loaded(bundle, tmp_path):
    """Nothing is read later; a new Segmenter says that it is gone."""
    copied = shutil.copytree(bundle.path, tmp_path / "copy.trtpost")
    loaded = tp.load_bundle(copied)
    segmenter = Segmenter(loaded)
    shutil.rmtree(copied)
    np.testing.assert_array_equal(segmenter(PHOTO).mask, Segmenter(bundle)(PHOTO).mask)
    with pytest.raises(BundleError, match="no such engine bundle"):
        Segmenter(loaded)


def test_each_file_is_read_once(bundle, monkeypatch):
    """What is checked is what runs: hash, passport and session are made of the same bytes."""
    read = []
    real = bundles.open_regular
    monkeypatch.setattr(bundles, "open_regular", lambda path: read.append(path.name) or real(path))
    Segmenter(bundle.path).close()
    assert sorted(read) == ["model.onnx", "passport.json"]


# --- bundles and settings in every form


def test_bundles_by_every_kind_of_path(bundle, monkeypatch):
    """str, Path, anything with __fspath__, relative ones, a Bundle, and the baked model alone."""
    monkeypatch.chdir(bundle.path.parent)
    paths = [
        bundle.path,
        str(bundle.path),
        PathLike(str(bundle.path)),
        Text("net.trtpost"),
        "net.trtpost/",
        bundle.model,
    ]
    for path in paths:
        assert tp.load_bundle(path).passport.pre == bundle.passport.pre
        assert Segmenter(path)(PHOTO).mask.shape == (37, 53)
    assert Segmenter(bundle).bundle == bundle
    assert read_bundle(bundle.path).bundle == bundle


@pytest.mark.parametrize(
    "wrong", [None, 5, b"net.trtpost", ["net.trtpost"], np.zeros(3)], ids=lambda one: type(one).__name__
)
def test_what_is_no_path_to_a_bundle(wrong):
    """A sentence, not a traceback out of pathlib."""
    for call in (tp.load_bundle, Segmenter):
        with pytest.raises(BundleError, match=f"given by its path, not as a {type(wrong).__name__}"):
            call(wrong)


@pytest.mark.parametrize("path", ["", "nowhere", "a\0b", "x" * 5000])
def test_paths_to_no_bundle(path):
    """Empty, missing, impossible and endless names."""
    with pytest.raises(BundleError):
        tp.load_bundle(path)


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**9, 2.0, "2", True, np.array([2]), np.bool_(True)], ids=repr)
def test_threads_that_there_are_not(bundle, threads):
    """ONNX Runtime would start a million and hang; True is 1 to Python, and was not meant."""
    with pytest.raises(SpecError, match="threads must be a whole number from 1 to 1024"):
        Segmenter(bundle, threads=threads)


@pytest.mark.parametrize("backend", ["cpu", "", "TENSORRT", None, 5])
def test_backends_that_there_are_not(bundle, backend):
    """Near misses and no names at all."""
    with pytest.raises(SpecError, match=r"backend must be auto, tensorrt \(the GPU\) or onnxruntime"):
        Segmenter(bundle, backend=backend)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_batch": 0}, "max batch must be at least 1"),
        ({"size": "37x53"}, "size must be one of runtime, image"),
        ({"resiz": "nearest"}, "did you mean resize"),
        ({"options": {"resize": "nearest"}}, "options must be BuildOptions, not a dict"),
        ({"options": tp.BuildOptions(), "resize": "nearest"}, "not both"),
    ],
)
def test_settings_without_meaning(tmp_path, settings, says):
    """Refused when they are made, long before there is a bundle that cannot be read."""
    source = save(nchw(), tmp_path / "net.onnx")
    with pytest.raises(SpecError, match=says):
        tp.build(source, tmp_path / "net.trtpost", **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_settings_out_of_numpy(tmp_path):
    """Sizes and numbers of NumPy's types, and lists for tuples, are taken, and read back from the passport."""
    settings = {"size": np.array([37, 53]), "max_batch": np.int64(4), "labels": list("abcd"), "threshold": None}
    source = PathLike(str(save(nchw(batch="N"), tmp_path / "net.onnx")))
    made = tp.build(source, PathLike(str(tmp_path / "net.trtpost")), flavour="none", **settings)
    assert tp.load_bundle(made.path) == made
    assert made.passport.post.size == (37, 53)
    assert made.passport.classes == tuple("abcd")


@pytest.mark.parametrize("model", [None, 5, b"net.onnx", nchw()], ids=lambda one: type(one).__name__)
def test_models_that_are_no_path(model):
    """An `onnx.ModelProto` has to be written to a file first."""
    with pytest.raises(ModelError, match=r"given by its path, not as a .*: write it to a file first"):
        tp.build(model)


def test_every_public_name_is_there():
    """`from trtpost import *`, `dir` and the attributes say the same."""
    assert set(tp.__all__) < set(dir(tp))
    for name in tp.__all__:
        assert getattr(tp, name).__doc__
    assert tp.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tp.nothing


# --- settings of another type

WRONG = {
    "normalize": [(127.5, 127.5), 127.5, b"none"],
    "channels": [3, ("rgb",)],
    "fit": [None, True],
    "labels": [5, "abc", [1, 2], None],
    "logits": [5, ["logits"]],
    "layout": [0],
    "head": [["argmax"]],
    "threshold": ["0.5", True, [0.5]],
    "resize": [None, 1],
    "match": [None, 1],
    "size": [5, (5,), (5, True), (5.0, 5), None],
    "input_size": [5, "8x12", (1, 2, 3), {}],
    "max_batch": [True, 1.5, "8", None, np.array([1, 2])],
    "max_size": ["8x12", None, (5, None)],
    "lowering": [None, True],
    "signature": [0],
    "flavour": [None, True],
    "precision": [16, None],
    "calibration": [5, b"photos", ["a.jpg"]],
    "min_agreement": ["0.9", True],
    "post": [None, 1],
    "workspace": ["1", 1.5, True],
    "optimization_level": ["1", 1.5, True],
    "timing_cache": [3, True, b"cache"],
    "hardware_compatibility": [None, 1],
    "compute_capabilities": [8.9, "8.9", [8.9]],
    "covers": [5, "0,0,8,12", (1, 2, 3), {}],
    "outside": ["0", True, 1.5],
    "check": [1, "yes", None],
}


@pytest.mark.parametrize("name", WRONG)
def test_settings_of_another_type_are_named(name):
    """Said when the options are made, by the setting's name, not by a fault of whoever uses it a minute later."""
    assert {field.name for field in fields(tp.BuildOptions)} == WRONG.keys()
    for value in WRONG[name]:
        with pytest.raises(SpecError, match=f"^{name.replace('_', ' ')} must be ") as caught:
            tp.BuildOptions(**{name: value})
        if name != "size":
            assert repr(value)[:60] in str(caught.value)


def test_a_pair_for_the_normalisation_says_what_to_write():
    """What many write first."""
    with pytest.raises(SpecError, match=r"must be a text such as '127.5/127.5', MEAN/STD, not \(127.5, 127.5\)"):
        tp.BuildOptions(normalize=(127.5, 127.5))


def test_numbers_of_numpy_are_numbers(bundle):
    """They come out of computations, and do not go into JSON as they are."""
    options = tp.BuildOptions(
        max_batch=np.int64(3), max_size=np.array([64, 48]), threshold=np.float32(0.5), size=(np.int32(5), np.uint8(7))
    )
    assert json.loads(json.dumps([options.max_batch, options.max_size, options.threshold, options.size])) == [
        *(3, [64, 48], 0.5, [5, 7])
    ]
    with Segmenter(bundle, threads=np.int64(2)) as segmenter:
        assert segmenter(PHOTO).mask.shape == PHOTO.shape[:2]


# --- names and sizes


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (b"mask.png", "not under a bytes"),
        (None, "not under a NoneType"),
        (io.BytesIO(), "not under a BytesIO"),
        (5, "not under a int"),
        ("photo.jpg", r"cannot write photo\.jpg: masks are PNG"),
        ("mask", "masks are PNG"),
        ("", "masks are PNG"),
        (".", "masks are PNG"),
    ],
)
def test_names_under_which_no_mask_is_saved(segmenter, tmp_path, monkeypatch, path, says):
    """Other types, and names of other formats: a photo is not replaced by a slip of the hand."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ImageError, match=says):
        segmenter(PHOTO).save_mask(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [(2, 70000), (70000, 2)])
def test_sides_that_no_mask_has(segmenter, tmp_path, size):
    """Beyond 65536, however few pixels: an ImageError, which names the file."""
    path = tmp_path / "wide.png"
    Image.new("RGB", size[::-1]).save(path)
    for photo, name in ((np.zeros((*size, 3), np.uint8), ""), (path, f"{path}: "), (path.read_bytes(), "")):
        with pytest.raises(ImageError, match=f"^{name}the photo has {size[0]}x{size[1]} pixels, and sides are up to"):
            segmenter(photo)


def test_a_photo_that_does_not_fit_is_named(bundle, tmp_path):
    """Among many, one would have to look for it."""
    fixed = tp.build(bundle.path.parent / "net.onnx", tmp_path / "fixed.trtpost", flavour="none", size=(5, 7))
    path = tmp_path / "photo.png"
    Image.fromarray(PHOTO).save(path)
    with Segmenter(fixed) as segmenter, pytest.raises(ImageError, match=f"^{path}: the engine's mask is fixed at 5x7"):
        segmenter(path)
