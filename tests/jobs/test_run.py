"""Running many photos: in order, each fault its own, and what is done is left."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from trtpost.errors import SpecError
from trtpost.jobs.paths import plan_jobs
from trtpost.jobs.run import run, run_all, to_stdout
from trtpost.photos.find import PhotoFile, find_photos
from trtpost.photos.read import read_photo
from trtpost.segment import Result
from trtpost.timing import Timing


class Segmenter:
    """One whose masks are the reds of the photo."""

    bundle = SimpleNamespace(passport=SimpleNamespace(classes=("background", "a")))
    fingerprint = "5" * 64

    def __init__(self, dtype: type = np.uint8) -> None:
        self.runs, self.dtype = 0, dtype

    def __call__(self, source: object) -> Result:
        self.runs += 1
        photo = read_photo(source)
        return Result(photo[..., 0].astype(self.dtype), photo, self.bundle.passport.classes, Timing(), self.fingerprint)


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "in").mkdir()
    for name, red in (("a", 0), ("b", 1), ("c", 2)):
        Image.new("RGB", (4, 2), (red, 0, 0)).save(tmp_path / f"in/{name}.png")
    return tmp_path / "in"


def test_outcomes_come_in_order_and_a_fault_is_of_one_photo(photos, tmp_path):
    (photos / "b.png").write_bytes(b"")
    jobs, told = plan_jobs(find_photos([photos]), tmp_path / "out", overlay=True), []
    outcomes, seconds = run_all(Segmenter(), jobs, done=lambda: told.append(1))
    assert [one.job for one in outcomes] == jobs
    assert [one.error is None for one in outcomes] == [True, False, True]
    assert len(told) == 3
    assert seconds > 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("a.mask.png", "a.overlay.png", "c.mask.png", "c.overlay.png")
    ]


def test_what_was_done_before_is_left_unless_it_is_wanted_again(photos, tmp_path):
    jobs, segmenter = plan_jobs(find_photos([photos]), tmp_path / "out", overlay=False), Segmenter()
    run_all(segmenter, jobs[:1])
    outcomes, _ = run_all(segmenter, jobs, again=False)
    assert [one.skipped for one in outcomes] == [True, False, False]
    assert segmenter.runs == 3
    for settings in ({"again": True}, {"again": False, "encoding": "packed"}):
        outcomes, _ = run_all(segmenter, jobs, **settings)
        assert not any(one.skipped for one in outcomes)
    named = plan_jobs(find_photos([photos / "a.png"]), tmp_path / "out", overlay=False)
    assert not run_all(segmenter, named, again=False)[0][0].skipped


@pytest.mark.parametrize(("pixels", "fits"), [(8, True), (7, False)])
def test_a_photo_above_the_limit_is_an_error_of_its_own(photos, tmp_path, pixels, fits):
    jobs = plan_jobs(find_photos([photos]), tmp_path / "out", overlay=False)
    outcomes, _ = run_all(Segmenter(), jobs, max_pixels=pixels)
    assert ["--max-pixels" in (one.error or "") for one in outcomes] == [not fits] * 3


@pytest.mark.parametrize(("repeat", "counted"), [(1, None), (3, 3)])
def test_repeated_runs_are_summed_up(photos, tmp_path, repeat, counted):
    (job,) = plan_jobs(find_photos([photos / "a.png"]), tmp_path / "a.mask.png", overlay=False)
    segmenter = Segmenter()
    outcome = run(segmenter, job, repeat=repeat)
    assert segmenter.runs == repeat
    assert (outcome.summary.count if outcome.summary else None) == counted


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_classes_come_with_their_shares_the_most_frequent_first(tmp_path, dtype):
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0, :3, 0], pixels[0, 3, 0] = 1, 7
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (job,) = plan_jobs(find_photos([tmp_path / "a.png"]), tmp_path / "out", overlay=False)
    shares = run(Segmenter(dtype), job, repeat=1).classes
    assert [(one.id, one.share) for one in shares] == [(0, 0.5), (1, 0.375), (7, 0.125)]
    assert [one.name for one in shares[:2]] == ["background", "a"]


def test_a_fault_of_stdin_is_called_so(tmp_path):
    photo = PhotoFile(Path("-"), Path("stdin"), content=b"x")
    (job,) = plan_jobs([photo], tmp_path / "a.png", overlay=False)
    assert run(Segmenter(), job, repeat=1).error.startswith("stdin: the image is text, not a photo")


def test_one_mask_to_stdout(photos, monkeypatch):
    found = find_photos([photos])
    stdout = SimpleNamespace(buffer=io.BytesIO(), isatty=lambda: False)
    monkeypatch.setattr("sys.stdout", stdout)
    with pytest.raises(SpecError, match="there are 3 photos"):
        to_stdout(Segmenter(), found)
    to_stdout(Segmenter(), found[1:2])
    with Image.open(io.BytesIO(stdout.buffer.getvalue())) as mask:
        assert (np.asarray(mask) == 1).all()
    stdout.isatty = lambda: True
    with pytest.raises(SpecError, match="is a terminal"):
        to_stdout(Segmenter(), found[:1])
