"""A quantised network's own slack: by how much the kernels of the framework that it was made for differ."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from trtpost.graph import ops
from trtpost.graph.proto import graphs_of
from trtpost.verify.compare import Figures

_INTEGER = ("ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")
"""Operators beside the `QLinear...` that compute in integers."""


@dataclass(frozen=True)
class Spread:
    """By how much the masks of a framework's own kernel sets differ, on the photos that the bundle is compared on.

    Attributes:
        base: the kernel set that the reference runs on.
        others: the figures of each other set's masks against the reference's, by name.
    """

    base: str
    others: tuple[tuple[str, Figures], ...]

    @property
    def least(self) -> float:
        """The share of pixels with the same class, apart from ties, of the set that differs most."""
        return min(one.agreement_apart_from_ties for _, one in self.others)

    @property
    def text(self) -> str:
        """What people are told of it."""
        shares = [
            f"{name} gives another class to {1 - one.agreement:.4%} of the pixels, "
            f"{1 - one.agreement_apart_from_ties:.4%} apart from ties"
            for name, one in self.others
        ]
        return f"against TensorFlow Lite's {self.base} kernels, {'; '.join(shares)}"


def computes_in_integers(model: onnx.ModelProto, kind: str) -> bool:
    """Whether roundings of integers lie inside a network, whatever the types of its edges.

    A quantised image that is only dequantised, and a result that is only quantised, leave the network between them one
    of floats. Weights alone in integers do so in ONNX; TensorFlow Lite then quantises what they are multiplied by.
    """
    nodes = [node for graph in graphs_of(model) for node in graph.node]
    if any(node.op_type.startswith("QLinear") or node.op_type in _INTEGER for node in nodes):
        return True
    made = {name: node for node in nodes for name in node.output}
    constants = {one.name for graph in graphs_of(model) for one in graph.initializer}
    constants |= {name for name, node in made.items() if not node.input}
    for node in nodes:
        if node.op_type != "DequantizeLinear":
            continue
        name = node.input[0]
        while name in made and name not in constants and made[name].op_type not in ops.QUANTIZING:
            name = made[name].input[0]
        quantised = name in made and made[name].op_type == "QuantizeLinear"
        weights = name in constants or (quantised and made[name].input[0] in constants)
        if kind == "tflite" if weights else quantised:
            return True
    return False
