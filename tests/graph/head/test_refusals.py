"""What is refused, and what next to it is not."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import ending

from trtpost.errors import ModelError
from trtpost.graph.head import refusals

IMAGE = gs.Variable("image", np.float32, (1, 3, 8, 12))
SCORES, IDS = "float[1,4,8,12] out", "int64[1,1,8,12] out"
ARGMAX = "i = ArgMax <axis = 1> (y)\n"


def refused(message: str):
    """For `with`: a ModelError with this message, or, where it is empty, none."""
    return pytest.raises(ModelError, match=message) if message else nullcontext()


def source_of(tensor: gs.Tensor) -> gs.Tensor:
    while tensor.inputs:
        tensor = tensor.inputs[0].inputs[0]
    return tensor


@pytest.mark.parametrize(
    ("body", "out", "head", "message"),
    [
        ("out = Identity (y)", SCORES, None, ""),
        ("out = Identity (y)", SCORES, "argmax", ""),
        (f"{ARGMAX} out = Identity (i)", IDS, None, ""),
        (f"{ARGMAX} out = Identity (i)", IDS, "labels", ""),
        (f"{ARGMAX} out = Identity (i)", IDS, "argmax", "holds class ids, one for each pixel, so --head argmax"),
        (f"{ARGMAX} out = Identity (i)", IDS, "multilabel", "so --head multilabel cannot be"),
        ("out = Sigmoid (y)", SCORES, "labels", "holds values between 0 and 1, and no class ids"),
        ("s = Sigmoid (y)\n out = Add (s, s)", SCORES, "labels", ""),  # up to 2
        ("out = ArgMax (y)", "int64[1,4,8,12] out", None, "is an ArgMax over one class, .* --logits 'y'"),
        (
            f"{ARGMAX} f = Cast <to = 1> (i)\n out = Div (f, two)",
            "float[1,1,8,12] out",
            None,
            "may hold what is no whole",
        ),
        (f"{ARGMAX} f = Cast <to = 1> (i)\n out = Div (f, two)", "float[1,1,8,12] out", "threshold", ""),
    ],
)
def test_what_is_no_mask(body, out, head, message):
    tensor = ending(body, out, two=np.float32(2))
    with refused(message):
        refusals.refuse_no_mask(tensor, source_of(tensor), head)


def test_what_is_the_same_for_every_image():
    with refused("'out' is the same for every image"):
        refusals.refuse_no_mask(ending("out = Identity (y)", SCORES), IMAGE, None)


@pytest.mark.parametrize(("batch", "masks", "message"), [(1, 1, ""), (1, 2, "holds 2 masks of one image"), (2, 2, "")])
def test_several_masks_of_one_image(batch, masks, message):
    tensor = ending("out = Identity (y)", SCORES)
    source, tensor.shape = source_of(tensor), (masks, 4, 8, 12)
    source.shape = (batch, 3, 8, 12)
    with refused(message):
        refusals.refuse_no_mask(tensor, source, None)


@pytest.mark.parametrize(
    ("shape", "batch", "message"),
    [
        ((8, 12), 1, ""),
        ((8, 12), 8, "a row of values for each photo of the batch"),
        (("N", 12), "N", "a row of values for each photo of the batch"),
        ((1, 12), 1, ""),
        ((2, 8, 12), 2, ""),
        ((2, 8, 12), 1, r"has 2 entries, but the input holds 1 photo:"),
        ((1, 4, 8, 12), 2, r"has 1 entries, but the input holds 2 photos:"),
        ((2, 4, 8, 12), "N", ""),
        (("N", 4, 8, 12), 2, ""),
    ],
)
def test_one_entry_for_each_photo(shape, batch, message):
    with refused(message):
        refusals.refuse_other_batch(gs.Variable("out", np.float32, shape), shape, batch)


@pytest.mark.parametrize(
    ("op", "classes", "message"),
    [
        ("Softmax <axis = 1>", 1, "is a Softmax of one class, which is 1 everywhere: .* --logits 'y'"),
        ("LogSoftmax <axis = 1>", 1, "is a LogSoftmax of one class, which is 0 everywhere"),
        ("Softmax <axis = 1>", 2, ""),
        ("Softmax", 1, ""),  # over columns, where no axis is said
        ("Sigmoid", 1, ""),
    ],
)
@pytest.mark.parametrize("tail", ["Identity (p)", "Transpose <perm = [0, 2, 3, 1]> (p)"])
def test_a_softmax_of_one_class(op, classes, message, tail):
    shape = f"1,8,12,{classes}" if "Transpose" in tail else f"1,{classes},8,12"
    tensor = ending(f"p = {op} (y)\n out = {tail}", f"float[{shape}] out", classes=classes)
    with refused(message):
        refusals.refuse_lone_softmax(tensor)


MASKS = (1, 32, 8, 12)


@pytest.mark.parametrize(
    ("chosen", "beside", "whole", "message"),
    [
        (MASKS, (1, 116, 8400), False, "as of networks that detect objects"),  # boxes, classes and 32 coefficients
        (MASKS, (1, 100, 32), False, "as of networks that detect objects"),  # a coefficient for each
        (MASKS, (1, 100, 37), False, "as of networks that detect objects"),
        (MASKS, (1, 30, 36), False, ""),  # no more than four numbers of a box
        (MASKS, (1, 100, 32), True, ""),
        (MASKS, (1, 8, 12), False, ""),  # rows and columns
        (MASKS, (1, 32, 96), False, ""),  # the same, flattened
        (MASKS, (1, 36, 96), False, ""),
        (MASKS, (1, 37, 96), False, "as of networks that detect objects"),  # 96 objects, as many as pixels
        (MASKS, (1, 32), False, ""),
        ((1, 2, 8, 12), (1, 6, 6), False, ""),
        ((1, 2, 8, 12), (1, 6, 7), False, "as of networks that detect objects"),
        ((1, 1, 8, 12), (1, 6, 7), False, ""),  # a mask for all of them
    ],
)
def test_masks_of_objects(chosen, beside, whole, message):
    mask = gs.Variable("mask", np.float32, chosen)
    other = gs.Variable("other", np.int64 if whole else np.float32, beside)
    with refused(message):
        refusals.refuse_detector(mask, gs.Graph(outputs=[mask, other]), (8, 12))


@pytest.mark.parametrize(
    ("count", "beside", "message"),
    [
        (12, (1, 12, 4), "as of networks that detect objects"),
        (3, (1, 4, 3), "as of networks that detect objects"),
        (12, (1, 12, 5), ""),
        (1, (1, 1, 4), ""),
    ],
)
def test_class_ids_of_boxes(count, beside, message):
    ids, boxes = gs.Variable("ids", np.int64, (1, count)), gs.Variable("boxes", np.float32, beside)
    gs.Node("ArgMax", inputs=[gs.Variable("scores", np.float32, (1, count, 80))], outputs=[ids])
    with refused(message):
        refusals.refuse_detector(ids, gs.Graph(outputs=[ids, boxes]), (8, 12))
