"""Brings logits that do not cover the network's input onto a grid that does.

What comes after, of any size and in any runtime, then knows nothing of it: the grid is what the mask is made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray

from trtpost.errors import SpecError
from trtpost.graph.head.layout import channel_axis
from trtpost.letterbox import on_grid
from trtpost.spec import IGNORED, Coverage, Located, Post, Resize


def with_coverage(
    graph: gs.Graph, logits: gs.Variable, located: Located, post: Post, side: tuple[int, int]
) -> gs.Variable:
    """Append what makes logits on the whole input of the network's own, in their layout; labels are [N, h, w].

    Args:
        graph: the network.
        logits: of the size `located.own_size`.
        located: says what they cover.
        post: the head, and how the mask is resized: a logit that has several cells of the grid is repeated for
            `nearest`, and interpolated for `bilinear`.
        side: (h, w) of the network's input.

    Raises:
        SpecError: the class of what is outside cannot be written.
    """
    covers = located.covers
    if covers is None:
        return logits
    places = [
        np.array(on_grid(start, length, own, whole, cells))
        for start, length, own, whole, cells in zip(
            (covers.top, covers.left), (covers.height, covers.width), located.own_size, side, covers.grid, strict=True
        )
    ]
    first = 2 if post.head != "labels" and located.layout == "NCHW" else 1
    for axis, (place, own) in enumerate(zip(places, located.own_size, strict=True), start=first):
        logits = _along(graph, logits, axis, place, own, post.resize)
    if covers.outside is None:
        return logits
    beyond = [(place < 0) | (place >= own) for place, own in zip(places, located.own_size, strict=True)]
    return _with_outside(graph, logits, located, post, beyond[0][:, None] | beyond[1], covers)


def _along(
    graph: gs.Graph, source: gs.Variable, axis: int, place: NDArray[np.float64], own: int, resize: Resize
) -> gs.Variable:
    """The values at these places along one axis."""
    nearest = np.clip(np.floor(place), 0, own - 1).astype(np.int64)
    if resize == "nearest" or np.all(place - 0.5 == np.floor(place)):
        return _taken(graph, source, axis, nearest, "covered")
    if not np.issubdtype(np.dtype(source.dtype), np.floating):
        source = _node(
            graph, "Cast", [source], f"{source.name}/float", source.shape, np.float32, to=onnx.TensorProto.FLOAT
        )
    centre = np.clip(place - 0.5, 0, own - 1)
    lower = np.floor(centre).astype(np.int64)
    near = _taken(graph, source, axis, lower, "lower")
    far = _taken(graph, source, axis, np.minimum(lower + 1, own - 1), "upper")
    weight = (centre - lower).astype(source.dtype).reshape([-1 if at == axis else 1 for at in range(len(source.shape))])
    share = gs.Constant(f"{near.name}/weight", weight)
    rise = _node(graph, "Sub", [far, near], f"{near.name}/rise", near.shape, near.dtype)
    part = _node(graph, "Mul", [rise, share], f"{near.name}/part", near.shape, near.dtype)
    return _node(graph, "Add", [near, part], f"{near.name}/between", near.shape, near.dtype)


def _with_outside(
    graph: gs.Graph, source: gs.Variable, located: Located, post: Post, beyond: NDArray[np.bool_], covers: Coverage
) -> gs.Variable:
    """The class `covers.outside` where `beyond` [h, w] is true."""
    chosen = covers.outside
    assert chosen is not None
    if post.resize == "bilinear":
        raise SpecError(
            "--outside does not go with --resize bilinear, which has no edge between logits and none: leave one of "
            "them out"
        )
    known = chosen < post.classes or (post.head == "labels" and chosen == IGNORED)
    if not known:
        raise SpecError(
            f"--outside {chosen} is none of the network's {post.classes} classes, 0 to {post.classes - 1}, and its "
            "logits can say no other: choose one of them"
        )
    if post.head == "labels":  # of a type that holds it
        source = _node(
            graph, "Cast", [source], f"{source.name}/wide", source.shape, np.int32, to=onnx.TensorProto.INT32
        )
    dtype = np.dtype(source.dtype)
    axis = channel_axis(located.layout)
    if post.head == "labels":
        value: NDArray[Any] = np.array(chosen, dtype)
    elif post.head == "threshold":
        away = max(1.0, abs(post.threshold))
        value = np.array(post.threshold + (away if chosen else -away)).astype(dtype)
    else:
        ids = np.arange(located.classes).reshape([-1 if at == axis else 1 for at in range(4)])
        value = (ids == chosen).astype(dtype)
    if post.head != "labels":
        beyond = np.expand_dims(beyond, axis - 1) if axis == 1 else beyond[..., None]
    where, instead = (
        gs.Constant(f"{source.name}/{name}", array) for name, array in (("beyond", beyond[None]), ("outside", value))
    )
    return _node(graph, "Where", [where, instead, source], f"{source.name}/with_outside", source.shape, source.dtype)


def _taken(graph: gs.Graph, source: gs.Variable, axis: int, index: NDArray[np.int64], what: str) -> gs.Variable:
    name = f"{source.name}/{what}{axis}"
    shape = [len(index) if at == axis else dim for at, dim in enumerate(source.shape)]
    return _node(graph, "Gather", [source, gs.Constant(f"{name}/index", index)], name, shape, source.dtype, axis=axis)


def _node(
    graph: gs.Graph, op: str, inputs: list[gs.Tensor], name: str, shape: Any, dtype: Any, **attrs: int
) -> gs.Variable:
    result = gs.Variable(name, dtype=dtype, shape=shape)
    graph.nodes.append(gs.Node(op, name=name, attrs=attrs, inputs=inputs, outputs=[result]))
    return result
