"""Photos in, masks and overlays out."""

from __future__ import annotations

import colorsys
import contextlib
import ctypes
import functools
import importlib
import io
import logging
import re
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError, _imaging

from trtpost.errors import ImageError, reason
from trtpost.files import existing_file, write_whole
from trtpost.png import palette_png

MAX_PIXELS = 178_956_970
"""Larger photos are refused: Pillow's own guard against decompression bombs."""

MAX_BYTES = 2 << 30
"""Larger files are refused before they are read: 16-bit RGBA of `MAX_PIXELS` takes 1.4 GB as it is."""

FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, by Pillow's names. The decoders of its other formats are old, rarely tested, or other programs
(EPS runs Ghostscript); some have no signature, so that any file may pass for one."""

SUFFIXES = (
    *(".apng", ".avif", ".bmp", ".gif", ".heic", ".heif", ".hif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".jpx", ".mpo", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
"""Of the files in a folder that are photos; a file that is named is read whatever it is called."""

PNG_LEVEL = 1
"""zlib level of overlays and 16-bit masks: the fastest."""

ORIENTATION = 0x0112
"""The EXIF tag that says how the camera was held."""

Photo = NDArray[np.uint8]
"""uint8 [H, W, 3], RGB, upright."""

logging.getLogger("PIL").addHandler(logging.NullHandler())  # what is wrong with a photo is said by an `ImageError`


def read_photo(source: str | Path | bytes) -> Photo:
    """Decode a photo, honouring its EXIF orientation.

    Args:
        source: path of a file, or its content. Of an animation the first frame; transparency is dropped; of 16 bits
            the upper 8 are kept. Colour profiles are not applied: TensorFlow, PyTorch and OpenCV read photos like
            that, so networks were trained on the values in the file.

    Returns:
        uint8 [H, W, 3], RGB.

    Raises:
        ImageError: missing, empty, damaged, cut short, not an image in one of `FORMATS`, of pixels that have no
            defined range (floating point, 32 bits), or larger than `MAX_PIXELS`.
    """
    return _read(source, None)[0]


def read_reduced(source: str | Path | bytes, needed: tuple[int, int]) -> tuple[Photo, tuple[int, int]]:
    """Decode a JPEG at a half, a quarter or an eighth, the smallest that has `needed` (h, w); other formats whole.

    The pixels are averages, made out of fewer coefficients; what is resized from them differs from what is resized
    from the whole photo.

    Returns:
        uint8 [h', w', 3], and (H, W) of the whole photo.

    Raises:
        ImageError: as for `read_photo`.
    """
    return _read(source, needed)


def _read(source: str | Path | bytes, needed: tuple[int, int] | None) -> tuple[Photo, tuple[int, int]]:
    if isinstance(source, bytes):
        name, content = "the image", source
    else:
        path = Path(source)
        name = str(path)
        try:
            if path.is_fifo():
                raise ImageError(f"{name} is a pipe: give what comes out of it to trtpost infer -")
            if existing_file(path, "image", ImageError).stat().st_size > MAX_BYTES:
                raise ImageError(f"{name} has more than {MAX_BYTES >> 30} GiB: cut it into tiles")
            content = path.read_bytes()
        except OSError as error:
            raise ImageError(f"{name} cannot be read: {reason(error)}") from None
    if not content:
        raise ImageError(f"{name} is empty (zero bytes), not an image")
    try:
        with _no_warnings, Image.open(io.BytesIO(content), formats=_decoders(content)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            return _decoded(image, content, needed)
    except UnidentifiedImageError:
        raise ImageError(f"{name} {_unidentified(content)}") from None
    except Image.DecompressionBombError:
        raise ImageError(f"{name} has more than {MAX_PIXELS / 1e6:.0f} million pixels: cut it into tiles") from None
    except _RangeError as error:
        raise ImageError(f"{name} {error}") from None
    except Exception as error:  # every decoder has errors of its own
        raise ImageError(f"{name} is damaged or cut short: {reason(error)}") from None


class _RangeError(Exception):
    """Pixels whose values have no defined range or no meaning as RGB; says what to do."""


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
    Image.init()
    if _is_heic(content):
        _register_heif()
    elif content.startswith(TIFF_SIGNATURES):
        _silence_libtiff()
    return [name for name in FORMATS if name in Image.OPEN]


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
    if _is_heic(content) and "HEIF" not in Image.OPEN:
        return "is HEIC, which needs a decoder: pip install 'trtpost[heic]', or convert it to JPEG"
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
    else:
        pixels = _rgb(image)
    photo = _upright(pixels, _orientation(image))  # decoders that turn it themselves have removed the tag by now
    return photo, whole or (photo.shape[0], photo.shape[1])


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
        end = content.rfind(b"\xff\xd9")
        return bool(content[end - int(extraneous[1]) : end].strip(b"\0"))
    return message.startswith(("Corrupt JPEG data", "Premature end of JPEG")) and "ICC" not in message


def _rgb(image: Image.Image) -> Photo:
    if image.mode.startswith("I"):
        return np.repeat(_levels(image)[..., None], 3, axis=2)
    if image.mode in ("F", "LAB", "HSV"):
        kind = "floating-point pixels, which have no defined range" if image.mode == "F" else f"{image.mode} pixels"
        raise _RangeError(f"has {kind}: save it with 8 bits a channel in RGB")
    # `convert` copies even where there is nothing to convert
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _levels(image: Image.Image) -> NDArray[np.uint8]:
    """The upper 8 bits of integers of up to 16, uint8 [H, W]."""
    bits, inverted = 16, False
    if image.format == "TIFF":
        tags: Any = image.tag_v2  # type: ignore[attr-defined]
        if image.mode == "I":
            raise _RangeError("has pixels of 32 bits, or with a sign, which have no defined range: save it with 8 bits")
        bits, inverted = tags[BITS_PER_SAMPLE][0], tags[PHOTOMETRIC] == WHITE_IS_ZERO
    levels = np.asarray(image)
    upper = (levels.clip(0, 65535) >> (bits - 8)).astype(np.uint8)
    return ~upper if inverted else upper


BITS_PER_SAMPLE, PHOTOMETRIC = 258, 262
"""Tags of TIFF."""

WHITE_IS_ZERO = 0
"""A photometric interpretation that Pillow heeds only up to 8 bits."""


def _upright(photo: Photo, orientation: int) -> Photo:
    """The photo, uint8 [H, W, 3], turned as its EXIF orientation says; what is no orientation turns nothing."""
    if orientation in (5, 6, 7, 8):
        photo = photo.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        photo = photo[::-1]
    if orientation in (2, 3, 6, 7):
        photo = photo[:, ::-1]
    return np.ascontiguousarray(photo)


def check_photo(array: NDArray[Any]) -> Photo:
    """The array as a photo.

    Raises:
        ImageError: not uint8 [H, W, 3].
    """
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ImageError(
            f"a photo must be a uint8 array of shape [height, width, 3] in RGB order, not {array.dtype} {array.shape}"
        )
    return array


def palette(classes: Sequence[str]) -> NDArray[np.uint8]:
    """A colour for each class, uint8 [len(classes), 3]: black for the background, then bright ones.

    Hues step round the circle by the golden ratio, so that classes of neighbouring ids look different.
    """
    background = bool(classes) and classes[0] in ("background", class_name(0))
    colours = [
        colorsys.hsv_to_rgb(0.618034 * index % 1, (0.9, 0.5, 0.8)[index % 3], (1.0, 1.0, 0.7)[index % 3])
        for index in range(len(classes))
    ]
    if background:
        colours[0] = (0.0, 0.0, 0.0)
    return np.round(np.array(colours) * 255).astype(np.uint8)


def class_name(index: int) -> str:
    """What a class without a name is called."""
    return f"class {index}"


def write_mask(mask: NDArray[Any], path: Path, colours: NDArray[np.uint8]) -> None:
    """Write a mask as PNG whose pixel values are the class ids: 8-bit palette, or 16-bit grayscale for int32 masks.

    Raises:
        ImageError: the file cannot be written; nothing is left behind.
    """
    if mask.dtype != np.uint8 and (mask.min() < 0 or mask.max() > 65535):
        raise ImageError(
            f"cannot write {path}: the class ids from {mask.min()} to {mask.max()} do not fit a 16-bit PNG"
        )
    if mask.dtype == np.uint8:
        content = palette_png(mask, colours[:256])
        write_whole(path, lambda file: file.write(content), ImageError)
    else:
        image = Image.fromarray(mask.astype(np.uint16))
        write_whole(path, lambda file: image.save(file, "PNG", compress_level=PNG_LEVEL), ImageError)


def write_picture(image: Image.Image, path: Path) -> None:
    """Write a picture in the format of its suffix.

    Raises:
        ImageError: unknown suffix, or the file cannot be written; nothing is left behind.
    """
    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind is None:
        raise ImageError(f"cannot write {path}: unknown picture format '{path.suffix}', use .png or .jpg")
    options = {"compress_level": PNG_LEVEL} if kind == "PNG" else {}
    write_whole(path, lambda file: image.save(file, kind, **options), ImageError)


def overlay(photo: Photo, mask: NDArray[Any], classes: Sequence[str], colours: NDArray[np.uint8]) -> Image.Image:
    """The photo with each class in its colour over it, and a legend of the classes that occur.

    Args:
        photo: uint8 [H, W, 3].
        mask: class ids [H, W].
        classes: name of each class; `background` is left as it is.
        colours: uint8 [classes, 3].
    """
    tint = np.full(len(colours), 0.55, np.float32)
    tint[[not colour.any() for colour in colours]] = 0
    # a table of tinted levels for each class and channel makes the blend one look-up
    levels = np.arange(256, dtype=np.float32)[None, :, None]
    table = (levels * (1 - tint[:, None, None]) + colours[:, None, :] * tint[:, None, None]).astype(np.uint8)
    ids = np.clip(mask, 0, len(colours) - 1)
    blended = np.empty_like(photo)
    for channel in range(3):
        blended[..., channel] = table[:, :, channel][ids, photo[..., channel]]
    image = Image.fromarray(blended)
    present = [int(index) for index in np.unique(ids) if tint[index]]
    if present:
        _draw_legend(image, [classes[index] for index in present], [tuple(colours[index]) for index in present])
    return image


def _draw_legend(image: Image.Image, names: list[str], colours: list[tuple[int, ...]]) -> None:
    size = max(min(image.size) // 28, 10)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(image, "RGBA")
    line, pad = round(size * 1.5), size // 2
    width = max(draw.textlength(name, font) for name in names) + line + 2 * pad
    if width > image.width or line > image.height:
        return  # a picture too small to hold it is better without
    shown = names[: max((image.height - 2 * pad) // line, 1)]
    draw.rectangle((0, 0, width, len(shown) * line + 2 * pad), fill=(0, 0, 0, 150))
    for row, (name, colour) in enumerate(zip(shown, colours, strict=False)):
        top = pad + row * line
        draw.rectangle((pad, top + size // 4, pad + size, top + size // 4 + size), fill=(*colour[:3], 255))
        draw.text((pad + line, top), name, fill=(255, 255, 255, 255), font=font)
