"""Masks that say what they were made with, so that a second run knows which are done."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from nets import kernel, nchw, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.bundle.folder import load_bundle, read_bundle, record_verification
from trtpost.bundle.passport import Verification
from trtpost.jobs.paths import PhotoJob
from trtpost.jobs.run import run
from trtpost.masks import finished
from trtpost.masks.finished import ENDS, ends_of, is_done, mark_of, marked_size
from trtpost.masks.png import END, HEAD, HEADER, encode_mask, palette, with_text
from trtpost.photos.find import PhotoFile
from trtpost.segment import Segmenter

RNG = np.random.default_rng(0)
COLOURS = palette(("a", "b"))


def fingerprint(bundle, **settings):
    return finished.fingerprint(read_bundle(bundle.path), **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def model(folder):
    return save(nchw(batch="N"), folder / "net.onnx")


@pytest.fixture(scope="module")
def bundle(folder, model):
    return build(model, folder / "net.trtpost", flavour="none")


@pytest.fixture(scope="module")
def segmenter(bundle):
    return Segmenter(bundle)


def photo(path: Path, size: tuple[int, int] = (20, 30), orientation: int = 1) -> Path:
    image = Image.fromarray(RNG.integers(0, 256, (*size, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)
    return path


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"labels": ("w", "x", "y", "z")},
        {"max_size": (500, 600)},
        {"max_batch": 3},
        {"flavour": "auto"},
    ],
    ids=str,
)
def test_what_decides_no_pixel_leaves_the_fingerprint(model, bundle, tmp_path, change):
    other = build(model, tmp_path / "other.trtpost", **({"flavour": "none"} | change))
    assert fingerprint(other) == fingerprint(bundle)


@pytest.mark.parametrize(
    "change",
    [
        {"normalize": "unit"},
        {"channels": "bgr"},
        {"fit": "letterbox"},
        {"resize": "bilinear"},
        {"match": "torch"},
        {"precision": "fp16"},
        {"size": (40, 60)},
    ],
    ids=str,
)
def test_what_decides_a_pixel_changes_the_fingerprint(model, bundle, tmp_path, change):
    assert fingerprint(build(model, tmp_path / "other.trtpost", flavour="none", **change)) != fingerprint(bundle)


def test_other_weights_and_fast_decoding_change_the_fingerprint(bundle, tmp_path):
    other = build(save(nchw(batch="N", k=kernel(4, seed=1)), tmp_path / "net.onnx"), tmp_path / "b", flavour="none")
    assert len({fingerprint(bundle), fingerprint(other), fingerprint(bundle, fast_decode=True)}) == 3


def test_moved_verified_and_bare_bundles_keep_the_fingerprint(bundle, tmp_path):
    expected = fingerprint(bundle)
    moved = shutil.copytree(bundle.path, tmp_path / "moved")
    assert fingerprint(record_verification(load_bundle(moved), VERIFICATION)) == expected
    assert fingerprint(load_bundle(moved)) == expected
    assert fingerprint(load_bundle(moved / "model.onnx")) == expected


VERIFICATION = Verification("net", "0", "engine", 1, 10, 0.9, 0, 1, 0.8)


@pytest.mark.parametrize("encoding", ["palette", "packed", "gray"])
def test_a_mask_of_a_run_is_done(segmenter, bundle, tmp_path, encoding):
    source, target = photo(tmp_path / "photo.jpg"), tmp_path / "photo.mask.png"
    assert not is_done(target, source, segmenter.fingerprint)
    outcome = run(segmenter, PhotoJob(PhotoFile(source, Path("photo.jpg")), target, None), repeat=1, encoding=encoding)
    assert outcome.error is None
    assert is_done(target, source, segmenter.fingerprint)
    for other in ("palette", "packed", "gray"):
        assert is_done(target, source, segmenter.fingerprint, other) == (other == encoding)
    assert not is_done(target, source, fingerprint(bundle, fast_decode=True))
    with Image.open(target) as image:
        assert image.text == {"trtpost": mark_of(segmenter.fingerprint, source)}
        np.testing.assert_array_equal(np.asarray(image), segmenter(source).mask)


def test_a_mask_that_does_not_say_of_which_photo_it_is_may_be_of_another(segmenter, tmp_path):
    source, target = photo(tmp_path / "photo.jpg"), tmp_path / "photo.mask.png"
    segmenter(photo(tmp_path / "other.jpg")).save_mask(target)
    assert not is_done(target, source, segmenter.fingerprint)


def test_another_photo_in_the_place_of_the_one_before_is_not_done(tmp_path):
    """Of the same name and length, older or newer, and different only at one place: head, tail, middle, date."""
    source, target = tmp_path / "photo.bin", tmp_path / "mask.png"
    content = bytearray(RNG.bytes(4 * ENDS))
    source.write_bytes(content)
    before = (10**18, 10**18)
    os.utime(source, ns=before)
    target.write_bytes(encode_mask(np.zeros((20, 30), np.uint8), COLOURS, mark=mark_of("5" * 64, source)))
    assert is_done(target, source, "5" * 64)
    for place in (0, ENDS - 1, len(content) - ENDS, len(content) - 1):
        other = content.copy()
        other[place] ^= 1
        source.write_bytes(other)
        os.utime(source, ns=before)
        assert not is_done(target, source, "5" * 64), place
    source.write_bytes(content)
    for date in (before[0] - 1, before[0] + 1):
        os.utime(source, ns=(date, date))
        assert not is_done(target, source, "5" * 64), date
    os.utime(source, ns=before)
    assert is_done(target, source, "5" * 64)
    source.write_bytes(content + b"x")
    os.utime(source, ns=before)
    assert not is_done(target, source, "5" * 64)


@pytest.mark.parametrize("length", [1, ENDS - 1, ENDS, ENDS + 1, 2 * ENDS, 2 * ENDS + 1])
def test_the_ends_of_short_files_are_all_of_them(length):
    content = RNG.bytes(length)
    expected = content if length <= 2 * ENDS else content[:ENDS] + content[-ENDS:]
    assert ends_of(io.BytesIO(content), length) == expected


def test_wide_masks_are_marked_too():
    mask = np.array([[0, 70], [300, 65535]], np.int32)
    png = encode_mask(mask, COLOURS, "packed", mark="0" * 64)
    for encoding in (None, "palette", "packed", "gray"):
        assert marked_size(png[:HEAD], png[-20:], "0" * 64, encoding=encoding) == (2, 2)
    with Image.open(io.BytesIO(png)) as image:
        np.testing.assert_array_equal(np.asarray(image), mask)


def test_only_what_is_whole_of_this_photo_and_of_this_bundle_is_done(tmp_path):
    source, target, made_with = photo(tmp_path / "photo.png"), tmp_path / "mask.png", "5" * 64
    mark = mark_of(made_with, source)
    good = encode_mask(np.zeros((20, 30), np.uint8), COLOURS, mark=mark)

    def done(content: bytes) -> bool:
        target.write_bytes(content)
        return is_done(target, source, made_with)

    assert done(good)
    wrong = {
        "of another bundle": good.replace(b"5" * 64, b"6" * 64),
        "of another photo": good.replace(mark[-16:].encode(), b"0" * 16),
        "without a mark": encode_mask(np.zeros((20, 30), np.uint8), COLOURS),
        "with a text of somebody else's": with_text(encode_mask(np.zeros((20, 30), np.uint8), COLOURS), "x", mark),
        "no PNG": b"x" * 1000,
    }
    for name, content in wrong.items():
        assert not done(content), name
    for length in [*range(HEADER + 100), *range(len(good) - len(END), len(good))]:
        assert not done(good[:length]), length
    assert done(good)
    source.unlink()
    assert not is_done(target, source, made_with)
    assert not is_done(tmp_path, tmp_path, made_with)


@pytest.mark.parametrize("what", ["mask", "photo"])
def test_a_pipe_is_not_waited_for(tmp_path, what):
    source, target = photo(tmp_path / "photo.png"), tmp_path / "mask.png"
    target.write_bytes(encode_mask(np.zeros((20, 30), np.uint8), COLOURS, mark=mark_of("5" * 64, source)))
    pipe = target if what == "mask" else source
    pipe.unlink()
    os.mkfifo(pipe)
    assert not is_done(target, source, "5" * 64)
