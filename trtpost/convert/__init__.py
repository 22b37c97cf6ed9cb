"""TensorFlow in any of its file formats to ONNX.

TensorFlow works in a process of its own (`trtpost.convert.worker`): it is slow to import, talks a lot, and a damaged
file can crash it; none of that reaches the caller.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtpost.bundle.passport import Check
from trtpost.convert.fence import CPU_SECONDS, out_of_memory
from trtpost.convert.formats import SUFFIXES as SUFFIXES
from trtpost.convert.formats import kind_of as kind_of
from trtpost.convert.tflite_file import Metadata, read_metadata
from trtpost.errors import MissingPackageError, ModelError, printable
from trtpost.packages import installation

if TYPE_CHECKING:
    import onnx

OPSET = 17
"""Operator set of the models that we write."""

_LONGEST_NAME = 80
"""Most characters of a node's name in a message; what is cut off is the scopes that it begins with."""


@dataclass(frozen=True)
class Conversion:
    """A converted model, and how far it is from its source.

    Attributes:
        model: the ONNX model; normalisation and class names that the file itself holds are in its metadata, and so is
            what became of TensorFlow's names of tensors.
        checks: one for each output that could be compared.
        unchecked: why there are none, where they were asked for.
        seconds: what the comparison took.
    """

    model: onnx.ModelProto
    checks: tuple[Check, ...] = ()
    unchecked: str = ""
    seconds: float = 0.0

    def check_of(self, output: str) -> Check | None:
        """The check of that output; of another name, the worst of all; None where there is none."""
        ours = [one for one in self.checks if one.output == output] or self.checks
        return max(ours, key=lambda one: one.difference / one.bound, default=None)


def convert(
    source: Path, *, signature: str | None = None, input_size: tuple[int, int] | None = None
) -> onnx.ModelProto:
    """Convert a TensorFlow model, as `conversion` does, without comparing anything."""
    return conversion(source, signature=signature, input_size=input_size, check=False).model


def conversion(
    source: Path, *, signature: str | None = None, input_size: tuple[int, int] | None = None, check: bool = True
) -> Conversion:
    """Convert a TensorFlow model, and see whether it still computes the same.

    Args:
        source: SavedModel folder (or the `saved_model.pb` inside), or a file of Keras (`.keras`, `.h5`), a frozen
            GraphDef (binary or text) or TFLite, under any name.
        signature: which of a SavedModel that has several; default `serving_default`, or the only one.
        input_size: (height, width) where the model leaves them open: some layers need to know it.
        check: run source and result on two pictures, and compare.

    Raises:
        ModelError: the file is missing, damaged, of an unknown format, needs code to be run out of it, was exported
            in training mode, or holds an operator that has no ONNX form.
        MissingPackageError: TensorFlow or tf2onnx is not installed.
    """
    import onnx

    from trtpost.graph.reading.model import set_metadata
    from trtpost.graph.reading.training import check_trained

    kind = kind_of(source)
    missing = [name for name in ("tensorflow", "tf2onnx") if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"converting {source} needs {' and '.join(missing)}: {installation('tf')}, "
            "or convert it elsewhere and give the ONNX file"
        )
    facts = read_metadata(source) if kind == "tflite" else Metadata()
    with tempfile.TemporaryDirectory(prefix="trtpost-") as folder:
        result = Path(folder) / "converted.onnx"
        request = {
            "kind": kind,
            "source": str(source.resolve()),
            "result": str(result),
            "opset": OPSET,
            "signature": signature,
            "input_size": input_size,
            "check": check,
        }
        answer = _in_a_process(request)
        if "error" in answer:
            raise ModelError(f"{source}: {answer['error']}")
        model = onnx.load(result)
    if unsupported := _listing(_without_schema(model)):
        raise ModelError(
            f"{source}: no ONNX form is known for {unsupported}: replace the operator in the model, "
            "or export the part of the network before it"
        )
    check_trained(model, str(source))
    stated = facts.to_properties() | {"source": printable(source.name)}
    if answer["names"]:
        stated["tensorflow_names"] = json.dumps(answer["names"])
    set_metadata(model, stated)
    checks = tuple(Check(**one) for one in answer.get("checks", ()))
    return Conversion(model, checks, answer.get("unchecked", ""), answer.get("seconds", 0.0))


def _in_a_process(request: dict[str, Any]) -> dict[str, Any]:
    """Run `trtpost.convert.worker.answer` in a process of its own; gives an error where the process fails."""
    folder = Path(request["result"]).parent
    finished = subprocess.run(
        [sys.executable, "-m", "trtpost.convert.worker", str(os.getpid())],
        cwd=folder,  # so that no tensorflow.py of the user's is imported by mistake
        env=os.environ | {"TMPDIR": str(folder)},  # where alone it may write
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(finished.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        answer = None
    if isinstance(answer, dict) and not finished.returncode:
        return answer
    if finished.returncode == -signal.SIGXCPU:
        return {"error": f"converting it took more than {CPU_SECONDS} seconds of the processor, and was ended"}
    if "bad_alloc" in finished.stderr:
        return {"error": out_of_memory()}
    tail = finished.stderr.strip().splitlines()[-1:] or [f"exit status {finished.returncode}"]
    return {"error": f"TensorFlow stopped while reading it ({tail[0]}); is the file damaged?"}


def _listing(nodes: Iterable[tuple[str, str]]) -> str:
    """Operators by name, each with one of its nodes and their number; empty where there is none."""
    named: dict[str, list[str]] = {}
    for op, name in sorted(set(nodes)):
        named.setdefault(op.removeprefix("TFL_"), []).append(name)
    return ", ".join(
        f"{op} (node '{_shortened(names[0])}'{f', {len(names)} of them' if len(names) > 1 else ''})"
        for op, names in named.items()
    )


def _shortened(node: str) -> str:
    """A node's name; TFLite joins those of all that it has fused."""
    first = node.split(";", maxsplit=1)[0]
    return first if len(first) <= _LONGEST_NAME else f"...{first[-_LONGEST_NAME:]}"


def _without_schema(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Operators that no ONNX operator set defines: what tf2onnx leaves in the graph when it gives up on it."""
    import onnx

    from trtpost.graph.proto import graphs_of

    for graph in graphs_of(model):
        for node in graph.node:
            if node.domain in ("", "ai.onnx", "ai.onnx.ml") and not onnx.defs.has(node.op_type, node.domain):
                yield node.op_type, node.name
