"""The timing cache of the full TensorRT: what its builder measured, kept in a file for the next build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtpost.errors import BackendError, reason
from trtpost.storage.files import open_regular
from trtpost.storage.whole_file import write_whole

if TYPE_CHECKING:
    import tensorrt as trt


def attach(config: trt.IBuilderConfig, path: Path, logger: Any, warn: Callable[[str], None]) -> None:
    """Give the builder what is in the file, or an empty cache; a file that it cannot use is ignored with a warning."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        warn(f"timing cache {path} cannot be read ({reason(error)}): the build measures everything anew")
        content = b""
    if content and not _set(config, content, logger):
        warn(
            f"timing cache {path} is damaged, or of another GPU or TensorRT: it is ignored, and written anew after the "
            "build"
        )
        content = b""
    if not content:
        _set(config, b"", logger)


def _set(config: trt.IBuilderConfig, content: bytes, logger: Any) -> bool:
    """Does the builder take the cache? One that it cannot read it replaces by an empty one, and only warns."""
    logger.clear()
    cache = config.create_timing_cache(content)
    if cache is None or logger.warnings or logger.messages:
        return False
    return bool(config.set_timing_cache(cache, False))  # False: refuse what another GPU measured


def content_of(config: trt.IBuilderConfig) -> bytes:
    """What a builder has measured, after a build."""
    cache = config.get_timing_cache()
    return bytes(cache.serialize()) if cache is not None else b""


def save(content: bytes, path: Path, warn: Callable[[str], None]) -> None:
    """Write a cache to its file, whole or not at all; a failure is a warning, because a plan is too dear to be lost."""
    try:
        write_whole(path, lambda file: file.write(content), BackendError)
    except BackendError as error:
        warn(f"the timing cache is lost: {error}")
