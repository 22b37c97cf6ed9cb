"""`Segmenter`: an engine bundle loaded once; photo in, mask out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trtpost.backends.choice import choose, may_run_plans
from trtpost.bundle.folder import Bundle, Plans, read_again, read_bundle
from trtpost.errors import BackendError, ImageError, SpecError, doubt
from trtpost.kernels.cpu import MAX_THREADS
from trtpost.masks.finished import fingerprint
from trtpost.masks.overlay import overlay
from trtpost.masks.png import encode_mask, palette
from trtpost.photos.decode import Photo
from trtpost.photos.given import PhotoLike, photo_of
from trtpost.photos.pixels import check_size, pixels_of
from trtpost.spec import Backend, Encoding, whole_or_none
from trtpost.timing import Stopwatch, Timing


@dataclass(frozen=True, eq=False)
class Result:
    """The mask of one photo.

    Attributes:
        mask: class ids [H, W] at the photo's resolution; uint8, or int32 where there are more than 256 classes. No
            later call changes it.
        photo: uint8 [H, W, 3], as decoded; smaller where `fast_decode` read a fraction. Where an array, tensor or
            image was given it may be in that one's memory: who fills it again changes what `overlay` shows.
        classes: name of each class id.
        timing: milliseconds of each stage; of a batch, the photo's share.
        fingerprint: hash of everything that decided the mask: see `Segmenter.fingerprint`.
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

    def encode_mask(self, encoding: Encoding = "palette") -> bytes:
        """The mask as a PNG whose pixel values are the class ids.

        Args:
            encoding: `palette`, which OpenCV and TensorFlow read as colours; `packed`, a palette with 1, 2 or 4 bits a
                pixel for up to 2, 4 or 16 classes; or `gray`, whose levels every reader takes as they are.

        Raises:
            ImageError: class ids that 16 bits do not hold.
        """
        return encode_mask(self.mask, palette(self.classes), encoding, mark=self.fingerprint)

    def save_mask(self, path: str | os.PathLike[str], encoding: Encoding = "palette") -> None:
        """Write the mask as `encode_mask` gives it; a file of that name is replaced.

        Raises:
            ImageError: the path does not end in `.png`, class ids that 16 bits do not hold, or the file cannot be
                written.
        """
        from trtpost.masks.write import write_mask  # who saves none does without

        name = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(name, str):
            raise ImageError(f"a mask is saved under a path, a text or a Path, not under a {type(path).__name__}")
        write_mask(self.mask, Path(name), palette(self.classes), encoding, mark=self.fingerprint)


@dataclass(frozen=True)
class _Decoded:
    """The pixels of a photo, uint8 [h, w, 3], smaller than its `size` (H, W) where a fraction was decoded."""

    pixels: Photo
    size: tuple[int, int]
    timing: Timing


class Segmenter:
    """Runs an engine bundle; one may be used from several threads, but only in the process that made it.

    Args:
        bundle: a `Bundle`, the path of one, or of a baked `.onnx` file. Nothing is read of it later.
        backend: `tensorrt` (the plan, on the GPU), `onnxruntime` (the baked graph, on the CPU), or `auto`: the GPU
            where there is one that can run the plan.
        threads: CPU threads, 1 to 1024; None leaves the choice to the runtime.
        fast_decode: decode JPEGs at a half, a quarter or an eighth where the network needs no more. That averages
            pixels which a resize without antialiasing leaves out: the mask is another one, by docs/pipeline.md mostly
            at its edges.

    What was assumed when the bundle was built, and what keeps its plan from the GPU, is said as a `DoubtWarning`.

    Raises:
        SpecError: `fast_decode` of an engine that takes whole photos, a backend or threads that there are not.
        TrtpostError: the bundle cannot be read or run.
    """

    def __init__(
        self,
        bundle: Bundle | str | os.PathLike[str],
        *,
        backend: Backend = "auto",
        threads: int | None = None,
        fast_decode: bool = False,
    ) -> None:
        threads = whole_or_none("threads", threads, MAX_THREADS)  # numpy's numbers are none of ONNX Runtime's
        # where none can run, gigabytes of one are neither read nor looked at
        plan: Plans = "kept" if may_run_plans(backend) else "left"
        contents = read_again(bundle, plan=plan) if isinstance(bundle, Bundle) else read_bundle(bundle, plan=plan)
        self.bundle = contents.bundle
        if fast_decode and self.bundle.passport.post.size == "image":
            raise SpecError("the engine takes whole photos (it was built with --size image): do without --fast-decode")
        self._fast_decode = fast_decode
        self._fingerprint = fingerprint(contents, fast_decode=fast_decode)
        self._engine, self.note = choose(contents, backend, threads)
        self._closed = False
        self._process = os.getpid()
        if self.note is not None:
            doubt(f"not on the GPU: {self.note}")
        if self.bundle.passport.normalization == "assumed":
            doubt(
                f"the normalisation of the pixels was assumed when {self.bundle.path} was built, as the model does not "
                "say it, and a wrong guess spoils the mask: settle it with normalize= of trtpost.build"
            )

    @property
    def backend(self) -> str:
        """`tensorrt` or `onnxruntime`."""
        return self._engine.backend

    @property
    def engine(self) -> str:
        """Name of what runs the bundle, for people."""
        return self._engine.name

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides a pixel of a photo's mask; in every mask that is saved."""
        return self._fingerprint

    def close(self) -> None:
        """Free the engine and its memory; later calls are refused."""
        self._closed = True
        if self._process == os.getpid():
            self._engine.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Segmenter holds an engine, so it cannot be pickled or copied: make one in each process, of the bundle"
        )

    def __enter__(self) -> Segmenter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, photo: PhotoLike) -> Result:
        """Segment one photo.

        Raises:
            BackendError: the segmenter is closed, or the engine fails; the next call starts afresh.
            ImageError: the photo cannot be read, or does not fit the engine.
        """
        self._check_usable()
        return self._run([self._decode(photo)])[0]

    def batch(self, photos: Iterable[PhotoLike]) -> list[Result]:
        """Segment photos of any sizes; those that follow each other and share a size go through the engine together.

        Raises:
            BackendError: the segmenter is closed, or the engine fails; the next call starts afresh.
            ImageError: a photo cannot be read, or does not fit the engine.
        """
        self._check_usable()
        one = isinstance(photos, str | bytes | bytearray | memoryview | os.PathLike | Image.Image)
        one = one or hasattr(photos, "read") or 0 < len(getattr(photos, "shape", ())) < 4
        if one or isinstance(photos, Mapping) or not isinstance(photos, Iterable):
            advice = ": give its values()" if isinstance(photos, Mapping) else ""
            kind = type(photos).__name__
            raise ImageError(f"batch takes several photos, such as a list of them, not a {kind}{advice}")
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
            BackendError: the segmenter is closed, or the engine fails.
            ImageError: the photo cannot be read, or does not fit the engine.
            SpecError: the engine is not a TensorRT plan.
        """
        from trtpost.backends.tensorrt.run import TensorRTEngine

        self._check_usable()
        if not isinstance(self._engine, TensorRTEngine):
            raise SpecError(
                f"layers are timed by TensorRT, but this bundle runs on {self.engine}: "
                "--backend tensorrt says what keeps its plan from running here"
            )
        decoded = self._decode(photo)
        return self._engine.profile(self._batch([decoded]), decoded.size)

    def _check_usable(self) -> None:
        if self._closed:
            raise BackendError("the segmenter is closed: make a new one")
        if self._process != os.getpid():  # threads and CUDA do not survive it: a call would wait for ever
            raise BackendError("the segmenter was made before this process was forked: make one in each process")

    def _decode(self, photo: PhotoLike) -> _Decoded:
        pre, watch = self.bundle.passport.pre, Stopwatch()
        with watch("decode"):
            pixels, size = photo_of(photo, (pre.height, pre.width) if self._fast_decode else None)
        try:
            check_size(size, self.bundle.passport.post)
        except ImageError as error:
            if not isinstance(photo, str | os.PathLike):
                raise
            raise ImageError(f"{os.fsdecode(photo)}: {error}") from None
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
        watch = Stopwatch()
        with watch("preprocess"):
            pixels = self._batch(photos)
        masks = self._engine.run(pixels, photos[0].size, watch)
        if masks.shape[1:] != photos[0].size or len(masks) < len(photos):
            raise BackendError(f"the engine gives masks of shape {masks.shape}: it is damaged, build the bundle again")
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
