"""An image file's content to a photo: formats, orientation, colours and depths."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError, _imaging

from trtpost.errors import ImageError, reason
from trtpost.packages import installation
from trtpost.photos.cost import CostError, check_cost, check_tiff
from trtpost.photos.headers import first_jpeg_end, jpeg2000_samples
from trtpost.photos.limits import MAX_PIXELS

Photo = NDArray[np.uint8]
"""uint8 [H, W, 3], RGB, upright."""

FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, by Pillow's names. The decoders of its other formats are old, rarely tested, or other programs
(EPS runs Ghostscript); some have no signature, so that any file may pass for one."""

SUFFIXES = (
    *(".apng", ".avif", ".bmp", ".gif", ".heic", ".heif", ".hif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".jpx", ".mpo", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
"""Of the files in a folder that are photos; a file that is named is read whatever it is called."""

ORIENTATION = 0x0112
"""The EXIF tag that says how the camera was held."""

logging.getLogger("PIL").addHandler(logging.NullHandler())  # what is wrong with a photo is said by an `ImageError`


def decode(content: bytes, name: str, needed: tuple[int, int] | None = None) -> tuple[Photo, tuple[int, int]]:
    """Decode an image.

    Args:
        content: of its file.
        name: what messages call it.
        needed: (h, w) that is enough: of a JPEG, the smallest of a half, a quarter and an eighth is decoded that has
            it. None: the whole.

    Returns:
        uint8 [h', w', 3], and (H, W) of the whole photo.

    Raises:
        ImageError: empty, damaged, cut short, not in one of `FORMATS`, of a kind that is not read here, of pixels that
            have no defined range (floating point, 32 bits, a sign), larger than `MAX_PIXELS`, or than what memory is
            left.
    """
    if not content:
        raise ImageError(f"{name} is empty (zero bytes), not an image")
    with _understood(name):
        try:
            check_cost(content)
            with _no_warnings, Image.open(io.BytesIO(content), formats=_decoders(content)) as image:
                _check_pixels(image)
                return _decoded(image, content, needed)
        except UnidentifiedImageError:
            raise _RefusedError(_unidentified(content)) from None


def from_pillow(image: Image.Image) -> Photo:
    """An image of Pillow's as a photo, by the rules of files: upright by its EXIF orientation, of 16 bits the upper 8.

    Args:
        image: opened or made; of an animation the frame at which it stands. It is loaded, and not changed else.

    Returns:
        uint8 [H, W, 3]; of an image in RGB that is not turned, its own memory where Pillow gives that.

    Raises:
        ImageError: as for `decode`; or it was opened from JPEG 2000, where Pillow does not say how many bits there are.
    """
    with _understood("the image"), _no_warnings:
        _check_pixels(image)
        if 0 in image.size:
            raise _RefusedError("is empty: it has no pixels")
        if image.format == "JPEG2000":
            raise _RefusedError("was opened from JPEG 2000, whose bits Pillow does not tell: give the file itself")
        if image.format == "TIFF":
            _silence_libtiff()
        # a copy of an image that was opened has no tags
        pixels = _decoded_tiff(image) if image.format == "TIFF" and hasattr(image, "tag_v2") else _rgb(image)
        return _upright(pixels, _orientation(image))


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise Image.DecompressionBombError


@contextlib.contextmanager
def _understood(name: str) -> Iterator[None]:
    """What is raised over an image, as one sentence.

    Raises:
        ImageError: instead of whatever was raised inside.
    """
    try:
        yield
    except Image.DecompressionBombError:
        raise ImageError(f"{name} has more than {MAX_PIXELS / 1e6:.0f} million pixels: cut it into tiles") from None
    except (_RefusedError, CostError) as error:
        raise ImageError(f"{name} {error}") from None
    except MemoryError:
        raise ImageError(f"{name} does not fit into memory: cut it into tiles") from None
    except Exception as error:  # every decoder has errors of its own
        why = reason(error)
        if why.lower().startswith("unsupported"):
            raise ImageError(f"{name} is of a kind that is not read here ({why}): save it as PNG") from None
        raise ImageError(f"{name} is damaged or cut short: {why}") from None


def weight_in_header(stream: IO[bytes]) -> int | None:
    """Pixels that decoding a photo will take, by its header alone; three times as many where the decoder holds
    canvases of its own; None where the header does not tell."""
    try:
        head = stream.read(HEAD_BYTES)
        if not check_cost(head, whole=False):
            return None
        stream.seek(0)
        if head.startswith(TIFF_SIGNATURES):
            check_tiff(stream)
            stream.seek(0)
        with _no_warnings, Image.open(stream, formats=_decoders(head[:256])) as image:
            pixels: int = image.width * image.height
            return pixels * (3 if image.format in HOLD_CANVASES else 1)
    except Exception:  # every decoder has errors of its own
        return None


HEAD_BYTES = 4 << 20
"""In which the pixels of any photo begin."""

HOLD_CANVASES = ("WEBP", "AVIF", "HEIF")
"""Formats whose decoders take up to 16 bytes a pixel beside ours; others take 8."""


class _RefusedError(Exception):
    """A sound file whose pixels are not those of a photo, or have no defined range; says what to do."""


class _NoWarnings:
    """Keeps Pillow's warnings back: of large photos and odd tags; what matters is an error.

    `warnings.catch_warnings` alone would not do: in two threads, the first that leaves gives the other's warnings
    free, and the last leaves the first one's filters in place for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._caught.__exit__(None, None, None)


_no_warnings = _NoWarnings()


def _decoders(content: bytes) -> list[str]:
    """The names of those `FORMATS` that Pillow has here; makes libtiff silent, and HEIC known, before their first."""
    if content.startswith(COMMON):
        Image.preinit()  # half of the time that all formats take, for which the first photo waits
    else:
        Image.init()
    if _is_heic(content):
        _register_heif()
    elif content.startswith(TIFF_SIGNATURES):
        _silence_libtiff()
    return [name for name in FORMATS if name in Image.OPEN]


COMMON = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"P5", b"P6")
TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")


def _is_heic(content: bytes) -> bool:
    """HEIF as phones write it; AVIF is another brand of the same container, or names itself among the compatible."""
    box = content[: int.from_bytes(content[:4], "big")][:256]
    return content[4:8] == b"ftyp" and content[8:12] in HEIC_BRANDS and b"avif" not in box


@functools.cache
def _register_heif() -> None:
    if "HEIF" not in Image.OPEN:
        with contextlib.suppress(ImportError):
            importlib.import_module("pi_heif").register_heif_opener()


@functools.cache
def _silence_libtiff() -> None:
    """It would write to stderr by itself; what it cannot decode is an error of Pillow's as well."""
    with contextlib.suppress(OSError, AttributeError):  # linked in another way
        library = ctypes.CDLL(_imaging.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            function = getattr(library, name)
            function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_void_p
            function(None)


def _unidentified(content: bytes) -> str:
    """What is wrong with a file that none of the decoders takes."""
    Image.init()
    if _is_heic(content) and "HEIF" not in Image.OPEN:
        return f"is HEIC, which needs a decoder: {installation('heic')}, or convert it to JPEG"
    for format_name, signatures in SIGNATURES.items():
        if content.startswith(signatures) and format_name in Image.OPEN:
            return f"is damaged, cut short, or a kind of {format_name} that Pillow does not decode: save it as PNG"
    names = ", ".join(name for name in FORMATS if name in Image.OPEN or name == "HEIF")
    return f"is not an image in a format that is read here ({names}): save it as PNG or JPEG"


SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG",),
    "GIF": (b"GIF8",),
    "TIFF": TIFF_SIGNATURES,
    "WEBP": (b"RIFF",),
    "BMP": (b"BM",),
    "JPEG2000": (b"\0\0\0\x0cjP", b"\xffO\xffQ"),
}


def _decoded(image: Image.Image, content: bytes, needed: tuple[int, int] | None) -> tuple[Photo, tuple[int, int]]:
    """The pixels of an open image, upright, and (H, W) of the whole."""
    whole = None
    if image.format in ("JPEG", "MPO"):  # the latter is what phones write
        if needed is not None:
            whole = _reduce(image, needed)
        pixels = _decoded_jpeg(image, content)
    elif image.format == "TIFF":
        pixels = _decoded_tiff(image)
    elif image.format == "JPEG2000":
        pixels = _decoded_jpeg2000(image, content)
    else:
        if image.format == "PPM":
            _check_levels(image, content)
        pixels = _rgb(image)
    orientation = _orientation(image)  # decoders that turn it themselves have removed the tag by now
    image.close()  # its pixels are copied
    if image.format == "WEBP":
        image._decoder = None  # type: ignore[attr-defined]  # else its canvases stay until the garbage is collected
    photo = _upright(pixels, orientation)
    return photo, whole or (photo.shape[0], photo.shape[1])


def _decoded_tiff(image: Image.Image) -> Photo:
    """The pixels of a TIFF, whose tags say more than Pillow heeds."""
    tags: Any = image.tag_v2  # type: ignore[attr-defined]
    subfile = tags.get(SUBFILE_TYPE, 0)
    if isinstance(subfile, int) and subfile & 1:
        raise _RefusedError("holds a small preview first, as cameras' raw files do: develop it, or save it as PNG")
    if image.mode != "F" and set(_values(tags, SAMPLE_FORMAT)) - {UNSIGNED, VOID}:
        raise _RefusedError(NO_RANGE)
    compression = tags.get(COMPRESSION, UNCOMPRESSED)
    separate = tags.get(PLANAR_CONFIGURATION) == SEPARATE and compression == UNCOMPRESSED
    if separate and max(_values(tags, BITS_PER_SAMPLE), default=1) > 8:
        raise _RefusedError("has a plane for each colour, of 16 bits, which is not read here: save it with 8 bits")
    colours = _values(tags, COLOUR_MAP)
    if image.mode == "P" and colours and max(colours) < 256:  # of 16 bits by the standard; some write 8, says libtiff
        image.putpalette(bytes(colours), "RGB;L")
    try:
        return _rgb(image)
    except OSError as error:
        if compression in COMPRESSIONS:
            raise
        raise _RefusedError(
            f"is damaged, cut short, or compressed in a way that is not read here ({reason(error)}): save it as PNG"
        ) from None


def _values(tags: Any, tag: int) -> tuple[int, ...]:
    """Those of a tag, of which Pillow gives a single one bare."""
    value = tags.get(tag, ())
    return value if isinstance(value, tuple) else (value,)


def _decoded_jpeg2000(image: Image.Image, content: bytes) -> Photo:
    """The pixels of a JPEG 2000, of which Pillow shifts samples to 8 bits: up without filling, down with a carry that
    makes white black, and with a sign as if they had none."""
    samples = jpeg2000_samples(content)
    bits = max((bits for bits, _ in samples), default=8)
    fewest = min((bits for bits, _ in samples), default=8)
    if any(signed for _, signed in samples):
        raise _RefusedError(NO_RANGE)
    if bits > (16 if image.mode.startswith("I") else 8) or (fewest < 8 and image.mode not in ("L", "LA")):
        raise _RefusedError(f"has colours of {bits if bits > 8 else fewest} bits: save it with 8 bits, or as PNG")
    if fewest < 8:
        levels = np.asarray(image.convert("L")) >> (8 - samples[0][0])
        filled = np.rint(np.arange(256) * (255 / ((1 << samples[0][0]) - 1))).clip(0, 255).astype(np.uint8)
        return np.repeat(filled[levels][..., None], 3, axis=2)
    return _rgb(image)


def _check_levels(image: Image.Image, content: bytes) -> None:
    """Refuse a PPM with samples above the largest that it declares: Pillow takes them for that one."""
    codec, _, offset, options = image.tile[0]  # type: ignore[attr-defined]
    if codec == "ppm" and isinstance(options, tuple):
        mode, largest = options
        count = image.width * image.height * len(mode)
        samples = np.frombuffer(memoryview(content)[offset:], np.uint8 if largest < 256 else ">u2")[:count]
        if samples.size and samples.max() > largest:
            raise ValueError(f"a sample is {samples.max()}, and the largest should be {largest}")


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged tags are no damaged pixels
        return 1
    return value if isinstance(value, int) and value in range(1, 9) else 1


def _reduce(image: Image.Image, needed: tuple[int, int]) -> tuple[int, int] | None:
    """Have an open JPEG decoded at a fraction; (H, W) of the upright whole, None where no fraction is large enough."""
    width, height = image.size
    turned = _orientation(image) in (5, 6, 7, 8)
    image.draft(None, needed if turned else needed[::-1])
    if image.size == (width, height):
        return None
    return (width, height) if turned else (height, width)


def _decoded_jpeg(image: Image.Image, content: bytes) -> Photo:
    """The pixels that Pillow decodes, by the same library without its copies (docs/pipeline.md), and with its
    warnings: Pillow fills what is missing in the middle of a JPEG without a word.

    Raises:
        ValueError: the data of the picture are damaged.
    """
    try:
        import simplejpeg
    except ImportError:  # no wheel for this platform
        return _rgb(image)
    space = "CMYK" if image.mode == "CMYK" else "RGB"
    try:
        decoded: Photo = simplejpeg.decode_jpeg(content, space, min_height=image.height, min_width=image.width)
    except ValueError as error:
        if _is_damage(str(error), content):
            raise ValueError(f"{error}; if it looks right, save it anew") from None
        return _rgb(image)
    if decoded.shape[:2] != (image.height, image.width):
        return _rgb(image)
    if space == "CMYK":
        return _rgb(Image.fromarray(~decoded, "CMYK"))  # as Adobe stores it; so do all others, says Pillow
    return decoded


def _is_damage(message: str, content: bytes) -> bool:
    """Whether a warning of libjpeg's is about pixels: others are of odd headers, or of padding after the last one."""
    extraneous = re.search(r"(\d+) extraneous bytes before marker 0xd9", message)
    if extraneous:
        end = first_jpeg_end(content)
        return end is None or bool(content[max(end - int(extraneous[1]), 0) : end].strip(b"\0"))
    return message.startswith(("Corrupt JPEG data", "Premature end of JPEG")) and "ICC" not in message


def _rgb(image: Image.Image) -> Photo:
    if image.mode in ("F", "LAB", "HSV"):
        kind = "floating-point pixels, which have no defined range" if image.mode == "F" else f"{image.mode} pixels"
        raise _RefusedError(f"has {kind}: save it with 8 bits a channel in RGB")
    image.load()
    if image.width * image.height <= STRIP_PIXELS:
        return _rgb_strip(image)
    photo = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(STRIP_PIXELS // image.width, 1)
    for top in range(0, image.height, rows):  # whole, each step to the array would be one more copy in memory
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        photo[top : top + rows] = _rgb_strip(strip, image)
    return photo


STRIP_PIXELS = 1 << 22
"""That are converted at once."""


def _rgb_strip(strip: Image.Image, whole: Image.Image | None = None) -> Photo:
    if strip.mode.startswith("I"):
        return np.repeat(_levels(strip, whole or strip)[..., None], 3, axis=2)
    # `convert` copies even where there is nothing to convert
    return np.asarray(strip if strip.mode == "RGB" else strip.convert("RGB"))


def _levels(strip: Image.Image, image: Image.Image) -> NDArray[np.uint8]:
    """The upper 8 bits of integers of up to 16, uint8 [h, W], of a strip of an image."""
    bits, inverted = 16, False
    if image.format == "TIFF":
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        if image.mode == "I":
            raise _RefusedError(NO_RANGE)
        bits, inverted = tags[BITS_PER_SAMPLE][0], tags[PHOTOMETRIC] == WHITE_IS_ZERO
    levels = np.asarray(strip)
    upper = (levels.clip(0, 65535) >> (bits - 8)).astype(np.uint8)
    return ~upper if inverted else upper


NO_RANGE = "has pixels of 32 bits, or with a sign, which have no defined range: save it with 8 bits"

SUBFILE_TYPE, BITS_PER_SAMPLE, COMPRESSION, PHOTOMETRIC = 254, 258, 259, 262
PLANAR_CONFIGURATION, COLOUR_MAP, SAMPLE_FORMAT = 284, 320, 339
"""Tags of TIFF."""

WHITE_IS_ZERO = 0
"""A photometric interpretation that Pillow heeds only up to 8 bits."""

SEPARATE = 2
"""A planar configuration of which Pillow reads the lower bytes, where it is not compressed."""

UNSIGNED, VOID = 1, 4
"""Sample formats; the latter is not known to whoever wrote it."""

UNCOMPRESSED = 1
COMPRESSIONS = (UNCOMPRESSED, 2, 3, 4, 5, 7, 8, 32773, 32946)
"""That every libtiff knows; an error of others may be that this one does not."""


def _upright(photo: Photo, orientation: int) -> Photo:
    """The photo, uint8 [H, W, 3], turned as its EXIF orientation says; what is no orientation turns nothing."""
    if orientation in (5, 6, 7, 8):
        photo = photo.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        photo = photo[::-1]
    if orientation in (2, 3, 6, 7):
        photo = photo[:, ::-1]
    return np.ascontiguousarray(photo)
