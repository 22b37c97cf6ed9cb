"""Answers requests in Triton's Python backend; the server imports it, by a `model.py` of one line in the repository.

`triton_python_backend_utils` is the server's own module, and exists nowhere else.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtpost.bundle.folder import MAX_BYTES, PASSPORT
from trtpost.bundle.passport import passport_from_json
from trtpost.cores import default_threads
from trtpost.errors import BundleError, ImageError, TrtpostError
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region, region_of
from trtpost.masks.png import encode_mask, palette
from trtpost.photos.admission import check_weight, weight_of
from trtpost.photos.decode import Photo
from trtpost.photos.given import check_photo
from trtpost.photos.limits import SERVED_PIXELS
from trtpost.photos.pixels import check_size, pixels_of
from trtpost.photos.read import read_photo
from trtpost.segment import Segmenter
from trtpost.storage.files import read_limited
from trtpost.triton.config import MAX_PIXELS

BUNDLE = "bundle.trtpost"
"""Folder of the bundle, in the folder of a version of the model."""

Answer = dict[str, NDArray[Any]] | TrtpostError
"""Outputs by name, or what is wrong with the request."""

Contents = list[bytes] | list[Photo] | TrtpostError
"""The files or the pixels that a request holds."""


class MaskModel:
    """A bundle behind the inputs `photo` (files) or `image` (pixels), and the outputs `mask` and `png`.

    A request holds one photo, or several of one size. One that cannot be answered gets an error, and those that the
    server joined with it get their masks.
    """

    def initialize(self, args: dict[str, str]) -> None:
        """Load the bundle, on the GPU that the server gives this instance."""
        groups = json.loads(args["model_config"])["instance_group"]
        if args["model_instance_kind"] == "GPU":
            _take_gpu(int(args["model_instance_device_id"]))
        threads = max(1, default_threads() // sum(group["count"] for group in groups))
        self._max_pixels = _max_pixels(args)
        self._segmenter = Segmenter(_version_folder(args) / BUNDLE, threads=threads)
        self._pool = ThreadPoolExecutor(threads)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Give one response a request, in their order."""
        responses: list[Any] = []
        weighed = [_weighed(_contents(request), self._max_pixels) for request in requests]
        contents = [one for one, _ in weighed]
        for start, stop in _groups([weight for _, weight in weighed], self._max_pixels):
            responses += self._execute(requests[start:stop], contents[start:stop])
        return responses

    def _execute(self, requests: Sequence[Any], contents: Sequence[Contents]) -> list[Any]:
        """Answer requests whose photos may be in memory together."""
        photos = list(self._pool.map(_decoded, contents))
        masks = iter(self._masks([photo for one in photos if not isinstance(one, TrtpostError) for photo in one]))
        found = [one if isinstance(one, TrtpostError) else [next(masks) for _ in one] for one in photos]
        wanted = [set(request.requested_output_names()) for request in requests]
        return [_response(answer) for answer in self._pool.map(self._answer, found, wanted)]

    def finalize(self) -> None:
        """Free the engine."""
        self._pool.shutdown()
        self._segmenter.close()

    def _masks(self, photos: Sequence[Photo]) -> Sequence[NDArray[Any] | TrtpostError]:
        try:
            return [result.mask for result in self._segmenter.batch(photos)]
        except (TrtpostError, MemoryError) as fault:
            error = fault if isinstance(fault, TrtpostError) else ImageError("the photo does not fit into memory")
            return [error] if len(photos) == 1 else [self._masks([photo])[0] for photo in photos]

    def _answer(self, masks: list[NDArray[Any] | TrtpostError] | TrtpostError, wanted: set[str]) -> Answer:
        if isinstance(masks, TrtpostError):
            return masks
        whole = []
        for mask in masks:
            if isinstance(mask, TrtpostError):
                return mask
            whole.append(mask)
        answer = {"mask": whole[0][None] if len(whole) == 1 else np.stack(whole)} if "mask" in wanted else {}
        if "png" in wanted:
            colours = palette(self._segmenter.bundle.passport.classes)
            answer["png"] = _bytes_tensor([encode_mask(mask, colours) for mask in whole])
        return answer


class PhotoModel:
    """The first step of an ensemble: from `photo` (files) to what an engine takes, `image` and the sizes."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the passport, which is all that it takes."""
        card = _version_folder(args) / PASSPORT
        content = read_limited(card, "passport", MAX_BYTES[PASSPORT], BundleError)
        self._passport = passport_from_json(content, str(card))
        self._max_pixels = _max_pixels(args)
        self._outputs = {output["name"] for output in json.loads(args["model_config"])["output"]}
        self._pool = ThreadPoolExecutor(default_threads())

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Give one response a request, in their order."""
        responses: list[Any] = []
        weighed = [_weighed(_contents(request), self._max_pixels) for request in requests]
        contents = [one for one, _ in weighed]
        for start, stop in _groups([weight for _, weight in weighed], self._max_pixels):
            responses += [_response(one) for one in self._pool.map(self._answer, contents[start:stop])]
        return responses

    def finalize(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _answer(self, contents: Contents) -> Answer:
        pre, post, logits = self._passport.pre, self._passport.post, self._passport.located.logits_size
        photos = _decoded(contents)
        if isinstance(photos, TrtpostError):
            return photos
        size = (photos[0].shape[0], photos[0].shape[1])
        try:
            check_size(size, post)
            pixels = np.stack([pixels_of(photo, pre, logits) for photo in photos])
        except TrtpostError as error:
            return error
        whole = Region(0, 0, *logits)
        region = whole if pre.fit == "stretch" else region_of(size, (pre.height, pre.width), logits)
        sizes = size_inputs(post, region, size)
        return {"image": pixels} | {name: value for name, value in sizes.items() if name in self._outputs}


def _version_folder(args: dict[str, str]) -> Path:
    return Path(args["model_repository"]) / args["model_version"]


def _take_gpu(number: int) -> None:
    """Make the GPU that the server counts as `number` the only one of this process."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else []
    os.environ["CUDA_VISIBLE_DEVICES"] = names[number] if number < len(names) else str(number)


def _max_pixels(args: dict[str, str]) -> int:
    """How many pixels of photos may be in memory at once, as the model's configuration says."""
    parameters = json.loads(args["model_config"]).get("parameters", {})
    return int(parameters.get(MAX_PIXELS, {}).get("string_value", SERVED_PIXELS))


def _weighed(contents: Contents, limit: int) -> tuple[Contents, int]:
    """What a request holds, and how many pixels that is, of files by their headers; an error if they are too many."""
    if isinstance(contents, TrtpostError):
        return contents, 0
    weights = [weight_of(one, -1) if isinstance(one, bytes) else math.prod(one.shape[:2]) for one in contents]
    weight = sum(one for one in weights if one >= 0)
    try:
        check_weight(weight, b"", limit)
    except ImageError as error:
        return error, 0
    return contents, limit if -1 in weights else weight  # what does not tell its size is decoded by itself


def _groups(weights: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Split requests into groups that are within the limit together: the first and last (exclusive) of each."""
    start, inside = 0, 0
    for index, weight in enumerate(weights):
        if index > start and inside + weight > limit:
            yield start, index
            start, inside = index, 0
        inside += weight
    if weights:
        yield start, len(weights)


def _contents(request: Any) -> Contents:
    """The files or the pixels that a request holds."""
    import triton_python_backend_utils as server

    photo, image = (server.get_input_tensor_by_name(request, name) for name in ("photo", "image"))
    if (photo is None) == (image is None):
        return ImageError("a request needs `photo` (the content of image files) or `image` (pixels), and not both")
    if photo is not None:
        return [bytes(content) for content in photo.as_numpy().ravel()]
    return list(image.as_numpy())


def _decoded(contents: Contents) -> list[Photo] | TrtpostError:
    if isinstance(contents, TrtpostError):
        return contents
    try:
        photos = [read_photo(one) if isinstance(one, bytes) else check_photo(one) for one in contents]
    except TrtpostError as error:
        return error
    except MemoryError:
        return ImageError("the photo does not fit into memory")
    if len({photo.shape for photo in photos}) != 1:
        return ImageError("the photos of one request must have one size: send each in a request of its own")
    return photos


def _bytes_tensor(contents: Sequence[bytes]) -> NDArray[Any]:
    """A tensor of Triton's `TYPE_STRING` [N, 1]."""
    tensor = np.empty((len(contents), 1), np.object_)
    tensor[:, 0] = contents
    return tensor


def _response(answer: Answer) -> Any:
    import triton_python_backend_utils as server

    if isinstance(answer, TrtpostError):
        fault = server.TritonError(str(answer), server.TritonError.INVALID_ARG)
        return server.InferenceResponse(error=fault)
    return server.InferenceResponse([server.Tensor(name, value) for name, value in answer.items()])
