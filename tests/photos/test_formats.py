"""Formats by their first bytes, and what is said of others."""

from __future__ import annotations

import warnings

import pytest
from PIL import Image

from trtpost.photos.formats import FORMATS, decoders, no_warnings, unidentified


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xd8\xff\xe0", "kind of JPEG that"),
        (b"\x89PNG", "kind of PNG that"),
        (b"GIF89a", "kind of GIF that"),
        (b"II*\0", "kind of TIFF that"),
        (b"MM\0+", "kind of TIFF that"),
        (b"RIFF", "kind of WEBP that"),
        (b"BM", "kind of BMP that"),
        (b"\xffO\xffQ", "kind of JPEG2000 that"),
        (b"MM\0-", "is not an image in a format"),
        (b"text", "is text, not a photo: give the photo itself"),
        (b"", "is not an image in a format"),
    ],
)
def test_a_damaged_file_is_told_from_one_of_another_kind(content, said):
    assert said in unidentified(content)


@pytest.mark.parametrize(
    ("box", "heic"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", True),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif", False),
        (b"\0\0\0\x18ftypavif\0\0\0\0mif1avif", False),
        (b"\0\0\0\x14ftypmif1\0\0\0\0mif1avif", True),  # the box ends before that
        (b"\0\0\0\x18ftypisom\0\0\0\0mp42mp41", False),
    ],
)
def test_heic_is_told_from_avif_and_from_videos(monkeypatch, box, heic):
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    assert ("needs a decoder" in unidentified(box)) == heic


def test_no_other_decoder_is_tried():
    Image.init()
    for content in (b"", b"\xff\xd8\xff"):
        assert set(decoders(content)) <= set(FORMATS)


def test_warnings_are_back_when_the_last_has_left():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with no_warnings:
            with no_warnings:
                warnings.warn("inner", stacklevel=1)
            warnings.warn("outer", stacklevel=1)
        warnings.warn("after", stacklevel=1)
    assert [str(one.message) for one in caught] == ["after"]
