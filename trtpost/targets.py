"""Which files may be written: nothing is replaced but what trtpost wrote, and no two masks become one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from trtpost.bundle import is_bundle
from trtpost.errors import TrtpostError, reason
from trtpost.files import in_a_circle
from trtpost.image import MARK, palette
from trtpost.photos import MASK_ENDING
from trtpost.png import HEADER, PALETTE, SIGNATURE, size_and_text
from trtpost.resume import HEAD

SECOND_COLOUR = bytes(palette(("", ""))[1])
"""In the palette of every mask, whatever its classes; the first is black, or not."""


def check_targets(targets: Sequence[Path], photos: Iterable[Path]) -> None:
    """Refuse files that must not be written, before there is anything to write.

    Args:
        targets: masks and overlays of one call.
        photos: the files that they are made from.

    Raises:
        TrtpostError: one is a photo, or any other file that is no mask or overlay of ours; two are one file by a link;
            one lies in a bundle, which would be none any more.
    """
    sources = {_identity(photo) for photo in photos} - {None}
    folders: dict[Path, Path] = {}
    taken: dict[Path, Path] = {}
    for target in targets:
        if target.parent not in folders:
            folders[target.parent] = _real_folder(target.parent)
        real = folders[target.parent] / target.name
        if real.is_symlink():
            if in_a_circle(target):
                raise TrtpostError(f"{target} is a link in a circle: choose another --output")
            real = Path(os.path.realpath(real))
        if real in taken:
            raise TrtpostError(f"{taken[real]} and {target} are one file by a link: choose another --output")
        taken[real] = target
        identity = _identity(target)
        if identity is None:
            continue
        if identity in sources:
            raise TrtpostError(f"{target} would overwrite a photo: choose another --output")
        if not _is_ours(real):
            raise TrtpostError(
                f"{target} exists and is no mask or overlay that trtpost wrote, so it is not replaced: "
                "choose another --output, or move it away"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from others whatever it is called; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _real_folder(folder: Path) -> Path:
    """Where a folder lies, with all links followed."""
    if in_a_circle(folder):
        raise TrtpostError(f"--output {folder} is a link in a circle: choose another")
    try:
        real = Path(os.path.realpath(folder))
    except ValueError as error:  # names without meaning
        raise TrtpostError(f"--output {folder}: {reason(error)}") from None
    for above in (real, *real.parents):
        if is_bundle(above):
            raise TrtpostError(f"{folder} lies in the engine bundle {above}: choose another --output")
    return real


def _is_ours(path: Path) -> bool:
    """Is this a mask or an overlay that trtpost wrote, or a file with nothing in it?"""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    return not head or size_and_text(head, MARK) is not None or (path.name.endswith(MASK_ENDING) and _is_unmarked(head))


def _is_unmarked(head: bytes) -> bool:
    """Is this the beginning of a mask without a mark, as older versions wrote them?"""
    if not head.startswith(SIGNATURE) or len(head) < HEADER:
        return False
    bits, colours = head[HEADER - 9 : HEADER - 7]
    first = HEADER + 8 + 3
    return (bits, colours) == (16, 0) or (colours == PALETTE and head[first : first + 3] == SECOND_COLOUR)
