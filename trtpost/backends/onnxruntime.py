"""The portable engine: the baked graph in ONNX Runtime, cut at the logits so that both halves can be timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost.bundle import Bundle
from trtpost.errors import BackendError, BundleError, reason
from trtpost.graph.bake import split
from trtpost.resample import nearest_index
from trtpost.spec import Post


class OnnxRuntimeEngine:
    """Runs a bundle on the CPU; one engine may be used from several threads.

    Args:
        bundle: what to run.
        threads: of ONNX Runtime; None leaves the choice to it.

    Raises:
        BackendError: ONNX Runtime refuses the graph.
        BundleError: the baked graph cannot be read.
    """

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        import onnxruntime

        self.name = f"ONNX Runtime {onnxruntime.__version__} on the CPU"
        self._post = bundle.passport.post
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            network, mask = split(onnx.load(bundle.model))
        except Exception as error:
            raise BundleError(f"{bundle.model} cannot be read: {reason(error)}; build the bundle again") from None
        try:
            self._network, self._mask = (
                onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
                for part in (network, mask)
            )
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise BackendError(f"ONNX Runtime does not take {bundle.model}: {reason(error)}") from None
        self._logits_name = self._mask.get_inputs()[0].name
        self._size_names = [value.name for value in self._mask.get_inputs()[1:]]

    def network(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Pixels uint8 [N, h, w, C] (any h, w with size `image`) to the logits."""
        (logits,) = _run(self._network, [self._logits_name], {"image": pixels})
        return logits

    def postprocess(self, logits: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
        """Logits to the mask [N, H, W] of the given (H, W); a fixed size is the graph's own."""
        feeds: dict[str, NDArray[Any]] = {self._logits_name: logits}
        if self._size_names:
            feeds |= dict(zip(self._size_names, size_inputs(self._post, logits.shape, size), strict=True))
        (mask,) = _run(self._mask, ["mask"], feeds)
        return mask


def size_inputs(post: Post, logits_shape: tuple[int, ...], size: tuple[int, int]) -> list[NDArray[np.int64]]:
    """What the baked graph takes for the mask's size: [`output_size`], or [`rows`, `cols`]."""
    if not post.needs_tables:
        return [np.array(size, np.int64)]
    start = 2 if post.head != "labels" and post.layout == "NCHW" else 1
    sources = logits_shape[start : start + 2]
    return [nearest_index(source, target, post.match) for source, target in zip(sources, size, strict=True)]


def _run(session: Any, outputs: list[str], feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    try:
        return list(session.run(outputs, feeds))
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise BackendError(f"ONNX Runtime failed: {reason(error)}") from None
