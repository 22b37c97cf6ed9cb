"""A bundle as models that Triton serves: the configuration and the files of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import onnx

from trtpost.bundle.folder import MODEL, PASSPORT, Bundle, Contents
from trtpost.errors import SpecError, one_line
from trtpost.graph.baking.seam import inlined, is_inlined
from trtpost.graph.emulate import runnable
from trtpost.kernels.reference import size_inputs
from trtpost.letterbox import Region
from trtpost.spec import Form
from trtpost.triton.backend import BUNDLE
from trtpost.triton.config import Tensor, Warmup, ensemble_config, model_config

_LABELS = "labels.txt"
_MODEL = '"""Runs inside Triton; written by trtpost."""\n\nfrom trtpost.triton.backend import {} as TritonPythonModel\n'


@dataclass(frozen=True)
class Part:
    """One model of the repository.

    Attributes:
        config: its `ModelConfig`.
        files: content of each path in the version's folder.
        beside: content of each path beside the versions.
    """

    config: Any
    files: dict[str, bytes]
    beside: dict[str, bytes]


def segmenter_part(contents: Contents, name: str, instances: int, max_batch: int, max_pixels: int) -> Part:
    """Make one model of everything: the bundle behind our own `Segmenter`."""
    bundle = contents.bundle
    pre = bundle.passport.pre
    size = bundle.passport.post.size if isinstance(bundle.passport.post.size, tuple) else (pre.height, pre.width)
    config = model_config(
        name,
        "photos to masks",
        "python",
        [Tensor("photo", "bytes", (1,), optional=True), Tensor("image", "uint8", (-1, -1, 3), optional=True)],
        [Tensor("mask", _mask_type(bundle), (-1, -1), labels=_LABELS), Tensor("png", "bytes", (1,))],
        max_batch=max_batch,
        instances=instances,
        on_gpu=bundle.plan is not None,
        warmup=[Warmup("image", "uint8", (*size, 3))],
        max_pixels=max_pixels,
    )
    files = {"model.py": _MODEL.format("MaskModel").encode()}
    if PASSPORT in contents.files:
        files |= {f"{BUNDLE}/{file}": content for file, content in contents.files.items()}
    else:
        files[BUNDLE] = contents.files[MODEL]
    return Part(config, files, _labels(bundle))


def engine_parts(
    contents: Contents, name: str, form: Form, instances: int, max_batch: int | None, max_pixels: int
) -> list[Part]:
    """Make a model of the engine in a backend of Triton's own, and an ensemble where photos must be scaled first."""
    bundle, model = contents.bundle, contents.model
    passport = bundle.passport
    if form == "tensorrt_plan":
        content = _plan(contents)
    else:
        model = runnable(model)
        content = (model if is_inlined(model) else inlined(model)).SerializeToString()
    joined = 0 if passport.located.batch or passport.post.size == "runtime" else max_batch or passport.max_batch
    if max_batch is not None and max_batch > 1 and not joined:
        why = "the network's batch is fixed" if passport.located.batch else "its mask's size is a value of each request"
        raise SpecError(
            f"Triton cannot join requests for this engine, because {why}: leave --max-batch out, "
            "or build with --size image or HxW from a network whose batch is dynamic"
        )
    alone = passport.post.size == "image"
    inputs = [_tensor(value, bool(joined), form) for value in model.graph.input]
    (mask,) = [replace(_tensor(value, bool(joined), form), labels=_LABELS) for value in model.graph.output]
    image = next(one for one in inputs if one.name == "image")
    first, samples = _first(bundle, image, [one.name for one in inputs])
    engine = model_config(
        name if alone else f"{name}_engine",
        "whole photos to masks" if alone else "engine",
        "tensorrt" if form == "tensorrt_plan" else "onnxruntime",
        inputs,
        [mask],
        platform=form,
        max_batch=joined,
        instances=instances,
        warmup=first,
    )
    engine_part = Part(
        engine, {"model.plan" if form == "tensorrt_plan" else "model.onnx": content}, samples | _labels(bundle)
    )
    if alone:
        return [engine_part]
    photo = model_config(
        f"{name}_photo",
        "photos to pixels",
        "python",
        [Tensor("photo", "bytes", (1,))],
        [replace(one, shape=False) for one in inputs],
        max_batch=joined,
        on_gpu=False,
        max_pixels=max_pixels,
    )
    card = passport.to_json().encode()
    photo_part = Part(photo, {"model.py": _MODEL.format("PhotoModel").encode(), PASSPORT: card}, {})
    whole = ensemble_config(name, [photo, engine], "mask", max_batch=joined)
    return [photo_part, engine_part, Part(whole, {}, _labels(bundle))]


def _plan(contents: Contents) -> bytes:
    bundle, plan = contents.bundle, contents.bundle.passport.plan
    if plan is None or contents.plan is None:
        raise SpecError(
            f"{bundle.path} holds no TensorRT plan: build it where the full TensorRT is, or export --form python"
        )
    if plan.flavour != "tensorrt":
        raise SpecError(
            f"the plan of {bundle.path} is for TensorRT for RTX, which Triton does not run: build with "
            "--flavour tensorrt, or export --form python"
        )
    if plan.post != "native":
        raise SpecError(
            f"the mask of {bundle.path} is made by our {plan.post}, not by TensorRT's own layers, which Triton runs: "
            "build with --post native, or export --form python"
        )
    return contents.plan


def _tensor(value: onnx.ValueInfoProto, joined: bool, form: Form) -> Tensor:
    """An input or output of the engine; without the batch where Triton counts it."""
    kind = value.type.tensor_type
    dims = [dim.dim_value or -1 for dim in kind.shape.dim]
    return Tensor(
        value.name,
        str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)),
        tuple(dims[1:] if joined else dims),
        shape=form == "tensorrt_plan" and value.name in ("output_size", "region"),
    )


def _first(bundle: Bundle, image: Tensor, names: Iterable[str]) -> tuple[list[Warmup], dict[str, bytes]]:
    """A request for a photo of the network's own size: its tensors, and the files that hold the sizes."""
    passport = bundle.passport
    size = (passport.pre.height, passport.pre.width)
    dims = (*image.dims[:-3], *size, passport.pre.depth)
    pixels = Warmup("image", "uint8", tuple(max(side, 1) for side in dims))
    sizes = size_inputs(passport.post, Region(0, 0, *passport.located.logits_size), size)
    files = {f"warmup/{name}": value.tobytes() for name, value in sizes.items() if name in names}
    return [pixels, *(Warmup(n, "int64", v.shape, file=n) for n, v in sizes.items() if n in names)], files


def _labels(bundle: Bundle) -> dict[str, bytes]:
    return {_LABELS: "".join(f"{one_line(name)}\n" for name in bundle.passport.classes).encode()}


def _mask_type(bundle: Bundle) -> str:
    return "int32" if bundle.passport.post.wide else "uint8"
