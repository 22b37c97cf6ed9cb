"""What a Softmax or Sigmoid behind the logits does to them, and how it is undone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def interpolable(scores: NDArray[np.float32], squashed: str) -> NDArray[np.float32]:
    """Scores that may be interpolated: a Softmax's logarithm is the logits but for a constant a pixel."""
    tiny = np.float32(1e-30)
    values = scores
    if squashed in ("Softmax", "Sigmoid"):
        values = np.log(np.maximum(scores, tiny))
    if squashed == "Sigmoid":
        values = values - np.log(np.maximum(1 - scores, tiny))
    return values


def squashed_by(scores: NDArray[np.float32], squashed: str) -> NDArray[np.float32]:
    """Logits as what is named, one of `trtpost.verify.network.SQUASHING` or nothing, leaves them."""
    if squashed == "Sigmoid":
        return np.asarray(1 / (1 + np.exp(-scores)), np.float32)
    if squashed in ("Softmax", "LogSoftmax"):
        shifted = scores - scores.max(axis=-1, keepdims=True)
        powers = np.exp(shifted)
        sums = powers.sum(axis=-1, keepdims=True)
        return np.asarray(powers / sums if squashed == "Softmax" else shifted - np.log(sums), np.float32)
    return scores
