"""One way through the GPU: a stream, its memory and its execution contexts, for one call at a time.

An engine has a few lanes, so that calls from several threads overlap: one lane copies while another computes.

A CUDA graph saves the time of launching the layers one by one. It belongs to an execution context that must not change
afterwards. So a lane has one context for shapes that it sees for the first time, and gives those that come again a
context and a graph of their own; of these it drops the one that was not used for longest when there are many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trtpost import cuda
from trtpost.backends.tensorrt.flavour import (
    NAME_LIMIT,
    ContextMaker,
    is_capturable,
    layer_clock,
    logger_of,
    set_device_memory,
)
from trtpost.bundle.passport import Passport
from trtpost.errors import BackendError
from trtpost.kernels import cuda as kernels
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region
from trtpost.spec import Post
from trtpost.timing import Stopwatch

if TYPE_CHECKING:
    import tensorrt as trt

GRAPHS = 8
"""Shapes of a lane that have a graph."""

REMEMBERED = 256
"""Shapes of a lane that are known to have come once."""

START, UPLOADED, NETWORK, MASKED, DOWNLOADED = range(5)
"""Marks on a lane's stream, where each stage ends."""

LOGITS, MASK, ROWS, COLUMNS = "logits", "mask", "rows", "cols"
"""Buffers that are not called as a tensor of the plan, except the mask."""

_NUMPY = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "INT32": "int32", "INT64": "int64"}
"""TensorRT's types to numpy's names, as far as logits and sizes have them."""

_KERNEL_ARGUMENTS = "PPP" + "i" * len(kernels.Numbers._fields) + "P"


class Key(NamedTuple):
    """What decides every shape: jobs with equal keys differ in their pixels alone."""

    pixels: tuple[int, ...]
    size: tuple[int, int]
    region: Region | None


@dataclass(frozen=True)
class Job:
    """One call: pixels uint8 [N, h, w, C], the size (H, W) of its masks, and where the photo lies in the logits."""

    pixels: NDArray[np.uint8]
    size: tuple[int, int]
    region: Region | None

    @property
    def key(self) -> Key:
        """The job's shapes."""
        return Key(self.pixels.shape, self.size, self.region)


def check_engine(engine: trt.ICudaEngine, passport: Passport) -> None:
    """Refuse a plan that is not the one that the passport speaks of: another would run, and give nonsense.

    Raises:
        BackendError: it differs.
    """
    post, location = passport.post, passport.located
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    outputs = [name for name in names if engine.get_tensor_mode(name).name == "OUTPUT"]
    shapes = {name: tuple(engine.get_tensor_shape(name)) for name in names}
    types = {name: engine.get_tensor_dtype(name).name for name in names}
    fits = len(outputs) == 1 and set(names) - set(outputs) <= {"image", "output_size", "region", "rows", "cols"}
    fits = fits and types.get("image") == "UINT8" and len(shapes["image"]) == 4
    fits = fits and shapes["image"][3] == passport.pre.depth
    if fits and outputs == [MASK]:
        fits = len(shapes[MASK]) == 3 and types[MASK] in ({"INT32"} if post.wide else {"UINT8", "INT8"})
    elif fits:
        channels = 1 if post.head == "threshold" else post.classes
        fits = len(shapes[outputs[0]]) == 4 and types[outputs[0]] in ("FLOAT", "HALF", "BF16")
        found = kernels.spatial(post.layout, shapes[outputs[0]]) if fits else ()
        fits = fits and all(
            known in (0, size) for known, size in zip((channels, *location.logits_size), found, strict=True)
        )
    known = engine.name.startswith('{"trtpost"')  # other builders, trtexec say, give it a name of their own
    if not fits or (known and engine.name != passport.to_name(NAME_LIMIT)):
        raise BackendError("engine.plan is not the plan of this bundle: build the bundle again")


class Shared:
    """What all lanes of an engine share: TensorRT's objects, and the kernel where the plan ends in logits."""

    def __init__(self, flavour: str, runtime: trt.Runtime, engine: trt.ICudaEngine, passport: Passport) -> None:
        check_engine(engine, passport)
        self.flavour, self.passport = flavour, passport
        self.names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        (self.output,) = (name for name in self.names if engine.get_tensor_mode(name).name == "OUTPUT")
        self.ends_in_logits = self.output != MASK
        self.logits_shape = tuple(engine.get_tensor_shape(self.output))
        self.types = {name: _NUMPY.get(engine.get_tensor_dtype(name).name, "") for name in self.names}
        self.on_host = {name for name in self.names if engine.is_shape_inference_io(name)}
        self.contexts = ContextMaker(flavour, engine)
        self.kernel: cuda.Kernel | None = None
        if self.ends_in_logits:
            name = kernels.kernel_name(passport.post, self.types[self.output])
            self.kernel = cuda.Kernel(kernels.ptx(), name, _KERNEL_ARGUMENTS)
        self._engine: trt.ICudaEngine | None = engine
        self._runtime: trt.Runtime | None = runtime

    def close(self) -> None:
        """Free it, after all lanes: TensorRT wants contexts, engine and runtime freed in this order."""
        if self.kernel is not None:
            self.kernel.close()
        self.contexts.close()
        self._engine = None
        self._runtime = None


@dataclass
class _Recorded:
    """An execution context that nothing changes any more, and the graph that was recorded from it."""

    context: trt.IExecutionContext
    graph: cuda.Graph


class Lane:
    """Used by one thread at a time, with the GPU's context current."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._general = shared.contexts.make()
        self._stream = cuda.Stream(marks=5)
        self._buffers: dict[str, cuda.Buffer] = {}
        self._sizes: dict[str, NDArray[Any]] = {}  # shape inputs: TensorRT reads them from here when it is enqueued
        self._scratch = cuda.Buffer(on_host=False)  # of all contexts, which run one after another
        self._seen: OrderedDict[Key, None] = OrderedDict()
        self._recorded: OrderedDict[Key, _Recorded] = OrderedDict()
        self._capturable = True

    def run(self, job: Job, watch: Stopwatch) -> NDArray[Any]:
        """Masks [N, H, W] of one job, in memory of their own.

        Raises:
            BackendError: the GPU or TensorRT fails; the lane is then of no more use.
        """
        with watch("preprocess"):
            uploads = self._fill(job)
        if (recorded := self._recorded.get(job.key)) is not None:
            self._recorded.move_to_end(job.key)
            recorded.graph.launch(self._stream)
            return self._finish(job, uploads, watch)
        comes_again = job.key in self._seen and self._capturable
        context = self._shared.contexts.make(settled=True) if comes_again else self._general
        self._prepare(context, uploads)
        self._queue(context, job, uploads)
        masks = self._finish(job, uploads, watch)
        if comes_again:
            self._record(context, job, uploads)
        _remember(self._seen, job.key, None, REMEMBERED)
        return masks

    def profile(self, job: Job) -> list[tuple[str, float]]:
        """Name and milliseconds of each layer of the plan."""
        uploads = self._fill(job)
        context, clock = self._shared.contexts.make(settled=True), layer_clock(self._shared.flavour)
        self._prepare(context, uploads)
        self._queue(context, job, uploads)  # the first run does work that later ones do not
        self._stream.wait()
        context.profiler = clock
        self._queue(context, job, uploads)
        self._stream.wait()
        return list(clock.layers)

    def close(self) -> None:
        """Free everything, after what is under way."""
        with suppress(BackendError):
            self._stream.wait()
        self._forget_graphs()
        self._general = None
        for buffer in (*self._buffers.values(), self._scratch):
            buffer.close()
        self._stream.close()

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _fill(self, job: Job) -> dict[str, tuple[int, ...]]:
        """Put the job's inputs into page-locked memory, and make room for what comes out; shapes of what to upload."""
        moved = False
        inputs = self._inputs(job)
        for name, array in inputs.items():
            buffer = self._buffers.setdefault(name, cuda.Buffer())
            moved |= buffer.fit(array.nbytes)
            np.copyto(buffer.host.view(array.dtype).reshape(array.shape), array)
        pixels = len(job.pixels) * job.size[0] * job.size[1]
        moved |= self._buffers.setdefault(MASK, cuda.Buffer()).fit(pixels * self._mask_type.itemsize)
        if self._shared.ends_in_logits:
            item = 4 if self._shared.types[self._shared.output] == "float32" else 2
            size = int(np.prod(self._logits_shape(job))) * item
            moved |= self._buffers.setdefault(LOGITS, cuda.Buffer(on_host=False)).fit(size)
        if moved:
            self._forget_graphs()
        return {name: array.shape for name, array in inputs.items()}

    def _inputs(self, job: Job) -> dict[str, NDArray[Any]]:
        """Everything that goes to the device, by name; what TensorRT reads on the host is kept aside."""
        shared, post = self._shared, self._shared.passport.post
        if shared.ends_in_logits:
            _, height, width = kernels.spatial(post.layout, shared.logits_shape)
            rows, columns = _positions(post, (height, width), job.size, job.region)
            return {"image": job.pixels, ROWS: rows, COLUMNS: columns}
        inputs: dict[str, NDArray[Any]] = {"image": job.pixels}
        region = job.region or Region(0, 0, *shared.passport.located.logits_size)
        for name, value in size_inputs(post, region, job.size).items():
            if name in shared.names:  # a plan for one size has none
                typed = np.ascontiguousarray(value, shared.types[name])
                (self._sizes if name in shared.on_host else inputs)[name] = typed
        return inputs

    def _logits_shape(self, job: Job) -> tuple[int, ...]:
        return (len(job.pixels), *self._shared.logits_shape[1:])

    @property
    def _mask_type(self) -> np.dtype[Any]:
        return np.dtype(np.int32 if self._shared.passport.post.wide else np.uint8)

    def _prepare(self, context: trt.IExecutionContext, uploads: dict[str, tuple[int, ...]]) -> None:
        """Addresses, shapes and scratch memory of a context.

        Raises:
            BackendError: TensorRT refuses one of them, or there is not enough memory.
        """
        shared = self._shared
        for name in shared.names:
            if name in self._sizes:
                address = self._sizes[name].ctypes.data
            else:
                address = self._buffers[LOGITS if shared.ends_in_logits and name == shared.output else name].address
            if not context.set_tensor_address(name, address):
                raise BackendError(f"TensorRT refuses the memory of '{name}': {logger_of(shared.flavour).last()}")
        for name, shape in uploads.items():
            if name in shared.names and not context.set_input_shape(name, shape):
                raise BackendError(
                    f"the plan does not take '{name}' of shape {shape}: {logger_of(shared.flavour).last()}"
                )
        needed = max(1, int(context.update_device_memory_size_for_shapes()))
        if self._scratch.fit(needed):
            self._forget_graphs()
        set_device_memory(context, self._scratch.address, needed)

    # ---- work --------------------------------------------------------------------------------------------------------

    def _queue(self, context: trt.IExecutionContext, job: Job, uploads: Iterable[str]) -> None:
        """Everything from page-locked pixels to page-locked masks, on the stream."""
        shared, stream, logger = self._shared, self._stream, logger_of(self._shared.flavour)
        stream.mark(START)
        for name in uploads:
            stream.upload(self._buffers[name])
        stream.mark(UPLOADED)
        logger.clear()
        if not context.execute_async_v3(stream.handle):
            raise BackendError(f"{shared.flavour} cannot run the plan: {logger.last()}")
        stream.mark(NETWORK)
        if shared.kernel is not None:
            stream.launch(
                shared.kernel,
                kernels.grid(len(job.pixels), job.size),
                kernels.BLOCK,
                *(self._buffers[name].address for name in (LOGITS, ROWS, COLUMNS)),
                *kernels.numbers(shared.passport.post, self._logits_shape(job), job.size),
                self._buffers[MASK].address,
            )
        stream.mark(MASKED)
        stream.download(self._buffers[MASK])
        stream.mark(DOWNLOADED)

    def _finish(self, job: Job, uploads: Iterable[str], watch: Stopwatch) -> NDArray[Any]:
        """Wait for what was queued, tell its times, and copy the masks out."""
        stream = self._stream
        stream.wait()
        watch.add("upload", stream.milliseconds(START, UPLOADED))
        watch.add("network", stream.milliseconds(UPLOADED, NETWORK))
        if self._shared.kernel is not None:
            watch.add("argmax_resize", stream.milliseconds(NETWORK, MASKED))
        watch.add("download", stream.milliseconds(MASKED, DOWNLOADED))
        masks = self._buffers[MASK].host
        watch.copied(sum(self._buffers[name].host.nbytes for name in uploads), masks.nbytes)
        return np.array(masks.view(self._mask_type).reshape(len(job.pixels), *job.size))

    def _record(self, context: trt.IExecutionContext, job: Job, uploads: Iterable[str]) -> None:
        """Record the job's graph from a context that has run it once, as TensorRT wants it."""
        if not is_capturable(context, self._stream.handle):
            self._capturable = False
            return
        try:
            with cuda.captured(self._stream) as graphs:
                self._queue(context, job, uploads)
        except BackendError:
            self._capturable = False  # layers of some plans cannot be captured: those run without a graph
            return
        for oldest in _remember(self._recorded, job.key, _Recorded(context, graphs[0]), GRAPHS):
            oldest.graph.close()

    def _forget_graphs(self) -> None:
        """Addresses have changed, and graphs hold them."""
        for recorded in self._recorded.values():
            recorded.graph.close()
        self._recorded.clear()


def _remember(known: OrderedDict[Key, Any], key: Key, value: Any, limit: int) -> list[Any]:
    """Add an entry as the newest; what falls out."""
    known[key] = value
    known.move_to_end(key)
    return [known.popitem(last=False)[1] for _ in range(len(known) - limit)]


@lru_cache(maxsize=64)
def _positions(
    post: Post, source: tuple[int, int], size: tuple[int, int], region: Region | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return kernels.positions(post, source, size, region)
