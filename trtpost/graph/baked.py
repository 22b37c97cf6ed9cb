"""A baked graph as its file's bytes: the passport in it, what goes in and comes out, and its two parts at the logits.

It does for what runs what the rest of `trtpost.graph` does for what builds, without `onnx`. Field numbers are those of
onnx.proto.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from trtpost.errors import ModelError
from trtpost.graph.wire import Field, WireError, bytes_of, fields, integer, messages, single, text, written

DOMAIN = "trtpost"
"""Operator domain of our node and prefix of our metadata keys."""

NODE = "ArgMaxResize"

NETWORK = "network/"
"""Prefix of every name that comes from the source model, so that ours can be plain: image, output_size, mask."""

MAX_NODES = 1 << 17
"""Nodes that a graph may have when its functions are expanded: a few kilobytes of functions can make any number."""

MAX_DEPTH = 100
"""Depth to which functions may call each other: onnx itself goes no deeper."""

OPSET_IMPORT, GRAPH, METADATA, FUNCTIONS = 8, 7, 14, 25  # of ModelProto
NODES, GRAPH_NAME, INITIALIZERS, INPUTS, OUTPUTS, VALUES = 1, 2, 5, 11, 12, 13  # of GraphProto
NODE_INPUTS, NODE_OUTPUTS, OP_TYPE, ATTRIBUTES, NODE_DOMAIN = 1, 2, 4, 5, 7  # of NodeProto
FUNCTION_NAME, FUNCTION_NODES, FUNCTION_DOMAIN = 1, 7, 10  # of FunctionProto
ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS = 6, 11  # of AttributeProto
DATA_TYPE, TENSOR_NAME = 2, 8  # of TensorProto

FLOAT, UINT8, INT32, BFLOAT16 = 1, 2, 6, 16  # of TensorProto.DataType
NUMPY_TYPES = {
    **{1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64"},
    **{9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64"},
}
"""numpy's names of element types by their number in TensorProto.DataType."""


@dataclass(frozen=True)
class Value:
    """Element type, as in TensorProto.DataType, and shape of a tensor; 0 where dynamic."""

    kind: int
    shape: tuple[int, ...]


class Baked:
    """The content of an ONNX file, read field by field.

    Args:
        content: those of the file.

    Raises:
        WireError: it is no ONNX file, or not written as one is.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._fields = list(fields(memoryview(content)))
        self._graph = list(fields(single(memoryview(content), GRAPH)))

    @cached_property
    def passport(self) -> str | None:
        """The text of the passport; None where there is none."""
        found = None
        for entry in self._messages(METADATA):
            try:
                if text(entry, 1) == f"{DOMAIN}.passport":
                    found = text(entry, 2)
            except WireError:  # texts that are not UTF-8 are none of ours
                continue
        return found

    @property
    def inputs(self) -> dict[str, Value]:
        """The graph's inputs by name."""
        return _values(self._of_graph(INPUTS))

    @property
    def outputs(self) -> dict[str, Value]:
        """The graph's outputs by name."""
        return _values(self._of_graph(OUTPUTS))

    @property
    def is_inlined(self) -> bool:
        """True where the graph holds no function of ours any more."""
        return not any(text(one, FUNCTION_DOMAIN) == DOMAIN for one in self._messages(FUNCTIONS))

    @property
    def has_bfloat16(self) -> bool:
        """True where the graph, or a graph in it, states a tensor of bfloat16."""
        for graph in (self._graph, *(list(fields(one)) for one in _inner_graphs(self._of_graph(NODES)))):
            for field in graph:
                if field.number in (INPUTS, OUTPUTS, VALUES) and _value(bytes_of(field)).kind == BFLOAT16:
                    return True
                if field.number == INITIALIZERS and integer(bytes_of(field), DATA_TYPE) == BFLOAT16:
                    return True
        return False

    def check_calls(self, name: str) -> None:
        """Refuse a graph whose functions the function `check_calls` refuses; `name` is that of the model."""
        functions = {
            (text(one, FUNCTION_DOMAIN), text(one, FUNCTION_NAME)): list(_called(messages(one, FUNCTION_NODES)))
            for one in self._messages(FUNCTIONS)
        }
        check_calls(functions, list(_called(self._of_graph(NODES))), name)

    def digest(self) -> bytes:
        """SHA-256 of what is computed: without the metadata, which hold the passport."""
        digest = hashlib.sha256()
        for number in (GRAPH, FUNCTIONS, OPSET_IMPORT):
            for one in self._messages(number):
                digest.update(f"{number} {len(one)} ".encode())
                digest.update(one)
        return digest.digest()

    @cached_property
    def known(self) -> dict[str, Value]:
        """The tensors whose type the graph states, by name."""
        return _values(bytes_of(field) for field in self._graph if field.number in (INPUTS, OUTPUTS, VALUES))

    @cached_property
    def _seam(self) -> Field:
        seams = [field for field in self._graph if field.number == NODES and _call(bytes_of(field)) == (DOMAIN, NODE)]
        if len(seams) != 1:
            raise WireError(f"it has {len(seams)} nodes {DOMAIN}::{NODE}, not one")
        return seams[0]

    @property
    def logits(self) -> str:
        """Name of the tensor that our node takes.

        Raises:
            WireError: the graph has no such node.
        """
        names = _names(self._seam, NODE_INPUTS)
        if not names or names[0] not in self.known:
            raise WireError(f"the type of tensor '{next(iter(names), '')}' is not known")
        return names[0]

    def split(self) -> tuple[bytes, bytes]:
        """Cut the graph at the logits: (`image` to logits, logits and sizes to `mask`), both as files.

        A fixed size stays with the second part; every other size is an input of it.

        Raises:
            WireError: the graph has no `ArgMaxResize` node as `bake` writes it.
        """
        logits, sizes = self.logits, _names(self._seam, NODE_INPUTS)[1:]
        results = set(_names(self._seam, NODE_OUTPUTS))
        nodes = [field for field in self._graph if field.number == NODES]
        later = nodes[[id(field) for field in nodes].index(id(self._seam)) + 1 :]  # nodes stand in the order they run
        tail = [self._seam, *(field for field in later if results.intersection(_names(field, NODE_INPUTS)))]
        known = {text(bytes_of(field), 1): bytes_of(field) for field in self._graph if field.number in (INPUTS, VALUES)}
        fixed = {text(bytes_of(field), TENSOR_NAME): field for field in self._graph if field.number == INITIALIZERS}
        free = [name for name in sizes if name not in fixed]
        if missing := [name for name in (logits, "image", *free) if name not in known]:
            raise WireError(f"the type of tensor '{missing[0]}' is not known")
        dropped = [*tail, *(fixed[name] for name in sizes if name in fixed)]
        # fields are compared by where they lie: their content may be equal
        places = {id(field) for field in dropped}
        kept = (field.raw for field in self._graph if field.number not in (INPUTS, OUTPUTS) and id(field) not in places)
        image, end = written(INPUTS, [known["image"]]), written(OUTPUTS, [known[logits]])
        network = self._model([*kept, image, end])
        inputs = [written(INPUTS, [known[name]]) for name in (logits, *free)]
        ends = [field.raw for field in self._graph if field.number in (GRAPH_NAME, OUTPUTS)]
        return network, self._model([*(field.raw for field in dropped), *inputs, *ends])

    def _model(self, graph: Iterable[bytes | memoryview]) -> bytes:
        """A file of these fields of a graph, and what else the model is made of, without the metadata."""
        rest = (field.raw for field in self._fields if field.number not in (GRAPH, METADATA))
        return b"".join([*rest, written(GRAPH, graph)])

    def _messages(self, number: int) -> list[memoryview]:
        return [bytes_of(field) for field in self._fields if field.number == number]

    def _of_graph(self, number: int) -> list[memoryview]:
        return [bytes_of(field) for field in self._graph if field.number == number]


def source_name(name: str) -> str:
    """A tensor's name in the source model, for messages: without `NETWORK`."""
    return name.removeprefix(NETWORK)


Call = tuple[str, str]
"""Domain and name of the operator, or of the function, that a node calls."""


def check_calls(functions: dict[Call, list[Call]], graph: list[Call], name: str) -> None:
    """Refuse functions that call each other in a circle, and those that never end for any practical purpose.

    Args:
        functions: what the nodes of each model-local function call.
        graph: what the nodes of the main graph call.
        name: the model's, for messages.

    Raises:
        ModelError: they do not end.
    """
    counts = expanded(functions, name)
    if (total := sum(counts.get(call, 1) for call in graph)) > MAX_NODES:
        what = f"its functions expand to {total:.2g} nodes" if total > len(graph) else f"it has {total} nodes"
        raise ModelError(f"{name}: {what}; more than {MAX_NODES} are not taken")


def expanded(functions: dict[Call, list[Call]], name: str) -> dict[Call, int]:
    """Number of nodes that each function has when what it calls is expanded; it takes what `check_calls` takes.

    Raises:
        ModelError: functions call each other in a circle, or too deep.
    """
    waiting = {key: len(set(calls) & functions.keys()) for key, calls in functions.items()}
    callers: dict[Call, list[Call]] = {}
    for key, calls in functions.items():
        for call in set(calls):
            callers.setdefault(call, []).append(key)
    counts: dict[Call, int] = {}
    depths: dict[Call, int] = {}
    ready = [key for key, count in waiting.items() if not count]  # Kahn's order: each call is looked at once
    while ready:
        key = ready.pop()
        counts[key] = max(sum(counts.get(call, 1) for call in functions[key]), 1)  # an empty one is called all the same
        depths[key] = 1 + max((depths.get(call, 0) for call in functions[key]), default=0)
        for caller in callers.get(key, ()):
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    if left := [key for key in functions if key not in counts]:
        raise ModelError(f"{name}: function '{left[0][1]}' calls itself, so it has no end")
    if (depth := max(depths.values(), default=0)) > MAX_DEPTH:
        raise ModelError(f"{name}: its functions call each other {depth} deep; more than {MAX_DEPTH} are not taken")
    return counts


def _values(given: Iterable[memoryview]) -> dict[str, Value]:
    return {text(one, 1): _value(one) for one in given}


def _value(message: memoryview) -> Value:
    """The type and the shape that a ValueInfoProto states of a tensor."""
    tensor = single(single(message, 2), 1)
    return Value(integer(tensor, 1), tuple(integer(dim, 1) for dim in messages(single(tensor, 2), 1)))


def _names(node: Field, number: int) -> list[str]:
    return [str(one, "utf-8", "replace") for one in messages(bytes_of(node), number)]


def _call(node: memoryview) -> Call:
    domain = name = ""
    for field in fields(node):
        if field.number == OP_TYPE:
            name = str(bytes_of(field), "utf-8", "replace")
        elif field.number == NODE_DOMAIN:
            domain = str(bytes_of(field), "utf-8", "replace")
    return domain, name


def _called(nodes: Iterable[memoryview]) -> Iterator[Call]:
    """What nodes call, and the nodes inside them."""
    nodes = list(nodes)
    yield from map(_call, nodes)
    for graph in _inner_graphs(nodes):
        yield from map(_call, messages(graph, NODES))


def _inner_graphs(nodes: Iterable[memoryview]) -> Iterator[memoryview]:
    """The graphs inside an If, Loop or Scan, and those inside them."""
    pending = list(nodes)
    while pending:
        for attribute in messages(pending.pop(), ATTRIBUTES):
            for field in fields(attribute):
                if field.number in (ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS):
                    graph = bytes_of(field)
                    yield graph
                    pending += messages(graph, NODES)
