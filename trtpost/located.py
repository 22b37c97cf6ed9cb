"""Where a network takes its pixels and gives its logits: what is known of it, without the graph."""

from __future__ import annotations

from dataclasses import dataclass

from trtpost.spec import Head, Layout


@dataclass(frozen=True)
class Located:
    """Where a network takes its pixels and gives its logits.

    Attributes:
        input, input_layout, input_dtype: name, layout and element type of the image input.
        input_size: (height, width) of the network; 0 where dynamic.
        input_channels: 1 or 3.
        batch: fixed batch size, or 0 where dynamic.
        expects: what the network's first arithmetic is made for, where that is by constants (a Rescaling or
            Normalization layer): `pixels` 0..255 or `unit` 0..1; else empty.
        output: the network's output that was chosen.
        logits: the tensor that the post-processing takes: `output`, or one before it.
        layout, head, classes: as in `Post`; `classes` of labels is 0 where the graph does not tell.
        shape: of `logits`; names for dynamic dimensions. Where `is_flat`, the shape that they are meant to have.
        dtype: of `logits`.
        dropped: operators between `logits` and `output` that the post-processing makes needless.
        others: outputs that were not chosen.
        is_flat: `logits` have other axes than `shape`, with the values in the same order.
        limits: the least and the greatest value of scores that shall exceed a threshold, where the graph bounds them:
            (0, 1) behind a Sigmoid.
        independent: several classes have a Sigmoid each, so that none, or more than one, may be large.
        background: the value that one of the classes must exceed, else the pixel is class 0, which counts among
            `classes`, but has no channel in `shape` (`multilabel`); None: the largest wins, whatever it is.
        is_compared_inside: scores are of a type that tells more numbers apart than float32, so the network itself finds
            the largest.
        doubts: what was concluded and may be wrong: a sentence each, with the flag that settles it.
    """

    input: str
    input_layout: Layout
    input_dtype: str
    input_size: tuple[int, int]
    input_channels: int
    batch: int
    expects: str
    output: str
    logits: str
    layout: Layout
    head: Head
    classes: int
    shape: tuple[int | str, ...]
    dtype: str
    dropped: tuple[str, ...]
    others: tuple[str, ...] = ()
    is_flat: bool = False
    limits: tuple[float, float] | None = None
    independent: bool = False
    background: float | None = None
    is_compared_inside: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def is_choice(self) -> bool:
        """True where ArgMax over the classes may or may not be meant."""
        return self.independent and self.background is None

    @property
    def threshold(self) -> float:
        """What scores shall exceed where the user does not say: the middle of their limits; 0, where logits turn."""
        return sum(self.limits) / 2 if self.limits is not None else 0.0

    @property
    def logits_size(self) -> tuple[int, int]:
        """(height, width) of the logits or labels; 0 where dynamic."""
        sizes = [dim if isinstance(dim, int) else 0 for dim in self.shape]
        if len(sizes) == 4:
            channels_first = self.layout == "NCHW" if self.head != "labels" else sizes[1] == 1
            sizes = sizes[2:] if channels_first else sizes[1:3]
        return sizes[-2], sizes[-1]
