"""Folders that are there whole or not at all."""

from __future__ import annotations

import pytest

from trtpost.errors import BundleError
from trtpost.storage import whole_folder
from trtpost.storage.whole_folder import fill, put_folder, write_folder


def refuse(folder):
    """May be replaced if it holds a file `ours`."""
    if not (folder / "ours").exists():
        raise BundleError(f"{folder.name} is somebody's")


@pytest.mark.parametrize("swaps", [True, False])
@pytest.mark.parametrize(
    ("there", "error"),
    [
        (None, None),
        ("ours", None),
        ("theirs", BundleError),
        ("a file", OSError),
        ("a link", OSError),
    ],
)
def test_what_is_replaced(tmp_path, monkeypatch, swaps, there, error):
    """A folder that the check takes, and nothing else: what is refused is there again."""
    if not swaps:
        monkeypatch.setattr(whole_folder, "renamed", lambda *_: False)
    path, elsewhere = tmp_path / "x", tmp_path / "elsewhere"
    fill_in = {"ours": "ours", "theirs": "theirs"}.get(there)
    elsewhere.mkdir()
    if there == "a file":
        path.write_text("theirs")
    elif there == "a link":
        path.symlink_to(elsewhere)
    elif fill_in:
        path.mkdir()
        (path / fill_in).touch()
    if error is None:
        write_folder(path, {"ours": b"new"}, refuse)
        assert {file.name: file.read_bytes() for file in path.iterdir()} == {"ours": b"new"}
    else:
        with pytest.raises(error):
            write_folder(path, {"ours": b"new"}, refuse)
        assert (path.is_symlink(), path.is_file()) == (there == "a link", there == "a file")
        assert there != "theirs" or [file.name for file in path.iterdir()] == ["theirs"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["elsewhere", "x"]
    assert not list(elsewhere.iterdir())


def test_files_lie_where_their_paths_say_and_everybody_may_read_them(tmp_path):
    tmp_path.chmod(0o700)
    fill(tmp_path, {"a": b"1", "b/c/d": b"2"})
    assert (tmp_path / "a").read_bytes() + (tmp_path / "b/c/d").read_bytes() == b"12"
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    with pytest.raises(FileExistsError):
        fill(tmp_path, {"a": b"1"})


@pytest.mark.parametrize("swaps", [True, False])
def test_a_folder_takes_only_a_free_name(tmp_path, monkeypatch, swaps):
    if not swaps:
        monkeypatch.setattr(whole_folder, "renamed", lambda *_: False)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "dead").symlink_to("nowhere")
    for taken in ("b", "dead"):
        with pytest.raises(FileExistsError):
            put_folder(tmp_path / "a", tmp_path / taken)
    put_folder(tmp_path / "a", tmp_path / "c")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b", "c", "dead"]
