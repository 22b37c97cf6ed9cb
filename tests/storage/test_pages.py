"""Pages replace pages."""

from __future__ import annotations

import pytest

from trtpost.errors import SpecError
from trtpost.storage.pages import check_page, write_page


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("new.html", None),
        ("new", None),
        ("there.HTM", None),
        ("there.txt", "would replace a file that is no page: choose a name that ends in .html"),
        ("folder", "is a folder: name a file in it"),
        ("there.txt/x.html", "is a file, not a folder"),
        ("deep/x.html", None),
    ],
)
def test_what_a_page_may_be_called(tmp_path, name, says):
    (tmp_path / "folder").mkdir()
    for taken in ("there.HTM", "there.txt"):
        (tmp_path / taken).write_text("old")
    if says is None:
        check_page(tmp_path / name)
        write_page(tmp_path / name, "<html>")
        assert (tmp_path / name).read_text() == "<html>"
        return
    with pytest.raises(SpecError, match=says):
        check_page(tmp_path / name)
    with pytest.raises(SpecError, match="cannot write"):
        write_page(tmp_path / name, "<html>")
    assert (tmp_path / "there.txt").read_text() == "old"
