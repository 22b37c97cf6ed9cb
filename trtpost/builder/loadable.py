"""The check that the portable engine of a build will load, made before anything is written."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from trtpost.backends.onnxruntime import OnnxRuntimeEngine
from trtpost.builder.look import Look, look_at
from trtpost.bundle.folder import Bundle
from trtpost.bundle.passport import Passport
from trtpost.errors import BackendError, ModelError
from trtpost.graph.baked import NETWORK, Baked, source_name
from trtpost.graph.reading.model import serialized

_NO_KERNEL = re.compile(r"implementation for (?P<op>[\w.]+)\(\d+\) node with name '(?P<name>[^']*)'")
_NO_OPERATOR = re.compile(r"(?P<domain>[\w.-]*):(?P<op>[\w./-]+)\(-?\d+\) is not a registered function/op")


def check_loads(baked: onnx.ModelProto, passport: Passport, path: Path) -> Look | None:
    """Load a baked graph as every run of its bundle will do; it takes as long as there (DeepLab v3: 0.1 s).

    Gives a look at what the network says of a picture, where its normalisation is assumed.

    Args:
        baked: the graph; copied where ONNX Runtime needs names of nodes.
        passport, path: those of the bundle that is to be.

    Raises:
        ModelError: ONNX Runtime does not take it; the message names operator and node.
    """
    named = onnx.ModelProto()
    named.CopyFrom(baked)
    for node in named.graph.node:
        node.name = node.name or next(filter(None, node.output), "")
    try:
        engine = OnnxRuntimeEngine(Bundle(path, passport), baked=Baked(serialized(named)))
    except BackendError as error:
        raise ModelError(_sentence(named, str(error))) from None
    try:
        return look_at(engine, passport) if passport.normalization == "assumed" else None
    except BackendError:  # too large for this machine, say; whoever runs it will be told
        return None
    finally:
        engine.close()


def _sentence(model: onnx.ModelProto, text: str) -> str:
    if found := _NO_KERNEL.search(text):
        op, node = found["op"], next((one for one in model.graph.node if one.name == found["name"]), None)
        types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
        types |= {one.name: one.data_type for one in model.graph.initializer}
        double = node is not None and onnx.TensorProto.DOUBLE in {types.get(name) for name in node.input}
        where = f"{op} (node '{source_name(found['name'])}')"
        if double:
            return f"ONNX Runtime has no {where} in float64: export the network in float32"
        return (
            f"ONNX Runtime has no {where} for these types: export the network with it in float32, or name a tensor "
            "before it with --logits"
        )
    if found := _NO_OPERATOR.search(text):
        domain, op = found["domain"], source_name(found["op"])
        node = next(
            (one for one in model.graph.node if one.op_type in (op, found["op"]) and one.domain == domain), None
        )
        where = f" (node '{source_name(node.name)}')" if node is not None else ""
        return (
            f"ONNX Runtime does not know the operator {domain}::{op}{where}: replace it in the model by operators of "
            "ONNX, or name a tensor before it with --logits"
        )
    why = text.split(": ", 1)[-1].replace(NETWORK, "")
    return f"ONNX Runtime does not take the network ({why}): export it anew, or name another tensor with --logits"
