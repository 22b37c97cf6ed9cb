"""Photos in, masks and overlays out."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trtpost.errors import ImageError, reason
from trtpost.photos.decode import Photo, decode
from trtpost.photos.limits import MAX_BYTES
from trtpost.storage.files import opened


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
