"""Where a difference begins: in the preprocessing, in the network, or in the post-processing.

Each stage is judged by itself. The reference's network is also given the tensor that the bundle's network gets, and
the reference's post-processing the bundle's logits, so that a stage answers for what it does and not for what it is
given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost import onnx_runtime
from trtpost.bundle.folder import Bundle, read_again
from trtpost.errors import ModelError
from trtpost.graph.baked import NETWORK
from trtpost.graph.baking.seam import seam
from trtpost.graph.emulate import runnable, with_outputs
from trtpost.graph.proto import part_of
from trtpost.photos.decode import Photo
from trtpost.photos.pixels import pixels_of
from trtpost.segment import Result
from trtpost.verify.blame_stages import (
    Stage,
    StageName,
    channels_last,
    network,
    other_heads,
    post_processing,
    preprocessing,
)
from trtpost.verify.reference import Reference, levels_of, tensor_of


@dataclass(frozen=True)
class Blame:
    """Where masks begin to differ.

    Attributes:
        photo: the one that was looked at: the one that differs most.
        stages: in their order.
        verdict: one sentence.
    """

    photo: str
    stages: tuple[Stage, ...]
    verdict: str

    @property
    def begins(self) -> StageName | None:
        """The first stage that differs; None where none does by itself."""
        return next((stage.name for stage in self.stages if stage.differs), None)


def blame(bundle: Bundle, reference: Reference, result: Result, name: str) -> Blame:
    """Look for the first stage that differs, on one photo.

    Args:
        bundle: what is verified; its stages are looked at in ONNX Runtime.
        reference: the replaced pipeline.
        result: the bundle's mask of the photo.
        name: what the photo is called, for people.
    """
    tensor, logits = _inside(bundle, result.photo)
    gray_first = reference.gray_first
    levels = levels_of(result.photo, reference.pre, reference.located.logits_size, gray_first=gray_first)
    expected = tensor_of(levels, reference.pre, reference.located)
    ours = channels_last(tensor, bundle.passport.located.input_layout)
    stages = [preprocessing(bundle, reference, ours, levels)]
    if (heads := other_heads(bundle, reference)) is not None:
        stages.append(Stage("post-processing", True, heads))
        return Blame(name, tuple(stages), _verdict(stages))
    given = ours.transpose(2, 0, 1) if reference.located.input_layout == "NCHW" else ours
    fits = given[None].shape == expected.shape
    answer = reference.network.run(given[None].astype(expected.dtype) if fits else expected)
    same, layout, judged = network(bundle, reference, answer, logits, fits)
    stages.append(judged)
    if same is not None:
        stages.append(post_processing(bundle, reference, same, logits, layout, result))
    return Blame(name, tuple(stages), _verdict(stages))


def _verdict(stages: list[Stage]) -> str:
    first = next((stage for stage in stages if stage.differs), None)
    if first is None:
        return "every stage by itself does the same: what differs are roundings that add up"
    verdict = f"it begins in the {first.name}: {first.text}"
    if others := [stage.name for stage in stages if stage.differs and stage is not first]:
        verdict += f"; the {' and the '.join(others)} {'differs' if len(others) == 1 else 'differ'} as well"
    return verdict


def _inside(bundle: Bundle, photo: Photo) -> tuple[NDArray[Any], NDArray[Any]]:
    """The tensor that the bundle's network gets of a photo, and its logits, both [1, ...]."""
    passport = bundle.passport
    resized = passport.post.size != "image"
    pixels = pixels_of(photo, passport.pre, passport.located.logits_size, resized=resized)
    model = runnable(read_again(bundle).model)
    names = ["pixels", _logits_name(model, bundle)]
    inner = part_of(with_outputs(model, names), ["image"], names)
    session = onnx_runtime.session(inner.SerializeToString(), int8_kernels=False)  # as the portable engine computes
    batch = np.repeat(pixels[None], max(passport.located.batch, 1), axis=0)
    tensor, logits = session.run(names, {"image": batch})
    return tensor[:1], logits[:1]


def _logits_name(model: onnx.ModelProto, bundle: Bundle) -> str:
    """The name of the tensor that the post-processing takes, which an inlined graph does not mark."""
    try:
        return str(seam(model).input[0])
    except ModelError:
        made = {name for node in model.graph.node for name in node.output}
        first = NETWORK + bundle.passport.located.logits
        appended = [first + end for end in ("/Cast/Squeeze", "/Cast/Unsqueeze", "/Squeeze", "/Unsqueeze", "/Cast")]
        return next((name for name in appended if name in made), first)
