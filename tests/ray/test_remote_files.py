"""Files by pyarrow, on this machine and on others."""

from __future__ import annotations

import os

import pytest
from conftest import package

from trtpost.errors import ImageError, SpecError
from trtpost.ray.remote_files import absolute, open_file, place_of, real_place, write_mask


@pytest.fixture
def fs():
    return package("pyarrow.fs")


@pytest.fixture
def store(fs):
    made = fs._MockFileSystem()
    made.create_dir("bucket")
    return made


def names_in(fs, store) -> list[str]:
    return sorted(info.path for info in store.get_file_info(fs.FileSelector("", recursive=True)) if info.is_file)


@pytest.mark.parametrize(
    ("path", "on", "expected"),
    [
        ("a.jpg", None, "/data/a.jpg"),
        ("/a.jpg", None, "/a.jpg"),
        ("s3://bucket/a.jpg", None, "s3://bucket/a.jpg"),
        ("a.jpg", "local", "/data/a.jpg"),
        ("a.jpg", "store", "a.jpg"),
        ("", None, ""),
    ],
)
def test_relative_paths_are_of_a_folder_of_this_machine(fs, store, path, on, expected):
    filesystem = {"local": fs.LocalFileSystem(), "store": store}.get(on)
    assert absolute(path, "/data", filesystem) == expected


def test_places(fs, store, tmp_path):
    """By a path, a URI, a file system that was given, and a part of one."""
    assert place_of("file:///a/b", None)[1] == "/a/b"
    assert place_of("s3://bucket/a", store) == (store, "bucket/a")
    part = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    files, place = real_place("x/a", part)
    assert (files.type_name, place) == ("local", f"{tmp_path}/x/a")
    with pytest.raises(SpecError, match="leads out of the file system"):
        real_place("../a", part)
    with pytest.raises(SpecError, match="is no file system that pyarrow knows"):
        real_place("nowhere://a/b", None)


def test_an_open_file_knows_its_name_and_length(fs, store, tmp_path):
    (tmp_path / "a b.png").write_bytes(b"123")
    with store.open_output_stream("bucket/a b.png") as stream:
        stream.write(b"123")
    for files, place in ((fs.LocalFileSystem(), str(tmp_path / "a b.png")), (store, "bucket/a b.png")):
        with open_file(files, place) as found:
            assert (found.name, found.length, found.file.read()) == ("a b.png", 3, b"123")
        with pytest.raises(FileNotFoundError), open_file(files, place + "x"):
            pass
        with pytest.raises(OSError, match=r"regular|directory"), open_file(files, os.path.dirname(place)):  # noqa: PTH120
            pass


def test_a_mask_is_there_whole_or_not_at_all(fs, store):
    write_mask(store, "bucket/x/m.png", b"mask", "bucket")
    assert names_in(fs, store) == ["bucket/x/m.png"]

    class Full:
        """A store that takes the file, and not its name."""

        type_name = "other"
        create_dir, open_output_stream, delete_file = store.create_dir, store.open_output_stream, store.delete_file

        def move(self, *_):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_mask(Full(), "bucket/x/n.png", b"mask", "bucket")
    assert names_in(fs, store) == ["bucket/x/m.png"]


def test_on_this_machine_links_are_not_followed(fs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "m.png").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImageError, match="a link is there"):
        write_mask(fs.LocalFileSystem(), str(tmp_path / "out/m.png"), b"mask", str(tmp_path / "out"))
    assert not (tmp_path / "elsewhere").exists()
