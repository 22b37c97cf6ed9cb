"""Runs a plan on the GPU: an engine, loaded once, whose calls may come from many threads."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost import cuda
from trtpost.backends.tensorrt.flavour import load, logger_of
from trtpost.backends.tensorrt.lane import Job, Lane, Shared
from trtpost.backends.tensorrt.obstacle import obstacle, this_machine
from trtpost.bundle.folder import Bundle
from trtpost.errors import BackendError, ImageError
from trtpost.letterbox import region_of
from trtpost.timing import Stopwatch

LANES = 2
"""Calls at a time: one copies while the other computes. More would only wait for the same GPU."""


class TensorRTEngine:
    """Runs the plan of a bundle on the GPU; one engine may be used from several threads.

    Args:
        bundle: what to run.
        lanes: calls that may be under way at once.
        content: of the plan, where it has been read already.

    Raises:
        BackendError: this machine cannot run the plan; the message says why.
    """

    def __init__(self, bundle: Bundle, lanes: int = LANES, content: bytes | None = None) -> None:
        if (why := obstacle(bundle, this_machine())) is not None:
            raise BackendError(why)
        plan, path = bundle.passport.plan, bundle.plan
        assert plan is not None
        assert path is not None
        self.backend = "tensorrt"
        self._passport = bundle.passport
        self._state, self._limit, self._calls = Condition(), lanes, set[object]()
        with cuda.gpu().current():
            logger = logger_of(plan.flavour)
            logger.clear()
            runtime = load(plan.flavour).Runtime(logger)
            engine = runtime.deserialize_cuda_engine(path.read_bytes() if content is None else content)
            if engine is None:
                raise BackendError(
                    f"{plan.flavour} cannot load {path}: {logger.last()}; build the bundle again, unless it is the "
                    "GPU's memory that is missing"
                )
            self._shared = Shared(plan.flavour, runtime, engine, bundle.passport)
        self._free: list[Lane] = []
        self._closed = False
        self._finalizer = weakref.finalize(self, _close, self._free, self._shared)
        tail = {"kernel": " and the fused kernel", "plugin": " with the fused plugin"}.get(plan.post, "")
        self.name = f"{plan.flavour} {plan.version}{tail} on {cuda.gpu().name}"

    def run(self, pixels: NDArray[np.uint8], size: tuple[int, int], watch: Stopwatch) -> NDArray[Any]:
        """Pixels uint8 [N, h, w, C] (any h, w with size `image`) to masks [N, H, W] of photos of the given size.

        The masks are the caller's: nothing that runs later changes them.

        Raises:
            BackendError: the GPU or TensorRT fails, for lack of memory say; the next call starts afresh.
            ImageError: the photo is larger than the plan was built for.
        """
        job = self._job(pixels, size)
        with self._lane() as lane:
            return lane.run(job, watch)

    def profile(self, pixels: NDArray[np.uint8], size: tuple[int, int]) -> list[tuple[str, float]]:
        """Run with TensorRT's own clock on: name and milliseconds of each layer of the plan, in their order.

        Raises:
            BackendError, ImageError: as for `run`.
        """
        job = self._job(pixels, size)
        with self._lane() as lane:
            return lane.profile(job)

    def close(self) -> None:
        """Free everything; calls that are under way end first, and later ones are refused."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            while self._calls:
                self._state.wait()
            self._finalizer()

    def _job(self, pixels: NDArray[np.uint8], size: tuple[int, int]) -> Job:
        passport = self._passport
        pre, largest = passport.pre, passport.max_size
        bounded = passport.post.size == "image" or not self._shared.ends_in_logits
        if bounded and (size[0] > largest[0] or size[1] > largest[1]):
            needed = f"{max(size[0], largest[0])}x{max(size[1], largest[1])}"
            raise ImageError(
                f"the plan takes photos up to {largest[0]}x{largest[1]} (height x width), but this one has "
                f"{size[0]}x{size[1]} pixels: build with --max-size {needed}, or run with --backend onnxruntime"
            )
        region = None
        if pre.fit == "letterbox":
            region = region_of(size, (pre.height, pre.width), passport.located.logits_size)
        return Job(pixels, size, region)

    @contextmanager
    def _lane(self) -> Iterator[Lane]:
        """A lane for one call; the caller waits while all are in use."""
        call, lane = object(), None
        try:  # an interrupt may come anywhere, so what is undone below is what may have been done, not what surely was
            with self._state:
                while len(self._calls) >= self._limit and not self._closed:
                    self._state.wait()
                if self._closed:
                    raise BackendError("the engine is closed")
                self._calls.add(call)
            with cuda.gpu().current():
                try:
                    with self._state:
                        lane = self._free.pop() if self._free else None
                    lane = lane or Lane(self._shared)
                    yield lane
                    with self._state:
                        self._free.append(lane)
                except BaseException:
                    if lane is not None and lane not in self._free:
                        lane.close()  # whatever went wrong, the next call starts with a new one
                    raise
        finally:
            with self._state:
                self._calls.discard(call)
                self._state.notify_all()


def _close(lanes: list[Lane], shared: Shared) -> None:
    """Free all lanes and what they share; also called when the engine is garbage, at any point of other work."""

    def free() -> None:
        with suppress(BackendError), cuda.gpu().current():
            while lanes:
                lanes.pop().close()
            shared.close()

    cuda.outside_captures(free)
