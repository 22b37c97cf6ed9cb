"""Which files are the photos: named ones, those in folders, and stdin."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtpost.errors import ImageError, SpecError, TrtpostError, reason
from trtpost.photos.limits import MAX_BYTES
from trtpost.photos.read import read_photo
from trtpost.storage.files import refuse_address

STDIN = Path("-")
"""Stands for the photo whose content comes on stdin."""

SUFFIXES = (
    *(".apng", ".avif", ".bmp", ".gif", ".heic", ".heif", ".hif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".jpx", ".mpo", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
"""What tells photos from the other files in a folder; a file that is named is read whatever it is called."""

MASK_ENDING, OVERLAY_ENDING = ".mask.png", ".overlay.png"
"""What is made from photos ends so, and is no photo where it lies in a folder of them."""


@dataclass(frozen=True)
class PhotoFile:
    """A photo that was asked for.

    Attributes:
        path: where the file lies; `STDIN`.
        place: where its mask goes below the output: as the photo lies in the folder that was given, with that folder's
            name where there is more than this one folder; a file that was named is its name.
        content: what stdin held; None where the file is read when its turn comes.
        searched: whether it was found in a folder, not named.
    """

    path: Path
    place: Path
    content: bytes | None = None
    searched: bool = False

    @property
    def source(self) -> Path | bytes:
        """What a `Segmenter` takes."""
        return self.path if self.content is None else self.content


def find_photos(paths: Sequence[Path]) -> list[PhotoFile]:
    """Find the photos that files, folders and `-` (stdin) come to, each once, in the order given.

    Folders are searched with all that lies in them. A file that is named is a photo whatever it is called; that it can
    be read is seen when its turn comes.

    A pattern such as `photos/*.jpg`, which a shell has not expanded, stands for the files and folders that match it.

    Raises:
        TrtpostError: a folder that cannot be read or holds no photo; a pattern that nothing matches; nothing that is a
            photo on stdin.
    """
    paths = [one for path in paths for one in _expanded(path)]
    alone = len(set(paths)) == 1
    found: dict[Path, PhotoFile] = {}
    for path in dict.fromkeys(paths):
        if path == STDIN:
            found[path] = PhotoFile(path, Path("stdin"), _stdin())
        elif is_folder(path):
            photos = photos_under(path, nested=True)
            if not photos:
                raise SpecError(f"{path} holds no photo; in folders they are known by their endings: .jpg, .png, .webp")
            root = Path() if alone else Path(path.resolve().name)
            for photo in photos:
                found.setdefault(photo, PhotoFile(photo, root / photo.relative_to(path), searched=True))
        else:
            found.setdefault(path, PhotoFile(path, Path(path.name)))
    return list(found.values())


def _expanded(path: Path) -> list[Path]:
    """The paths that one stands for: itself, where it is there or is no pattern; else what matches it, in order."""
    if not glob.has_magic(str(path)) or os.path.lexists(path):
        return [path]
    try:
        found = glob.glob(str(path), recursive=True)  # noqa: PTH207, `Path.glob` takes no absolute pattern
    except RecursionError:
        raise SpecError(f"the folders that {path} matches are in each other too often: name one of them") from None
    matching = [Path(one) for one in sorted(found) if not one.lower().endswith((MASK_ENDING, OVERLAY_ENDING))]
    if not matching:
        refuse_address(path, "image", ImageError, photos=True)
        raise SpecError(f"nothing matches {path}")
    return matching


def is_folder(path: Path) -> bool:
    """Is it a folder? `path.is_dir()` raises where a name is too long."""
    try:
        return path.is_dir()
    except OSError:
        return False


def photos_under(folder: Path, *, nested: bool) -> list[Path]:
    """The photos of a folder in the order of their names, by suffix; hidden files, masks and overlays are none.

    Args:
        folder: where they lie.
        nested: whether folders in it are searched too; links to folders are followed, but never in a circle.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        return list(_walk(folder, nested=nested))
    except OSError as error:
        raise SpecError(f"folder {error.filename or folder} cannot be read: {reason(error)}") from None


def photos_in(folder: Path, flag: str = "--calibration") -> tuple[Path, ...]:
    """The photos of a folder, as `photos_under` finds them; folders in it are not searched: they may hold ground truth.

    Args:
        folder: where they lie.
        flag: what named it, for messages.

    Raises:
        SpecError: it is missing or no folder, or holds no photo that can be read.
    """
    if not is_folder(folder):
        refuse_address(folder, flag, SpecError)
        raise SpecError(f"{flag} {folder} is not a folder: give one with photos as the network will see them")
    photos = tuple(photos_under(folder, nested=False))
    if not photos:
        raise SpecError(f"{flag} {folder} holds no photo: give a folder with some as the network will see them")
    first = ""
    for path in photos:
        try:
            read_photo(path)
            return photos
        except ImageError as error:
            first = first or str(error)
    raise SpecError(f"{flag} {folder} holds no photo that can be read: {first}")


def _walk(folder: Path, *, nested: bool) -> Iterator[Path]:
    status = folder.stat()
    entered = {(status.st_dev, status.st_ino)}
    waiting = [iter(_sorted_entries(folder))]  # not by recursion, which ends at a thousand folders in each other
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
        elif entry.is_dir():
            status = entry.stat()
            if nested and (status.st_dev, status.st_ino) not in entered:
                entered.add((status.st_dev, status.st_ino))
                waiting.append(iter(_sorted_entries(Path(entry.path))))
        elif _is_photo(entry.name):
            yield Path(entry.path)


def _sorted_entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_photo(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not name.lower().endswith((MASK_ENDING, OVERLAY_ENDING))


def _stdin() -> bytes:
    if sys.stdin is None or sys.stdin.closed:
        raise TrtpostError("- reads a photo from stdin, which is closed")
    if sys.stdin.isatty():
        raise TrtpostError("- reads a photo from stdin, which is a terminal: trtpost infer - < PHOTO")
    try:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise ImageError(f"stdin cannot be read: {reason(error)}") from None
    if not content:
        raise ImageError("stdin is empty (zero bytes), not an image")
    if len(content) > MAX_BYTES:
        raise ImageError(f"stdin has more than {MAX_BYTES >> 30} GiB: cut it into tiles")
    return content
