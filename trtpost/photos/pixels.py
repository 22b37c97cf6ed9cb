"""Makes of a photo the pixels that an engine takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.errors import ImageError
from trtpost.photos.decode import Photo
from trtpost.photos.scale import letterboxed, scaled
from trtpost.spec import MAX_SIDE, Post, Pre


def pixels_of(
    photo: Photo,
    pre: Pre,
    logits_size: tuple[int, int],
    *,
    resized: bool = True,
    whole: tuple[int, int] | None = None,
) -> NDArray[np.uint8]:
    """Bring a photo to network resolution, gray where the network is; RGB otherwise, whatever order the network has.

    Args:
        photo: uint8 [H, W, 3].
        pre: how the network wants it.
        logits_size: the (h, w) of the network's output, on whose grid a letterbox lies; 0 where dynamic.
        resized: False leaves the photo's size, for engines that resize themselves.
        whole: the photo's (H, W) where it was decoded at a fraction.

    Returns:
        uint8 [h, w, C].
    """
    size = (pre.height, pre.width)
    if resized and photo.shape[:2] != size:
        photo = letterboxed(photo, size, logits_size, whole) if pre.fit == "letterbox" else scaled(photo, size)
    if pre.channels == "gray":
        return np.asarray(Image.fromarray(photo).convert("L"))[..., None]
    return photo


def check_size(size: tuple[int, int], post: Post) -> None:
    """Refuse a photo of (H, W) for an engine whose mask has another size, or of which no mask can be made.

    Raises:
        ImageError: it does not fit.
    """
    if max(size) > MAX_SIDE:
        raise ImageError(f"the photo has {size[0]}x{size[1]} pixels, and sides are up to {MAX_SIDE}: cut it into tiles")
    if isinstance(post.size, tuple) and size != post.size:
        raise ImageError(
            f"the engine's mask is fixed at {post.size[0]}x{post.size[1]}, but the photo has "
            f"{size[0]}x{size[1]} pixels (height x width): build with --size runtime for photos of any size"
        )
