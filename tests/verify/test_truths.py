"""Ground truth that can be used, and what is said of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from trtpost.errors import ImageError
from trtpost.verify.truths import read_truth, truths_in


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((5, 6), np.uint8), "has 5x6 pixels and its photo 40x61"),
        (np.zeros((40, 61, 3), np.uint8), "is a picture in colours"),
        (np.full((40, 61), 7, np.uint8), "holds class id 7, and there are 4 classes"),
        (np.full((40, 61), 255, np.uint8), "255 alone"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, array, words):
    Image.fromarray(array).save(tmp_path / "a.png")
    with pytest.raises(ImageError, match=words):
        read_truth(tmp_path / "a.png", (40, 61), ("a", "b", "c", "d"))


def test_class_ids_and_255_are_read_as_they_are(tmp_path):
    Image.fromarray(np.array([[0, 3, 255]], np.uint8)).save(tmp_path / "a.png")
    assert read_truth(tmp_path / "a.png", (1, 3), ("a", "b", "c", "d")).tolist() == [[0, 3, 255]]


def test_each_photo_has_the_png_of_its_stem(tmp_path):
    photos = tuple(tmp_path / name for name in ("a.jpg", "b.bmp"))
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    assert truths_in(tmp_path, photos) == {photos[0]: tmp_path / "a.png", photos[1]: tmp_path / "b.png"}
