"""What is on its way: when it is abandoned, and what a lock says."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

from trtpost.storage import staging
from trtpost.storage.staging import (
    ABANDONED_SECONDS,
    EXCHANGE,
    NO_REPLACE,
    hidden_folder,
    hidden_name,
    locked,
    remove_abandoned,
    renamed,
)

YOUNG, OLD = ABANDONED_SECONDS - 60, ABANDONED_SECONDS + 60


@pytest.mark.parametrize(
    ("name", "kind", "age", "stays"),
    [
        (".x.0123abcd", "file", YOUNG, True),
        (".x.0123abcd", "file", OLD, False),
        (".x.0123abcd", "folder", OLD, True),  # no name of a folder of ours
        (".x.abcd_123.part", "folder", YOUNG, False),
        (".x.abcd_123.part", "locked", OLD, True),
        (".x.abcd_123.part", "file", OLD, True),
        (".x.abcd_123.part.old0", "folder", YOUNG, False),
        (".x.abcd_123.part.txt", "folder", OLD, True),
        (".y.0123abcd", "file", OLD, True),  # of another target
        (".x.y.0123abcd", "file", OLD, True),
        (".x.note", "file", OLD, True),
        ("x.0123abcd", "file", OLD, True),
    ],
)
def test_what_is_abandoned(tmp_path, name, kind, age, stays):
    """A folder that nobody has locked, and a file that is old; by the whole name."""
    path = tmp_path / name
    path.touch() if kind == "file" else path.mkdir()
    os.utime(path, (time.time() - age,) * 2)
    descriptor = os.open(path, os.O_RDONLY)
    if kind == "locked":
        assert filelock.lock_descriptor(descriptor, blocking=False)
    remove_abandoned([tmp_path / "x"])
    os.close(descriptor)
    assert path.exists() == stays


def test_where_there_are_no_locks_folders_stay(tmp_path, monkeypatch):
    """A network's file system, say: nothing tells whether somebody is writing them."""

    def none(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(filelock, "lock_descriptor", none)
    (tmp_path / ".x.abcd_123.part").mkdir()
    with locked(tmp_path) as is_free:
        assert is_free is None
    with hidden_folder(tmp_path / "x") as folder:
        assert folder.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [".x.abcd_123.part"]


def test_a_lock_is_of_one_at_a_time_and_leaves_nothing(tmp_path):
    with locked(tmp_path) as first, locked(tmp_path) as second:
        assert (first, second) == (True, False)
    with locked(tmp_path) as third:
        assert third is True
    assert not list(tmp_path.iterdir())
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"), locked(tmp_path / "link"):
        pass


HOLDER = """
import sys, time
from pathlib import Path
from trtpost.storage.staging import hidden_folder
with hidden_folder(Path(sys.argv[1])) as folder:
    print(folder.name, flush=True)
    time.sleep(60)
"""


def test_a_killed_process_holds_nothing(tmp_path):
    """Its folder stays as long as it lives, and goes with the next one of that name."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "x"], stdout=subprocess.PIPE, text=True)
    try:
        name = holder.stdout.readline().strip()
        remove_abandoned([tmp_path / "x"])
        assert [path.name for path in tmp_path.iterdir()] == [name]
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with hidden_folder(tmp_path / "x") as folder:
        assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_waited_for_is_told_from_others():
    assert hidden_name("x") != hidden_name("x")


@pytest.mark.parametrize("system", ["this one", "another"])
def test_renames(tmp_path, monkeypatch, system):
    """Two names are swapped, and none is replaced; where the system cannot do that, nothing happens."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    new.write_text("new")
    if system == "another":
        monkeypatch.setattr(staging, "_renameat2", lambda: None)
    if not renamed(old, new, EXCHANGE):
        assert (old.read_text(), new.read_text()) == ("old", "new")
        assert not renamed(old, tmp_path / "free", NO_REPLACE)
        return
    assert (old.read_text(), new.read_text()) == ("new", "old")
    with pytest.raises(FileExistsError):
        renamed(old, new, NO_REPLACE)
    assert renamed(old, tmp_path / "free", NO_REPLACE)
    with pytest.raises(FileNotFoundError):
        renamed(old, new, EXCHANGE)
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["free", "new"]
