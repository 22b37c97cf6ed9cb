"""Files to read: what is none is said in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtpost.errors import ImageError, ModelError, SpecError
from trtpost.storage.files import entries_under, existing_file, in_a_circle, open_regular, read_limited, refuse_address


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("file")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file", None),
        ("link", None),
        ("none", r"no such model: .*none$"),
        ("dead", "no such model: .*, a link to what is not there"),
        ("circle", "model .* is a link in a circle"),
        ("folder", "is a folder, not a model: name files in it"),
        ("pipe", "is not a regular file, so it cannot be a model"),
        ("empty", r"is empty \(zero bytes\), not a model"),
        ("x" * 300, "model .* cannot be read: File name too long"),
    ],
)
def test_what_may_be_read(folder, name, says):
    if says is None:
        assert existing_file(folder / name, "model", ModelError) == folder / name
        return
    with pytest.raises(ModelError, match=says):
        existing_file(folder / name, "model", ModelError)


def test_the_article_is_that_of_the_kind(folder):
    with pytest.raises(ImageError, match="not an image"):
        existing_file(folder / "empty", "image", ImageError)


@pytest.mark.parametrize(
    ("address", "options", "says"),
    [
        ("s3://bucket/a", {}, "x s3://bucket/a is an address, not a file: download it first$"),
        ("https://host/a", {"written": True}, "write to this machine and upload it$"),
        ("s3://bucket/a", {"photos": True}, "download it first, or see trtpost.ray for photos in object stores$"),
        ("s3:/", {}, None),
        ("a/s3:/b", {}, None),
        ("c:/x", {}, None),  # a drive
    ],
)
def test_addresses(tmp_path, monkeypatch, address, options, says):
    monkeypatch.chdir(tmp_path)
    if says is None:
        refuse_address(Path(address), "x", SpecError, **options)
        return
    with pytest.raises(SpecError, match=says):
        refuse_address(Path(address), "x", SpecError, **options)
    (tmp_path / address.partition("/")[0]).mkdir()  # then it is a path
    refuse_address(Path(address), "x", SpecError, **options)


@pytest.mark.parametrize("limit", [6, 7])
def test_larger_files_are_not_read(folder, limit):
    if limit < len(b"content"):
        with pytest.raises(SpecError, match="has more than 0 MiB, and no note is that long"):
            read_limited(folder / "file", "note", limit, SpecError)
    else:
        assert read_limited(folder / "file", "note", limit, SpecError) == b"content"


@pytest.mark.parametrize("name", ["pipe", "folder", "none", "a\0b"])
def test_only_regular_files_are_opened(folder, name):
    with pytest.raises(OSError, match=r"regular|directory|No such|null byte"):
        open_regular(folder / name)


def test_links_in_a_circle(folder):
    assert [name for name in ("file", "link", "dead", "circle", "none", "a\0b") if in_a_circle(folder / name)] == [
        "circle"
    ]


def test_entries_under_a_folder(folder):
    (folder / "folder" / "inner").mkdir()
    (folder / "folder" / "inner" / "deep").touch()
    (folder / "loop").symlink_to(folder)
    found = {str(path.relative_to(folder)) for path in entries_under(folder)}
    assert found == {"file", "empty", "pipe", "circle", "dead", "link", "loop", "folder/inner/deep"}
