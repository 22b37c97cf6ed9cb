"""How large a photo may be."""

from __future__ import annotations

from PIL import Image

from trtpost.photos.limits import MAX_BYTES, MAX_PIXELS, SERVED_PIXELS


def test_the_largest_photo_is_the_largest_that_pillow_opens():
    assert MAX_PIXELS == 2 * Image.MAX_IMAGE_PIXELS


def test_a_file_of_the_largest_photo_is_read_and_a_server_takes_100_megapixels():
    assert MAX_PIXELS * 4 * 2 < MAX_BYTES
    assert 100_000_000 < SERVED_PIXELS < MAX_PIXELS
