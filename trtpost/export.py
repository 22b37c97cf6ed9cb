"""A bundle's graph for runtimes that know neither model-local functions nor our operator domain."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx

from trtpost.bundle.folder import Bundle, is_bundle, read_again
from trtpost.errors import ModelError, reason
from trtpost.graph.baked import DOMAIN, NETWORK
from trtpost.graph.baking.seam import inlined, is_inlined
from trtpost.graph.proto import replace
from trtpost.graph.reading.model import metadata, save_model
from trtpost.graph.wire import LARGEST
from trtpost.spec import Post
from trtpost.storage.files import open_regular

ENDING = ".inlined.onnx"
"""What the file's name ends in where none is given: the source model may be called NAME.onnx."""

_VALUES = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}


def export_onnx(bundle: Bundle, path: Path | None = None) -> Path:
    """Write the bundle's graph in standard ops alone, for OpenVINO, OpenCV and whatever else reads ONNX.

    Inputs, output and metadata are those of the bundle's own graph, so `infer` still runs the file.

    Args:
        bundle: what to write.
        path: the file; None: the bundle's name in the working directory, with the ending `ENDING`.

    Returns:
        The file that was written.

    Raises:
        ModelError: something that is no export of ours has that name, or the file cannot be written.
    """
    path = Path(bundle.path.resolve().stem + ENDING) if path is None else path
    _check_replaceable(path, bundle)
    save_model(standard(read_again(bundle).model, bundle.passport.post), path, replaces=_is_export)
    return path


def standard(baked: onnx.ModelProto, post: Post) -> onnx.ModelProto:
    """Give a baked graph without functions, in a form that the least of runtimes understands.

    OpenCV 5 reads an integer `Constant` node as one of another type than a weight, and resizes the last two axes of a
    tensor whatever its `sizes` say; so constants become initializers, and resizes have their channels in front.
    """
    model = baked if is_inlined(baked) else inlined(baked)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _lift_constants(copy.graph)
    _put_channels_first(copy.graph, post)
    replace(copy.opset_import, [entry for entry in copy.opset_import if entry.domain != DOMAIN])
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Make initializers of the numbers in `Constant` nodes of the main graph."""
    nodes = []
    for node in graph.node:
        (attribute,) = node.attribute if node.op_type == "Constant" else (None,)
        if attribute is not None and attribute.name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
        elif attribute is not None and attribute.name in _VALUES:
            value = np.array(onnx.helper.get_attribute_value(attribute), _VALUES[attribute.name])
            tensor = onnx.numpy_helper.from_array(value, node.output[0])
        else:
            nodes.append(node)
            continue
        graph.initializer.append(tensor)
    replace(graph.node, nodes)


def _put_channels_first(graph: onnx.GraphProto, post: Post) -> None:
    """Transpose around the resizes of photos, and of logits whose channels come last; the network's own stay."""
    nodes = []
    for node in graph.node:
        # labels are not resized by Resize: what is left is the photo and the logits
        is_ours = node.op_type == "Resize" and not node.output[0].startswith(NETWORK)
        if not is_ours or not (node.name.startswith("pre/") or post.layout == "NHWC"):
            nodes.append(node)
            continue
        source, sizes, result = node.input[0], node.input[3], node.output[0]
        first, order = f"{result}/channels_first", f"{result}/order"
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 3, 1, 2], np.int64), order))
        resize = onnx.NodeProto.FromString(node.SerializeToString())
        resize.input[0], resize.input[3] = f"{first}/source", f"{first}/sizes"
        resize.output[0] = first
        nodes += [
            onnx.helper.make_node("Transpose", [source], [resize.input[0]], f"{first}/source", perm=[0, 3, 1, 2]),
            onnx.helper.make_node("Gather", [sizes, order], [resize.input[3]], f"{first}/sizes", axis=0),
            resize,
            onnx.helper.make_node("Transpose", [first], [result], result, perm=[0, 2, 3, 1]),
        ]
    replace(graph.node, nodes)


def _is_export(file: BinaryIO) -> bool:
    """Is this a graph that trtpost wrote?"""
    try:
        return "passport" in metadata(onnx.load_model_from_string(file.read(LARGEST)))
    except Exception:  # protobuf raises its own types
        return False


def _check_replaceable(path: Path, bundle: Bundle) -> None:
    """Refuse to replace anything but a graph that trtpost wrote, and the files of a bundle among those.

    Raises:
        ModelError: something else has that name.
    """
    try:
        real = path.resolve()
        if path.is_dir():
            raise ModelError(f"{path} is a folder: name a file in it with --output")
        if any(is_bundle(above) for above in real.parents):
            raise ModelError(f"{path} lies in an engine bundle: choose another --output")
        if not path.exists():
            return
        if path.samefile(bundle.model):
            raise ModelError(f"{path} is the graph that is exported: choose another --output")
        with open_regular(path) as file:
            known = _is_export(file)
    except (OSError, RuntimeError, ValueError) as error:  # names without meaning, links in a circle
        raise ModelError(f"cannot write {path}: {reason(error)}") from None
    if not known:
        raise ModelError(
            f"{path} exists and is no graph that trtpost wrote, so it is not replaced: choose another --output"
        )
