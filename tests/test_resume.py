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

from trtpost import resume
from trtpost.builder import build
from trtpost.bundle import Verification, load_bundle, read_bundle, record_verification
from trtpost.decode import size_in_header
from trtpost.image import encode_mask, palette
from trtpost.png import END, HEADER, with_text
from trtpost.resume import HEAD, is_done, marked_size
from trtpost.segment import Segmenter

RNG = np.random.default_rng(0)
COLOURS = palette(("a", "b"))


def fingerprint(bundle, **settings):
    return resume.fingerprint(read_bundle(bundle.path), **settings)


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
def test_a_saved_mask_is_done(segmenter, bundle, tmp_path, encoding):
    source, target = photo(tmp_path / "photo.jpg"), tmp_path / "photo.mask.png"
    assert not is_done(target, source, segmenter.fingerprint)
    result = segmenter(source)
    result.save_mask(target, encoding)
    assert is_done(target, source, segmenter.fingerprint)
    for other in ("palette", "packed", "gray"):
        assert is_done(target, source, segmenter.fingerprint, other) == (other == encoding)
    assert not is_done(target, source, fingerprint(bundle, fast_decode=True))
    with Image.open(target) as image:
        assert image.text == {"trtpost": segmenter.fingerprint}
        np.testing.assert_array_equal(np.asarray(image), result.mask)


def test_wide_masks_are_marked_too():
    mask = np.array([[0, 70], [300, 65535]], np.int32)
    png = encode_mask(mask, COLOURS, "packed", mark="0" * 64)
    for encoding in (None, "palette", "packed", "gray"):
        assert marked_size(png[:HEAD], png[-20:], "0" * 64, encoding=encoding) == (2, 2)
    with Image.open(io.BytesIO(png)) as image:
        np.testing.assert_array_equal(np.asarray(image), mask)


def test_only_what_is_whole_of_this_photo_and_of_this_bundle_is_done(tmp_path):
    source, target, mark = photo(tmp_path / "photo.png"), tmp_path / "mask.png", "5" * 64
    good = encode_mask(np.zeros((20, 30), np.uint8), COLOURS, mark=mark)

    def done(content: bytes) -> bool:
        target.write_bytes(content)
        return is_done(target, source, mark)

    assert done(good)
    wrong = {
        "of another bundle": good.replace(b"5" * 64, b"6" * 64),
        "without a mark": encode_mask(np.zeros((20, 30), np.uint8), COLOURS),
        "of another size": encode_mask(np.zeros((30, 20), np.uint8), COLOURS, mark=mark),
        "with a text of somebody else's": with_text(encode_mask(np.zeros((20, 30), np.uint8), COLOURS), "x", mark),
        "no PNG": b"x" * 1000,
    }
    for name, content in wrong.items():
        assert not done(content), name
    for length in [*range(HEADER + 100), *range(len(good) - len(END), len(good))]:
        assert not done(good[:length]), length
    assert done(good)
    os.utime(source, ns=(target.stat().st_mtime_ns + 1,) * 2)  # a newer photo has come in the place of the old one
    assert not is_done(target, source, mark)
    source.unlink()
    assert not is_done(target, source, mark)
    assert not is_done(tmp_path, tmp_path, mark)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "avif"])
def test_the_size_in_the_header_is_that_of_the_mask(segmenter, tmp_path, suffix, orientation):
    source = photo(tmp_path / f"photo.{suffix}", orientation=orientation)
    result = segmenter(source)
    assert result.mask.shape == ((30, 20) if orientation > 4 else (20, 30))
    result.save_mask(tmp_path / "mask.png")
    assert is_done(tmp_path / "mask.png", source, result.fingerprint)


def test_headers_are_read_without_decoding(tmp_path, monkeypatch):
    files = [photo(tmp_path / f"photo.{suffix}", (40, 50), orientation=6) for suffix in ("jpg", "png", "tif")]
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("decoded"))
    for file in files:
        assert size_in_header(io.BytesIO(file.read_bytes())) == (50, 40)
    Image.new("RGB", (7, 5)).save(tmp_path / "plain.png")
    assert size_in_header(io.BytesIO((tmp_path / "plain.png").read_bytes())) == (5, 7)
    assert size_in_header(io.BytesIO(b"nothing")) is None
