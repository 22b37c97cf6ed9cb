"""Find the image input and the logits of a segmentation network without being told.

The layout is read from the graph, not guessed from the shape, wherever that is possible: ONNX convolutions are always
NCHW, so the way back from the output to the first of them, through the Transposes between, decides it.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.errors import ModelError
from trtpost.spec import Head, Layout

_NCHW_OPS = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "QLinearConv",
        "ConvInteger",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LpPool",
        "BatchNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "LRN",
        "DepthToSpace",
        "SpaceToDepth",
    }
)
_RESHAPING_OPS = frozenset(
    {
        "Reshape",
        "Flatten",
        "MatMul",
        "Gemm",
        "Einsum",
        "Squeeze",
        "Unsqueeze",
        "ArgMax",
        "ArgMin",
        "ReduceMax",
        "ReduceMean",
        "Gather",
        "GatherND",
        "Shape",
        "Constant",
        "Expand",
        "Tile",
        "ConstantOfShape",
    }
)
_LAYOUT_OF_AXES: dict[tuple[int, ...], Layout] = {(0, 1, 2, 3): "NCHW", (0, 2, 3, 1): "NHWC"}
_TO_NHWC, _TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
_IMAGE_DTYPES = {"float32", "float16", "uint8"}
_AUXILIARY = re.compile(r"(^|[^a-z])(aux|auxiliary|deep_?supervision)", re.IGNORECASE)


@dataclass(frozen=True)
class Located:
    """Where a network takes its pixels and gives its logits.

    Attributes:
        input, input_layout, input_dtype: name, layout and element type of the image input.
        input_size: (height, width) of the network; 0 where dynamic.
        input_channels: 1 or 3.
        batch: fixed batch size, or 0 where dynamic.
        rescales: the network begins with its own normalisation (a Sub, Mul, Add or Div by constants).
        output: the network's output that was chosen.
        logits: the tensor that the post-processing takes: `output`, or one before it.
        layout, head, classes: as in `Post`; `classes` of labels is 0 where the graph does not tell.
        shape: of `logits`; names for dynamic dimensions.
        dtype: of `logits`.
        probability: one channel that has been through a Sigmoid.
        dropped: operators between `logits` and `output` that the post-processing makes needless.
    """

    input: str
    input_layout: Layout
    input_dtype: str
    input_size: tuple[int, int]
    input_channels: int
    batch: int
    rescales: bool
    output: str
    logits: str
    layout: Layout
    head: Head
    classes: int
    shape: tuple[int | str, ...]
    dtype: str
    probability: bool
    dropped: tuple[str, ...]


def locate(
    model: onnx.ModelProto,
    *,
    logits: str | None = None,
    layout: Layout | None = None,
    head: Head | None = None,
    before_argmax: bool = False,
) -> Located:
    """Find input and logits.

    Args:
        model: as `load_model` returns it.
        logits: name of the tensor to take instead of searching the outputs; nothing after or before it is skipped.
        layout: of the logits, where the graph does not tell or tells wrong.
        head: `argmax`, `threshold` or `labels` instead of what type and channels say.
        before_argmax: of a model that ends in ArgMax take the logits before it, which can be interpolated.

    Raises:
        ModelError: nothing fits, or several outputs do; the message lists them and names the flag.
    """
    graph = gs.import_onnx(model)
    source = _image_input(graph)
    input_layout = _input_layout(source)
    shape = _dims(source)
    height, width, channels = shape[1:] if input_layout == "NHWC" else (shape[2], shape[3], shape[1])
    size = (_number(height), _number(width))

    dropped: tuple[str, ...] = ()
    if logits is None:
        output = _segmentation_output(graph)
        tensor = output
        if before_argmax and (argmax := _argmax_before(output)) is not None and len(_dims(argmax.inputs[0])) == 4:
            tensor = argmax.inputs[0]
            dropped = ("ArgMax",)
        tensor, more = _before_needless_ops(tensor, layout, size, head)
        dropped += more
    else:
        output = tensor = _tensor(graph, logits)
    dtype = np.dtype(tensor.dtype).name
    rank = len(_dims(tensor))
    found_head = head or _head(tensor, layout, size)
    if found_head != "labels" and rank != 4:
        raise ModelError(
            f"tensor '{tensor.name}' has {rank} dimensions {_dims(tensor)}: logits need four "
            "(batch, height, width, classes, in either layout); name another tensor with --logits"
        )
    if found_head == "labels" and rank not in (2, 3, 4):
        raise ModelError(f"tensor '{tensor.name}' has {rank} dimensions: labels need two to four")
    found_layout: Layout = "NCHW" if found_head == "labels" else _layout_or_ask(tensor, layout, size)
    channel = _dims(tensor)[1 if found_layout == "NCHW" else 3] if found_head != "labels" else 0
    if found_head != "labels" and not isinstance(channel, int):
        raise ModelError(f"the number of classes of tensor '{tensor.name}' {_dims(tensor)} is not fixed in the model")
    if found_head == "threshold" and channel != 1:
        raise ModelError(f"a threshold needs one channel, but tensor '{tensor.name}' {_dims(tensor)} has {channel}")
    classes = {"labels": _label_count(tensor), "threshold": 2, "argmax": channel}[found_head]
    return Located(
        input=source.name,
        input_layout=input_layout,
        input_dtype=np.dtype(source.dtype).name,
        input_size=size,
        input_channels=_number(channels) or 3,
        batch=_number(shape[0]),
        rescales=_rescales(source),
        output=output.name,
        logits=tensor.name,
        layout=found_layout,
        head=found_head,
        classes=int(classes),
        shape=_dims(tensor),
        dtype=dtype,
        probability=found_head == "threshold" and _after_sigmoid(tensor),
        dropped=dropped,
    )


def input_of(model: onnx.ModelProto) -> tuple[str, Layout]:
    """Name and layout of the image input.

    Raises:
        ModelError: there is none, or more than one.
    """
    source = _image_input(gs.import_onnx(model))
    return source.name, _input_layout(source)


# --- the image input


def _image_input(graph: gs.Graph) -> gs.Variable:
    fitting = [value for value in graph.inputs if len(_dims(value)) == 4 and _dtype_name(value) in _IMAGE_DTYPES]
    if len(fitting) == 1 and len(graph.inputs) == 1:
        return fitting[0]
    if not fitting:
        raise ModelError(
            f"the model has no image input: it needs one of four dimensions and type "
            f"{', '.join(sorted(_IMAGE_DTYPES))}, but has {_listing(graph.inputs)}"
        )
    raise ModelError(
        f"the model has {len(graph.inputs)} inputs, {_listing(graph.inputs)}: "
        "trtpost takes networks with one image input; make the others constants before the export"
    )


def _input_layout(source: gs.Variable) -> Layout:
    """From the ops that consume the input, or where the 1 or 3 channels stand."""
    shape = _dims(source)
    pending, seen = list(source.outputs), set()
    while pending:
        node = pending.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op in _NCHW_OPS:
            return "NCHW"
        if node.op == "Transpose" and len(shape) == 4:
            permutation = list(node.attrs.get("perm", []))
            if permutation in (_TO_NCHW, _TO_NHWC):
                return "NHWC" if permutation == _TO_NCHW else "NCHW"
        if node.op not in _RESHAPING_OPS:
            pending.extend(consumer for output in node.outputs for consumer in output.outputs)
    first, last = shape[1] in (1, 3), shape[3] in (1, 3)
    if first != last:
        return "NCHW" if first else "NHWC"
    raise ModelError(
        f"input '{source.name}' {shape}: cannot tell where the channels are; it needs 1 or 3 of them, in front or last"
    )


def _rescales(source: gs.Variable) -> bool:
    """True where the first arithmetic on the input is by constants: a Rescaling or Normalization layer."""
    tensor = source
    for _ in range(16):
        if len(tensor.outputs) != 1:
            return False
        node = tensor.outputs[0]
        if node.op in ("Sub", "Mul", "Div", "Add", "BatchNormalization"):
            return sum(isinstance(value, gs.Variable) and not _is_constant(value) for value in node.inputs) == 1
        if node.op not in ("Cast", "Transpose", "Identity", "Gather", "Resize", "Slice"):
            return False
        tensor = node.outputs[0]
    return False


# --- the output


def _segmentation_output(graph: gs.Graph) -> gs.Variable:
    candidates = [value for value in graph.outputs if _may_be_mask(value)]
    if not candidates:
        raise ModelError(
            f"no output looks like a segmentation head (logits of four dimensions, or integer labels): "
            f"the model gives {_listing(graph.outputs)}; name the logits' tensor with --logits"
        )
    for narrowing in (_without_auxiliary, _without_ancestors, _largest):
        if len(candidates) > 1:
            candidates = narrowing(candidates)
    if len(candidates) > 1:
        raise ModelError(
            f"several outputs may be the segmentation head: {_listing(candidates)}; choose one with --logits NAME"
        )
    return candidates[0]


def _may_be_mask(value: gs.Variable) -> bool:
    """Two axes of more than one pixel, and a type that logits or labels have."""
    dims = _dims(value)
    labels = _dtype_name(value).startswith(("int", "uint")) or _argmax_before(value) is not None
    ranks = (2, 3, 4) if labels else (4,)
    return len(dims) in ranks and sum(not isinstance(dim, int) or dim > 1 for dim in dims) >= 2


def _without_auxiliary(candidates: list[gs.Variable]) -> list[gs.Variable]:
    return [value for value in candidates if not _AUXILIARY.search(value.name)] or candidates


def _without_ancestors(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Logits and the Softmax or ArgMax of the same logits: keep the first, which holds the most."""
    names = {id(value) for value in candidates}
    kept = []
    for value in candidates:
        tensor, from_other = value, False
        while tensor.inputs and tensor.inputs[0].op in (
            "Softmax",
            "Sigmoid",
            "ArgMax",
            "Cast",
            "Squeeze",
            "Transpose",
        ):
            tensor = tensor.inputs[0].inputs[0]
            from_other = from_other or id(tensor) in names
        if not from_other:
            kept.append(value)
    return kept


def _largest(candidates: list[gs.Variable]) -> list[gs.Variable]:
    """Deep supervision: heads of the same classes at several resolutions; the finest is the one that people use."""
    if len({len(_dims(value)) for value in candidates}) != 1 or any(
        not isinstance(dim, int) for value in candidates for dim in _dims(value)[1:]
    ):
        return candidates
    channels = {min(_dims(value)[1], _dims(value)[-1]) for value in candidates}
    areas = [math.prod(map(_number, _dims(value)[1:])) for value in candidates]
    if len(channels) != 1 or areas.count(max(areas)) != 1:
        return candidates
    return [candidates[areas.index(max(areas))]]


def _before_needless_ops(
    output: gs.Variable, layout: Layout | None, input_size: tuple[int, int], head: Head | None
) -> tuple[gs.Variable, tuple[str, ...]]:
    """Step back over what ArgMax makes needless: Softmax, Sigmoid of several channels, trailing Transpose, and the
    Cast, Squeeze or Unsqueeze around labels."""
    if _argmax_before(output) is not None and head in (None, "labels"):
        return _back_to_argmax(output)
    tensor = output
    dropped: list[str] = []
    while tensor.inputs and len(tensor.inputs[0].outputs) == 1:
        node = tensor.inputs[0]
        before = node.inputs[0] if node.inputs else None
        if before is None or isinstance(before, gs.Constant) or len(_dims(before)) != 4:
            break
        if node.op == "Transpose":
            # an override names the layout of what the model gives, so it holds only before anything is skipped
            if layout is not None or list(node.attrs.get("perm", [])) not in (_TO_NHWC, _TO_NCHW):
                break
        elif node.op in ("Softmax", "LogSoftmax", "Sigmoid"):
            found = layout or _layout(tensor, input_size)
            if found is None or head == "threshold":
                break
            axis = 1 if found == "NCHW" else 3
            channels = _dims(tensor)[axis]
            if channels == 1 or (node.op != "Sigmoid" and node.attrs.get("axis", -1) % 4 != axis):
                break
        elif node.op != "Identity" and not (node.op == "QuantizeLinear" and _dtype_name(before).startswith("float")):
            break
        if node.op != "Identity":
            dropped.append(node.op)
        tensor = before
    return tensor, tuple(dropped)


def _argmax_before(output: gs.Variable) -> gs.Node | None:
    """The ArgMax that the output comes from, through ops that change type, shape or resolution of labels only."""
    tensor = output
    while tensor.inputs:
        node = tensor.inputs[0]
        if node.op == "ArgMax":
            return node
        if node.op not in (
            "Cast",
            "Squeeze",
            "Unsqueeze",
            "Identity",
            "Reshape",
            "Transpose",
            "Resize",
            "Gather",
        ):
            return None
        tensor = node.inputs[0]
    return None


def _back_to_argmax(output: gs.Variable) -> tuple[gs.Variable, tuple[str, ...]]:
    tensor = output
    dropped: list[str] = []
    while tensor.inputs[0].op in ("Cast", "Squeeze", "Unsqueeze", "Identity") and tensor.inputs[0].inputs[0].inputs:
        before = tensor.inputs[0].inputs[0]
        if len(_dims(before)) not in (2, 3, 4):
            break
        dropped.append(tensor.inputs[0].op)
        tensor = before
    if _dtype_name(tensor).startswith(("int", "uint")):
        return tensor, tuple(dropped)
    return output, ()


def _head(tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]) -> Head:
    if _dtype_name(tensor).startswith(("int", "uint", "bool")) or _argmax_before(tensor) is not None:
        return "labels"
    if len(_dims(tensor)) != 4:
        return "argmax"
    found = _layout_or_ask(tensor, layout, input_size)
    return "threshold" if _dims(tensor)[1 if found == "NCHW" else 3] == 1 else "argmax"


def _label_count(tensor: gs.Variable) -> int:
    argmax = _argmax_before(tensor)
    if argmax is None:
        return 0
    dims = _dims(argmax.inputs[0])
    count = dims[argmax.attrs.get("axis", 0) % len(dims)] if dims else 0
    return _number(count)


def _after_sigmoid(tensor: gs.Variable) -> bool:
    while tensor.inputs:
        node = tensor.inputs[0]
        if node.op in ("Sigmoid", "HardSigmoid"):
            return True
        if node.op not in (
            "Transpose",
            "Identity",
            "Resize",
            "Cast",
            "Reshape",
            "QuantizeLinear",
            "DequantizeLinear",
        ):
            return False
        tensor = node.inputs[0]
    return False


# --- layout


def _layout_or_ask(tensor: gs.Variable, layout: Layout | None, input_size: tuple[int, int]) -> Layout:
    found = layout or _layout(tensor, input_size)
    if found is None:
        raise ModelError(
            f"cannot tell the layout of tensor '{tensor.name}' {_dims(tensor)}: say --layout NHWC or --layout NCHW"
        )
    return found


def _layout(tensor: gs.Variable, input_size: tuple[int, int]) -> Layout | None:
    return _layout_from_graph(tensor) or _layout_from_shape(_dims(tensor), input_size)


def _layout_from_graph(tensor: gs.Variable) -> Layout | None:
    """Back to the first convolution; every Transpose on the way swaps the answer."""
    axes = [0, 1, 2, 3]  # where each axis of `tensor` stands in the tensor we are at
    for _ in range(10_000):
        if not tensor.inputs:
            return None
        node = tensor.inputs[0]
        if node.op in _NCHW_OPS:
            return _LAYOUT_OF_AXES.get(tuple(axes))
        if node.op in _RESHAPING_OPS:
            return None
        if node.op == "Transpose":
            permutation = list(node.attrs.get("perm", [3, 2, 1, 0]))
            if len(permutation) != 4:
                return None
            axes = [permutation[axis] for axis in axes]
        variables = [value for value in node.inputs if isinstance(value, gs.Variable) and len(_dims(value)) == 4]
        if not variables:
            return None
        tensor = variables[0]
    return None


def _layout_from_shape(shape: tuple[int | str, ...], input_size: tuple[int, int]) -> Layout | None:
    """By which two axes are in proportion to the network's input."""
    dims = [_number(dim) for dim in shape]
    if len(dims) != 4 or not all(input_size):
        return None

    def proportional(height: int, width: int) -> bool:
        # strided networks round sizes up, so allow one pixel
        return height > 1 and width > 1 and abs(height * input_size[1] / input_size[0] - width) <= 1

    last, first = proportional(dims[1], dims[2]), proportional(dims[2], dims[3])
    if last == first:
        return None
    return "NHWC" if last else "NCHW"


# --- tensors


def _tensor(graph: gs.Graph, name: str) -> gs.Variable:
    tensors = {key: value for key, value in graph.tensors().items() if isinstance(value, gs.Variable) and value.inputs}
    tensor = tensors.get(name) or tensors.get(name + ":0")
    if tensor is None:
        outputs = [value.name for value in graph.outputs]
        close = difflib.get_close_matches(name, tensors, 3) or outputs
        raise ModelError(
            f"the model has no tensor '{name}' (--logits); did you mean {' or '.join(repr(one) for one in close)}?"
        )
    if tensor.dtype is None or tensor.shape is None:
        raise ModelError(f"type and shape of tensor '{name}' cannot be inferred: name another with --logits")
    return tensor


def _is_constant(value: gs.Variable) -> bool:
    return bool(value.inputs) and value.inputs[0].op == "Constant"


def _dims(value: gs.Variable) -> tuple[int | str, ...]:
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape or ())


def _number(dim: int | str) -> int:
    return dim if isinstance(dim, int) and dim > 0 else 0


def _dtype_name(value: gs.Variable) -> str:
    return np.dtype(value.dtype).name if value.dtype is not None else "unknown"


def _listing(values: list[gs.Variable]) -> str:
    return ", ".join(f"'{value.name}' {_dtype_name(value)} {list(_dims(value))}" for value in values) or "none"
