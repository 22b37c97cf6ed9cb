"""How much two masks have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Masked:
    """The reference's mask of a photo, at the photo's size.

    Attributes:
        labels: int32 [H, W].
        ties: bool [H, W], where the two best classes are as good as equal; None where that cannot be told.
    """

    labels: NDArray[np.int32]
    ties: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class Overlap:
    """Intersection and union of each class, in pixels, int64 [classes]; overlaps of several photos add up."""

    both: NDArray[np.int64]
    either: NDArray[np.int64]

    def __add__(self, other: Overlap) -> Overlap:
        classes = max(len(self.both), len(other.both))  # a mask may hold ids that nobody has named
        mine, theirs = (
            [np.pad(counts, (0, classes - len(counts))) for counts in (one.both, one.either)] for one in (self, other)
        )
        return Overlap(mine[0] + theirs[0], mine[1] + theirs[1])

    @property
    def ious(self) -> NDArray[np.float64]:
        """Intersection over union of each class; NaN where neither mask has it."""
        found = np.full(len(self.both), np.nan)
        np.divide(self.both, self.either, out=found, where=self.either > 0)
        return found

    @property
    def mean_iou(self) -> float:
        """Mean IoU of the classes that occur."""
        occurs = self.either > 0
        return float((self.both[occurs] / self.either[occurs]).mean()) if occurs.any() else 1.0


@dataclass(frozen=True)
class Figures:
    """A bundle's masks against the reference's, of one photo or of many: they add up.

    Attributes:
        pixels: compared.
        different: pixels with another class.
        tied: those of them where the reference's two best classes are a tie.
        ties: all pixels where they are; None where that cannot be told.
        overlap: what the bundle's masks share with the reference's.
        truth: overlap with the ground truth of the reference's masks, and of the bundle's; None without any.
    """

    pixels: int
    different: int
    tied: int
    ties: int | None
    overlap: Overlap
    truth: tuple[Overlap, Overlap] | None = None

    def __add__(self, other: Figures) -> Figures:
        truth = self.truth or other.truth
        if self.truth is not None and other.truth is not None:
            truth = (self.truth[0] + other.truth[0], self.truth[1] + other.truth[1])
        return Figures(
            self.pixels + other.pixels,
            self.different + other.different,
            self.tied + other.tied,
            None if self.ties is None or other.ties is None else self.ties + other.ties,
            self.overlap + other.overlap,
            truth,
        )

    @property
    def real(self) -> int:
        """Pixels that differ where there is no tie."""
        return self.different - self.tied

    @property
    def agreement(self) -> float:
        """Share of pixels with the same class."""
        return 1 - self.different / self.pixels

    @property
    def agreement_apart_from_ties(self) -> float:
        """Share of pixels with the same class, or with a tie."""
        return 1 - self.real / self.pixels


def compare(
    reference: Masked, ours: NDArray[Any], truth: NDArray[Any] | None, classes: int, ignore: int | None = None
) -> Figures:
    """Compare the two masks of one photo.

    Args:
        reference: the replaced pipeline's mask [H, W].
        ours: the bundle's mask [H, W].
        truth: labels [H, W].
        classes: number of class ids.
        ignore: label of the truth that counts for nobody.
    """
    different = ours != reference.labels
    return Figures(
        pixels=different.size,
        different=int(different.sum()),
        tied=0 if reference.ties is None else int((different & reference.ties).sum()),
        ties=None if reference.ties is None else int(reference.ties.sum()),
        overlap=overlap(ours, reference.labels, classes),
        truth=None
        if truth is None
        else (overlap(reference.labels, truth, classes, ignore), overlap(ours, truth, classes, ignore)),
    )


def overlap(mask: NDArray[Any], other: NDArray[Any], classes: int, ignore: int | None = None) -> Overlap:
    """The overlap of two masks [H, W], where `other` is not `ignore`."""
    if ignore is not None:
        counted = other != ignore
        mask, other = mask[counted], other[counted]
    both = np.bincount(mask[mask == other].ravel(), minlength=classes)
    either = sum(np.bincount(one.ravel(), minlength=classes) for one in (mask, other)) - both
    return Overlap(both.astype(np.int64), np.asarray(either, np.int64))
