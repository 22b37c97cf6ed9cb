"""Negative class ids, which some networks write where no class is sure enough; they become `IGNORED`."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtpost.graph.head.contents import argmax_before
from trtpost.graph.walks import constant_values, dtype_name, nodes_before

_STEPS = 64
"""Number of nodes before the labels that are looked at."""


def may_be_negative(labels: gs.Variable) -> bool:
    """True for class ids of a signed type that are not those of an ArgMax."""
    return dtype_name(labels).startswith(("int", "float")) and argmax_before(labels) is None


def tells_negative(model: onnx.ModelProto, labels: str) -> bool:
    """True where a whole number below zero is chosen by a Where or a Gather for a label, or subtracted from one."""
    tensor = gs.import_onnx(model).tensors()[labels]
    if not may_be_negative(tensor):
        return False

    def numbers(node: gs.Node) -> list[gs.Tensor]:
        variables = (one for one in node.inputs if constant_values(one) is None)
        return [one for one in variables if dtype_name(one).startswith(("int", "uint", "float"))]

    for node in itertools.islice(nodes_before(tensor, numbers), _STEPS):
        for value in node.inputs:
            values = constant_values(value)
            if values is not None and values.dtype.kind in "if" and values.size and (values == np.round(values)).all():
                chosen = node.op in ("Where", "Gather", "Add") and values.min() < 0
                if chosen or (node.op == "Sub" and value is node.inputs[1] and values.max() > 0):
                    return True
    return False
