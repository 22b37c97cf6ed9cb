"""Models that would do something besides computing: refused by the operator's name, and nothing is done.

Each is made with TensorFlow as anybody could make it, and would write a file of its own choosing.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import package
from nets import nhwc, save

from trtpost.bench.pipeline import bench_pipeline
from trtpost.builder.build import build
from trtpost.cli.inspect import inspect_path
from trtpost.convert import convert, fence, keras_file, tflite_file
from trtpost.errors import ModelError
from trtpost.progress import Progress
from trtpost.verify.run import verify

REFUSED = r"it holds the operator {} \(.*\), which is not known to compute and nothing else.*export the network without"


@pytest.fixture(scope="module")
def tf():
    return package("tensorflow")


@pytest.fixture
def proof(tmp_path):
    """The file that a model would write."""
    return tmp_path / "written"


def logits(tf, image):
    return tf.concat([image, 1 - image], -1)


def forward(tf, proof):
    """The function that makes the mask writes, before its result may be had."""

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            with tf.control_dependencies([tf.raw_ops.WriteFile(filename=str(proof), contents="x")]):
                return {"logits": logits(tf, image)}

    return Model()


def nested(tf, proof):
    """Three functions deep."""

    @tf.function
    def innermost():
        tf.raw_ops.WriteFile(filename=str(proof), contents="x")

    @tf.function
    def inner():
        innermost()

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            inner()
            return {"logits": logits(tf, image)}

    return Model()


def branch(tf, proof):
    """In a branch that is taken for some photos."""

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            def act():
                tf.raw_ops.WriteFile(filename=str(proof), contents="x")
                return image

            return {"logits": logits(tf, tf.cond(tf.reduce_sum(image) > 1, act, lambda: image))}

    return Model()


def unused(tf, proof):
    """In a function that nothing calls."""

    class Model(tf.Module):
        @tf.function(input_signature=[])
        def act(self):
            tf.raw_ops.WriteFile(filename=str(proof), contents="x")

        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            return {"logits": logits(tf, image)}

    return Model()


def initialiser(tf, proof):
    """A resource whose initialiser is run when the model is loaded."""
    from tensorflow.python.trackable.resource import CapturableResource

    class Resource(CapturableResource):
        def _create_resource(self):
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="t")

        def _initialize(self):
            tf.raw_ops.WriteFile(filename=str(proof), contents="x")

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.resource = Resource()

        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            with tf.control_dependencies([tf.identity(self.resource.resource_handle)]):
                return {"logits": logits(tf, image)}

    return Model()


def saver(tf, proof):
    """The saver's operator, where the saver is not."""

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            save = tf.raw_ops.SaveV2(
                prefix=str(proof), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
            )
            with tf.control_dependencies([save]):
                return {"logits": logits(tf, image)}

    return Model()


KINDS = {
    forward: "WriteFile",
    nested: "WriteFile",
    branch: "WriteFile",
    unused: "WriteFile",
    initialiser: "WriteFile",
    saver: "SaveV2",
}


def saved(tf, model, folder: Path, proof: Path) -> Path:
    tf.saved_model.save(model, str(folder), signatures={"serving_default": model.__call__})
    for one in proof.parent.glob("written*"):  # tracing and saving may have run it
        one.unlink()
    return folder


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_saved_models(tf, kind, tmp_path, proof):
    source = saved(tf, kind(tf, proof), tmp_path / "saved", proof)
    refused = REFUSED.format(KINDS[kind])
    with pytest.raises(ModelError, match=refused):
        build(source, tmp_path / "net.trtpost", flavour="none")
    with pytest.raises(ModelError, match=refused):
        convert(source)
    with pytest.raises(ModelError, match=refused):
        inspect_path(source, Progress())
    assert not list(tmp_path.glob("written*"))
    assert not (tmp_path / "net.trtpost").exists()


def test_verify_and_bench_look_first_as_well(tf, tmp_path, proof):
    bundle = build(save(nhwc(), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", normalize="signed")
    source = saved(tf, forward(tf, proof), tmp_path / "saved", proof)
    photos = tmp_path / "photos"
    photos.mkdir()
    from PIL import Image

    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(photos / "a.png")
    with pytest.raises(ModelError, match="does not fit it"):  # its first sentence; nothing was run
        verify(bundle, source, photos)
    (sheet,) = bench_pipeline(bundle, source, megapixels=(0.01,), rounds=3).sheets
    missing = [row.missing for row in sheet.rows if row.missing]
    assert any("holds the operator WriteFile" in text for text in missing), missing
    assert not list(tmp_path.glob("written*"))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("collection", ["saved_model_main_op", "legacy_init_op"])
def test_saved_models_of_tensorflow_1_with_a_main_op(tf, collection, tmp_path, proof):
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        result = tf.identity(logits(tf, image), name="logits")
        act = tf.raw_ops.WriteFile(filename=str(proof), contents="x")
        builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "saved"))
        signature = v1.saved_model.predict_signature_def({"image": image}, {"logits": result})
        main = {"main_op": act} if collection == "saved_model_main_op" else {"legacy_init_op": act}
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature}, **main)
        builder.save()
    with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
        convert(tmp_path / "saved")
    assert not proof.exists()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("collection", ["table_initializer", "local_variables"])
def test_what_tensorflow_1_begins_a_session_with(tf, collection, tmp_path, proof):
    """The saver's operator, in what is run for tables and local variables."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        variable = v1.get_variable("v", initializer=1.0, use_resource=True)
        result = tf.identity(logits(tf, image) * variable, name="logits")
        act = tf.raw_ops.SaveV2(
            prefix=str(proof), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
        )
        session.run(variable.initializer)
        if collection == "table_initializer":
            v1.add_to_collection(collection, act)
        else:
            with tf.control_dependencies([act]):
                start = tf.identity(tf.constant(2.0))
            v1.get_variable("w", initializer=start, collections=[collection], use_resource=True)
        builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "saved"))
        signature = v1.saved_model.predict_signature_def({"image": image}, {"logits": result})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    with pytest.raises(ModelError, match=REFUSED.format("SaveV2")):
        convert(tmp_path / "saved")
    assert not list(tmp_path.glob("written*"))


@pytest.mark.usefixtures("in_this_process")
def test_a_saved_model_of_tensorflow_1_with_its_saver_is_taken(tf, tmp_path):
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        variable = v1.get_variable("v", initializer=1.0)
        result = tf.identity(logits(tf, image) * variable, name="logits")
        session.run(variable.initializer)
        v1.train.Saver()  # one more, in a collection
        builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "saved"))
        signature = v1.saved_model.predict_signature_def({"image": image}, {"logits": result})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    assert convert(tmp_path / "saved").graph.output


def test_functions_that_take_the_place_of_others(tf, tmp_path, proof):
    """Grappler swaps functions that say they implement the same: so none of these may use the saver's operators."""
    from tensorflow.core.protobuf import saved_model_pb2

    from trtpost.convert.operators import check_saved_model

    folder = saved(tf, unused(tf, proof), tmp_path / "saved", proof)
    source = saved(tf, saver(tf, proof), tmp_path / "other", proof)
    model, other = saved_model_pb2.SavedModel(), saved_model_pb2.SavedModel()
    model.ParseFromString((folder / "saved_model.pb").read_bytes())
    other.ParseFromString((source / "saved_model.pb").read_bytes())
    library = model.meta_graphs[0].graph_def.library
    for function in list(library.function):
        if "WriteFile" in {node.op for node in function.node_def}:
            library.function.remove(function)
    (acting,) = (
        one
        for one in other.meta_graphs[0].graph_def.library.function
        if "SaveV2" in {node.op for node in one.node_def} and "traced_save" not in one.signature.name
    )
    acting.signature.name = "acting"
    acting.attr["api_implements"].s = b"the forward function"
    library.function.add().CopyFrom(acting)
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=REFUSED.format("SaveV2")):
        check_saved_model(folder)


@pytest.mark.usefixtures("in_this_process")
def test_a_file_that_is_read_as_a_weight(tf, tmp_path, proof):
    proof.write_bytes(np.zeros(1, np.float32).tobytes())
    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        secret = tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[1], memory_region_name=str(proof))
        tf.identity(logits(tf, image) + secret, name="logits")
    (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ModelError, match=REFUSED.format("ImmutableConst")):
        convert(tmp_path / "net.pb")


@pytest.mark.usefixtures("in_this_process")
def test_frozen_graphs(tf, tmp_path, proof):
    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        with tf.control_dependencies([tf.raw_ops.WriteFile(filename=str(proof), contents="x")]):
            tf.identity(logits(tf, image), name="logits")
    (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
        convert(tmp_path / "net.pb")
    assert not proof.exists()


@pytest.mark.usefixtures("in_this_process")
def test_tflite_files_with_operators_of_tensorflow(tf, tmp_path, proof):
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [forward(tf, proof).__call__.get_concrete_function()], forward(tf, proof)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    converter.allow_custom_ops = True
    content = converter.convert()
    proof.unlink(missing_ok=True)
    (tmp_path / "net.tflite").write_bytes(content)
    if "FlexWriteFile" not in dict(tflite_file.custom_operators(tmp_path / "net.tflite")):
        pytest.fail("TensorFlow's converter leaves the operator out: the test has no case")
    with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
        convert(tmp_path / "net.tflite")
    # under the name of another one: what runs is the node in its options
    (tmp_path / "net.tflite").write_bytes(content.replace(b"FlexWriteFile", b"FlexTranspose"))
    with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
        convert(tmp_path / "net.tflite")
    assert not proof.exists()


@pytest.mark.usefixtures("in_this_process")
def test_tflite_files_with_operators_of_tensorflow_that_compute(tf, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
    def network(image):
        return tf.math.tan(logits(tf, image))

    converter = tf.lite.TFLiteConverter.from_concrete_functions([network.get_concrete_function()])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    assert "Tan" in [node.op_type for node in convert(tmp_path / "net.tflite").graph.node]


def flex_options(name: str, node: bytes) -> bytes:
    """The options of an operator of TensorFlow as its converter writes them: the node's bytes, called a string."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        builder._WriteBlob(node, append_zero=True, type_=flexbuffers.Type.STRING)
    return bytes(builder.Finish())


def flex_file(options: bytes, *, outside: bool = False, times: int = 1) -> bytes:
    """A TFLite file with an operator called FlexTranspose; its options are in its table or behind the tables."""
    from tensorflow.lite.python import schema_py_generated as schema
    from tensorflow.lite.tools import flatbuffer_utils

    operator = schema.OperatorT()
    code, graph, model = schema.OperatorCodeT(), schema.SubGraphT(), schema.ModelT()
    code.customCode, code.builtinCode = b"FlexTranspose", schema.BuiltinOperator.CUSTOM
    operator.inputs, operator.outputs = np.zeros(0, np.int32), np.zeros(0, np.int32)
    if outside:
        operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = 2, len(options)
    else:
        operator.customOptions = np.frombuffer(options, np.uint8)
    graph.operators, graph.tensors = [operator] * times, []
    model.operatorCodes, model.subgraphs, model.buffers = [code], [graph], []
    content = bytes(flatbuffer_utils.convert_object_to_bytearray(model))
    if outside:  # the number is as long as another
        operator.largeCustomOptionsOffset = len(content)
        content = bytes(flatbuffer_utils.convert_object_to_bytearray(model)) + options
    return content


@pytest.mark.parametrize("outside", [False, True])
def test_the_node_inside_an_operator_of_tflite(tf, outside, tmp_path):
    """It is what TensorFlow runs, read as TensorFlow reads it: not as text, and wherever it lies."""
    from trtpost.convert.operators import check_flex_operators

    def checked(node: bytes) -> None:
        (tmp_path / "net.tflite").write_bytes(flex_file(flex_options("Transpose", node), outside=outside))
        check_flex_operators(tflite_file.custom_operators(tmp_path / "net.tflite"))

    harmless = tf.compat.v1.NodeDef(name="n", op="Transpose")
    harmless.attr["epsilon"].f = 0.001  # whose bytes are no UTF-8
    checked(harmless.SerializeToString())
    # a field that nobody knows: as long as it says in UTF-8, and half as long in Latin-1, where it hides the operator
    twofold = b"\x12\x09Transpose" + b"\x7a\x16" + b"\xc3\xa9" * 11 + b"\x12\x09WriteFile"
    assert tf.compat.v1.NodeDef.FromString(twofold).op == "WriteFile"
    for node in (tf.compat.v1.NodeDef(name="n", op="WriteFile").SerializeToString(), twofold):
        with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
            checked(node)
    with pytest.raises(ModelError, match="the options of an operator of TensorFlow cannot be read"):
        checked(b"\x12\xff")


def shared_graphs(graphs: int, operators: int, length: int) -> bytes:
    """A TFLite file whose graphs are one, all of its operators too in pairs of tables, with options that are one."""
    import flatbuffers

    builder = flatbuffers.Builder(1 << 20)
    options, name = builder.CreateByteVector(bytes(length)), builder.CreateString("FlexTranspose")

    def table(slots: int, **fields: int) -> int:
        builder.StartObject(slots)
        for field, value in fields.items():
            builder.PrependUOffsetTRelativeSlot(int(field[1:]), value, 0)
        return int(builder.EndObject())

    def listed(tables: list[int]) -> int:
        builder.StartVector(4, len(tables), 4)
        for one in tables:
            builder.PrependUOffsetTRelative(one)
        return int(builder.EndVector())

    inner = listed([table(6, _5=options) for _ in range(operators)])
    codes, outer = listed([table(2, _1=name)]), listed([table(4, _3=inner)] * graphs)
    builder.Finish(table(3, _1=codes, _2=outer), file_identifier=b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ((100_000, 1000, 1), "more than 131072 operators"),
        ((1, 10_000, 10_000_000), "operators that share their options"),
    ],
    ids=["graphs", "options"],
)
def test_tflite_operators_that_share_what_they_hold(content, fault, tmp_path):
    (tmp_path / "net.tflite").write_bytes(shared_graphs(*content))
    with pytest.raises(ModelError, match=fault):
        tflite_file.custom_operators(tmp_path / "net.tflite")


def test_no_operator_that_computes_has_an_attribute_for_a_place(tf):
    """Files and addresses may be attributes too; the operators of a newer TensorFlow would be seen here."""
    del tf
    from tensorflow.python.framework import op_def_registry

    from trtpost.convert.operators import computing

    places = ("file", "path", "region", "url", "address", "server", "directory", "prefix", "token")
    found = {
        (name, attribute.name)
        for name in computing()
        if (definition := op_def_registry.get(name)) is not None
        for attribute in definition.attr
        if "string" in attribute.type and any(place in attribute.name for place in places)
    }
    assert not found


def test_what_is_never_among_the_operators_that_compute(tf):
    del tf
    from trtpost.convert.operators import SAVING, is_computing

    for name in (
        *("WriteFile", "ReadFile", "MatchingFiles", "PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2"),
        *("TextLineReaderV2", "TFRecordReader", "TextLineDataset", "IteratorGetNext", "RemoteCall", "DebugIdentityV2"),
        *("Copy", "CopyHost", "Abort", "InitializeTableFromTextFileV2", "LoadAndRemapMatrix", "WriteSummary"),
        *("CreateSummaryFileWriter", "FileSystemSetConfiguration", "LMDBReader", "CollectiveReduce", "Send", "_Recv"),
        *("SdcaOptimizer", "NoSuchOperator", "", *SAVING),
    ):
        assert not is_computing(name), name


def test_what_tf2onnx_converts_computes(tf):
    """But for what reads from queues and datasets: nothing that converts today is refused."""
    del tf
    import tf2onnx.tfonnx  # noqa: F401, registers the handlers
    from tensorflow.python.framework import op_def_registry
    from tf2onnx.handler import tf_op

    from trtpost.convert.operators import is_computing

    names = {name for maps in tf_op.get_opsets().values() for each in maps for name in each}
    known = {name for name in names if op_def_registry.get(name) is not None}
    assert {name for name in known if not is_computing(name)} <= {
        *("FIFOQueueV2", "IteratorGetNext", "IteratorV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"),
        *("QueueDequeueV2", "PlaceholderV2", "CudnnRNN"),
    }


def called_by_name(tf, path, body):
    """A frozen graph of TensorFlow 1 whose function is called by its name as an operator."""
    from tensorflow.python.framework.function import Defun

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        photo = v1.placeholder(tf.float32, (1, 8, 12, 3), "photo")
        tf.identity(Defun(tf.float32)(body)(photo) @ np.ones((3, 4), np.float32), "scores")
    path.write_bytes(graph.as_graph_def().SerializeToString())


@pytest.mark.usefixtures("in_this_process")
def test_functions_that_are_called_by_their_name(tf, tmp_path, proof):
    """Kind: of TensorFlow 1; what computes is converted, and what a function of any name holds is looked at."""

    def twice(image):
        return image * 2

    called_by_name(tf, tmp_path / "twice.pb", twice)
    assert [node.op_type for node in convert(tmp_path / "twice.pb").graph.node] == ["Mul", "MatMul"]

    def acting(image):
        with tf.control_dependencies([tf.raw_ops.WriteFile(filename=str(proof), contents="x")]):
            return tf.identity(image)

    called_by_name(tf, tmp_path / "acts.pb", acting)
    with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
        convert(tmp_path / "acts.pb")
    graph = tf.compat.v1.GraphDef.FromString((tmp_path / "twice.pb").read_bytes())
    (name,) = (function.signature.name for function in graph.library.function)
    graph.library.function[0].signature.name = "WriteFile"  # under the name of an operator
    for node in graph.node:
        node.op = "WriteFile" if node.op == name else node.op
    (tmp_path / "named.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
        convert(tmp_path / "named.pb")
    assert not proof.exists()


@pytest.mark.usefixtures("in_this_process")
def test_functions_that_change_variables_and_are_not_called(tf, tmp_path):
    """Kind: a SavedModel that keeps a function besides the network, which changes what is in memory."""

    class Model(tf.Module):
        def __init__(self):
            self.seen, self.weights = tf.Variable(tf.zeros(4)), tf.Variable(tf.ones((3, 4)))

        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def serve(self, image):
            return {"scores": image @ self.weights}

        @tf.function(input_signature=[])
        def note(self):
            return self.seen.scatter_update(tf.IndexedSlices(tf.constant([1.0]), tf.constant([2])))

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=model.serve)
    assert [node.op_type for node in convert(tmp_path / "model").graph.node] == ["MatMul"]


@pytest.mark.parametrize("kind", ["TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "keras>TFSMLayer"])
def test_layers_that_load_other_models(kind):
    """From a folder that the file names, or out of a pickle."""
    layer = {"class_name": kind, "module": "keras.layers", "config": {"name": "other", "filepath": "/somewhere"}}
    config = {"class_name": "Functional", "config": {"name": "net", "layers": [layer]}}
    with pytest.raises(ModelError, match=r"layer 'other' is a .*, which runs a model of another kind.*model\.export"):
        keras_file.check_config(config)


def test_modules_that_a_file_names_are_not_imported(tf):
    del tf
    layer = {"class_name": "Own", "module": "this.imports", "registered_name": "Own", "config": {"name": "mine"}}
    config = {"class_name": "Functional", "module": "keras", "config": {"name": "net", "layers": [layer]}}
    with pytest.raises(ModelError, match=r"layer 'mine' \(Own\) is not one of Keras's own.*model\.export"):
        keras_file.check_config(config)


def test_functions_that_double(tf):
    """Thirty that call the one before twice are a file of some kilobytes."""
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from trtpost.convert.operators import check_graph_def

    del tf
    graph = GraphDef()
    for level in range(30):
        function = graph.library.function.add()
        function.signature.name = f"f{level}"
        for number in range(2):
            node = function.node_def.add(name=f"n{number}", op="PartitionedCall" if level else "Relu")
            if level:
                node.attr["f"].func.name = f"f{level - 1}"
    graph.node.add(name="call", op="PartitionedCall").attr["f"].func.name = "f29"
    with pytest.raises(ModelError, match=r"expand to 1\.1e\+09 nodes"):
        check_graph_def(graph)


# ---- the fence -------------------------------------------------------------------------------------------------------

ENCLOSED = """
import os, socket, sys
from pathlib import Path
from trtpost.convert import fence
inside, outside = map(Path, sys.argv[1:])
fence.enclose(inside, os.getppid())
(inside / "a").write_text("x"); (inside / "a").unlink()
open(os.devnull, "w").write("x")
for act in (
    lambda: (outside / "b").write_text("x"), lambda: (outside / "there").write_text("y"),
    lambda: (outside / "there").unlink(), lambda: (outside / "folder").mkdir(),
    lambda: os.rename(outside / "there", inside / "there"), lambda: os.truncate(outside / "there", 0),
    lambda: os.symlink("x", outside / "link"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    lambda: socket.socket(socket.AF_INET), lambda: socket.socket(socket.AF_UNIX),
):
    try:
        act()
    except OSError as error:
        print(error.errno)
    else:
        print("done")
"""


@pytest.mark.skipif(len(fence.kinds()) < 2, reason="this kernel has no Landlock or no seccomp")
def test_an_enclosed_process_writes_below_one_folder_and_has_no_sockets(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "there").write_text("kept")
    done = subprocess.run([sys.executable, "-c", ENCLOSED, inside, outside], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"13", "18"}, done.stdout  # EACCES, EXDEV
    assert [path.name for path in outside.iterdir()] == ["there"]
    assert (outside / "there").read_text() == "kept"


@pytest.mark.skipif(len(fence.kinds()) < 2, reason="this kernel has no Landlock or no seccomp")
def test_the_fence_holds_where_the_list_would_not(tf, tmp_path, proof, monkeypatch):
    """With every operator allowed, in the real process: loading runs the initialiser, which may not write."""
    source = saved(tf, initialiser(tf, proof), tmp_path / "saved", proof)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import trtpost.convert.operators as o\no.is_computing = lambda _: True\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(ModelError, match="TensorFlow cannot read or convert it"):
        convert(source)
    assert not proof.exists()


@pytest.mark.usefixtures("in_this_process")
def test_without_list_and_fence_it_would_be_written(tf, tmp_path, proof, monkeypatch):
    """So the cases above are real ones."""
    source = saved(tf, initialiser(tf, proof), tmp_path / "saved", proof)
    monkeypatch.setattr("trtpost.convert.operators.is_computing", lambda _: True)
    convert(source)
    assert proof.read_text() == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="ending with the parent is Linux's")
def test_the_process_ends_with_its_parent(tmp_path):
    (tmp_path / "child.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\nfrom trtpost.convert import fence\n"
        "fence.enclose(Path(sys.argv[1]), os.getppid())\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "parent.py").write_text(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline().strip(), flush=True)\nos._exit(0)\n"
    )
    command = [sys.executable, tmp_path / "parent.py", tmp_path / "child.py", tmp_path]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    child = int(done.stdout)
    for _ in range(200):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail("it lives on")


# ---- much out of little ----------------------------------------------------------------------------------------------


def test_a_keras_configuration_that_unpacks_to_more_than_any_has(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", b"x")
        archive.writestr("config.json", b" " * (keras_file.MAX_CONFIG + 1))
    with pytest.raises(ModelError, match=r"config\.json has more than 64 MiB"):
        keras_file.read_config(tmp_path / "net.keras")


def test_archives_that_python_unpacks_whole(tmp_path):
    """LZMA gives all of it, however little is asked for."""
    with zipfile.ZipFile(tmp_path / "net.keras", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("model.weights.h5", b"x")
        archive.writestr("config.json", b"{}")
    with pytest.raises(ModelError, match="is compressed as Keras does not"):
        keras_file.read_config(tmp_path / "net.keras")


def shared_text(count: int, length: int, field: int) -> bytes:
    """A TFLite file one of whose lists names the same table again and again, and this one long text."""
    import flatbuffers

    builder = flatbuffers.Builder(1 << 20)
    text = builder.CreateString("x" * length)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1 if field == 1 else 0, text, 0)
    table = builder.EndObject()
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(table)
    entries = builder.EndVector()
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(field, entries, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_tflite_names_that_share_one_text(tf, tmp_path):
    del tf
    (tmp_path / "net.tflite").write_bytes(shared_text(2000, 1_000_000, 1))
    with pytest.raises(ModelError, match="a name of 1000000 bytes"):
        tflite_file.custom_operators(tmp_path / "net.tflite")
    (tmp_path / "net.tflite").write_bytes(shared_text(20_000, 2_000_000, 6))
    assert tflite_file.read_metadata(tmp_path / "net.tflite") == tflite_file.Metadata()


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
def test_a_conversion_that_does_not_end_is_told_from_a_damaged_file(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from trtpost.convert import fence; fence.CPU_SECONDS = 1\n"
        "fence.enclose(Path(sys.argv[1]), os.getppid())\nwhile True: pass"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -signal.SIGXCPU


def test_a_socket_can_be_made_here():
    """What the fence forbids is possible without it."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()


FULL = """
import os, sys
from pathlib import Path
from trtpost.convert import fence
fence.enclose(Path(sys.argv[1]), os.getppid())
try:
    bytearray(fence.memory_limit())
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has the fence")
def test_an_enclosed_process_leaves_memory_to_others(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has the fence")
def test_the_lower_limits_of_the_caller_remain(tmp_path):
    code = (
        "import os, resource, sys; from pathlib import Path; from trtpost.convert import fence\n"
        "hard = resource.getrlimit(resource.RLIMIT_CPU)[1]; resource.setrlimit(resource.RLIMIT_CPU, (500, hard))\n"
        "fence.enclose(Path(sys.argv[1]), os.getppid()); print(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "500\n"


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("error", [MemoryError, type("ResourceExhaustedError", (Exception,), {})])
def test_a_model_that_needs_too_much_memory_says_so(monkeypatch, tmp_path, error):
    """Kind: a graph that fills the memory, in Python or in TensorFlow."""

    def fill(**_):
        raise error

    monkeypatch.setattr("trtpost.convert.worker._convert", fill)
    (tmp_path / "a.pb").write_bytes(b"\x0a\x02\x0a\x00")
    with pytest.raises(ModelError, match=r"a\.pb: converting it needs more .*memory.*give the ONNX file"):
        convert(tmp_path / "a.pb")
