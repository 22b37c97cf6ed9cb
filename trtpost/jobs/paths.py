"""Plans which file each mask goes to."""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from trtpost.errors import TrtpostError
from trtpost.masks.targets import check_targets
from trtpost.photos.find import MASK_ENDING, OVERLAY_ENDING, STDIN, SUFFIXES, PhotoFile


@dataclass(frozen=True)
class PhotoJob:
    """One photo and the files that it becomes.

    Attributes:
        photo: what was asked for.
        mask, overlay: files to write; `overlay` is None where none is wanted.
        below: the folder that was named for them, in which links are not followed; None where the mask was named.
    """

    photo: PhotoFile
    mask: Path
    overlay: Path | None
    below: Path | None = None

    @property
    def targets(self) -> tuple[Path, ...]:
        """The files to write."""
        return (self.mask,) if self.overlay is None else (self.mask, self.overlay)


def plan_jobs(photos: Sequence[PhotoFile], output: Path, *, overlay: bool) -> list[PhotoJob]:
    """Decide the files; photos that would share one get their folder and suffix into the name.

    Args:
        photos: in the order in which they will run, each once.
        output: a folder, made if it is missing, where masks lie as the photos do in theirs; or, for one photo, a file
            that ends in `.png`.
        overlay: whether overlays are wanted.

    Raises:
        TrtpostError: several photos and a single output file, a file that is no PNG, a folder that cannot be, or
            files that `check_targets` refuses.
    """
    _check_output(output, len(photos))
    below = None if output.suffix.lower() == ".png" and not output.is_dir() else output
    if below is None:
        jobs = [PhotoJob(photos[0], output, output.with_suffix(OVERLAY_ENDING) if overlay else None)]
    else:
        places = [output / name for name in _distinct_names(photos)]
        masks = [_with_ending(place, MASK_ENDING) for place in places]
        overlays = [_with_ending(place, OVERLAY_ENDING) if overlay else None for place in places]
        jobs = [PhotoJob(*files, below) for files in zip(photos, masks, overlays, strict=True)]
    sources = [photo.path for photo in photos if photo.content is None]
    targets = [target for job in jobs for target in job.targets]
    check_targets(targets, sources, below or output.parent, output if below is None else None)
    return jobs


def mask_names(photos: Sequence[PhotoFile]) -> list[Path]:
    """Where `plan_jobs` puts the masks of photos, below the output."""
    return [_with_ending(name, MASK_ENDING) for name in _distinct_names(photos)]


def _check_output(output: Path, count: int) -> None:
    """Refuse an output before the work, not after it."""
    if output == STDIN:
        raise TrtpostError("--output -: masks are files, so give a name that ends in .png, or a folder")
    if output.is_dir():
        return
    above = next(parent for parent in output.absolute().parents if parent.exists())
    if not above.is_dir():
        raise TrtpostError(f"--output {output}: {above} is a file, not a folder")
    if output.suffix.lower() == ".png":
        if count > 1:
            raise TrtpostError(f"--output {output} is one file, but there are {count} photos: give a folder")
    elif output.suffix.lower() in {*SUFFIXES, *Image.registered_extensions()} or output.exists():
        raise TrtpostError(f"--output {output}: masks are PNG, so give a name that ends in .png, or a folder")


def _distinct_names(photos: Sequence[PhotoFile]) -> list[Path]:
    """Names for masks: `a` of x/a.jpg; where that occurs twice `a.jpg`; then `x_a.jpg`, the whole path, a number.

    Photos of a folder that was searched keep the folders in it.
    """
    forms: tuple[Callable[[PhotoFile], Path], ...] = (
        lambda photo: photo.place.with_name(photo.place.stem),
        lambda photo: photo.place,
        lambda photo: Path("_".join(_plain_parts(photo.path)[-2:])),
        lambda photo: Path("_".join(_plain_parts(photo.path))),
    )
    names: dict[PhotoFile, Path] = {}
    taken: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}  # a counter for each stem: names that share one are counted once
    left = list(photos)
    for form in forms:
        keys = {photo: _key(form(photo)) for photo in left}
        counts = Counter(keys.values())
        fitting = [photo for photo in left if counts[keys[photo]] == 1 and keys[photo] not in taken]
        names |= {photo: form(photo) for photo in fitting}
        taken |= {keys[photo] for photo in fitting}
        left = [photo for photo in left if photo not in names]
    for photo in left:
        counter = numbers.setdefault(_key(photo.place.with_name(f"000_{photo.place.stem}")), itertools.count(1))
        numbered = (photo.place.with_name(f"{number:03d}_{photo.place.stem}") for number in counter)
        names[photo] = next(name for name in numbered if _key(name) not in taken)
        taken.add(_key(names[photo]))
    return [names[photo] for photo in photos]


def _plain_parts(path: Path) -> list[str]:
    return [part for part in path.parts if part not in (path.anchor, "..", ".")]


def _key(name: Path) -> str:
    """A key that is equal for names which some file system holds for one: no case, accents composed, shortened."""
    return unicodedata.normalize("NFC", str(_with_ending(name, ""))).casefold()


NAME_BYTES = 255 - len(".") - len(".12345678") - len(OVERLAY_ENDING)
"""Most bytes of a photo's name: file systems allow 255, of which `write_whole` takes some while it writes."""


def _with_ending(path: Path, ending: str) -> Path:
    """A file's name and what it ends in, the name cut where it would be too long."""
    name = path.name
    if len(os.fsencode(name)) > NAME_BYTES:
        name = os.fsencode(name)[:NAME_BYTES].decode("utf-8", "ignore")
    return path.with_name(name + ending)
