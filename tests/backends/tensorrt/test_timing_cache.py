"""The timing cache's file, with a builder that takes and gives what TensorRT's documentation says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtpost.backends.tensorrt.timing_cache import attach, content_of, save


class Logger:
    def __init__(self):
        self.warnings, self.messages = [], []

    def clear(self):
        self.warnings.clear()
        self.messages.clear()


class Config:
    """The timing cache of TensorRT's `IBuilderConfig`, whose contents are `<GPU>:<what was measured>`."""

    def __init__(self, logger):
        self.logger, self.cache = logger, None

    def create_timing_cache(self, content):
        if content and b":" not in content:
            self.logger.warnings.append("Failed to deserialize timing cache. Returning an empty timing cache.")
            content = b""
        return SimpleNamespace(serialize=lambda: content or b"this GPU:")

    def set_timing_cache(self, cache, ignore_mismatch):
        assert ignore_mismatch is False
        if not cache.serialize().startswith(b"this GPU"):
            self.logger.messages.append("mismatch")
            return False
        self.cache = cache
        return True

    def get_timing_cache(self):
        return self.cache


@pytest.mark.parametrize(
    ("content", "used", "warned"),
    [
        (None, b"this GPU:", 0),
        (b"", b"this GPU:", 0),
        (b"this GPU:42", b"this GPU:42", 0),
        (b"other GPU:42", b"this GPU:", 1),
        (b"damaged", b"this GPU:", 1),
    ],
)
def test_what_is_there_is_used_if_it_can_be(tmp_path, content, used, warned):
    path, said, logger = tmp_path / "timing.cache", [], Logger()
    if content is not None:
        path.write_bytes(content)
    config = Config(logger)
    attach(config, path, logger, said.append)
    assert content_of(config) == used
    assert len(said) == warned
    assert all("is ignored" in one for one in said)


def test_the_file_is_written_whole_and_a_failure_is_only_a_warning(tmp_path):
    said = []
    save(b"this GPU:43", tmp_path / "new" / "timing.cache", said.append)
    assert (tmp_path / "new" / "timing.cache").read_bytes() == b"this GPU:43"
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["timing.cache"]
    assert not said
    save(b"x", tmp_path / "new" / "timing.cache" / "below a file", said.append)
    assert "the timing cache is lost" in said[0]


def test_a_file_that_cannot_be_read_is_only_a_warning(tmp_path):
    said, logger = [], Logger()
    attach(config := Config(logger), tmp_path, logger, said.append)  # a folder by now
    assert content_of(config) == b"this GPU:"
    assert "cannot be read" in said[0]
