"""Which file each mask goes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtpost.errors import TrtpostError
from trtpost.inference import plan_jobs


def names(*photos: str) -> list[str]:
    return [job.mask.name for job in plan_jobs([Path(photo) for photo in photos], Path("out"), overlay=False)]


def test_the_stem_names_the_mask():
    assert names("a.jpg", "x/b.png", "with space.jpg", "ü.jpg") == [
        "a.mask.png",
        "b.mask.png",
        "with space.mask.png",
        "ü.mask.png",
    ]


def test_photos_of_the_same_stem_lose_nothing():
    assert names("a.jpg", "a.png", "b.jpg") == ["a.jpg.mask.png", "a.png.mask.png", "b.mask.png"]
    assert names("a.jpg", "x/a.jpg") == ["a.jpg.mask.png", "x_a.jpg.mask.png"]
    hard = names("a.jpg", "a.png", "x/a.jpg", "x_a.jpg", "A.JPG", "y/x_a.jpg", "../x/a.jpg", "x/../a.jpg")
    assert len({name.lower() for name in hard}) == 8


def test_numbered_names_step_aside():
    assert len(set(names("a.png", "../a.png", "a_001.png"))) == 3


def test_photos_are_not_overwritten(tmp_path):
    photo = tmp_path / "a.png"
    with pytest.raises(TrtpostError, match="would overwrite a photo"):
        plan_jobs([photo], photo, overlay=False)
    with pytest.raises(TrtpostError, match="would overwrite a photo"):
        plan_jobs([tmp_path / "x.png", tmp_path / "x.mask.png"], tmp_path, overlay=False)
    with pytest.raises(TrtpostError, match="masks are PNG"):
        plan_jobs([photo], tmp_path / "out.jpg", overlay=False)


def test_a_photo_given_twice_runs_once():
    assert names("a.jpg", "a.jpg") == ["a.mask.png"]


def test_one_photo_into_one_file():
    (job,) = plan_jobs([Path("a.jpg")], Path("out/b.png"), overlay=True)
    assert (job.mask, job.overlay) == (Path("out/b.png"), Path("out/b.overlay.png"))
    with pytest.raises(TrtpostError, match="give a folder"):
        plan_jobs([Path("a.jpg"), Path("b.jpg")], Path("out/b.png"), overlay=True)
