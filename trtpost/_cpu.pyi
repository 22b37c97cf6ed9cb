from typing import Any

from numpy.typing import NDArray

def argmax_resize(
    logits: NDArray[Any],
    mask: NDArray[Any],
    *,
    head: int,
    match: int,
    bilinear: bool,
    threshold: float,
    margin: NDArray[Any] | None,
    margin_scale: float,
    threads: int,
    full: bool,
    isa: str,
) -> None: ...
def floor_pass(source: NDArray[Any], target: NDArray[Any], threads: int) -> float: ...
def bilinear_pixels(
    photo: NDArray[Any],
    top: NDArray[Any],
    bottom: NDArray[Any],
    down: NDArray[Any],
    left: NDArray[Any],
    right: NDArray[Any],
    across: NDArray[Any],
    out: NDArray[Any],
) -> None: ...
def deflate_mask(mask: NDArray[Any], bits: int) -> bytes: ...
def isas() -> list[str]: ...
