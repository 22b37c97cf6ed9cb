"""A colour for each class, and the photo with its mask over it."""

from __future__ import annotations

import numpy as np
import pytest

from trtpost.masks.overlay import overlay
from trtpost.masks.png import palette


def test_palette_colours_differ():
    colours = palette([f"{index}" for index in range(60)])
    assert len(np.unique(colours, axis=0)) == 60
    assert palette(["background", "a"])[0].tolist() == [0, 0, 0]
    assert palette(["sky", "a"])[0].any()


def test_overlay_tints_classes_and_leaves_the_background():
    photo = np.full((400, 600, 3), 100, np.uint8)
    mask = np.zeros((400, 600), np.uint8)
    mask[300:, 400:] = 1
    picture = np.asarray(overlay(photo, mask, ["background", "cat"], palette(["background", "cat"])))
    assert (picture[100:250, 300:390] == 100).all()
    assert (picture[350, 500] != 100).any()
    assert (picture[:20, :40] != 100).any(), "the legend"


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_overlay_of_tiny_pictures(shape):
    photo = np.full((*shape, 3), 100, np.uint8)
    picture = overlay(photo, np.ones(shape, np.uint8), ["background", "cat"], palette(["background", "cat"]))
    assert picture.size == shape[::-1]


def test_an_id_without_a_colour_has_the_last_one():
    photo = np.full((2, 2, 3), 100, np.uint8)
    picture = overlay(
        photo, np.array([[0, 1], [2, 300]], np.int32), ["background", "a", "b"], palette(["background", *"ab"])
    )
    assert picture.getpixel((1, 1)) == picture.getpixel((0, 1)) != picture.getpixel((1, 0))


@pytest.mark.parametrize(
    ("first", "black"), [("background", True), ("class 0", True), ("Background", False), ("", False)]
)
def test_the_background_alone_is_black(first, black):
    assert (not palette([first, "a"])[0].any()) == black
    assert palette([first, "a"])[1].any()
    assert palette([]).size == 0
