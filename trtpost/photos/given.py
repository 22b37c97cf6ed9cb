"""Photos as callers of the Python API give them: paths, contents of files, images of Pillow's, and arrays."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.errors import ImageError, reason
from trtpost.photos.decode import Photo, from_pillow
from trtpost.photos.read import read_reduced

CPU_DEVICES = (1, 3, 11, 13)
"""Kinds of memory, in DLPack, that the CPU reads: its own, and page-locked and managed memory of a GPU's driver."""


@runtime_checkable
class SupportsArray(Protocol):
    """What gives a NumPy array, as tensors of PyTorch, TensorFlow and JAX do."""

    def __array__(self) -> NDArray[Any]: ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """What lends its memory by DLPack, as tensors of PyTorch and JAX do."""

    def __dlpack__(self, *, stream: None = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


PhotoLike = str | os.PathLike[str] | bytes | NDArray[np.uint8] | Image.Image | SupportsArray | SupportsDLPack
"""A path, the content of an image file, an image of Pillow's, or uint8 [H, W, 3] in RGB order: a NumPy array, or what
gives one on the CPU by `__array__` or `__dlpack__`, as tensors of PyTorch, TensorFlow and JAX do."""


def photo_of(given: PhotoLike, needed: tuple[int, int] | None = None) -> tuple[Photo, tuple[int, int]]:
    """Make a photo of what was given.

    Args:
        given: the photo, in any of these forms.
        needed: (h, w) that is enough of a JPEG's file, as for `read_reduced`; None: the whole.

    Returns:
        uint8 [h', w', 3], and (H, W) of the whole photo.

    Raises:
        ImageError: it is no photo, or cannot be read.
    """
    if isinstance(given, Image.Image):
        photo = from_pillow(given)
    elif not isinstance(given, type) and isinstance(given, SupportsArray | SupportsDLPack):
        if isinstance(given, np.ma.MaskedArray):
            raise ImageError("a photo has no gaps, so it cannot be a masked array: give array.filled(0)")
        photo = np.asarray(check_photo(_as_array(given)))
    elif isinstance(given, str | bytes | os.PathLike):
        return read_reduced(given if isinstance(given, bytes) else os.fsdecode(given), needed)
    else:
        raise ImageError(_not_a_photo(given))
    return photo, (photo.shape[0], photo.shape[1])


def _as_array(given: SupportsArray | SupportsDLPack) -> NDArray[Any]:
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
    """The array, where it is a photo.

    Raises:
        ImageError: it is not uint8 [H, W, 3].
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


_INSTEAD = {
    "bytearray": "bytes(photo)",
    "memoryview": "bytes(photo)",
    "list": "np.array(photo, np.uint8), or batch(photos) for several photos",
    "tuple": "np.array(photo, np.uint8), or batch(photos) for several photos",
}
"""Code to write instead, by the type of what was given."""


def _not_a_photo(given: object) -> str:
    """A sentence on something that is no photo, which says what to write instead."""
    name = type(given).__name__
    advice = _INSTEAD.get(name, "photo.read()" if hasattr(given, "read") else None)
    return f"a photo must be a path, an image file's bytes, an image or a uint8 array [H, W, 3], not a {name}" + (
        f": give {advice}" if advice else ""
    )
