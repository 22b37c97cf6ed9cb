"""What became of TensorFlow's tensors: tf2onnx's optimiser removes those that it can do without, names and all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_SAME_VALUES = ("Transpose", "Identity")
_MADE = re.compile(r"__\d+(:\d+)?$")  # how names end that tf2onnx has made


@contextmanager
def followed() -> Iterator[dict[str, str]]:
    """While tf2onnx converts: the names that TensorFlow's tensors lose, each with the ONNX tensor of the same values.

    The latter may be in the other layout. The dictionary is empty until the conversion has ended.
    """
    from tf2onnx import optimizer

    found: dict[str, str] = {}
    optimize = optimizer.optimize_graph

    def watched(graph: Any, *args: Any, **kwargs: Any) -> Any:
        nodes = [(node.type, list(node.input), list(node.output)) for node in graph.get_nodes()]
        result = optimize(graph, *args, **kwargs)
        found.update(_renamed(nodes, {name for node in result.get_nodes() for name in node.output}))
        return result

    optimizer.optimize_graph = watched
    try:
        yield found
    finally:
        optimizer.optimize_graph = optimize


def _renamed(nodes: Iterable[tuple[str, list[str], list[str]]], kept: set[str]) -> dict[str, str]:
    """For outputs that are not `kept` one that is, and holds the same values; a node is (operator, inputs, outputs)."""
    beside: dict[str, list[str]] = {}
    outputs = []
    for op, inputs, results in nodes:
        outputs += results
        if op in _SAME_VALUES:
            beside.setdefault(inputs[0], []).append(results[0])
            beside.setdefault(results[0], []).append(inputs[0])
    lost = [name for name in outputs if name not in kept and not _MADE.search(name)]
    nearest = {name: _nearest(name, beside, kept) for name in lost}
    return {name: found for name, found in nearest.items() if found is not None}


def _nearest(name: str, beside: dict[str, list[str]], kept: set[str]) -> str | None:
    seen, pending = {name}, [name]
    for one in pending:  # grows while it is walked
        if one in kept:
            return one
        pending += [other for other in beside.get(one, []) if other not in seen]
        seen.update(pending)
    return None
