"""Photos as callers give them; `tests/cases/test_api.py` has those of other libraries."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trtpost.errors import ImageError
from trtpost.photos.given import check_photo, photo_of

PHOTO = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_arrays_that_are_no_photos(array):
    with pytest.raises(ImageError, match="uint8 array of shape"):
        check_photo(array)


def png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PHOTO).save(stream, "PNG")
    return stream.getvalue()


class Lending:
    """A tensor of another library, in the memory of some device."""

    def __init__(self, device: int) -> None:
        self.device = device

    def __dlpack__(self, **settings: object) -> object:
        return PHOTO.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class Giving:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return PHOTO


class Failing:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("it requires a gradient")


@pytest.mark.parametrize("form", ["array", "path", "text", "bytes", "image", "dlpack", "__array__"])
def test_every_form_gives_the_same_photo(tmp_path, form):
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    forms = {"array": PHOTO, "path": path, "text": str(path), "bytes": png(), "image": Image.fromarray(PHOTO)}
    photo, size = photo_of((forms | {"dlpack": Lending(1), "__array__": Giving()})[form])
    np.testing.assert_array_equal(photo, PHOTO)
    assert size == (30, 20)


@pytest.mark.parametrize(("device", "readable"), [(1, True), (2, False), (3, True), (10, False), (13, True)])
def test_memory_that_the_cpu_cannot_read_is_refused(device, readable):
    if readable:
        np.testing.assert_array_equal(photo_of(Lending(device))[0], PHOTO)
    else:
        with pytest.raises(ImageError, match="a Lending on a GPU or another device"):
            photo_of(Lending(device))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (bytearray(b"x"), "not a bytearray: give bytes"),
        (memoryview(b"x"), "not a memoryview: give bytes"),
        ([[1]], "not a list: give np.array"),
        (io.BytesIO(), "not a BytesIO: give photo.read"),
        (None, "not a NoneType$"),
        (np.ndarray, "not a type$"),
        (np.ma.MaskedArray(PHOTO), "it cannot be a masked array"),
        (Failing(), "a Failing that gives no array: it requires a gradient"),
        (PHOTO[..., 0], r"make np\.stack\(\[array\] \* 3"),
        (PHOTO[..., :1], r"make np\.stack\(\[array\[\.\.\., 0\]\] \* 3"),
        (np.zeros((2, 2, 4), np.uint8), "leave transparency out"),
        (np.zeros((3, 20, 30), np.uint8), "put the channels last"),
        (PHOTO[None], "several photos with batch"),
        (PHOTO / 255, r"bring it to 0\.\.255"),
        (PHOTO[:0], "it is empty"),
        (Path("no such photo"), "no such photo"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_what_is_no_photo_is_refused_with_what_to_write_instead(given, said):
    with pytest.raises(ImageError, match=said):
        photo_of(given)
