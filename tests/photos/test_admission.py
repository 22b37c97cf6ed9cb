"""Pixels by the header of a file, and the limit for those that are on their way."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from trtpost.errors import ImageError
from trtpost.photos.admission import Admission, check_weight, weight_of


def encoded(kind: str, size: tuple[int, int] = (20, 10)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize(("kind", "times"), [("PNG", 1), ("JPEG", 1), ("TIFF", 1), ("BMP", 1), ("WEBP", 3)])
def test_decoders_with_canvases_of_their_own_count_three_times(tmp_path, kind, times):
    content = encoded(kind)
    (tmp_path / "photo").write_bytes(content)
    assert weight_of(content, -1) == weight_of(tmp_path / "photo", -1) == 200 * times


def test_what_does_not_tell_is_unknown_and_what_cannot_be_read_weighs_nothing(tmp_path):
    (tmp_path / "photo").write_bytes(b"no photo")
    assert weight_of(b"no photo", 7) == weight_of(tmp_path / "photo", 7) == 7
    assert weight_of(tmp_path / "missing", 7) == weight_of(tmp_path, 7) == weight_of("a\0b", 7) == 0


def test_the_limit_itself_fits():
    content = encoded("PNG")
    check_weight(200, content, 200)
    with Admission(200)(content):
        pass
    with pytest.raises(ImageError, match=r"the image counts 0\.0 million"), Admission(199)(content):
        pass
    with pytest.raises(ImageError, match=r"a\.png counts"):
        check_weight(201, "a.png", 200)


def test_a_photo_that_left_makes_room_whatever_became_of_it():
    admission = Admission(200)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), admission(encoded("PNG")):
            raise ZeroDivisionError
