"""Photos of every kind that people have: the right pixels, the right way up, or a sentence that says why not."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import time
import warnings
import zlib

import numpy as np
import pytest
from conftest import in_threads, package
from nets import nchw, save
from pictures import HEIC, encoded, png, tiff
from PIL import Image, ImageCms

from trtpost.builder.build import build
from trtpost.errors import ImageError
from trtpost.photos import formats
from trtpost.photos.formats import FORMATS
from trtpost.photos.limits import MAX_PIXELS
from trtpost.photos.read import read_photo, read_reduced
from trtpost.segment import Segmenter

RNG = np.random.default_rng(0)
SCENE = np.asarray(
    Image.fromarray(RNG.integers(0, 256, (9, 7, 3), np.uint8)).resize((53, 37), Image.Resampling.BICUBIC)
)
"""uint8 [37, 53, 3], smooth, nothing in it symmetric."""

ORIENTATION = 0x0112


def oriented(value: object) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = value
    return exif


# --- the right way up -------------------------------------------------------------------------------------------------

UPRIGHT = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}
"""What a viewer has to do, by the table of the EXIF standard: where row 0 and column 0 are."""

ORIENTED = {
    "JPEG": ("JPEG", {}),
    "MPO": ("MPO", {"save_all": True, "append_images": [Image.fromarray(SCENE[::-1])]}),
    "PNG": ("PNG", {}),
    "WebP": ("WEBP", {"lossless": True}),
    "TIFF": ("TIFF", {}),
    "TIFF, LZW": ("TIFF", {"compression": "tiff_lzw"}),
    "TIFF, JPEG": ("TIFF", {"compression": "jpeg"}),
    "AVIF": ("AVIF", {}),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ORIENTED)
def test_exif_orientation(kind, orientation):
    """Of every format that has one, whether the decoder turns the picture itself (TIFF) or leaves it to us."""
    name, options = ORIENTED[kind]
    stored = read_photo(encoded(SCENE, name, **options))
    turned = read_photo(encoded(SCENE, name, exif=oriented(orientation), **options))
    np.testing.assert_array_equal(turned, UPRIGHT[orientation](stored))
    assert turned.flags.c_contiguous
    assert np.abs(stored.astype(int) - SCENE).mean() < 20


def raw_exif(kind: int, count: int, value: bytes) -> bytes:
    """EXIF whose only tag is an orientation of any type (3: uint16, 2: text, 5: ratio), count and value."""
    return b"Exif\0\0II*\0\x08\0\0\0\1\0" + struct.pack("<HHI4s", ORIENTATION, kind, count, value) + bytes(4)


ODD_EXIF = {
    "0": raw_exif(3, 1, b"\0"),
    "9": raw_exif(3, 1, b"\x09"),
    "65535": raw_exif(3, 1, b"\xff\xff"),
    "negative": raw_exif(8, 1, b"\xff\xff"),
    "text": raw_exif(2, 2, b"6"),
    "a ratio that lies nowhere": raw_exif(5, 1, b"\xff\xff\xff\x7f"),
    "millions": raw_exif(3, 0x7FFFFFFF, b"\6"),
    "unknown type": raw_exif(99, 1, b"\6"),
    "nothing": b"Exif\0\0",
    "no byte order": b"Exif\0\0" + b"\xff" * 40,
    "half a header": b"Exif\0\0MM",
    "directory nowhere": b"Exif\0\0II*\0\xff\xff\xff\xff",
    "directory in itself": b"Exif\0\0II*\0\x08\0\0\0" + b"\xff\xff" * 20,
}


@pytest.mark.parametrize("exif", ODD_EXIF)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_exif_is_no_damaged_photo(kind, exif):
    """Metadata that cannot be read, or hold no orientation: the pixels can be read, as they lie."""
    np.testing.assert_array_equal(
        read_photo(encoded(SCENE, kind, exif=ODD_EXIF[exif])), read_photo(encoded(SCENE, kind))
    )


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_tiffs_that_are_turned_in_no_known_way(value):
    """The same, where the decoder does the turning."""
    np.testing.assert_array_equal(read_photo(encoded(SCENE, "TIFF", exif=oriented(value))), SCENE)


def test_heic_comes_upright():
    """What iPhones write: the decoder has turned it already, and its EXIF must not turn it again."""
    package("pi_heif")
    photo = read_photo(HEIC)
    assert photo.shape == (96, 64, 3)
    blue = photo[..., 2].astype(int) - photo[..., 0] > 100
    assert blue[:30, 42:].all(), "the corner that was at the top left lies at the top right"
    assert not blue[34:].any()
    assert not blue[:, :38].any()


def test_heic_without_its_decoder_says_what_to_install(monkeypatch):
    """Optional decoders that are missing."""
    Image.init()
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    formats._register_heif.cache_clear()
    try:
        with pytest.raises(ImageError, match=r"is HEIC, which needs a decoder: pip install 'pi-heif>="):
            read_photo(HEIC)
    finally:
        formats._register_heif.cache_clear()


# --- colours and depths -----------------------------------------------------------------------------------------------

JPEGS = {
    "baseline": {},
    "progressive": {"progressive": True},
    "no subsampling": {"subsampling": 0, "quality": 95},
    "4:2:0 of low quality": {"subsampling": 2, "quality": 20},
    "restart markers": {"restart_marker_blocks": 3},
    "RGB without conversion": {"keep_rgb": True},
}


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpegs_have_the_pixels_that_pillow_decodes(kind, mode):
    """Every way to store a JPEG, with and without the faster library."""
    content = encoded(Image.fromarray(SCENE).convert(mode), "JPEG", **JPEGS[kind])
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(read_photo(content), expected)


def test_without_the_jpeg_library_the_pixels_are_the_same(monkeypatch):
    """Platforms for which a package has no wheel."""
    contents = [encoded(Image.fromarray(SCENE).convert(mode), "JPEG") for mode in ("RGB", "L", "CMYK")]
    fast = [read_photo(content) for content in contents]
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    for content, expected in zip(contents, fast, strict=True):
        np.testing.assert_array_equal(read_photo(content), expected)


def from_cmyk(cmyk: np.ndarray) -> np.ndarray:
    """Ink to light, uint8 [H, W, 4] to float [H, W, 3], without a profile."""
    return (255 - cmyk[..., :3].astype(float)) * (255 - cmyk[..., 3:].astype(float)) / 255


FLAT_CMYK = np.full((16, 24, 4), (200, 40, 90, 30), np.uint8)


@pytest.mark.parametrize("transform", ["none", "YCCK"])
def test_inverted_cmyk_jpegs(transform):
    """Printers' JPEGs: Adobe stores ink inverted, and its first three channels as YCbCr or as they are."""
    stored = FLAT_CMYK
    if transform == "YCCK":  # the decoder makes RGB of YCbCr, and inverted ink of that: so the ink is stored as YCbCr
        luma = np.asarray(Image.fromarray(FLAT_CMYK[..., :3]).convert("YCbCr"))
        stored = np.dstack([255 - luma, FLAT_CMYK[..., 3]])  # Pillow inverts what it writes
    content = bytearray(encoded(Image.fromarray(stored, "CMYK"), "JPEG", quality=100))
    content[content.index(b"Adobe") + 11] = 2 if transform == "YCCK" else 0
    assert np.abs(read_photo(bytes(content)) - from_cmyk(FLAT_CMYK)).max() <= 4


def test_cmyk_tiffs_are_not_inverted():
    """The neighbour of the inverted JPEG."""
    content = encoded(Image.fromarray(FLAT_CMYK, "CMYK"), "TIFF")
    assert np.abs(read_photo(content) - from_cmyk(FLAT_CMYK)).max() <= 1


GRAY = SCENE[..., 1]
ALPHA = SCENE[..., 0]


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_transparency_is_dropped(kind):
    """Alpha channels: the colours below stay as they are, as `tf.io.decode_image(channels=3)` leaves them."""
    rgba = Image.fromarray(np.dstack([SCENE, ALPHA]), "RGBA")
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    np.testing.assert_array_equal(read_photo(encoded(rgba, kind, **options)), SCENE)
    if kind != "WEBP":
        gray = read_photo(encoded(Image.fromarray(np.dstack([GRAY, ALPHA]), "LA"), kind))
        np.testing.assert_array_equal(gray, GRAY[..., None].repeat(3, 2))


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize("kind", ["PNG", "GIF", "TIFF", "BMP"])
def test_palettes(kind, transparent):
    """Indices that are no colours, and with tRNS."""
    colours = RNG.integers(0, 256, (256, 3), np.uint8)
    indices = RNG.integers(0, 256, (30, 20), np.uint8)
    image = Image.fromarray(indices, "P")
    image.putpalette(colours.tobytes())
    options = {"transparency": bytes(range(256)) if kind == "PNG" else 7} if transparent else {}
    np.testing.assert_array_equal(read_photo(encoded(image, kind, **options)), colours[indices])


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM", "GIF"])
def test_one_bit(kind):
    """Scans: black and white, whichever of the two the format calls 0."""
    bits = GRAY > 128
    np.testing.assert_array_equal(read_photo(encoded(bits, kind)), np.where(bits, 255, 0)[..., None].repeat(3, 2))


LEVELS = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
RGB16 = np.dstack([LEVELS, LEVELS.T, LEVELS[::-1]])
SIXTEEN = {
    "PNG gray": (lambda: png(LEVELS, 0), LEVELS),
    "PNG gray by Pillow": (lambda: encoded(LEVELS), LEVELS),
    "PNG gray and alpha": (lambda: png(np.dstack([LEVELS, LEVELS.T]), 4), LEVELS),
    "PNG gray with a transparent level": (lambda: png(LEVELS, 0, tRNS=b"\x12\x34"), LEVELS),
    "PNG RGB": (lambda: png(RGB16, 2), RGB16),
    "PNG RGBA": (lambda: png(np.dstack([RGB16, LEVELS]), 6), RGB16),
    "TIFF gray, little-endian": (lambda: tiff(LEVELS.astype("<u2").tobytes(), (16, 16), 16), LEVELS),
    "TIFF gray, big-endian": (lambda: tiff(LEVELS.astype(">u2").tobytes(), (16, 16), 16, order=">"), LEVELS),
    "TIFF gray, white is zero": (
        lambda: tiff((65535 - LEVELS).astype("<u2").tobytes(), (16, 16), 16, photometric=0),
        LEVELS,
    ),
    "TIFF RGB, little-endian": (
        lambda: tiff(RGB16.astype("<u2").tobytes(), (16, 16), 16, photometric=2, channels=3),
        RGB16,
    ),
    "TIFF RGB, big-endian": (
        lambda: tiff(RGB16.astype(">u2").tobytes(), (16, 16), 16, photometric=2, channels=3, order=">"),
        RGB16,
    ),
    "PGM": (lambda: b"P5 16 16 65535\n" + LEVELS.astype(">u2").tobytes(), LEVELS),
    "PPM": (lambda: b"P6 16 16 65535\n" + RGB16.astype(">u2").tobytes(), RGB16),
    "JPEG 2000": (lambda: encoded(LEVELS, "JPEG2000"), LEVELS),
}


@pytest.mark.parametrize("kind", SIXTEEN)
def test_16_bits_keep_256_levels(kind):
    """The upper byte, as TensorFlow and OpenCV take it; never clipped to white."""
    content, levels = SIXTEEN[kind]
    expected = (levels >> 8).astype(np.uint8)
    np.testing.assert_array_equal(read_photo(content()), expected if expected.ndim == 3 else np.dstack([expected] * 3))


def test_12_bit_tiffs_keep_256_levels():
    """Microscopes: integers whose range is not their type's."""
    values = np.arange(256, dtype=np.uint16) << 4
    pairs = values.reshape(-1, 2)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], 1)
    photo = read_photo(tiff(packed.astype(np.uint8).tobytes(), (16, 16), 12))
    np.testing.assert_array_equal(photo[..., 0].ravel(), np.arange(256))


def jpeg2000(pixels: np.ndarray, bits: int, *, signed: bool = False) -> bytes:
    """Without losses, with another number of bits in its header than it was written with."""
    content = bytearray(encoded(pixels, "JPEG2000"))
    start = content.index(b"\xff\x4f\xff\x51") + 42
    for place in range(start, start + 3 * (pixels.shape[2] if pixels.ndim == 3 else 1), 3):
        content[place] = bits - 1 | signed << 7
    return bytes(content)


@pytest.mark.parametrize("bits", [1, 2, 4, 7])
def test_jpeg_2000_of_few_bits_fills_the_range(bits):
    """White is 255, whatever it is in the file; each sample is stored as its distance from the middle of its range."""
    values = np.arange(256).reshape(16, 16) % (1 << bits)
    stored = (values - (1 << bits >> 1) + 128).astype(np.uint8)
    expected = np.rint(values * 255 / values.max()).astype(np.uint8)
    np.testing.assert_array_equal(read_photo(jpeg2000(stored, bits)), np.dstack([expected] * 3))


@pytest.mark.parametrize("bits", [4, 9, 12, 16])
def test_jpeg_2000_in_colour_of_other_than_8_bits_is_refused(bits):
    """Pillow would round white up to black, or leave it gray."""
    with pytest.raises(ImageError, match=f"has colours of {bits} bits: save it with 8 bits, or as PNG"):
        read_photo(jpeg2000(SCENE, bits))


def planes(photo: np.ndarray, bits: int, order: str = "<") -> bytes:
    """An uncompressed TIFF whose colours lie one behind the other: red, green, blue."""
    height, width, channels = photo.shape
    samples = np.moveaxis(photo, -1, 0).astype(f"{order}u{bits // 8}").tobytes()
    size, behind = len(samples) // channels, 8 + 2 + 12 * 10 + 4
    offsets = [behind + 30 + size * channel for channel in range(channels)]
    short = struct.Struct(f"{order}HHIHH")
    fields = [
        *(short.pack(tag, 3, 1, value, 0) for tag, value in ((256, width), (257, height))),
        struct.pack(f"{order}HHII", 258, 3, channels, behind),
        *(short.pack(tag, 3, 1, value, 0) for tag, value in ((259, 1), (262, 2))),
        struct.pack(f"{order}HHII", 273, 4, channels, behind + 6),
        *(short.pack(tag, 3, 1, value, 0) for tag, value in ((277, channels), (278, height))),
        struct.pack(f"{order}HHII", 279, 4, channels, behind + 18),
        short.pack(284, 3, 1, 2, 0),
    ]
    header = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HIH", 42, 8, len(fields))
    tables = struct.pack(f"{order}3H3I3I", *[bits] * channels, *offsets, *[size] * channels)
    return header + b"".join(fields) + bytes(4) + tables + samples


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiffs_with_a_plane_for_each_colour(order):
    """Right in 8 bits; in 16, of which Pillow takes every second byte, refused."""
    np.testing.assert_array_equal(read_photo(planes(SCENE, 8, order)), SCENE)
    with pytest.raises(ImageError, match="has a plane for each colour, of 16 bits, which is not read here"):
        read_photo(planes(RGB16, 16, order))


def test_tiff_palettes_of_8_bits():
    """Colours are of 16 bits; some programs write 8, which would all be black."""
    image = Image.fromarray(SCENE).quantize(16)
    content = encoded(image, "TIFF")
    colours = np.zeros((256, 3), np.uint8)
    colours[:16] = np.array(image.getpalette()).reshape(-1, 3)[:16]
    wide = (colours.T.astype("<u2") * 256).tobytes()
    assert wide in content
    narrow = content.replace(wide, colours.T.astype("<u2").tobytes())
    for one in (content, narrow):
        np.testing.assert_array_equal(read_photo(one), colours[np.asarray(image)])


UNREAD = {
    "BMP": (
        lambda: (
            (
                b"BM"
                + struct.pack("<IHHI", 66 + 16, 0, 0, 66)
                + struct.pack("<IiiHHIIiiII", 40, 2, 2, 1, 32, 3, 16, *[0] * 4)
            )
            + struct.pack("<III", 0xFF00, 0xFF, 0xFF0000)
            + bytes(16)
        ),
        "is of a kind that is not read here",
    ),
    "TIFF": (
        lambda: encoded(SCENE, "TIFF", compression="tiff_adobe_deflate").replace(
            struct.pack("<HHIHH", 259, 3, 1, 8, 0), struct.pack("<HHIHH", 259, 3, 1, 50001, 0)
        ),
        "is damaged, cut short, or compressed in a way that is not read here",
    ),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_sound_files_of_a_kind_that_is_not_read(kind):
    """They are not called damaged: the user would look for the fault in the wrong place."""
    content, says = UNREAD[kind]
    with pytest.raises(ImageError, match=says):
        read_photo(content())


@pytest.mark.parametrize(
    "content",
    [b"P6 1 1 100\n\x65\0\0", b"P5 2 1 1000\n\0\1\3\xe9", b"P3 1 1 100\n200 50 0\n", b"P5 1 1 7\n\x08"],
    ids=["PPM", "16 bits", "text", "few bits"],
)
def test_netpbm_above_its_own_largest(content):
    """Clipping it to white would be a guess."""
    with pytest.raises(ImageError, match="is damaged"):
        read_photo(content)


NO_RANGE = {
    "float32": (lambda: encoded(np.ones((4, 6), np.float32), "TIFF"), "has floating-point pixels"),
    "float64": (lambda: tiff(bytes(24 * 8), (4, 6), 64, sign=3), "a kind of TIFF that Pillow does not decode"),
    "int32": (lambda: tiff(bytes(24 * 4), (4, 6), 32, sign=2), "32 bits, or with a sign"),
    "uint32": (lambda: tiff(bytes(24 * 4), (4, 6), 32), "32 bits, or with a sign"),
    "int16": (lambda: tiff(bytes(24 * 2), (4, 6), 16, sign=2), "32 bits, or with a sign"),
    "int8": (lambda: tiff(bytes(24), (4, 6), 8, sign=2), "32 bits, or with a sign"),
    "int8 JPEG 2000": (lambda: jpeg2000(GRAY, 8, signed=True), "32 bits, or with a sign"),
    "int16 JPEG 2000": (lambda: jpeg2000(LEVELS, 16, signed=True), "32 bits, or with a sign"),
    "Lab": (lambda: encoded(Image.new("LAB", (6, 4)), "TIFF"), "has LAB pixels"),
    "PFM": (lambda: b"Pf 6 4 -1.0\n" + bytes(24 * 4), "has floating-point pixels"),
}


@pytest.mark.parametrize("kind", NO_RANGE)
def test_pixels_without_a_defined_range_are_refused(kind):
    """What no table makes 8 bits of: scaling them would be a guess, and another mask."""
    content, says = NO_RANGE[kind]
    with pytest.raises(ImageError, match=says):
        read_photo(content())


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "JPEG2000"])
def test_colour_profiles_are_not_applied(kind, mode):
    """Display P3, Adobe RGB, gray gamma, inks: `tf.io`, torchvision and OpenCV read the values in the file, and so
    do we, of every format alike. The profile here exchanges red and blue."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    swapped = profile.replace(b"rXYZ", b"?XYZ").replace(b"bXYZ", b"rXYZ").replace(b"?XYZ", b"bXYZ")
    picture = Image.fromarray(SCENE).convert(mode)
    if mode == "CMYK" and kind not in ("JPEG", "TIFF"):
        return  # there is no such file
    content = encoded(picture, kind, icc_profile=swapped)
    if kind != "JPEG2000":  # Pillow writes none there
        with Image.open(io.BytesIO(content)) as image:
            assert image.info["icc_profile"] == swapped
    np.testing.assert_array_equal(read_photo(content), read_photo(encoded(picture, kind)))


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO", "AVIF"])
def test_of_several_pictures_the_first(kind):
    """Animations, pages, and the second view that phones add."""
    first, second = Image.fromarray(SCENE).quantize(8).convert("RGB"), Image.new("RGB", (53, 37), "white")
    content = encoded(first, kind, save_all=True, append_images=[second, second])
    with Image.open(io.BytesIO(content)) as image:
        assert image.n_frames > 1
    photo = read_photo(content)
    assert photo.shape == SCENE.shape
    assert np.abs(photo.astype(int) - np.asarray(first)).mean() < 12


# --- damaged, cut short, not a photo ----------------------------------------------------------------------------------

CUT = {
    "JPEG": ("JPEG", {}),
    "JPEG, progressive": ("JPEG", {"progressive": True}),
    "JPEG, restart markers": ("JPEG", {"restart_marker_blocks": 2}),
    "JPEG, CMYK": ("JPEG", {}),
    "PNG": ("PNG", {}),
    "WebP": ("WEBP", {}),
    "TIFF": ("TIFF", {}),
    "TIFF, LZW": ("TIFF", {"compression": "tiff_lzw"}),
    "TIFF, JPEG": ("TIFF", {"compression": "jpeg"}),
    "GIF": ("GIF", {}),
    "BMP": ("BMP", {}),
    "PPM": ("PPM", {}),
    "AVIF": ("AVIF", {}),
    "JPEG 2000": ("JPEG2000", {}),
}


@pytest.mark.parametrize("kind", CUT)
def test_cut_short(kind, capfd):
    """Interrupted downloads: refused wherever they end, unless nothing of the picture is missing."""
    name, options = CUT[kind]
    picture = Image.fromarray(SCENE)
    content = encoded(picture.convert("CMYK") if "CMYK" in kind else picture, name, **options)
    whole = read_photo(content)
    refused = 0
    for length in [*np.linspace(1, len(content) - 1, 40).astype(int), *range(len(content) - 20, len(content))]:
        for read in (read_photo, lambda cut: read_reduced(cut, (4, 4))[0]):
            try:
                photo = read(content[:length])
            except ImageError:
                refused += 1
            else:
                if read is read_photo:
                    np.testing.assert_array_equal(photo, whole)
    assert refused >= 70
    assert capfd.readouterr() == ("", ""), "libraries keep quiet"


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}], ids=str)
def test_damage_in_the_middle_of_a_jpeg(mode, options):
    """Bad sectors: what libjpeg warns of, while it fills the rest of the picture with gray, is refused as cut short."""
    package("simplejpeg")
    content = encoded(Image.fromarray(np.tile(SCENE, (4, 4, 1))).convert(mode), "JPEG", **options)
    middle = len(content) // 2
    for damage in (content[:middle] + content[-2:], content[:middle] + b"\xff\xd9" + content[middle:]):
        for read in (read_photo, lambda one: read_reduced(one, (4, 4))):
            with pytest.raises(ImageError, match=r"is damaged or cut short: .*; if it looks right, save it anew"):
                read(damage)


def test_odd_jpegs_that_lack_nothing():
    """Bytes that belong to no picture: videos of living photos behind it, padding before its end marker."""
    content = encoded(SCENE, "JPEG")
    whole = read_photo(content)
    padded = content[:-2] + bytes(7) + content[-2:]
    for odd in (content + b"\0" * 999, content + content, padded, padded + VIDEO):
        np.testing.assert_array_equal(read_photo(odd), whole)


VIDEO = b"\0\0\0\x18ftypmp42" + bytes(3000) + b"\xff\xd9" + bytes(100)
"""What lies behind a living photo; it may hold the bytes of an end marker."""


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}], ids=str)
@pytest.mark.parametrize("behind", [b"", VIDEO, encoded(SCENE, "JPEG")], ids=["nothing", "video", "picture"])
def test_bytes_too_many_in_a_jpeg(options, behind):
    """Damage before the first picture's end is one, whatever follows; sound photos are read with all that follows."""
    package("simplejpeg")
    thumbnail = Image.Exif()
    thumbnail[0x010E] = "\xff\xd9"
    content = encoded(np.tile(SCENE, (4, 4, 1)), "JPEG", exif=thumbnail, **options)
    whole = read_photo(content)
    np.testing.assert_array_equal(read_photo(content + behind), whole)
    end = len(content) - 2
    with pytest.raises(ImageError, match="extraneous bytes before marker"):
        read_photo(content[:end] + b"\x12\x34" * 20 + content[end:] + behind)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"this is text", "is text, not a photo"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", r"is a drawing \(SVG\), not a photo"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", r"is a document \(PostScript\), not a photo"),
        (b"%PDF-1.7\n", r"is a document \(PDF\), not a photo"),
        (b"\0\0\0\x18ftypisom\0\0\2\0isomavc1", r"is a video \(MP4\), not a photo: take frames out of it"),
        (encoded(SCENE, "ICO"), "is not an image"),
        (encoded(SCENE, "TGA"), "is not an image"),
        (b"8BPS\0\1" + bytes(6) + b"\0\3\0\0\0\4\0\0\0\4\0\10\0\3" + bytes(200), r"is .* \(Photoshop\), not"),
        (b"\x89PNG\r\n\x1a\n", "is damaged, cut short, or a kind of PNG"),
        (b"\xff\xd8\xff\xe0", "is damaged, cut short, or a kind of JPEG"),
    ],
    ids=["nothing", "text", "SVG", "EPS", "PDF", "MP4", "ICO", "TGA", "PSD", "a PNG's signature", "a JPEG's signature"],
)
def test_files_that_are_no_photos(tmp_path, content, says):
    """What lies about under a photo's name; and formats of Pillow's whose decoders nobody should meet by accident."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=says) as caught:
        read_photo(path)
    assert str(path) in str(caught.value)
    with pytest.raises(ImageError, match=says):
        read_photo(content)


def test_raw_files_of_cameras():
    """TIFFs that begin with a preview (DNG, NEF, ARW): a mask of that would have another size than the photo."""
    with pytest.raises(ImageError, match="holds a small preview first, as cameras' raw files do: develop it"):
        read_photo(encoded(SCENE, "TIFF", tiffinfo={254: 1}))
    np.testing.assert_array_equal(read_photo(encoded(SCENE, "TIFF", tiffinfo={254: 0})), SCENE)


def test_a_png_named_jpg(tmp_path):
    """Endings that lie: the content decides."""
    (tmp_path / "photo.jpg").write_bytes(encoded(SCENE))
    np.testing.assert_array_equal(read_photo(tmp_path / "photo.jpg"), SCENE)


def test_the_formats_that_are_read_are_those_that_the_message_names():
    """A list that is written down twice."""
    with pytest.raises(ImageError) as caught:
        read_photo(b"\1\2\3\4")
    assert all(name in str(caught.value) for name in FORMATS if name in Image.OPEN)


# --- large and thin ---------------------------------------------------------------------------------------------------


def huge(side: int) -> dict[str, bytes]:
    """Tiny files that say they are `side` pixels high and wide."""
    jpeg = encoded(SCENE, "JPEG")
    at = jpeg.index(b"\xff\xc0") + 5
    return {
        "PNG": png(np.zeros((1, 1)), 0).replace(struct.pack(">II", 1, 1), struct.pack(">II", side, side)),
        "JPEG": jpeg[:at] + struct.pack(">HH", side, side) + jpeg[at + 4 :],
        "GIF": b"GIF89a" + struct.pack("<HH", side, side) + encoded(SCENE, "GIF")[10:],
        "BMP": encoded(SCENE, "BMP").replace(struct.pack("<II", 53, 37), struct.pack("<II", side, side)),
        "PPM": b"P6 %d %d 255\n" % (side, side) + bytes(99),
        "TIFF": tiff(bytes(99), (side, side), 8),
    }


@pytest.mark.parametrize("warned", [Image.MAX_IMAGE_PIXELS, None], ids=["Pillow's guard", "guard off"])
@pytest.mark.parametrize("kind", huge(9))
def test_beyond_the_limit_nothing_is_decoded(monkeypatch, kind, warned):
    """Decompression bombs; also where the program has switched Pillow's own guard off."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", warned)
    content = huge(20_000)[kind]
    if kind == "PNG":
        start = content.index(b"IHDR")
        content = (
            content[: start + 17] + struct.pack(">I", zlib.crc32(content[start : start + 17])) + content[start + 21 :]
        )
    start_time = time.perf_counter()
    with pytest.raises(ImageError, match=f"more than {MAX_PIXELS // 10**6 + 1} million pixels: cut it into tiles"):
        read_photo(content)
    assert time.perf_counter() - start_time < 1


def test_files_too_large_to_read_are_refused(tmp_path):
    """Videos, disk images: refused by their size, not by running out of memory."""
    path = tmp_path / "photo.jpg"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(ImageError, match="more than 2 GiB"):
        read_photo(path)


def test_photos_that_memory_does_not_hold(monkeypatch):
    """Small machines: no fault of the file's."""

    def convert(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", convert)
    with pytest.raises(ImageError, match="does not fit into memory: cut it into tiles"):
        read_photo(encoded(GRAY))


@pytest.fixture(scope="module")
def brightest(tmp_path_factory):
    """Bundles of a network whose class is the brightest of red, green and blue, built in every way that has a say in
    sizes."""
    folder = tmp_path_factory.mktemp("brightest")
    model = save(nchw(3, k=np.eye(3, dtype=np.float32)[..., None, None]), folder / "net.onnx")
    ways = {"stretch": {}, "letterbox": {"fit": "letterbox"}, "image": {"size": "image"}, "fixed": {"size": (301, 97)}}
    return {
        way: build(model, folder / f"{way}.trtpost", flavour="none", normalize="unit", **settings)
        for way, settings in ways.items()
    }


def coloured(height: int, width: int) -> np.ndarray:
    """Red above; blue and green below, left and right."""
    photo = np.full((height, width, 3), 20, np.uint8)
    photo[: height // 2, :, 0] = 240
    photo[height // 2 :, : width // 2, 2] = 240
    photo[height // 2 :, width // 2 :, 1] = 240
    return photo


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (301, 97), (97, 301)], ids=str)
@pytest.mark.parametrize("way", ["stretch", "letterbox", "image", "fixed", "fast decode", "fast decode, letterbox"])
def test_height_and_width_are_never_swapped(brightest, way, size):
    """Thin photos and single pixels, through every path that a photo can take."""
    fast = way.startswith("fast")
    bundle = brightest[way if not fast else "letterbox" if "letterbox" in way else "stretch"]
    content = encoded(coloured(*size), "JPEG", quality=100, subsampling=0)
    with Segmenter(bundle, fast_decode=fast) as segmenter:
        if way == "fixed" and size != (301, 97):
            with pytest.raises(ImageError, match=rf"fixed at 301x97, but the photo has {size[0]}x{size[1]} pixels"):
                segmenter(content)
            return
        mask = segmenter(content).mask
    assert mask.shape == size
    expected = coloured(*size).argmax(2)
    # the network sees 8x12 pixels: borders between colours shift by a pixel of those
    assert (mask == expected).mean() > (0.8 if min(size) > 1 else 0.7 if max(size) > 1 else 0.99)


def test_a_hundred_megapixels(brightest, tmp_path):
    """Cameras of medium format and scans: the whole way to the mask's file, in less than 4 GB."""
    package("simplejpeg")
    code = (
        "import io, sys; from pathlib import Path; from PIL import Image; from trtpost.segment import Segmenter\n"
        "segmenter = Segmenter(sys.argv[1])\n"
        "for kind, mode in (('JPEG', 'L'), ('PNG', '1')):\n"
        "    stream = io.BytesIO(); Image.new(mode, (8660, 11547), 1).save(stream, kind)\n"
        "    result = segmenter(stream.getvalue()); assert result.mask.shape == (11547, 8660)\n"
        "    result.save_mask('mask.png')\n"
        "status = Path('/proc/self/status').read_text(); print(status.split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, brightest["stretch"].path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 << 20
    header = (tmp_path / "mask.png").read_bytes()[16:24]
    assert struct.unpack(">II", header) == (8660, 11547)


def test_threads_leave_the_filters_of_warnings_as_they_were():
    """State of the whole process that two threads change at once."""
    contents = [encoded(SCENE, "JPEG"), encoded(SCENE), png(LEVELS, 0), encoded(SCENE, "JPEG")[:300]]

    def work(index: int) -> None:
        for turn in range(40):
            try:
                read_photo(contents[(index + turn) % 4])
            except ImageError:
                assert (index + turn) % 4 == 3

    before = list(warnings.filters)
    in_threads(6, work)
    assert list(warnings.filters) == before
