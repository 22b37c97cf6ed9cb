"""The source model in its own framework, untouched: TensorFlow, the TFLite interpreter, or ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtpost import onnx_runtime
from trtpost.convert import load
from trtpost.convert.mediapipe import without_custom_ops
from trtpost.convert.operators import check_flex_operators
from trtpost.convert.tflite_file import custom_operators
from trtpost.errors import BackendError, ModelError, TrtpostError, reason
from trtpost.graph.emulate import with_outputs
from trtpost.graph.head.locate import locate
from trtpost.spec import IGNORED, Layout, Located
from trtpost.storage.files import open_regular
from trtpost.verify.frameworks import quiet, tensorflow
from trtpost.verify.kernel_sets import computes_in_integers

if TYPE_CHECKING:
    from trtpost.builder.decide import Decided

SQUASHING = ("Softmax", "LogSoftmax", "Sigmoid")
"""Ops that may lie between the logits that a bundle takes and the output that people see."""


@dataclass(frozen=True)
class Answer:
    """What a network says of one photo.

    Attributes:
        scores: float32 [h, w, C], a value for each class, or one for a threshold; of `multilabel` the first is the
            threshold. Where the network ends in labels: what they are the ArgMax of, or None where that cannot
            be read.
        labels: integers [h, w] where the network ends in labels; else None.
        step: difference between neighbouring values of quantised scores; 0 for floats.
    """

    scores: NDArray[np.float32] | None
    labels: NDArray[Any] | None
    step: float = 0.0


@dataclass(frozen=True)
class Network:
    """A model ready to run.

    Attributes:
        name: framework and version, for people.
        run: the input tensor [1, ...] in the network's own layout to its answer.
        squashed: the last of `SQUASHING` that the scores have been through and a bundle's logits have not; or empty.
        kernels: which of its framework's kernel sets it runs on; empty where that makes no difference to speak of.
        others: the same model on the framework's other kernel sets, where it computes in integers.
    """

    name: str
    run: Callable[[NDArray[Any]], Answer]
    squashed: str
    kernels: str = ""
    others: tuple[Network, ...] = ()


@dataclass(frozen=True)
class _Raw:
    """A tensor as the framework gives it: scale and zero are those of integers that stand for real numbers."""

    values: NDArray[Any]
    scale: float = 1.0
    zero: int = 0


Runner = Callable[[NDArray[Any]], tuple[_Raw, _Raw | None]]
"""A function of the input tensor that gives the chosen output and, for labels, what they are the ArgMax of."""


def load_network(source: Path, kind: str, decided: Decided, signature: str | None) -> Network:
    """Load a model into its own framework.

    Args:
        source, kind: the model and what `kind_of` says of it.
        decided: which of its outputs is the mask's, and in which layout.
        signature: which signature of a SavedModel that has several.

    Raises:
        TrtpostError: the framework is missing or refuses the model, or the scores cannot be read from it.
    """
    located = decided.located
    inner = located.head != "labels" and "ArgMax" in located.dropped  # bilinear: what the final ArgMax was taken of
    kernels, others = "", []
    try:
        with quiet():
            if kind == "onnx":
                name, run, layout = _onnx(source, decided, inner)
            elif kind == "tflite":
                kernels, *rest = _kernel_sets(decided, inner)
                name, run, layout = _tflite(source, decided, inner, kernels)
                others = [(one, *_tflite(source, decided, inner, one)) for one in rest]
            elif inner:
                raise ModelError(
                    f"{source} ends in class ids, and {kind} does not show the logits before them, which a bilinear "
                    "resize is made of: verify a bundle built with --resize nearest"
                )
            else:
                name, run, layout = _tensorflow(source, kind, decided, signature)
    except TrtpostError:
        raise
    except Exception as error:  # the frameworks raise anything
        raise BackendError(f"{source} cannot be run in its own framework: {reason(error)}") from None
    squashing = [] if inner and kind == "onnx" else [op for op in located.dropped if op in SQUASHING]
    squashed = squashing[-1] if squashing else ""
    return Network(
        name,
        _answering(source, located, run, layout),
        squashed,
        kernels if others else "",
        tuple(
            Network(one_name, _answering(source, located, one_run, one_layout), squashed, one)
            for one, one_name, one_run, one_layout in others
        ),
    )


def _answering(source: Path, located: Located, run: Runner, layout: Layout) -> Callable[[NDArray[Any]], Answer]:
    """What reads a network's answer from the tensors that its framework gives, the scores in `layout`."""

    def answer(tensor: NDArray[Any]) -> Answer:
        try:
            output, behind = run(tensor)
        except Exception as error:
            raise BackendError(f"{source} failed in its own framework: {reason(error)}") from None
        if located.head != "labels":
            return Answer(with_background(_scores(output, layout, located), located), None, _step(output))
        labels = output.values.reshape(-1, *_plane(output.values, located))[0]
        scores = None if behind is None else _scores(behind, layout, located)
        if scores is not None and scores.shape[:2] != labels.shape:
            scores = None  # the labels were resized inside the network
        labels = np.where(labels < 0, IGNORED, labels.astype(np.int64))
        return Answer(scores, labels, 0.0 if behind is None else _step(behind))

    return answer


def with_background(scores: NDArray[np.float32], located: Located) -> NDArray[np.float32]:
    """Scores [h, w, C], preceded by the threshold that one of them must exceed, where there is one."""
    if located.background is None:
        return scores
    return np.pad(scores, ((0, 0), (0, 0), (1, 0)), constant_values=np.float32(located.background))


def _scores(raw: _Raw, layout: Layout, located: Located) -> NDArray[np.float32]:
    """Scores [h, w, C] of the first image; an output without four dimensions has its pixels in the same order."""
    values = raw.values
    if values.ndim != 4 or (all(located.own_size) and located.head != "labels"):
        batch, (height, width) = max(located.batch, 1), located.own_size
        values = values.reshape((batch, -1, height, width) if layout == "NCHW" else (batch, height, width, -1))
    scores: NDArray[np.float32] = (values[0].astype(np.float32) - raw.zero) * np.float32(raw.scale)
    return np.ascontiguousarray(scores.transpose(1, 2, 0) if layout == "NCHW" else scores)


def _step(raw: _Raw) -> float:
    return raw.scale if raw.values.dtype.kind in "iu" else 0.0


def _typed(tensor: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """The tensor as a framework takes it; pixels that become int8 are less by 128."""
    if tensor.dtype == np.uint8 and dtype == np.int8:
        return (tensor.astype(np.int16) - 128).astype(np.int8)
    typed: NDArray[Any] = tensor.astype(dtype)
    return typed


def _plane(labels: NDArray[Any], located: Located) -> tuple[int, ...]:
    """Rows and columns of labels [N, h, w], [N, 1, h, w] or [N, h, w, 1]."""
    if all(located.own_size):
        return located.own_size
    shape = labels.shape[1:] if labels.ndim > 2 else labels.shape
    return shape if len(shape) == 2 else shape[1:] if shape[0] == 1 else shape[:2]


def output_layout(located: Located) -> Layout:
    """The layout of the output that people see: a Transpose behind the logits turns theirs."""
    if located.dropped.count("Transpose") % 2 == 0:
        return located.layout
    return "NHWC" if located.layout == "NCHW" else "NCHW"


def _index(located: Located, names: list[str]) -> int:
    if located.output in names:
        return names.index(located.output)
    if len(names) == 1:
        return 0
    raise ModelError(f"of the outputs {', '.join(names)} none is '{located.output}', which the mask is made of")


def _onnx(source: Path, decided: Decided, inner: bool) -> tuple[str, Runner, Layout]:
    located = decided.located
    layout = located.layout if inner else output_layout(located)
    names = [located.logits if inner else located.output]
    if located.head == "labels":
        before = locate(decided.model, before_argmax=True)
        if before.head == "argmax" and before.own_size == located.own_size:
            names, layout = [*names, before.logits], before.layout
    with open_regular(source) as file:
        model = onnx.load(file, format="protobuf", load_external_data=False)
    onnx.load_external_data_for_model(model, str(source.parent))
    own = set(names) <= {value.name for value in model.graph.output}
    session = onnx_runtime.session(source if own else with_outputs(model, names).SerializeToString(), relayout=False)
    is_signed = any(one.name == located.input and one.type == "tensor(int8)" for one in session.get_inputs())
    # integers stand for real numbers where the bundle takes those from before the last QuantizeLinear
    units = _quantization(model, names[0]) if "QuantizeLinear" in located.dropped and not inner else (1.0, 0)

    def run(tensor: NDArray[Any]) -> tuple[_Raw, _Raw | None]:
        batch = np.repeat(tensor, max(located.batch, 1), axis=0)
        batch = _typed(batch, np.int8) if is_signed else batch
        found = [_Raw(np.asarray(value)) for value in session.run(names, {located.input: batch})]
        return _Raw(found[0].values, *units), found[1] if len(found) > 1 else None

    return onnx_runtime.version(), run, layout


def _quantization(model: onnx.ModelProto, output: str) -> tuple[float, int]:
    """Scale and zero point of the integers that an ONNX model gives, by the QuantizeLinear that makes them."""
    made = {name: node for node in model.graph.node for name in node.output}
    node = made[output]
    while node.op_type != "QuantizeLinear":
        node = made[node.input[0]]
    known = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    known |= {
        name: onnx.numpy_helper.to_array(one.attribute[0].t)
        for name, one in made.items()
        if one.op_type == "Constant" and one.attribute[0].HasField("t")
    }
    scale, zero = (known.get(name) for name in (*node.input[1:], "")[:2])
    if (
        scale is None
        or scale.size != 1
        or (zero is None and len(node.input) > 2)
        or (zero is not None and zero.size != 1)
    ):
        raise ModelError(f"output '{output}' is quantised by a scale that is no constant number: verify cannot read it")
    return float(scale.reshape(())), 0 if zero is None else int(zero.reshape(()))


def _kernel_sets(decided: Decided, inner: bool) -> list[str]:
    """TensorFlow Lite's kernel sets to run a model on: what people get first, or what shows the tensors inside."""
    deep = inner or decided.located.head == "labels"
    first, *rest = ("default", "XNNPACK", "reference") if deep else ("XNNPACK", "default", "reference")
    if not computes_in_integers(decided.model, "tflite"):
        return [first]
    return [first, *(one for one in rest if not (inner and one == "XNNPACK"))]


def _tflite(source: Path, decided: Decided, inner: bool, kernels: str) -> tuple[str, Runner, Layout]:
    tf = tensorflow()
    located = decided.located
    check_flex_operators(custom_operators(source))
    # delegates keep the tensors between their operators to themselves
    deep = inner or (located.head == "labels" and kernels != "XNNPACK")
    resolver = tf.lite.experimental.OpResolverType
    resolvers = {
        "XNNPACK": resolver.AUTO,
        "default": resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "reference": resolver.BUILTIN_REF,
    }
    interpreter = tf.lite.Interpreter(
        model_content=without_custom_ops(source),
        num_threads=1,
        experimental_preserve_all_tensors=deep,
        experimental_op_resolver_type=resolvers[kernels],
    )
    interpreter.allocate_tensors()
    (into,) = interpreter.get_input_details()
    outputs = interpreter.get_output_details()
    output = outputs[_index(located, [detail["name"] for detail in outputs])]
    behind, layout = _before_argmax(interpreter, output["index"]) if deep else (None, output_layout(located))
    if inner and behind is None:
        raise ModelError(f"the logits that {source} takes its ArgMax of cannot be found in it")

    def run(tensor: NDArray[Any]) -> tuple[_Raw, _Raw | None]:
        interpreter.set_tensor(into["index"], _typed(tensor, into["dtype"]))
        interpreter.invoke()
        logits = None if behind is None else _read(interpreter, behind)
        return (logits, None) if inner and logits is not None else (_read(interpreter, output), logits)

    return f"TensorFlow Lite's interpreter of TensorFlow {tf.__version__}", run, layout


def _before_argmax(interpreter: Any, output: int) -> tuple[dict[str, Any] | None, Layout]:
    """The tensor that an ArgMax at the end of a TFLite model is taken of, and its layout; None where there is none."""
    for operator in interpreter._get_ops_details():
        if operator["op_name"] == "ARG_MAX" and output in operator["outputs"]:
            axis = int(interpreter.get_tensor(operator["inputs"][1])) % 4
            for detail in interpreter.get_tensor_details():
                if detail["index"] == operator["inputs"][0] and len(detail["shape"]) == 4 and axis in (1, 3):
                    return detail, "NCHW" if axis == 1 else "NHWC"
    return None, "NHWC"


def _read(interpreter: Any, detail: dict[str, Any]) -> _Raw:
    scale, zero = detail["quantization"]
    return _Raw(interpreter.get_tensor(detail["index"]), scale or 1.0, zero)


def _tensorflow(source: Path, kind: str, decided: Decided, signature: str | None) -> tuple[str, Runner, Layout]:
    tf = tensorflow()
    located = decided.located
    if kind == "graph_def":
        graph, (placeholder, *_), ends = load.frozen_graph(source)

        def imported() -> None:
            tf.compat.v1.import_graph_def(graph, name="")

        wrapped = tf.compat.v1.wrap_function(imported, [])
        chosen = ends[_index(located, ends)]
        owner, function = wrapped, wrapped.prune(f"{placeholder}:0", [f"{chosen}:0"])
        names, keyword = [chosen], None
    else:
        if kind == "saved_model":
            owner, function, names = load.saved_model_function(source, signature)
        else:
            owner, function, names = load.keras_function(source, located.input_size)
        if len(names) != len(function.outputs):
            names = [tensor.name.split(":")[0] for tensor in function.outputs]
        by_name = function.structured_input_signature[1]
        keyword = next(iter(by_name)) if by_name else None
    index = _index(located, names)

    def run(tensor: NDArray[Any], _owner: Any = owner) -> tuple[_Raw, _Raw | None]:  # the owner must not be freed
        batch = tf.constant(np.repeat(tensor, max(located.batch, 1), axis=0))
        found = function(batch) if keyword is None else function(**{keyword: batch})
        return _Raw(np.asarray(tf.nest.flatten(found)[index])), None

    return f"TensorFlow {tf.__version__}", run, output_layout(located)
