"""The reference's own way of laying logits on the input that they do not cover, in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.spec import Coverage, Located, Post
from trtpost.verify.network import Answer
from trtpost.verify.squashing import interpolable, squashed_by


def laid_out(answer: Answer, located: Located, post: Post, squashed: str) -> Answer:
    """What a network says of its whole input: the answer on the grid that `located.covers` names.

    Args:
        answer: of the size that the network gives.
        located: says what its logits cover.
        post: the head, and how the mask is resized.
        squashed: as in `Network`: what is interpolated are logits, so a Softmax is undone and done again.
    """
    covers = located.covers
    if covers is None:
        return answer
    plane = answer.labels if answer.labels is not None else answer.scores
    assert plane is not None
    rows, columns = _centres(covers, located.input_size, (plane.shape[0], plane.shape[1]))
    height, width = plane.shape[:2]
    down, right = (np.clip(np.floor(one).astype(int), 0, most - 1) for one, most in ((rows, height), (columns, width)))
    labels = None if answer.labels is None else answer.labels[down][:, right]
    scores = answer.scores
    if scores is not None and post.resize == "nearest":
        scores = scores[down][:, right]
    elif scores is not None:
        scores = _between(np.moveaxis(_between(interpolable(scores, squashed), rows), 1, 0), columns)
        scores = squashed_by(np.moveaxis(scores, 1, 0), squashed)
    if covers.outside is None:
        return Answer(scores, labels, answer.step)
    beyond = ((rows < 0) | (rows >= height))[:, None] | ((columns < 0) | (columns >= width))
    return _with_outside(Answer(scores, labels, answer.step), beyond, covers.outside, post)


def _centres(covers: Coverage, sides: tuple[int, int], own: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where the middle of each row and column of the grid lies, in logits."""
    rows, columns = (
        ((np.arange(cells) + 0.5) * (side / cells) - start) / (length / count)
        for cells, side, start, length, count in zip(
            covers.grid, sides, (covers.top, covers.left), (covers.height, covers.width), own, strict=True
        )
    )
    return rows, columns


def _between(values: NDArray[np.float32], places: NDArray[Any]) -> NDArray[np.float32]:
    """Values at places along the first axis, on the straight line between the two next to each."""
    most = len(values) - 1
    place = np.clip(places - 0.5, 0, most)
    lower = np.floor(place).astype(int)
    share = (place - lower).astype(np.float32).reshape(-1, *[1] * (values.ndim - 1))
    near, far = values[lower], values[np.minimum(lower + 1, most)]
    between: NDArray[np.float32] = near + (far - near) * share
    return between


def _with_outside(answer: Answer, beyond: NDArray[np.bool_], chosen: int, post: Post) -> Answer:
    labels = None if answer.labels is None else np.where(beyond, chosen, answer.labels)
    scores = answer.scores
    if scores is not None and post.head == "threshold":
        above = np.float32(post.threshold + max(1.0, abs(post.threshold)) * (1 if chosen else -1))
        scores = np.where(beyond[..., None], above, scores)
    elif scores is not None:
        scores = np.where(beyond[..., None], np.eye(scores.shape[2], dtype=np.float32)[chosen], scores)
    return Answer(scores, labels, answer.step)
