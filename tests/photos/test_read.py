"""Reading a photo's file; `tests/cases/test_photos.py` has what is in photos."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from PIL import Image

from trtpost.errors import ImageError
from trtpost.photos import read
from trtpost.photos.read import read_photo, read_reduced

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 24, 3), np.uint8)


def encoded(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PHOTO).save(stream, kind)
    return stream.getvalue()


def test_a_file_and_its_content_are_the_same_photo(tmp_path):
    (tmp_path / "photo").write_bytes(encoded("PNG"))
    for source in (encoded("PNG"), tmp_path / "photo", str(tmp_path / "photo")):
        np.testing.assert_array_equal(read_photo(source), PHOTO)


@pytest.mark.parametrize(
    ("needed", "shape"), [(None, (40, 24)), ((21, 1), (40, 24)), ((20, 12), (20, 12)), ((1, 1), (5, 3))]
)
def test_a_jpeg_is_read_no_smaller_than_needed(needed, shape):
    photo, size = read_reduced(encoded("JPEG"), needed)
    assert (photo.shape[:2], size) == (shape, (40, 24))
    assert read_reduced(encoded("PNG"), needed)[0].shape == (40, 24, 3)


def test_what_is_no_file_to_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(bytes(11))
    monkeypatch.setattr(read, "MAX_BYTES", 10)
    for name, said in {"pipe": "is a pipe", "empty": "is empty", "large": "has more than", "none": "none"}.items():
        with pytest.raises(ImageError, match=said):
            read_photo(tmp_path / name)
    (tmp_path / "large").write_bytes(bytes(10))
    with pytest.raises(ImageError, match="is not an image"):
        read_photo(tmp_path / "large")
