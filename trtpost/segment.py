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
from trtpost.image import Photo, check_photo, encode_mask, overlay, palette, read_photo, read_reduced, write_mask
from trtpost.pixels import check_size, pixels_of
from trtpost.resume import fingerprint
from trtpost.timing import Stopwatch, Timing

PhotoLike = str | Path | bytes | NDArray[np.uint8]
"""A path, the content of an image file, or uint8 [H, W, 3] in RGB order."""


@dataclass(frozen=True)
class Result:
    """The mask of one photo.

    Attributes:
        mask: class ids [H, W] at the photo's resolution; uint8, or int32 where there are more than 256 classes.
        photo: uint8 [H, W, 3], as decoded; smaller where `fast_decode` read a fraction.
        classes: name of each class id.
        timing: milliseconds of each stage; of a batch, the photo's share.
        fingerprint: of everything that decided the mask: see `Segmenter.fingerprint`.
    """

    mask: NDArray[Any] = field(repr=False)
    photo: Photo = field(repr=False)
    classes: tuple[str, ...]
    timing: Timing
    fingerprint: str = field(default="", repr=False)

    def overlay(self) -> Image.Image:
        """The photo with the classes in colour over it, and a legend.

        Raises:
            ImageError: the photo was decoded at a fraction.
        """
        if self.photo.shape[:2] != self.mask.shape:
            raise ImageError("an overlay needs the whole photo: do without fast_decode")
        return overlay(self.photo, self.mask, self.classes, palette(self.classes))

    def encode_mask(self, *, pack: bool = False) -> bytes:
        """The mask as a palette PNG whose pixel values are the class ids.

        Args:
            pack: 1, 2 or 4 bits a pixel for up to 2, 4 or 16 classes, instead of 8.

        Raises:
            ImageError: class ids that 16 bits do not hold.
        """
        return encode_mask(self.mask, palette(self.classes), pack=pack, mark=self.fingerprint)

    def save_mask(self, path: str | Path, *, pack: bool = False) -> None:
        """Write the mask as `encode_mask` gives it.

        Raises:
            ImageError: class ids that 16 bits do not hold, or the file cannot be written.
        """
        write_mask(self.mask, Path(path), palette(self.classes), pack=pack, mark=self.fingerprint)


@dataclass(frozen=True)
class _Decoded:
    """Pixels uint8 [h, w, 3] of a photo of `size` (H, W), smaller where a fraction was decoded."""

    pixels: Photo
    size: tuple[int, int]
    timing: Timing


class Segmenter:
    """Runs an engine bundle; one may be used from several threads.

    Args:
        bundle: a `Bundle`, the path of one, or of a baked `.onnx` file.
        backend: `tensorrt` (the plan, on the GPU), `onnxruntime` (the baked graph, on the CPU), or `auto`: the GPU
            where there is one that can run the plan.
        threads: CPU threads; None leaves the choice to the runtime.
        fast_decode: decode JPEGs at a half, a quarter or an eighth where the network needs no more. That averages
            pixels which a resize without antialiasing leaves out: the mask is another one, by docs/pipeline.md mostly
            at its edges.

    Raises:
        SpecError: `fast_decode` of an engine that takes whole photos.
        TrtpostError: the bundle cannot be read or run.
    """

    def __init__(
        self,
        bundle: Bundle | str | Path,
        *,
        backend: str = "auto",
        threads: int | None = None,
        fast_decode: bool = False,
    ) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else load_bundle(Path(bundle))
        if fast_decode and self.bundle.passport.post.size == "image":
            raise SpecError("the engine takes whole photos (it was built with --size image): do without --fast-decode")
        self._fast_decode = fast_decode
        self._fingerprint = fingerprint(self.bundle, fast_decode=fast_decode)
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

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides a pixel of a photo's mask; in every mask that is saved."""
        return self._fingerprint

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
        decoded = self._decode(photo)
        return self._engine.profile(self._batch([decoded]), decoded.size)

    def _decode(self, photo: PhotoLike) -> _Decoded:
        pre, watch = self.bundle.passport.pre, Stopwatch()
        with watch("decode"):
            if isinstance(photo, np.ndarray):
                pixels = check_photo(photo)
                size = (pixels.shape[0], pixels.shape[1])
            elif not isinstance(photo, str | bytes | os.PathLike):
                raise ImageError(
                    f"a photo must be a path, an image file's bytes or a uint8 array [H, W, 3], not a "
                    f"{type(photo).__name__}; for a Pillow image: np.asarray(image.convert('RGB'))"
                )
            elif self._fast_decode:
                pixels, size = read_reduced(photo, (pre.height, pre.width))
            else:
                pixels = read_photo(photo)
                size = (pixels.shape[0], pixels.shape[1])
        check_size(size, self.bundle.passport.post)
        return _Decoded(pixels, size, watch.timing)

    def _run(self, photos: list[_Decoded]) -> list[Result]:
        results: list[Result] = []
        limit = self.bundle.passport.max_batch
        while len(results) < len(photos):
            start = len(results)
            stop = start + 1
            size = photos[start].size
            while stop < min(start + limit, len(photos)) and photos[stop].size == size:
                stop += 1
            results += self._run_batch(photos[start:stop])
        return results

    def _run_batch(self, photos: list[_Decoded]) -> list[Result]:
        if self._closed:
            raise BackendError("the segmenter is closed: make a new one")
        watch = Stopwatch()
        with watch("preprocess"):
            pixels = self._batch(photos)
        masks = self._engine.run(pixels, photos[0].size, watch)
        share = watch.timing.share(len(photos))
        return [
            Result(
                mask,
                photo.pixels,
                self.bundle.passport.classes,
                replace(share, decode=photo.timing.decode),
                self._fingerprint,
            )
            for photo, mask in zip(photos, masks, strict=False)
        ]

    def _batch(self, photos: list[_Decoded]) -> NDArray[np.uint8]:
        """Photos of one size as the engine takes them, uint8 [N, h, w, C]; a fixed batch is filled with the last."""
        passport = self.bundle.passport
        resized, logits_size = passport.post.size != "image", passport.located.logits_size
        each = [
            pixels_of(photo.pixels, passport.pre, logits_size, resized=resized, whole=photo.size) for photo in photos
        ]
        # `stack` copies, which for an engine that takes whole photos is a photo
        pixels = np.ascontiguousarray(each[0])[None] if len(each) == 1 else np.stack(each)
        missing = passport.located.batch - len(photos)
        return np.concatenate([pixels, np.repeat(pixels[-1:], missing, axis=0)]) if missing > 0 else pixels
