"""Decodes an image, the content of a file or one of Pillow's, to a photo: upright, in RGB of 8 bits."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from trtpost.errors import ImageError, reason
from trtpost.photos.cost import RefusedError, check_cost
from trtpost.photos.formats import decoders, no_warnings, silence_libtiff, unidentified
from trtpost.photos.headers import first_jpeg_end, jpeg2000_samples
from trtpost.photos.limits import MAX_PIXELS
from trtpost.photos.rgb import NO_RANGE, heed_tags, may_be_unknown, rgb
from trtpost.photos.strangers import START, stranger

Photo = NDArray[np.uint8]
"""uint8 [H, W, 3], RGB, upright."""

_ORIENTATION = 0x0112
"""The EXIF tag that says how the camera was held."""


def decode(content: bytes, name: str, needed: tuple[int, int] | None = None) -> tuple[Photo, tuple[int, int]]:
    """Decode an image.

    Args:
        content: what its file holds.
        name: what messages call it.
        needed: (h, w) that is enough: a JPEG is decoded at the smallest of a half, a quarter and an eighth that has it.
            None: the whole.

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
        if said := stranger(content[:START]):
            raise RefusedError(said)
        try:
            check_cost(content)
            with no_warnings, Image.open(io.BytesIO(content), formats=decoders(content)) as image:
                _check_pixels(image)
                return _decoded(image, content, needed)
        except UnidentifiedImageError:
            raise RefusedError(unidentified(content)) from None


def from_pillow(image: Image.Image) -> Photo:
    """Make a photo of an image of Pillow's, by the rules of files: upright by its EXIF orientation, 8 bits of 16.

    Args:
        image: one that was opened or made; an animation stands at the frame that is taken. It is loaded, and not
            changed else.

    Returns:
        uint8 [H, W, 3]; the memory of an image in RGB that is not turned, where Pillow gives that.

    Raises:
        ImageError: as for `decode`; or it was opened from JPEG 2000, where Pillow does not say how many bits there are.
    """
    with _understood("the image"), no_warnings:
        _check_pixels(image)
        if 0 in image.size:
            raise RefusedError("is empty: it has no pixels")
        if image.format == "JPEG2000":
            raise RefusedError("was opened from JPEG 2000, whose bits Pillow does not tell: give the file itself")
        if image.format == "TIFF":
            silence_libtiff()
        # a copy of an image that was opened has no tags
        pixels = _decoded_tiff(image) if image.format == "TIFF" and hasattr(image, "tag_v2") else rgb(image)
        return _upright(pixels, _orientation(image))


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise Image.DecompressionBombError


@contextlib.contextmanager
def _understood(name: str) -> Iterator[None]:
    """Make one sentence of whatever is raised over an image.

    Raises:
        ImageError: instead of whatever was raised inside.
    """
    try:
        yield
    except Image.DecompressionBombError:
        raise ImageError(f"{name} has more than {MAX_PIXELS / 1e6:.0f} million pixels: cut it into tiles") from None
    except RefusedError as error:
        raise ImageError(f"{name} {error}") from None
    except MemoryError:
        raise ImageError(f"{name} does not fit into memory: cut it into tiles") from None
    except Exception as error:  # every decoder has errors of its own
        why = reason(error)
        if why.lower().startswith("unsupported"):
            raise ImageError(f"{name} is of a kind that is not read here ({why}): save it as PNG") from None
        raise ImageError(f"{name} is damaged or cut short: {why}") from None


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
        pixels = rgb(image)
    orientation = _orientation(image)  # decoders that turn it themselves have removed the tag by now
    image.close()  # its pixels are copied
    if image.format == "WEBP":
        image._decoder = None  # type: ignore[attr-defined]  # else its canvases stay until the garbage is collected
    photo = _upright(pixels, orientation)
    return photo, whole or (photo.shape[0], photo.shape[1])


def _decoded_tiff(image: Image.Image) -> Photo:
    heed_tags(image)
    try:
        return rgb(image)
    except OSError as error:
        if not may_be_unknown(image):
            raise
        raise RefusedError(
            f"is damaged, cut short, or compressed in a way that is not read here ({reason(error)}): save it as PNG"
        ) from None


def _decoded_jpeg2000(image: Image.Image, content: bytes) -> Photo:
    """The pixels of a JPEG 2000. Pillow shifts its samples to 8 bits: up without filling, down with a carry that makes
    white black, and with a sign as if they had none."""
    samples = jpeg2000_samples(content)
    bits = max((bits for bits, _ in samples), default=8)
    fewest = min((bits for bits, _ in samples), default=8)
    if any(signed for _, signed in samples):
        raise RefusedError(NO_RANGE)
    if bits > (16 if image.mode.startswith("I") else 8) or (fewest < 8 and image.mode not in ("L", "LA")):
        raise RefusedError(f"has colours of {bits if bits > 8 else fewest} bits: save it with 8 bits, or as PNG")
    if fewest < 8:
        levels = np.asarray(image.convert("L")) >> (8 - samples[0][0])
        filled = np.rint(np.arange(256) * (255 / ((1 << samples[0][0]) - 1))).clip(0, 255).astype(np.uint8)
        return np.repeat(filled[levels][..., None], 3, axis=2)
    return rgb(image)


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
        value = image.getexif().get(_ORIENTATION, 1)
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
    """The pixels that Pillow decodes, by the same library without Pillow's copies (docs/pipeline.md), and with its
    warnings: Pillow fills what is missing in the middle of a JPEG without a word.

    Raises:
        ValueError: the data of the picture are damaged.
    """
    try:
        import simplejpeg
    except ImportError:  # no wheel for this platform
        return rgb(image)
    space = "CMYK" if image.mode == "CMYK" else "RGB"
    try:
        decoded: Photo = simplejpeg.decode_jpeg(content, space, min_height=image.height, min_width=image.width)
    except ValueError as error:
        if _is_damage(str(error), content):
            raise ValueError(f"{error}; if it looks right, save it anew") from None
        return rgb(image)
    if decoded.shape[:2] != (image.height, image.width):
        return rgb(image)
    if space == "CMYK":
        return rgb(Image.fromarray(~decoded, "CMYK"))  # as Adobe stores it; so do all others, says Pillow
    return decoded


def _is_damage(message: str, content: bytes) -> bool:
    """Is a warning of libjpeg's about pixels? Others are about odd headers, or padding after the last one."""
    extraneous = re.search(r"(\d+) extraneous bytes before marker 0xd9", message)
    if extraneous:
        end = first_jpeg_end(content)
        return end is None or bool(content[max(end - int(extraneous[1]), 0) : end].strip(b"\0"))
    return message.startswith(("Corrupt JPEG data", "Premature end of JPEG")) and "ICC" not in message


def _upright(photo: Photo, orientation: int) -> Photo:
    """Turn a photo, uint8 [H, W, 3], as its EXIF orientation says."""
    if orientation in (5, 6, 7, 8):
        photo = photo.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        photo = photo[::-1]
    if orientation in (2, 3, 6, 7):
        photo = photo[:, ::-1]
    return np.ascontiguousarray(photo)
