"""Which files may be written: nothing is replaced but what trtpost wrote, and no two masks become one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from trtpost.bundle.folder import is_bundle
from trtpost.errors import TrtpostError, reason
from trtpost.masks.finished import is_ours
from trtpost.storage.files import in_a_circle, open_regular


def check_targets(targets: Sequence[Path], photos: Iterable[Path], below: Path, named: Path | None = None) -> None:
    """Refuse files that must not be written, before there is anything to write.

    Args:
        targets: masks and overlays of one call.
        photos: files that they are made from.
        below: the folder that was named for them: links in it are not followed.
        named: a target that was named itself, and may be a link.

    Raises:
        TrtpostError: one is a photo, or any other file that is no mask or overlay of ours; two are one file by a link;
            one is reached by a link that was not named; one lies in a bundle, which would be none any more.
    """
    sources = {_identity(photo) for photo in photos} - {None}
    folders: dict[Path, Path] = {}
    reals: dict[Path, Path] = {}
    is_bundle_once = cache(is_bundle)
    for target in targets:
        if target.parent not in folders:
            folders[target.parent] = _real_folder(target.parent)
            for above in (folders[target.parent], *folders[target.parent].parents):
                if is_bundle_once(above):
                    raise TrtpostError(f"{target.parent} lies in the engine bundle {above}: choose another --output")
        real = folders[target.parent] / target.name
        if real.is_symlink():
            if in_a_circle(target):
                raise TrtpostError(f"{target} is a link in a circle: choose another --output")
            real = Path(os.path.realpath(real))
        if real in reals:
            raise TrtpostError(f"{reals[real]} and {target} are one file by a link: choose another --output")
        reals[real] = target
    root = Path(os.path.realpath(below))
    for real, target in reals.items():
        if target != named and real != root / target.relative_to(below):
            raise TrtpostError(
                f"{target} leads to {real} by a link, and below --output {below} links are not followed: "
                "choose another, or remove the link"
            )
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
        return Path(os.path.realpath(folder))
    except ValueError as error:  # names without meaning
        raise TrtpostError(f"--output {folder}: {reason(error)}") from None


def _is_ours(path: Path) -> bool:
    """Is this a mask or an overlay that trtpost wrote, or a file with nothing in it?"""
    try:
        with open_regular(path) as file:
            return not os.fstat(file.fileno()).st_size or is_ours(file)
    except OSError:
        return False
