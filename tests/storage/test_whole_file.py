"""Files that are there whole or not at all; races for a name are in `cases/test_hostile_files`."""

from __future__ import annotations

import pytest

from trtpost.errors import ImageError
from trtpost.storage.whole_file import write_whole


@pytest.mark.parametrize(
    ("there", "below", "says"),
    [
        (None, True, None),
        ("ours", True, None),
        ("empty", True, None),
        ("theirs", True, "a file that trtpost did not write is there, and is not replaced"),
        ("link", True, "a link is there, which is followed only where it is named"),
        ("link", False, None),
        ("circle", False, "it is a link in a circle"),
        ("folder", True, "Is a directory"),
    ],
)
def test_what_is_replaced(tmp_path, there, below, says):
    path, target = tmp_path / "out" / "x", tmp_path / "target"
    path.parent.mkdir()
    if there in ("ours", "theirs"):
        path.write_text(there)
    elif there == "empty":
        path.touch()
    elif there == "folder":
        path.mkdir()
    elif there is not None:
        path.symlink_to(target if there == "link" else path)
    options = {"below": path.parent if below else None, "replaces": lambda file: file.read() == b"ours"}
    if says is None:
        write_whole(path, lambda file: file.write(b"new"), ImageError, **options)
        assert path.read_bytes() == b"new"
        assert path.is_symlink() == (there == "link")
    else:
        with pytest.raises(ImageError, match=f"cannot write {path}: {says}"):
            write_whole(path, lambda file: file.write(b"new"), ImageError, **options)
        assert there != "theirs" or path.read_text() == "theirs"
        assert not target.exists()
    assert [one.name for one in path.parent.iterdir()] == ["x"]


def test_half_a_file_is_none(tmp_path):
    """What fails in the middle leaves what was there."""

    def write(file):
        file.write(b"ne")
        raise OSError("no space")

    (tmp_path / "x").write_text("old")
    with pytest.raises(ImageError, match="no space"):
        write_whole(tmp_path / "x", write, ImageError)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("x", "old")]


def test_folders_are_made_but_none_outside(tmp_path):
    write_whole(tmp_path / "a/b/x", lambda file: file.write(b"x"), ImageError, below=tmp_path / "a")
    assert (tmp_path / "a/b/x").read_bytes() == b"x"
    with pytest.raises(ImageError, match="it is not a file below"):
        write_whole(tmp_path / "a/../x", lambda file: file.write(b"x"), ImageError, below=tmp_path / "a")
