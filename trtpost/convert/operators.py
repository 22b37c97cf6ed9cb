"""Which TensorFlow operators a model may hold: those that compute.

Loading a SavedModel runs what it names as its initialisers, and running a model runs whatever its outputs depend on. An
operator that opens files or sockets, starts Python or prints would do that to whoever only wants a mask. So everything
in a model is looked at before TensorFlow loads it, and what is not known to compute is refused by name.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trtpost.errors import ModelError, reason
from trtpost.graph.baked import Call, expanded

MODULES = (
    *("array_ops", "bitwise_ops", "count_ops", "ctc_ops", "image_ops", "linalg_ops", "list_ops", "manip_ops"),
    *("math_ops", "nn_ops", "parsing_ops", "ragged_array_ops", "ragged_conversion_ops", "ragged_math_ops"),
    *("random_ops", "random_index_shuffle_ops", "rnn_ops", "set_ops", "sparse_ops", "special_math_ops"),
    *("spectral_ops", "stateful_random_ops", "stateless_random_ops", "stateless_random_ops_v2", "string_ops"),
    *("uniform_quant_ops",),
)
"""Generated modules of TensorFlow (`tensorflow.python.ops.gen_*`) whose operators compute."""

FRAMEWORK = frozenset(
    {
        # calls and control flow
        *("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile", "Case"),
        *("StatelessCase", "For", "SymbolicGradient", "FakeParam", "_Arg", "_Retval", "NoOp", "ControlTrigger"),
        *("Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit", "LoopCond"),
        *("NextIteration", "RefNextIteration", "Assert"),
        # variables, in memory
        *("VarHandleOp", "ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
        *("VarIsInitializedOp", "DestroyResourceOp", "DisableCopyOnRead", "VariableShape", "ResourceGather"),
        *("ResourceGatherNd", "Variable", "VariableV2", "Assign", "AssignAdd", "AssignSub", "IsVariableInitialized"),
        *("DestroyTemporaryVariable", "TemporaryVariable", "CountUpTo", "ResourceCountUpTo", "DeviceIndex"),
        # tables of values that are in the graph
        *("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "InitializeTable"),
        *("InitializeTableV2", "LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"),
        *("LookupTableImport", "LookupTableImportV2", "LookupTableExport", "LookupTableExportV2"),
        *("LookupTableInsert", "LookupTableInsertV2", "LookupTableRemoveV2", "AnonymousHashTable"),
        *("AnonymousMutableHashTable", "MutableDenseHashTable", "MutableDenseHashTableV2"),
        # stacks, in which loops of TensorFlow 1 keep what their gradients need
        *("Stack", "StackPush", "StackPop", "StackClose", "StackV2", "StackPushV2", "StackPopV2", "StackCloseV2"),
        *("OptionalNone", "OptionalFromValue", "OptionalGetValue", "OptionalHasValue"),
        # arrays of tensors, and summaries, which are texts in memory until something writes them
        *("TensorArrayV3", "TensorArrayReadV3", "TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArrayGatherV3"),
        *("TensorArraySizeV3", "TensorArrayCloseV3", "TensorArrayConcatV3", "TensorArraySplitV3", "DynamicStitch"),
        *("ParallelDynamicStitch", "DynamicPartition", "ScalarSummary", "HistogramSummary", "ImageSummary"),
        *("MergeSummary", "TensorSummaryV2"),
    }
)

TRAINING = re.compile(
    r"(Resource)?(Sparse)?Apply[A-Z]\w*|\w*Grad(V\d)?|\w*GradGrad\w*"
    r"|(Resource)?Scatter(Nd)?(Add|Div|Max|Min|Mul|Sub|Update)|CudnnRNN\w*"
)
"""Optimisers, gradients, and changes of variables in memory, which graphs keep in functions that nobody calls."""

NOT_COMPUTING = frozenset(
    {
        "Abort",  # ends the process
        "ImmutableConst",  # reads a file as a tensor
        *("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "DebugNanCount"),
        *("DebugNumericSummary", "DebugNumericSummaryV2"),  # all of them write to the URLs that they are given
    }
)
"""Operators of `MODULES` that do something else as well."""

SAVING = frozenset(
    {"Save", "SaveSlices", "SaveV2", "MergeV2Checkpoints", "Restore", "RestoreSlice", "RestoreV2", "ShardedFilename"}
)
"""Operators that write and read checkpoints: the saver's own, which nothing else in a model may use."""

WRITING = frozenset({"Save", "SaveSlices", "SaveV2", "MergeV2Checkpoints"})


@cache
def computing() -> frozenset[str]:
    """Names of the operators that compute; imports TensorFlow."""
    from tensorflow.python.framework import op_def_registry

    names = set(FRAMEWORK)
    for module in MODULES:
        name = f"tensorflow.python.ops.gen_{module}"
        if find_spec(name) is not None:  # not every version has all of them
            there = dir(importlib.import_module(name))
            names |= {one for one in there if one[0].isupper() and op_def_registry.get(one) is not None}
    return frozenset(names - NOT_COMPUTING)


def is_computing(operator: str) -> bool:
    """Has an operator no effect but its outputs, and variables in memory?"""
    return operator in computing() or (TRAINING.fullmatch(operator) is not None and operator not in NOT_COMPUTING)


MAX_NODES = 1 << 20
"""Most nodes of a graph whose functions are expanded, as when it is frozen: eight times an ONNX file's."""


def check_graph_def(graph: Any) -> None:
    """Refuse a GraphDef that holds anything but what computes; in its functions too.

    Raises:
        ModelError: it names the operator, the node and the function.
    """
    _check_calls(graph)
    functions = _own_functions(graph)
    for function, node in _nodes(graph):
        if node.op not in functions:
            _check(node, function)


def check_saved_model(folder: Path) -> None:
    """Refuse a SavedModel that would do something when it is loaded or run, before it is loaded.

    The saver's own operators may be in it where nothing that is run leads to them: TensorFlow does not run what writes
    checkpoints, and what reads them only from the folder `variables`.

    Raises:
        ModelError: it names the operator, the node and the function; or the file is damaged.
    """
    from tensorflow.python.saved_model.loader_impl import parse_saved_model

    for meta_graph in parse_saved_model(str(folder)).meta_graphs:
        graph = meta_graph.graph_def
        _check_calls(graph)
        restoring = _behind(graph, [meta_graph.saver_def.restore_op_name])  # is run when the model is loaded
        running = _behind(graph, *_beginnings(meta_graph))
        functions = _own_functions(graph)
        for function, node in _nodes(graph):
            place = (function, "") if function else ("", node.name)
            is_run = place in running or (node.op in WRITING and place in restoring)
            if node.op not in functions and (is_run or node.op not in SAVING):
                _check(node, function)


def _beginnings(meta_graph: Any) -> tuple[list[str], list[str]]:
    """The nodes and functions at which loading and running may begin, but for the saver."""
    graph = meta_graph.graph_def
    signatures = [one for signature in meta_graph.signature_def.values() for one in signature.outputs.values()]
    ends = [_node_of(tensor.name) for tensor in signatures]
    for name, collection in meta_graph.collection_def.items():
        if name != "savers":  # tables, variables and main operations are begun with what stands here
            ends += map(_node_of, collection.node_list.value)
            listed = b"\0".join(collection.bytes_list.value)
            ends += [node.name for node in graph.node if node.name.encode() in listed]
    functions = list(meta_graph.object_graph_def.concrete_functions)
    # TensorFlow replaces a function by another that says it implements the same
    functions += [one.signature.name for one in graph.library.function if "api_implements" in one.attr]
    return ends, functions


def check_flex_operators(custom: Iterable[tuple[str, bytes]]) -> None:
    """Refuse a TFLite model whose custom operators are TensorFlow's, but for those that compute.

    Args:
        custom: names of its custom operators, and their options; TensorFlow's begin with `Flex`, and their options are
            a list of the operator's name and its node.

    Raises:
        ModelError: it names the operator.
    """
    for code, options in custom:
        name = code.removeprefix("Flex")
        if name == code:
            continue
        for operator in (name, *(_flex_node(options) if options else ())):
            if not is_computing(operator):
                raise ModelError(_sentence(operator, "an operator of TensorFlow in the TFLite file"))


def _flex_node(options: bytes) -> tuple[str, str]:
    """The operator of TensorFlow that a custom operator is, twice: as named beside its node, and by the node.

    Raises:
        ModelError: the options are damaged.
    """
    from flatbuffers import flexbuffers
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    try:
        name, node = (one.AsStringBytes for one in flexbuffers.GetRoot(options).AsVector)
        return name.decode(), NodeDef.FromString(node).op  # its bytes as TensorFlow reads them: they are no text
    except Exception as error:  # both libraries raise anything
        raise ModelError(f"the options of an operator of TensorFlow cannot be read: {reason(error)}") from None


def _check_calls(graph: Any) -> None:
    """Refuse functions without end, and those that expand to more nodes than any network has.

    Raises:
        ModelError: they do.
    """
    names = {function.signature.name for function in graph.library.function}

    def calls(nodes: Iterable[Any]) -> list[Call]:
        called = ([("function", name) for name in _called(node) if name in names] for node in nodes)
        return [call for one in called for call in one or [("operator", "")]]

    functions = {("function", one.signature.name): calls(one.node_def) for one in graph.library.function}
    counts = expanded(functions, "its graph")
    total = max((sum(counts.get(call, 1) for call in calls(graph.node)), *counts.values()))
    if total > MAX_NODES:
        raise ModelError(f"its functions expand to {total:.2g} nodes; more than {MAX_NODES} are not taken")


def _check(node: Any, function: str) -> None:
    if not is_computing(node.op):
        raise ModelError(_sentence(node.op, f"node '{node.name}'" + (f" of function '{function}'" if function else "")))


def _sentence(operator: str, where: str) -> str:
    return (
        f"it holds the operator {operator} ({where}), which is not known to compute and nothing else: it may read or "
        "write files, use the network or run code, so the model is not loaded; export the network without it"
    )


def _nodes(graph: Any) -> Iterator[tuple[str, Any]]:
    """All nodes, each with the name of its function; empty in the graph itself."""
    for node in graph.node:
        yield "", node
    for function in graph.library.function:
        for node in function.node_def:
            yield function.signature.name, node


def _own_functions(graph: Any) -> frozenset[str]:
    """The functions that a graph may call by their name as an operator: those not named as one of TensorFlow's."""
    from tensorflow.python.framework import op_def_registry

    names = {function.signature.name for function in graph.library.function}
    return frozenset(name for name in names if op_def_registry.get(name) is None)


def _behind(graph: Any, ends: Iterable[str], functions: Iterable[str] = ()) -> set[tuple[str, str]]:
    """The nodes that the given ones depend on, and the functions that these or the given ones call."""
    nodes = {node.name: node for node in graph.node}
    bodies = {function.signature.name: function for function in graph.library.function}
    gradients = {one.function_name: one.gradient_func for one in graph.library.gradient}
    reached: set[tuple[str, str]] = set()
    pending = [("", _node_of(name)) for name in ends if name] + [(name, "") for name in functions]
    while pending:
        place = pending.pop()
        if place in reached:
            continue
        reached.add(place)
        function, name = place
        if function:
            body = bodies.get(function)
            for node in body.node_def if body is not None else ():
                pending += [(called, "") for called in _called(node)]
            if function in gradients:
                pending.append((gradients[function], ""))
        elif (node := nodes.get(name)) is not None:
            pending += [("", _node_of(one)) for one in node.input]
            pending += [(called, "") for called in _called(node)]
            if node.op in bodies:  # a function may be called by its name as an operator
                pending.append((node.op, ""))
    return reached


def _node_of(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]


def _called(node: Any) -> Iterator[str]:
    """Names of the functions that a node calls."""
    yield node.op
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        for one in attribute.list.func:
            yield one.name
