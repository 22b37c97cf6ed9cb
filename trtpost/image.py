"""Photos in, masks and overlays out."""

from __future__ import annotations

import colorsys
import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from trtpost.choices import Encoding
from trtpost.decode import Photo, decode
from trtpost.errors import ImageError, SpecError, reason
from trtpost.files import Replaces, opened, write_whole
from trtpost.png import HEAD, gray_png, palette_png, size_and_text, with_text

MAX_BYTES = 2 << 30
"""Larger files are refused before they are read: 16-bit RGBA of `MAX_PIXELS` takes 1.4 GB as it is."""

PNG_LEVEL = 1
"""zlib level of overlays and 16-bit masks: the fastest."""

MARK = "trtpost"
"""Keyword of the text in our masks and overlays that says what they were made with: see `trtpost.resume`."""


def read_photo(source: str | Path | bytes) -> Photo:
    """Decode a photo, honouring its EXIF orientation.

    Args:
        source: path of a file, or its content. Of an animation the first frame; transparency is dropped; of 16 bits
            the upper 8 are kept. Colour profiles are not applied: TensorFlow, PyTorch and OpenCV read photos like
            that, so networks were trained on the values in the file.

    Returns:
        uint8 [H, W, 3], RGB.

    Raises:
        ImageError: missing, empty, damaged, cut short, not an image in one of `decode.FORMATS`, of pixels that have no
            defined range (floating point, 32 bits), or larger than `choices.MAX_PIXELS`.
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
            with opened(path, "image", ImageError) as file:
                if os.fstat(file.fileno()).st_size > MAX_BYTES:
                    raise ImageError(f"{name} has more than {MAX_BYTES >> 30} GiB: cut it into tiles")
                content = file.read()
        except OSError as error:
            raise ImageError(f"{name} cannot be read: {reason(error)}") from None
    return decode(content, name, needed)


CPU_DEVICES = (1, 3, 11, 13)
"""In DLPack: the CPU's own memory, and what a GPU's driver lets the CPU read: page-locked and managed memory."""


@runtime_checkable
class SupportsArray(Protocol):
    """What gives a NumPy array, as tensors of PyTorch, TensorFlow and JAX do."""

    def __array__(self) -> NDArray[Any]: ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """What lends its memory by DLPack, as tensors of PyTorch and JAX do."""

    def __dlpack__(self, *, stream: None = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


def as_array(given: SupportsArray | SupportsDLPack) -> NDArray[Any]:
    """The array of another library as one of NumPy's, in the same memory where that is possible.

    Raises:
        ImageError: it lies on a GPU, or does not give its content.
    """
    kind = type(given).__name__
    try:
        if isinstance(given, SupportsDLPack):
            if int(given.__dlpack_device__()[0]) not in CPU_DEVICES:
                raise ImageError(f"the photo is a {kind} on a GPU or another device: give it from the CPU's memory")
            with contextlib.suppress(BufferError, RuntimeError, TypeError, AttributeError):  # read-only, or of no
                return np.from_dlpack(given)  # type that DLPack or NumPy has: then it may still give an array
        return np.asarray(given)
    except ImageError:
        raise
    except Exception as error:  # every library has errors of its own
        raise ImageError(f"the photo is a {kind} that gives no array: {reason(error)}") from None


def check_photo(array: NDArray[Any]) -> Photo:
    """The array as a photo.

    Raises:
        ImageError: not uint8 [H, W, 3].
    """
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ImageError(
            "a photo must be a uint8 array of shape [height, width, 3] in RGB order, "
            f"not {array.dtype} {list(array.shape)}{_advice(array)}"
        )
    return array


def _advice(array: NDArray[Any]) -> str:
    """What makes a photo of an array that is none, where that is plain."""
    if 0 in array.shape:
        return ": it is empty"
    if array.ndim == 4:
        return ": segment several photos with batch(photos)"
    if array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1):
        plane = "array" if array.ndim == 2 else "array[..., 0]"
        return f": of gray levels make np.stack([{plane}] * 3, axis=-1)"
    if array.ndim == 3 and array.shape[2] == 4:
        return ": leave transparency out, array[..., :3]"
    if array.ndim == 3 and array.shape[0] == 3 != array.shape[2]:
        return ": put the channels last, np.moveaxis(array, 0, -1); in torch tensor.permute(1, 2, 0)"
    if array.ndim == 3 and array.shape[2] == 3:
        return ": bring it to 0..255, then np.rint(array).astype(np.uint8)"
    return ""


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


def encode_mask(
    mask: NDArray[Any], colours: NDArray[np.uint8], encoding: Encoding = "palette", *, mark: str = ""
) -> bytes:
    """A PNG whose pixel values are the class ids; int32 masks become 16-bit grayscale, whatever the encoding.

    Args:
        mask: uint8 or int32 [H, W].
        colours: uint8 [classes, 3].
        encoding: of uint8 masks; `packed` has 1, 2 or 4 bits a pixel for up to 2, 4 or 16 classes, instead of 8.
        mark: text of ASCII that `trtpost.resume` finds again; empty for none.

    Raises:
        ImageError: class ids that 16 bits do not hold.
        SpecError: there is no such encoding.
    """
    if encoding not in get_args(Encoding):
        raise SpecError(f"the encoding of a mask must be one of {', '.join(get_args(Encoding))}, not {encoding!r:.60}")
    if mask.dtype == np.uint8:
        content = gray_png(mask) if encoding == "gray" else palette_png(mask, colours[:256], pack=encoding == "packed")
    elif mask.min() < 0 or mask.max() > 65535:
        raise ImageError(f"the class ids from {mask.min()} to {mask.max()} do not fit a 16-bit PNG")
    else:
        stream = io.BytesIO()
        Image.fromarray(mask.astype(np.uint16)).save(stream, "PNG", compress_level=PNG_LEVEL)
        content = stream.getvalue()
    return with_text(content, MARK, mark) if mark else content


def is_ours(file: BinaryIO) -> bool:
    """Does a file begin as the masks and overlays do that trtpost writes?"""
    return size_and_text(file.read(HEAD), MARK) is not None


def write_mask(
    mask: NDArray[Any],
    path: Path,
    colours: NDArray[np.uint8],
    encoding: Encoding = "palette",
    *,
    mark: str = "",
    below: Path | None = None,
    replaces: Replaces | None = None,
) -> None:
    """Write a mask as `encode_mask` gives it; `below` and `replaces` as for `trtpost.files.write_whole`.

    Raises:
        ImageError: the path does not end in `.png`, class ids that 16 bits do not hold, or the file cannot be written;
            nothing is left behind.
    """
    if path.suffix.lower() != ".png":
        raise ImageError(f"cannot write {path}: masks are PNG, so give a name that ends in .png")
    try:
        content = encode_mask(mask, colours, encoding, mark=mark)
    except ImageError as error:
        raise ImageError(f"cannot write {path}: {error}") from None
    write_whole(path, lambda file: file.write(content), ImageError, below=below, replaces=replaces)


def write_picture(
    image: Image.Image, path: Path, *, mark: str = "", below: Path | None = None, replaces: Replaces | None = None
) -> None:
    """Write a picture in the format of its suffix; in a PNG, `mark` is the text that `trtpost.resume` finds again.

    `below` and `replaces` are as for `trtpost.files.write_whole`.

    Raises:
        ImageError: unknown suffix, or the file cannot be written; nothing is left behind.
    """
    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind is None:
        raise ImageError(f"cannot write {path}: unknown picture format '{path.suffix}', use .png or .jpg")
    options: dict[str, Any] = {}
    if kind == "PNG":
        text = PngInfo()
        if mark:
            text.add_text(MARK, mark)  # Pillow writes it right behind the size, as `png.with_text` does
        options = {"compress_level": PNG_LEVEL, "pnginfo": text}
    write_whole(path, lambda file: image.save(file, kind, **options), ImageError, below=below, replaces=replaces)


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
    from PIL import ImageDraw, ImageFont

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
