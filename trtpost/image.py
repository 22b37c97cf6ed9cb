"""Photos in, masks and overlays out."""

from __future__ import annotations

import colorsys
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

from trtpost.errors import ImageError, reason
from trtpost.files import existing_file, write_whole
from trtpost.png import palette_png, with_text

MAX_PIXELS = 178_956_970
"""Larger photos are refused: Pillow's own guard against decompression bombs."""

PNG_LEVEL = 1
"""zlib level of overlays and 16-bit masks: the fastest."""

MARK = "trtpost"
"""Keyword of the text in our masks that says what they were made with: see `trtpost.resume`."""

ORIENTATION = 0x0112
"""The EXIF tag that says how the camera was held."""

Photo = NDArray[np.uint8]
"""uint8 [H, W, 3], RGB, upright."""


def read_photo(source: str | Path | bytes) -> Photo:
    """Decode a photo, honouring its EXIF orientation.

    Args:
        source: path of a file, or its content. Any format that Pillow reads; of an animation the first frame;
            transparency is dropped; of 16-bit grayscale the upper 8 bits are kept.

    Returns:
        uint8 [H, W, 3], RGB.

    Raises:
        ImageError: missing, empty, damaged, cut short, not an image, or larger than `MAX_PIXELS`.
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
        name, stream = "the image", io.BytesIO(source)
    else:
        path = existing_file(Path(source), "image", ImageError)
        name = str(path)
        try:
            stream = io.BytesIO(path.read_bytes())
        except OSError as error:
            raise ImageError(f"{name} cannot be read: {reason(error)}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large photos and odd tags; what matters is an error
            with Image.open(stream) as image:
                if needed is not None and _is_plain_jpeg(image) and (whole := _reduce(image, needed)) is not None:
                    return _upright(_rgb(image), _orientation(image)), whole
                photo = _decoded_jpeg(stream.getvalue()) if _is_plain_jpeg(image) else None
                photo = _upright(_rgb(image) if photo is None else photo, _orientation(image))
                return photo, (photo.shape[0], photo.shape[1])
    except UnidentifiedImageError:
        raise ImageError(f"{name} is not an image in a format that Pillow reads") from None
    except Image.DecompressionBombError:
        raise ImageError(f"{name} has more than {MAX_PIXELS / 1e6:.0f} million pixels: cut it into tiles") from None
    except Exception as error:  # every decoder has errors of its own
        raise ImageError(f"{name} is damaged or cut short: {reason(error)}") from None


def size_in_header(stream: IO[bytes]) -> tuple[int, int] | None:
    """(H, W) of the photo upright, without decoding it; None where the header does not tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(stream) as image:
                # Pillow's own `getexif` of a PNG decodes it to look for a tag behind the pixels
                tags = Image.Image.getexif(image) if image.format == "PNG" else image.getexif()
                # a TIFF's size is upright already
                turned = image.format != "TIFF" and tags.get(ORIENTATION) in (5, 6, 7, 8)
                return (image.width, image.height) if turned else (image.height, image.width)
    except Exception:  # every decoder has errors of its own
        return None


def _orientation(image: Image.Image) -> int:
    value = image.getexif().get(ORIENTATION, 1)
    return value if value in range(1, 9) else 1  # a damaged tag may hold anything


def _reduce(image: Image.Image, needed: tuple[int, int]) -> tuple[int, int] | None:
    """Have an open JPEG decoded at a fraction; (H, W) of the upright whole, None where no fraction is large enough."""
    width, height = image.size
    turned = _orientation(image) in (5, 6, 7, 8)
    image.draft(None, needed if turned else needed[::-1])
    if image.size == (width, height):
        return None
    return (width, height) if turned else (height, width)


def _is_plain_jpeg(image: Image.Image) -> bool:
    """Of the kinds of JPEG that libjpeg-turbo makes RGB of as Pillow does; MPO is what phones write."""
    return image.format in ("JPEG", "MPO") and image.mode in ("RGB", "L")


def _decoded_jpeg(content: bytes) -> Photo | None:
    """The pixels that Pillow decodes, by the same library without its copies: docs/pipeline.md.

    None where the library is missing, or the file is not as it should be: Pillow then says what is wrong.
    """
    try:
        import simplejpeg
    except ImportError:  # no wheel for this platform
        return None
    try:
        decoded: Photo = simplejpeg.decode_jpeg(content)
    except ValueError:
        return None
    return decoded


def _rgb(image: Image.Image) -> Photo:
    if image.mode.startswith("I;16") or image.mode == "I":
        levels = np.asarray(image).astype(np.int64)
        image = Image.fromarray((levels.clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels have no defined range; convert it to 8 bits first")
    # `convert` copies even where there is nothing to convert
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


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


def encode_mask(mask: NDArray[Any], colours: NDArray[np.uint8], *, pack: bool = False, mark: str = "") -> bytes:
    """A PNG whose pixel values are the class ids: a palette, or 16-bit grayscale for int32 masks.

    Args:
        mask: uint8 or int32 [H, W].
        colours: uint8 [classes, 3].
        pack: 1, 2 or 4 bits a pixel for up to 2, 4 or 16 classes, instead of 8.
        mark: text of ASCII that `trtpost.resume` finds again; empty for none.

    Raises:
        ImageError: class ids that 16 bits do not hold.
    """
    if mask.dtype == np.uint8:
        content = palette_png(mask, colours[:256], pack=pack)
    elif mask.min() < 0 or mask.max() > 65535:
        raise ImageError(f"the class ids from {mask.min()} to {mask.max()} do not fit a 16-bit PNG")
    else:
        stream = io.BytesIO()
        Image.fromarray(mask.astype(np.uint16)).save(stream, "PNG", compress_level=PNG_LEVEL)
        content = stream.getvalue()
    return with_text(content, MARK, mark) if mark else content


def write_mask(
    mask: NDArray[Any], path: Path, colours: NDArray[np.uint8], *, pack: bool = False, mark: str = ""
) -> None:
    """Write a mask as `encode_mask` gives it.

    Raises:
        ImageError: class ids that 16 bits do not hold, or the file cannot be written; nothing is left behind.
    """
    try:
        content = encode_mask(mask, colours, pack=pack, mark=mark)
    except ImageError as error:
        raise ImageError(f"cannot write {path}: {error}") from None
    write_whole(path, lambda file: file.write(content), ImageError)


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
