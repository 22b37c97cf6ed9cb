"""Pages in HTML: they replace pages, and nothing else."""

from __future__ import annotations

from pathlib import Path

from trtpost.errors import SpecError
from trtpost.storage.files import refuse_address
from trtpost.storage.whole_file import write_whole


def check_page(path: Path) -> None:
    """Refuse a target for a page in HTML, before there is anything to write: pages replace pages, and nothing else.

    Raises:
        SpecError: it is taken, or no place for a file.
    """
    refuse_address(path, "--html", SpecError, written=True)
    if path.is_dir():
        raise SpecError(f"--html {path} is a folder: name a file in it")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise SpecError(f"--html {path}: {above} is a file, not a folder")
    if path.exists() and not _is_page(path):
        raise SpecError(f"--html {path} would replace a file that is no page: choose a name that ends in .html")


def _is_page(path: Path) -> bool:
    return path.suffix.lower() in (".html", ".htm")


def write_page(path: Path, content: str) -> None:
    """Write a page in HTML, whole or not at all; pages replace pages, and nothing else.

    Raises:
        SpecError: it cannot be written.
    """
    data = content.encode("utf-8", "backslashreplace")
    write_whole(path, lambda file: file.write(data), SpecError, replaces=lambda _: _is_page(path))
