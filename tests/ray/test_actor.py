"""What a mask is called; what an actor does with rows is in `test_dataset` and `cases/test_hostile_files`."""

from __future__ import annotations

import pytest

from trtpost.errors import SpecError
from trtpost.ray.actor import _below_output, _whole_name


@pytest.mark.parametrize(
    ("path", "given", "name"),
    [
        ("/data/a.jpg", None, "data/a.jpg.mask.png"),
        ("/data/x/../a.jpg", None, "data/a.jpg.mask.png"),
        ("file:///data/a.jpg", None, "data/a.jpg.mask.png"),
        ("s3://bucket/a.jpg", None, "s3/bucket/a.jpg.mask.png"),
        ("gs://bucket/a.jpg", None, "gs/bucket/a.jpg.mask.png"),
        ("s3://bucket/a.jpg", "a file system", "bucket/a.jpg.mask.png"),
        ("s3://bucket/../a.jpg", None, None),
        ("s3://bucket//a.jpg", None, None),
    ],
)
def test_names_after_photos(path, given, name):
    if name is None:
        with pytest.raises(SpecError, match="gives no name for a mask"):
            _whole_name(path, given)
    else:
        assert _whole_name(path, given) == name


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("a.png", "a.png"),
        ("x/./a.png", "x/a.png"),
        ("x/../a.png", "a.png"),
        ("/a.png", None),
        ("../a.png", None),
        ("x/../../a.png", None),
        ("x/", None),
        ("x/..", None),
        (".", None),
    ],
)
def test_targets_lie_below_the_output(target, name):
    if name is None:
        with pytest.raises(SpecError, match="is no path of a file below the output"):
            _below_output(target)
    else:
        assert _below_output(target) == name
