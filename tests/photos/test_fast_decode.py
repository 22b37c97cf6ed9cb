"""JPEGs decoded at a fraction: the mask has the size of the whole photo, and lies where it lay."""

from __future__ import annotations

import io

import numpy as np
import pytest
from nets import nchw, save
from PIL import Image, ImageOps
from typer.testing import CliRunner

from trtpost.builder.build import build
from trtpost.cli.app import app
from trtpost.errors import ImageError, SpecError
from trtpost.kernels.reference import bilinear
from trtpost.photos.read import read_photo, read_reduced
from trtpost.segment import Segmenter

RNG = np.random.default_rng(0)
SMOOTH = bilinear(RNG.integers(0, 256, (6, 9, 3), np.uint8), (173, 261)).astype(np.uint8)


def jpeg(orientation: int = 1, kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    Image.fromarray(SMOOTH).save(stream, kind, exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("needed", "scale"), [((20, 30), 8), ((22, 30), 4), ((50, 50), 2), ((87, 10), 1)])
def test_the_smallest_fraction_that_is_large_enough(orientation, needed, scale):
    content = jpeg(orientation)
    turned = orientation > 4
    photo, size = read_reduced(content, needed[::-1] if turned else needed)
    whole = read_photo(content)
    assert size == whole.shape[:2]
    assert photo.shape == (-(-size[0] // scale), -(-size[1] // scale), 3)
    again = np.rint(bilinear(photo, size))
    assert np.abs(again - whole).mean() < 6, "the same picture, the same way up"
    with Image.open(io.BytesIO(content)) as image:
        assert size == ImageOps.exif_transpose(image).size[::-1]


def test_other_formats_are_decoded_whole():
    photo, size = read_reduced(jpeg(6, "PNG"), (8, 12))
    np.testing.assert_array_equal(photo, read_photo(jpeg(6, "PNG")))
    assert size == photo.shape[:2]


@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_masks(tmp_path, fit, orientation):
    bundle = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "a.trtpost", flavour="none", fit=fit)
    whole, fast = Segmenter(bundle)(jpeg(orientation)), Segmenter(bundle, fast_decode=True)(jpeg(orientation))
    assert fast.mask.shape == whole.mask.shape
    assert (fast.mask == whole.mask).mean() > 0.9
    with pytest.raises(ImageError, match="an overlay needs the whole photo"):
        fast.overlay()


def test_batches_are_of_one_size_of_photo(tmp_path):
    bundle = build(save(nchw(batch="N"), tmp_path / "net.onnx"), tmp_path / "a.trtpost", flavour="none")
    segmenter = Segmenter(bundle, fast_decode=True)
    photos = [jpeg(), read_photo(jpeg()), jpeg(), jpeg(6)]
    for photo, result in zip(photos, segmenter.batch(photos), strict=True):
        np.testing.assert_array_equal(result.mask, segmenter(photo).mask)


def test_engines_that_take_whole_photos_refuse(tmp_path):
    bundle = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "a.trtpost", flavour="none", size="image")
    with pytest.raises(SpecError, match="takes whole photos"):
        Segmenter(bundle, fast_decode=True)


def test_the_command_line(tmp_path):
    bundle = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "a.trtpost", flavour="none")
    (tmp_path / "photo.jpg").write_bytes(jpeg(6))
    command = ["infer", str(tmp_path / "photo.jpg"), "-e", str(bundle.path), "-o", str(tmp_path), "--fast-decode"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "photo.mask.png") as mask:
        assert mask.size == SMOOTH.shape[:2], "on its side"
    refused = CliRunner().invoke(app, [*command, "--overlay"])
    assert isinstance(refused.exception, SpecError)
    assert "--overlay needs whole photos" in str(refused.exception)
