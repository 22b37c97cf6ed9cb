"""Which output is the mask's."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from nets import kernel, nchw, net

from trtpost.errors import ModelError
from trtpost.graph.head.outputs import segmentation_output, tensor_named

Y, ARGMAX = "float[1,4,8,12] y", "ids = ArgMax <axis = 1> (y)\n"


def network(body: str, outputs: str, *, size: str = "8,12", batch: str = "1", **weights: np.ndarray) -> gs.Graph:
    """A convolution that gives `y` [1, 4, 8, 12], and what follows it."""
    weights["k"] = weights.get("k", kernel(4))
    return gs.import_onnx(net(f"y = Conv (image, k)\n {body}", f"float[{batch},3,{size}] image", outputs, **weights))


def chosen(graph: gs.Graph) -> str:
    sides = tuple(side if isinstance(side, int) else 0 for side in graph.inputs[0].shape[2:])
    return segmentation_output(graph, graph.inputs[0], sides).name


@pytest.mark.parametrize(
    ("body", "outputs", "name"),
    [
        ("c = Identity (y)", f"float[1,4,8,12] c, {Y}", "c"),  # one tensor: the first
        ("aux_y = Relu (y)", f"float[1,4,8,12] aux_y, {Y}", "y"),
        ("p = Softmax <axis = 1> (y)", f"float[1,4,8,12] p, {Y}", "y"),  # what holds the most
        (f"{ARGMAX} m = Cast <to = 2> (ids)", f"uint8[1,1,8,12] m, {Y}", "y"),
        (f"{ARGMAX} best = ReduceMax <axes = [1], keepdims = 0> (y)", "int64[1,1,8,12] ids, float[1,8,12] best", "ids"),
        ("best, ids = TopK <axis = 1> (y, one)", "float[1,1,8,12] best, int64[1,1,8,12] ids", "ids"),
        ("half = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (y)", f"float[1,4,4,6] half, {Y}", "y"),
        ("v = ReduceMean <axes = [2, 3]> (y)", f"float[1,4,1,1] v, {Y}", "y"),  # one value a photo
        ("flat = Reshape (y, pixels)", "float[1,4,96] flat", "flat"),
        (
            "flat = Reshape (y, pixels)\n v = ReduceMean <axes = [1]> (flat)",
            "float[1,1,96] v, float[1,4,96] flat",
            "flat",
        ),
        ("b = Greater (y, zero)\n n = NonZero (b)", f"int64[4,M] n, {Y}", "y"),  # a list of places
        (f"{ARGMAX} s = Squeeze (ids)", "int64[8,12] s", "s"),
        ("a = Relu (y)\n b = Abs (y)", "float[1,4,8,12] a, float[1,4,8,12] b", None),
    ],
)
def test_the_output_of_the_mask(body, outputs, name):
    weights = {"one": np.array([1]), "pixels": np.array([1, 4, 96]), "zero": np.float32(0)}
    graph = network(body, outputs, **weights)
    if name is not None:
        assert chosen(graph) == name
    else:
        with pytest.raises(
            ModelError, match=r"several outputs may be the segmentation head: .* choose one with --logits"
        ):
            chosen(graph)


@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("aux", True),
        ("x/aux_1", True),
        ("deep_supervision", True),
        ("deepSupervision2", True),
        ("Auxiliary", True),
        ("faux", False),
        ("auxin", True),
    ],
)
def test_names_of_auxiliary_heads(name, skipped):
    graph = network("a = Relu (y)", f"float[1,4,8,12] a, {Y}")
    graph.outputs[0].name = name
    if skipped:
        assert chosen(graph) == "y"
    else:
        with pytest.raises(ModelError, match="several outputs"):
            chosen(graph)


@pytest.mark.parametrize(
    ("shapes", "name"),
    [
        (("4,16,24", "4,8,12"), "a"),
        (("4,8,12", "4,16,24"), "b"),
        (("4,8,12", "8,16,24"), None),  # of other classes
        (("4,8,12", "4,8,24"), None),  # of the same height
        (("4,8,W", "4,16,24"), None),
        (("8,12,4", "16,24,4"), "b"),  # channels last
    ],
)
def test_the_finest_of_heads_that_are_alike(shapes, name):
    graph = network("a = Relu (y)\n b = Abs (y)", "float[1,4,8,12] a, float[1,4,8,12] b")
    for output, shape in zip(graph.outputs, shapes, strict=True):
        output.shape = (1, *(int(side) if side.isdigit() else side for side in shape.split(",")))
    if name is not None:
        assert chosen(graph) == name
    else:
        with pytest.raises(ModelError, match="several outputs"):
            chosen(graph)


@pytest.mark.parametrize(
    ("batch", "rows", "fits"),
    [("1", 8, True), ("1", "M", True), ("2", 8, True), ("8", 8, False), ("N", "N", False), ("N", "M", False)],
)
def test_known_batch_axes_are_no_rows(batch, rows, fits):
    """Class ids [8, 12]: a mask of one photo, or a row of numbers for each of eight."""
    graph = network(ARGMAX, "int64[M,1,8,12] ids", batch=batch)
    graph.outputs[0].shape = (rows, 12)
    if fits:
        assert chosen(graph) == "ids"
    else:
        with pytest.raises(ModelError, match="no output looks like a segmentation head"):
            chosen(graph)


def test_one_row_tells_no_mask():
    with pytest.raises(ModelError, match="the input is 1x12, and one row or column does not tell a mask"):
        chosen(network("", "float[1,1,1,12] y", size="1,12", k=kernel(1)))


@pytest.mark.parametrize(
    ("named", "found"),
    [("y", "y"), ("y:0", "y"), ("t", "t:0"), ("t:0", "t:0")],
    ids=["as it is", "less", "more", "both"],
)
def test_tensors_by_name(named, found):
    graph = network("t = Relu (y)", "float[1,4,8,12] t")
    graph.outputs[0].name = "t:0"
    assert tensor_named(graph, named).name == found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("image", "'image' \\(--logits\\) is an input of the model"),
        ("k", "no tensor 'k' \\(--logits\\); did you mean 'logits'"),  # weights are none that it computes
        ("logit", "did you mean 'logits'"),
    ],
)
def test_names_that_are_refused(name, message):
    with pytest.raises(ModelError, match=message):
        tensor_named(gs.import_onnx(nchw()), name)


@pytest.mark.parametrize("unknown", ["dtype", "shape"])
def test_a_tensor_of_which_nothing_is_known(unknown):
    graph = gs.import_onnx(nchw())
    setattr(graph.outputs[0], unknown, None)
    with pytest.raises(ModelError, match="type and shape of tensor 'logits' cannot be inferred"):
        tensor_named(graph, "logits")
