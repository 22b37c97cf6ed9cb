"""Folders that are read while somebody replaces them."""

from __future__ import annotations

import shutil

import pytest

from trtpost.errors import BundleError
from trtpost.storage import folders
from trtpost.storage.folders import hidden_in, read_steadily


@pytest.mark.parametrize(
    ("happens", "reads", "is_read"),
    [
        ("nothing", 1, False),
        ("replaced", 2, True),  # by another folder of this name
        ("in two steps", 2, True),  # it is missing for a moment, and somebody's work lies beside it
        ("missing", 1, False),
    ],
)
def test_a_read_is_tried_again_only_over_a_folder_that_changes(tmp_path, monkeypatch, happens, reads, is_read):
    path, tries = tmp_path / "x", []
    monkeypatch.setattr(folders, "_GAP_SECONDS", 0.2)
    if happens in ("nothing", "replaced"):
        path.mkdir()
    if happens == "in two steps":
        (tmp_path / ".x.abcd_123.part").mkdir()

    def read() -> str:
        tries.append(1)
        if len(tries) == 1:
            if happens == "replaced":
                shutil.move(path, tmp_path / "old")
                path.mkdir()
            raise BundleError("half of it")
        return "whole"

    if is_read:
        assert read_steadily(path, read) == "whole"
    else:
        with pytest.raises(BundleError, match="half"):
            read_steadily(path, read)
    assert len(tries) == reads


def test_hidden_things_are_known_by_their_whole_names(tmp_path):
    for name in (".x.0123abcd", ".x.0123ABCD", ".x.note", ".y.0123abcd", ".x.0123abcd.0123abcd", ".x.abcd_123.part"):
        (tmp_path / name).touch()
    for name in (".x.abcdefgh.part", ".x.abcdefgh.part.old12", ".x.abcdefgh.old1", ".x.89abcdef"):
        (tmp_path / name).mkdir()
    found = {entry.name for entry in hidden_in(tmp_path, {"x"})}
    assert found == {".x.0123abcd", ".x.abcdefgh.part", ".x.abcdefgh.part.old12"}
    assert not list(hidden_in(tmp_path / "missing", {"x"}))


def test_what_a_killed_process_left_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_GAP_SECONDS", 0.05)
    (tmp_path / ".x.abcd_123.part").mkdir()
    tries = iter(range(1000))

    def read() -> None:
        next(tries)
        raise BundleError("none")

    with pytest.raises(BundleError, match="none"):
        read_steadily(tmp_path / "x", read)
