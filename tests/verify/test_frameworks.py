"""Each framework's resize is the convention that is named after it."""

from __future__ import annotations

import os

import numpy as np
import pytest
from conftest import package

from trtpost.spec import MATCHES
from trtpost.verify import frameworks
from trtpost.verify.frameworks import quiet, resizer

PAIRS = [(resize, match) for resize in MATCHES for match in MATCHES[resize]]
TENSORFLOW = ("tf", "tf1", "align_corners")


@pytest.mark.parametrize(("resize", "match"), PAIRS)
def test_a_framework_and_our_stand_in_for_it_agree(resize, match, monkeypatch):
    package({"opencv": "cv2", "pil": "PIL", "torch": "torch"}.get(match, "tensorflow"))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, (7, 9, 1)).astype(np.int32)
    values = labels if resize == "nearest" else rng.standard_normal((7, 9, 3)).astype(np.float32)
    theirs = resizer(resize, match)
    monkeypatch.setattr(frameworks, "find_spec", lambda _: None)
    ours = resizer(resize, match)
    assert "trtpost" not in theirs.name
    assert theirs.name in ours.name
    for size in [(13, 20), (7, 9), (5, 31)]:
        found, expected = theirs.run(values, size), ours.run(values, size)
        assert found.shape == (*size, values.shape[2])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert resize == "bilinear" or (found == expected).all()


def test_quiet_hides_what_native_code_says_and_nothing_after_it(capfd):
    with quiet():
        os.write(2, b"hidden")
    os.write(2, b"seen")
    assert capfd.readouterr().err == "seen"
