"""`Segmenter`: an engine bundle loaded once; photo in, mask out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.backends.choice import choose
from trtpost.backends.tensorrt.run import TensorRTEngine
from trtpost.bundle import Bundle, load_bundle
from trtpost.errors import BackendError, ImageError, SpecError
from trtpost.image import Photo, check_photo, overlay, palette, read_photo, write_mask
from trtpost.pixels import pixels_of
from trtpost.timing import Stopwatch, Timing

PhotoLike = str | Path | bytes | NDArray[np.uint8]
"""A path, the content of an image file, or uint8 [H, W, 3] in RGB order."""


@dataclass(frozen=True)
class Result:
    """The mask of one photo.

    Attributes:
        mask: class ids [H, W] at the photo's resolution; uint8, or int32 where there are more than 256 classes.
        photo: uint8 [H, W, 3], as decoded.
        classes: name of each class id.
        timing: milliseconds of each stage; of a batch, the photo's share.
    """

    mask: NDArray[Any] = field(repr=False)
    photo: Photo = field(repr=False)
    classes: tuple[str, ...]
    timing: Timing

    def overlay(self) -> Image.Image:
        """The photo with the classes in colour over it, and a legend."""
        return overlay(self.photo, self.mask, self.classes, palette(self.classes))

    def save_mask(self, path: str | Path) -> None:
        """Write the mask as a palette PNG whose pixel values are the class ids.

        Raises:
            ImageError: the file cannot be written.
        """
        write_mask(self.mask, Path(path), palette(self.classes))


class Segmenter:
    """Runs an engine bundle; one may be used from several threads.

    Args:
        bundle: a `Bundle`, the path of one, or of a baked `.onnx` file.
        backend: `tensorrt` (the plan, on the GPU), `onnxruntime` (the baked graph, on the CPU), or `auto`: the GPU
            where there is one that can run the plan.
        threads: CPU threads; None leaves the choice to the runtime.

    Raises:
        TrtpostError: the bundle cannot be read or run.
    """

    def __init__(self, bundle: Bundle | str | Path, *, backend: str = "auto", threads: int | None = None) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else load_bundle(Path(bundle))
        self._engine, self.note = choose(self.bundle, backend, threads)
        self._closed = False

    @property
    def backend(self) -> str:
        """`tensorrt` or `onnxruntime`."""
        return self._engine.backend

    @property
    def engine(self) -> str:
        """What runs the bundle, for people."""
        return self._engine.name

    def close(self) -> None:
        """Free the engine and its memory; later calls are refused."""
        self._closed = True
        self._engine.close()

    def __enter__(self) -> Segmenter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, photo: PhotoLike) -> Result:
        """Segment one photo.

        Raises:
            ImageError: the photo cannot be read, or does not fit the engine.
        """
        return self._run([self._decode(photo)])[0]

    def batch(self, photos: Sequence[PhotoLike]) -> list[Result]:
        """Segment photos of any sizes; those that follow each other and share a size go through the engine together.

        Raises:
            ImageError: a photo cannot be read, or does not fit the engine.
        """
        return self._run([self._decode(photo) for photo in photos])

    def warm_up(self) -> float:
        """Run once on a blank image, so that the first photo is not slowed by first-time work; milliseconds."""
        pre, post = self.bundle.passport.pre, self.bundle.passport.post
        size = post.size if isinstance(post.size, tuple) else (pre.height, pre.width)
        watch = Stopwatch()
        with watch("network"):
            self(np.zeros((*size, 3), np.uint8))
        return watch.timing.total

    def profile(self, photo: PhotoLike) -> list[tuple[str, float]]:
        """Name and milliseconds of each layer of the TensorRT plan, in their order, for one photo.

        Raises:
            ImageError: the photo cannot be read, or does not fit the engine.
            SpecError: the engine is not a TensorRT plan.
        """
        if not isinstance(self._engine, TensorRTEngine):
            raise SpecError(
                f"layers are timed by TensorRT, but this bundle runs on {self.engine}: "
                "--backend tensorrt says what keeps its plan from running here"
            )
        array, _ = self._decode(photo)
        return self._engine.profile(self._batch([array]), (array.shape[0], array.shape[1]))

    def _decode(self, photo: PhotoLike) -> tuple[Photo, Timing]:
        watch = Stopwatch()
        with watch("decode"):
            if isinstance(photo, np.ndarray):
                array = check_photo(photo)
            elif isinstance(photo, str | bytes | os.PathLike):
                array = read_photo(photo)
            else:
                raise ImageError(
                    f"a photo must be a path, an image file's bytes or a uint8 array [H, W, 3], not a "
                    f"{type(photo).__name__}; for a Pillow image: np.asarray(image.convert('RGB'))"
                )
        self._check_size(array)
        return array, watch.timing

    def _check_size(self, photo: Photo) -> None:
        size = self.bundle.passport.post.size
        if isinstance(size, tuple) and photo.shape[:2] != size:
            raise ImageError(
                f"the engine's mask is fixed at {size[0]}x{size[1]}, but the photo has "
                f"{photo.shape[0]}x{photo.shape[1]} pixels (height x width): "
                "build with --size runtime for photos of any size"
            )

    def _run(self, photos: list[tuple[Photo, Timing]]) -> list[Result]:
        results: list[Result] = []
        limit = self.bundle.passport.max_batch
        while len(results) < len(photos):
            start = len(results)
            stop = start + 1
            shape = photos[start][0].shape
            while stop < min(start + limit, len(photos)) and photos[stop][0].shape == shape:
                stop += 1
            results += self._run_batch(photos[start:stop])
        return results

    def _run_batch(self, photos: list[tuple[Photo, Timing]]) -> list[Result]:
        if self._closed:
            raise BackendError("the segmenter is closed: make a new one")
        watch = Stopwatch()
        with watch("preprocess"):
            pixels = self._batch([photo for photo, _ in photos])
        height, width = photos[0][0].shape[:2]
        masks = self._engine.run(pixels, (height, width), watch)
        share = watch.timing.share(len(photos))
        return [
            Result(mask, photo, self.bundle.passport.classes, replace(share, decode=timing.decode))
            for (photo, timing), mask in zip(photos, masks, strict=False)
        ]

    def _batch(self, photos: list[Photo]) -> NDArray[np.uint8]:
        """Photos of one size as the engine takes them, uint8 [N, h, w, C]; a fixed batch is filled with the last."""
        passport = self.bundle.passport
        resized, logits_size = passport.post.size != "image", passport.located.logits_size
        pixels = np.stack([pixels_of(photo, passport.pre, logits_size, resized=resized) for photo in photos])
        missing = passport.located.batch - len(photos)
        return np.concatenate([pixels, np.repeat(pixels[-1:], missing, axis=0)]) if missing > 0 else pixels
