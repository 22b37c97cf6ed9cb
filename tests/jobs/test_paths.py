"""Names of masks; `tests/cases/test_photo_files.py` has those of whole folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtpost.errors import TrtpostError
from trtpost.jobs.paths import NAME_BYTES, PhotoJob, mask_names, plan_jobs
from trtpost.photos.find import PhotoFile


def photos(*names: str) -> list[PhotoFile]:
    return [PhotoFile(Path(name), Path(Path(name).name)) for name in names]


def searched(*names: str) -> list[PhotoFile]:
    return [PhotoFile(Path(name), Path(name), searched=True) for name in names]


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (photos("x/a.jpg"), ["a"]),
        (photos("a.jpg", "a.png"), ["a.jpg", "a.png"]),
        (photos("x/a.jpg", "y/a.jpg"), ["x_a.jpg", "y_a.jpg"]),
        (photos("w/x/a.jpg", "v/x/a.jpg"), ["w_x_a.jpg", "v_x_a.jpg"]),
        (photos("x/a.jpg", "../x/a.jpg"), ["001_a", "002_a"]),
        (photos("a.png", "../a.png", "001_a.png"), ["002_a", "003_a", "001_a"]),
        (photos("a.jpg", "A.jpg"), ["001_a", "002_A"]),
        (searched("x/a.jpg", "y/a.jpg"), ["x/a", "y/a"]),
        (searched("x/a.jpg", "x/a.png"), ["x/a.jpg", "x/a.png"]),
    ],
)
def test_names_are_as_short_as_they_can_be_and_never_the_same(found, names):
    assert [str(one) for one in mask_names(found)] == [f"{name}.mask.png" for name in names]


@pytest.mark.parametrize(("letters", "kept"), [(NAME_BYTES, NAME_BYTES), (NAME_BYTES + 1, NAME_BYTES)])
def test_a_name_that_is_too_long_is_cut(letters, kept):
    (name,) = mask_names(photos("a" * letters))
    assert name.name == "a" * kept + ".mask.png"
    (name,) = mask_names(photos("ü" * letters))
    assert len(name.name.encode()) <= 255


def test_the_files_of_a_job(tmp_path):
    (photo,) = photos("a.jpg")
    (folder,) = plan_jobs([photo], tmp_path / "out", overlay=True)
    assert folder == PhotoJob(
        photo, tmp_path / "out/a.mask.png", tmp_path / "out/a.overlay.png", below=tmp_path / "out"
    )
    assert folder.targets == (folder.mask, folder.overlay)
    (file,) = plan_jobs([photo], tmp_path / "b.PNG", overlay=False)
    assert (file.targets, file.below) == ((tmp_path / "b.PNG",), None)
    (tmp_path / "c.png").mkdir()
    (inside,) = plan_jobs([photo], tmp_path / "c.png", overlay=False)
    assert inside.mask == tmp_path / "c.png" / "a.mask.png"


@pytest.mark.parametrize(
    ("output", "count", "said"),
    [
        ("-", 1, "masks are files"),
        ("a.png", 2, "one file, but there are 2 photos"),
        ("a.jpg", 1, "masks are PNG"),
        ("a.HEIC", 1, "masks are PNG"),
        ("file", 1, "masks are PNG"),
        ("file/x", 1, "is a file, not a folder"),
    ],
)
def test_outputs_that_cannot_be(tmp_path, monkeypatch, output, count, said):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    with pytest.raises(TrtpostError, match=said):
        plan_jobs(photos("a.jpg", "b.jpg")[:count], Path(output), overlay=False)
