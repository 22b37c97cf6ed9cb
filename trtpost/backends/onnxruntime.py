"""The portable engine: ONNX Runtime up to the logits, then the fused kernel, or the node's function body without it.

A graph whose function was inlined has no seam left: ONNX Runtime then runs it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost import onnx_runtime
from trtpost.bundle.folder import Bundle
from trtpost.cores import default_threads
from trtpost.errors import BackendError, BundleError, reason
from trtpost.graph.baked import INT32, NUMPY_TYPES, UINT8, Baked
from trtpost.kernels import cpu
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region, region_of
from trtpost.timing import Stopwatch


class OnnxRuntimeEngine:
    """Runs a bundle on the CPU; one engine may be used from several threads.

    Args:
        bundle: what to run.
        threads: how many ONNX Runtime and the kernel use; None: all cores.
        baked: the baked graph, where it has been read already.

    Raises:
        BackendError: ONNX Runtime refuses the graph.
        BundleError: the baked graph cannot be read.
    """

    def __init__(self, bundle: Bundle, threads: int | None = None, baked: Baked | None = None) -> None:
        self.backend = "onnxruntime"
        self._pre, self._post, self._threads = bundle.passport.pre, bundle.passport.post, threads
        self._int8 = bundle.passport.precision == "int8"
        self._logits_size = bundle.passport.located.logits_size
        try:
            graph = _runnable(baked or Baked(bundle.model.read_bytes()))
            self._logits_name = "mask" if graph.is_inlined else graph.logits
            whole = graph.is_inlined
            network, mask = (graph.content, None) if whole else graph.split()
            value = graph.known[self._logits_name]
            self._logits_shape, self._logits_dtype = value.shape, np.dtype(NUMPY_TYPES[value.kind])
            self._check_types(graph, str(bundle.model))
        except BundleError:
            raise
        except Exception as error:
            raise BundleError(f"{bundle.model} cannot be read: {reason(error)}; build the bundle again") from None
        self._whole = whole
        tail = "" if whole else " and the fused kernel" if cpu.is_available() else " and the function body"
        self.name = f"{onnx_runtime.version()}{tail} on the CPU"
        try:
            self._network = self._session(network)
            self._mask = None if mask is None or cpu.is_available() else self._session(mask)
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise BackendError(f"ONNX Runtime does not take {bundle.model}: {reason(error)}") from None
        self._free: list[NDArray[Any]] = []
        self._lock = Lock()

    def _session(self, model: bytes) -> Any:
        """A session whose threads do not spin, or they hold the cores that decoding needs: on two, twice the time."""
        threads = self._threads or default_threads()
        return onnx_runtime.session(model, threads=threads, spin=False, int8_kernels=not self._int8)

    def _check_types(self, graph: Baked, name: str) -> None:
        """Check that the graph has masks and labels in the types of the spec, as which they are read.

        Raises:
            BundleError: it has others.
        """
        fits = graph.known["mask"].kind == (INT32 if self._post.wide else UINT8)
        if not fits or (self._post.head == "labels" and self._logits_dtype.kind not in "iub"):
            raise BundleError(f"{name} does not give the mask that its passport speaks of: build the bundle again")

    def run(self, pixels: NDArray[np.uint8], size: tuple[int, int], watch: Stopwatch) -> NDArray[Any]:
        """Turn pixels uint8 [N, h, w, C] (any h, w with size `image`) into masks [N, H, W] of photos of the given size.

        Raises:
            BackendError: ONNX Runtime fails, for lack of memory say.
        """
        if self._whole:
            with watch("network"):
                return _run(self._network, "mask", {"image": pixels} | self._sizes(size))
        mask = self._mask
        with self._buffer(len(pixels)) as buffer:
            with watch("network"):
                logits = self._logits(pixels, buffer)
            with watch("argmax_resize"):
                if mask is None:
                    region = self._region(size)
                    return cpu.argmax_resize(logits, size, self._post, region=region, threads=self._threads)
                return _run(mask, "mask", {self._logits_name: logits} | self._sizes(size))

    def logits(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Run the network alone: pixels as for `run` become logits in the layout of the spec."""
        with self._buffer(len(pixels)) as buffer:
            return np.array(self._logits(pixels, buffer))

    def close(self) -> None:
        """Free the sessions and their memory."""
        self._network = self._mask = None
        self._free.clear()

    def _region(self, size: tuple[int, int]) -> Region | None:
        """The part of the logits that holds a photo of this size; None where all of them do."""
        if self._pre.fit == "stretch":
            return None
        return region_of(size, (self._pre.height, self._pre.width), self._logits_size)

    def _sizes(self, size: tuple[int, int]) -> dict[str, NDArray[np.int64]]:
        return size_inputs(self._post, self._region(size) or Region(0, 0, *self._logits_size), size)

    @contextmanager
    def _buffer(self, batch: int) -> Iterator[NDArray[Any] | None]:
        """Lend memory for the logits, kept for the next call; None where the graph does not tell their size."""
        shape = tuple(side or batch for side in self._logits_shape[:1]) + self._logits_shape[1:]
        if not shape or 0 in shape:
            yield None
            return
        with self._lock:
            buffer = self._free.pop() if self._free else None
        if buffer is None or buffer.shape != shape:
            try:
                buffer = np.empty(shape, self._logits_dtype)
            except (MemoryError, ValueError) as error:  # a damaged graph may promise any shape
                raise BackendError(f"logits of {list(shape)} do not fit into memory: {reason(error)}") from None
        try:
            yield buffer
        finally:
            with self._lock:
                self._free.append(buffer)

    def _logits(self, pixels: NDArray[np.uint8], buffer: NDArray[Any] | None) -> NDArray[Any]:
        name, network = self._logits_name, self._network
        if buffer is None or network is None:
            return _run(network, name, {"image": pixels})
        try:
            binding = network.io_binding()
            binding.bind_cpu_input("image", pixels)
            binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
            network.run_with_iobinding(binding)
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise BackendError(f"ONNX Runtime failed: {reason(error)}") from None
        return buffer


def _run(session: Any, output: str, values: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """One output; the session is fed those values that are inputs: a fixed size is none."""
    if session is None:
        raise BackendError("the engine is closed")
    names = {value.name for value in session.get_inputs()}
    try:
        (result,) = session.run([output], {name: value for name, value in values.items() if name in names})
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise BackendError(f"ONNX Runtime failed: {reason(error)}") from None
    return np.asarray(result)


def _runnable(graph: Baked) -> Baked:
    """The graph as ONNX Runtime's CPU provider can run it: what computes in bfloat16 is emulated."""
    if not graph.has_bfloat16:
        return graph
    import onnx

    from trtpost.graph.emulate import runnable

    return Baked(runnable(onnx.load_model_from_string(graph.content)).SerializeToString())
