"""Which files may be written; `tests/cases/test_photo_files.py` has whole runs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from trtpost.errors import TrtpostError
from trtpost.masks.png import encode_mask, palette
from trtpost.masks.targets import check_targets


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def ours(path: Path) -> Path:
    path.write_bytes(encode_mask(np.zeros((2, 2), np.uint8), palette(["a"]), mark="5" * 64))
    return path


def test_what_may_be_written(out):
    (out / "empty.png").touch()
    check_targets([out / "new.png", ours(out / "old.png"), out / "empty.png", out / "new folder" / "a.png"], [], out)


UNMARKED = encode_mask(np.zeros((2, 2), np.uint8), palette(["a"]))


@pytest.mark.parametrize("content", [b"x", b"\x89PNG\r\n\x1a\n", UNMARKED])
def test_a_file_of_somebody_else_s_is_not(out, content):
    (out / "a.png").write_bytes(content)
    with pytest.raises(TrtpostError, match="no mask or overlay that trtpost wrote"):
        check_targets([out / "a.png"], [], out)


def test_a_photo_is_not_by_whatever_name(out):
    photo = ours(out / "a.png")
    (out / "b.png").hardlink_to(photo)
    for target in ("a.png", "b.png"):
        with pytest.raises(TrtpostError, match="would overwrite a photo"):
            check_targets([out / target], [photo, out / "missing.png"], out)


def test_two_masks_in_one_file_are_refused(out):
    (out / "x").mkdir()
    (out / "y").symlink_to(out / "x")
    with pytest.raises(TrtpostError, match=r"x/a\.png and .*y/a\.png are one file"):
        check_targets([out / "x" / "a.png", out / "y" / "a.png"], [], out)


@pytest.mark.parametrize("link", ["file", "folder"])
def test_links_below_the_output_are_not_followed_unless_they_were_named(out, tmp_path, link):
    (tmp_path / "elsewhere").mkdir()
    if link == "file":
        target = out / "a.png"
        target.symlink_to(ours(tmp_path / "elsewhere" / "a.png"))
    else:
        target = out / "x" / "a.png"
        (out / "x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TrtpostError, match="links are not followed"):
        check_targets([target], [], out)
    check_targets([target], [], target.parent, named=target)


def test_an_output_that_is_a_link_itself_is_followed(out, tmp_path):
    (tmp_path / "link").symlink_to(out)
    check_targets([tmp_path / "link" / "a.png"], [], tmp_path / "link")


def test_links_in_a_circle_and_bundles_are_refused(out, tmp_path):
    (out / "a.png").symlink_to(out / "a.png")
    with pytest.raises(TrtpostError, match="is a link in a circle"):
        check_targets([out / "a.png"], [], out)
    os.symlink("loop", tmp_path / "loop")  # noqa: PTH211, a path that is relative to itself
    with pytest.raises(TrtpostError, match="is a link in a circle"):
        check_targets([tmp_path / "loop" / "a.png"], [], tmp_path / "loop")


def test_a_bundle_stays_one(out, monkeypatch):
    monkeypatch.setattr("trtpost.masks.targets.is_bundle", lambda folder: folder.name == "out")
    for target in (out / "a.png", out / "x" / "y" / "a.png"):
        with pytest.raises(TrtpostError, match="lies in the engine bundle"):
            check_targets([target], [], out)
