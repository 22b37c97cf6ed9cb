"""The check of a conversion by its results: the source model in TensorFlow and the ONNX file, on the same pictures.

How pixels are normalised is settled only when the logits are found, so of the two pictures one has values of 0..255 and
the other of -1..1: what a network takes is near one of them. A picture that is far from it may drive a network to where
rounding alone changes the results; the pictures are then changed by as much as rounding does, to see how far that goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost import onnx_runtime
from trtpost.bundle.passport import Arithmetic, Check, Unit
from trtpost.convert.pictures import levels
from trtpost.errors import ModelError, reason

_FLOATS = ("float", "half")

_SIDES = (256, 224, 512, 64)
"""Sizes that are tried, in this order, of a network that leaves its own open."""

BOUNDS: dict[Arithmetic, float] = {"float": 2e-5, "half": 5e-3, "quantised": 4.0, "dynamic range": 0.05}
"""How far values may lie apart in the quadratic mean, which a few pixels on the edge of a step do not decide: as a
share of their range; `quantised` in steps."""

_CLASSES: dict[Arithmetic, float] = {"float": 1e-3, "half": 2e-2, "quantised": 0.1, "dynamic range": 0.1}
"""Share of pixels that may have another class, where the network ends in classes."""

_ROUNDING: dict[Arithmetic, float] = {"float": 2.0**-20, "half": 2.0**-11}
"""By which share of its range a picture is changed, to see what rounding does; else by `float`'s."""

_AMPLIFIED = 4
"""How many times as far as such a change moves them values may lie apart: every layer rounds."""

_KERNELS = 2
"""How many times as far as other kernels of the framework are from its usual ones values may lie apart."""

_CHAOS = 0.1
"""A picture whose results move by this share when it is changed like that says nothing."""

_NO_NUMBER = 1e9
"""What a NaN differs by."""

Runner = Callable[[NDArray[Any]], list[NDArray[Any]]]
"""A model: a picture to its outputs."""


@dataclass(frozen=True)
class Source:
    """The source model, ready to run.

    Attributes:
        framework: name and version, for people.
        outputs: names of the outputs, as in the ONNX file.
        run: the model.
        another: the same by other kernels of the framework, where it has some that round in another way.
        is_dynamic_range: whether it quantises activations on the fly, where the ONNX file computes in floats.
        steps: for each output what lies between neighbouring integers that stand for real numbers; 0: they don't.
    """

    framework: str
    outputs: list[str]
    run: Runner
    another: Runner | None = None
    is_dynamic_range: bool = False
    steps: tuple[float, ...] = ()


class _LeftOutError(Exception):
    """Nothing can be compared; says why."""


def checked(source: Callable[[], Source], converted: Path) -> dict[str, Any]:
    """What a comparison found, ready for JSON: `checks` and `seconds`, or under `unchecked` why there are none.

    Raises:
        ModelError: the ONNX file fails on a picture that the source model takes.
    """
    begun = time.monotonic()
    try:
        found = _checks(_loaded(source), converted)
    except _LeftOutError as error:
        return {"unchecked": str(error)}
    return {"checks": [asdict(one) for one in found], "seconds": time.monotonic() - begun}


def _loaded(source: Callable[[], Source]) -> Source:
    try:
        return source()
    except Exception as error:  # the frameworks raise anything; a fault of the model was seen when it was converted
        raise _LeftOutError(f"TensorFlow does not run the model ({reason(error)})") from None


def _checks(source: Source, converted: Path) -> list[Check]:
    """The largest difference of each output."""
    try:
        session = onnx_runtime.session(converted, int8_kernels=False, relayout=False)
    except Exception as error:  # what of it a bundle needs is loaded again, and then said with its operator
        raise _LeftOutError(f"ONNX Runtime does not take all of the network ({reason(error)})") from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise _LeftOutError(f"the model takes {len(inputs)} inputs, and a picture is one")
    names = [one.name for one in session.get_outputs()]
    if len(names) != len(source.outputs):
        raise _LeftOutError(f"the model has {len(source.outputs)} outputs, and what it became {len(names)}")
    # by position where the converter has named them anew
    order = [names.index(name) if name in names else index for index, name in enumerate(source.outputs)]
    arithmetic = _arithmetic(converted, source)
    worst: dict[str, Check] = {}
    for picture, theirs in _answered(source, inputs[0]):
        try:
            results = session.run(None, {inputs[0].name: picture})
        except Exception as error:
            raise ModelError(
                f"TensorFlow runs it on a picture of {_shape(picture)}, but what it was converted to fails there "
                f"({reason(error)}): that is a fault of the conversion, so export the model in another format, or as "
                "ONNX, and see whether that goes; --no-check goes on without looking"
            ) from None
        ours = [np.asarray(results[place]) for place in order]
        for one in _compared(source, arithmetic, picture, theirs, ours):
            before = worst.get(one.output)
            if before is None or one.difference / one.bound > before.difference / before.bound:
                worst[one.output] = one
    if not worst:
        raise _LeftOutError("rounding alone changes what the model says of the pictures it was given")
    return list(worst.values())


def _answered(source: Source, taken: Any) -> Iterator[tuple[NDArray[Any], list[NDArray[Any]]]]:
    """Two pictures, and what the source model says of each."""
    dtype = _dtype(taken.type)
    if dtype is None:
        raise _LeftOutError(f"the model takes {taken.type}, and no pixels")
    is_open = any(not isinstance(side, int) or side < 1 for side in taken.shape[1:])
    fault = ""
    for side in _SIDES if is_open else _SIDES[:1]:
        first, second = _pictures(_whole(taken.shape, side), dtype)
        try:
            answer = source.run(first)
        except Exception as error:  # too small a size, say
            fault = fault or reason(error)
            continue
        yield first, answer
        yield second, source.run(second)
        return
    raise _LeftOutError(f"TensorFlow does not run the model ({fault})")


def _whole(shape: list[Any], side: int) -> tuple[int, ...]:
    """A shape without open sides: one image of that side, in colour."""
    known = [size if isinstance(size, int) and size > 0 else 0 for size in shape]
    if len(known) == 4:
        channels = 1 if known[1] in (1, 3) and known[3] not in (1, 3) else 3
        known[channels] = known[channels] or 3
    return tuple((size or side) if axis else (size or 1) for axis, size in enumerate(known))


def _pictures(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two pictures: floats are of 0..255 and of -1..1."""
    first, second = levels(shape, 1), levels(shape, 2)
    if dtype.kind == "f":
        return first.astype(dtype), (second / 127.5 - 1).astype(dtype)
    if dtype == np.int8:
        return (first - 128).astype(dtype), (second - 128).astype(dtype)
    return first.astype(dtype), second.astype(dtype)


def _dtype(text: str) -> np.dtype[Any] | None:
    """numpy's type for `tensor(float)` and the like, where pixels can be of it."""
    name = text.removeprefix("tensor(").removesuffix(")")
    name = {"float": "float32", "double": "float64"}.get(name, name)
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    return dtype if dtype.kind in "iuf" else None


def _arithmetic(converted: Path, source: Source) -> Arithmetic:
    """What the network computes in."""
    model = onnx.load(converted, load_external_data=False)
    if source.is_dynamic_range:
        return "dynamic range"
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        return "quantised"
    halves = [onnx.helper.get_node_attr_value(node, "to") for node in model.graph.node if node.op_type == "Cast"]
    halves += [one.data_type for one in model.graph.initializer]
    return "half" if onnx.TensorProto.FLOAT16 in halves else "float"


def _compared(
    source: Source,
    arithmetic: Arithmetic,
    picture: NDArray[Any],
    theirs: list[NDArray[Any]],
    ours: list[NDArray[Any]],
) -> Iterator[Check]:
    """The difference of each output on one picture; none where the picture says nothing of it."""
    others: list[list[NDArray[Any]]] | None = None
    for index, name in enumerate(source.outputs):
        step = source.steps[index] if source.steps else 0.0
        if theirs[index].size != ours[index].size:
            raise ModelError(
                f"what it was converted to gives output '{name}' as {_shape(ours[index])} instead of "
                f"{_shape(theirs[index])}: that is a fault of the conversion, so export the model in another format, "
                "or as ONNX"
            )
        apart = _apart(theirs[index], ours[index], arithmetic, step)
        if apart is None:
            continue
        check = Check(source.framework, name, arithmetic, *apart)
        if not check.passed:
            if others is None:
                others = _again(source, arithmetic, picture)
            moved = [_apart(theirs[index], other[index], arithmetic, step) for other in others]
            furthest = max((one[0] for one in moved if one is not None), default=0.0)
            if furthest > (_CHAOS if check.unit != "steps" else 255 * _CHAOS):
                continue
            times = _AMPLIFIED if arithmetic in _FLOATS or source.another is None else _KERNELS
            check = replace(check, bound=max(check.bound, times * furthest))
        yield check


def _again(source: Source, arithmetic: Arithmetic, picture: NDArray[Any]) -> list[list[NDArray[Any]]]:
    """What the source model says where it rounds in another way, or takes the picture with a little rounding in it."""
    if source.another is not None and arithmetic not in _FLOATS:
        return [source.another(picture)]
    if picture.dtype.kind != "f":
        return []
    share = _ROUNDING.get(arithmetic, _ROUNDING["float"]) * np.ptp(picture)
    changes = [np.random.default_rng(seed).choice((-share, share), picture.shape) for seed in (3, 4)]
    return [source.run((picture + change).astype(picture.dtype)) for change in changes]


def _apart(
    theirs: NDArray[Any], ours: NDArray[Any], arithmetic: Arithmetic, step: float
) -> tuple[float, float, Unit] | None:
    """How far two results are apart, the bound of that, and its unit; None where theirs is no number somewhere."""
    if theirs.dtype.kind in "iub" and not step:
        return float(np.mean(theirs.ravel() != ours.ravel())), _CLASSES[arithmetic], "pixels"
    a, b = theirs.ravel().astype(np.float64), ours.ravel().astype(np.float64)
    if not np.isfinite(a).all():
        return None
    span = float(np.ptp(a)) or float(np.abs(a).max(initial=0)) or 1.0
    unit = span if arithmetic != "quantised" else 1.0 if step else span / 255
    difference = float(np.sqrt(np.mean((a - b) ** 2))) / unit if np.isfinite(b).all() else _NO_NUMBER
    return difference, BOUNDS[arithmetic], "steps" if arithmetic == "quantised" else "range"


def _shape(values: NDArray[Any]) -> str:
    return "x".join(map(str, values.shape))
