"""Models that would do something besides computing: refused by the operator's name, and nothing is done.

Each is made with TensorFlow as anybody could make it, and would write a file of its own choosing.
"""

from __future__ import annotations

import os
import socket
import struct
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
from trtpost.builder import build
from trtpost.convert import convert, fence, keras_file, tflite
from trtpost.errors import ModelError
from trtpost.inspect import inspect_path
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
    model = forward(tf, proof)

    class Other(tf.Module):
        @tf.function(input_signature=[])
        def act(self):
            tf.raw_ops.WriteFile(filename=str(proof), contents="x")

        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            return {"logits": logits(tf, image)}

    del model
    return Other()


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
def test_saved_models_of_tensorflow_1_whose_collections_lead_to_a_savers_operator(tf, collection, tmp_path, proof):
    """Without a main_op, loading initialises tables and local variables; the saver's operators may be in a model."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
        result = tf.identity(logits(tf, image * weight), name="logits")
        session.run(weight.initializer)
        act = tf.raw_ops.SaveV2(
            prefix=str(proof), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
        )
        if collection == "table_initializer":
            v1.add_to_collection(collection, act)
        else:
            with tf.control_dependencies([act]):
                value = tf.identity(tf.constant(2.0))
            v1.get_variable("local", initializer=value, collections=[collection], use_resource=True)
        builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "saved"))
        signature = v1.saved_model.predict_signature_def({"image": image}, {"logits": result})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    for one in tmp_path.glob("written*"):  # building has run it
        one.unlink()
    with pytest.raises(ModelError, match=REFUSED.format("SaveV2")):
        convert(tmp_path / "saved")
    assert not list(tmp_path.glob("written*"))
    tf.saved_model.load(str(tmp_path / "saved"))
    assert list(tmp_path.glob("written*")), "the test has no case: TensorFlow does not run it"


@pytest.mark.usefixtures("in_this_process")
def test_functions_that_tensorflow_runs_in_place_of_others(tf, tmp_path, proof):
    """By the attribute `api_implements`, a function that nothing calls is run instead of one that is called."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    @tf.function(autograph=False)
    def harmless(image):
        return image * 2.0

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
        def __call__(self, image):
            with tf.device("/device:CPU:0"):
                return {"logits": logits(tf, harmless(image))}

    @tf.function(autograph=False)
    def acting(image):
        save = tf.raw_ops.SaveV2(
            prefix=str(proof), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
        )
        with tf.control_dependencies([save]):
            return image * 3.0

    source = saved(tf, Model(), tmp_path / "saved", proof)
    content = SavedModel.FromString((source / "saved_model.pb").read_bytes())
    library = content.meta_graphs[0].graph_def.library
    (called,) = (one for one in library.function if "harmless" in one.signature.name)
    instead = library.function.add()
    instead.CopyFrom(acting.get_concrete_function(tf.TensorSpec([1, 8, 12, 3])).function_def)
    for one, device in ((called, b"GPU"), (instead, b"CPU")):
        one.attr["api_implements"].s = b"interface"
        one.attr["api_preferred_device"].s = device
    (source / "saved_model.pb").write_bytes(content.SerializeToString())
    with pytest.raises(ModelError, match=REFUSED.format("SaveV2")):
        convert(source)
    assert not list(tmp_path.glob("written*"))
    tf.saved_model.load(str(source)).signatures["serving_default"](tf.zeros([1, 8, 12, 3]))
    assert list(tmp_path.glob("written*")), "the test has no case: TensorFlow does not run it"


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
def test_frozen_graphs_whose_values_are_a_file(tf, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(np.ones(3, np.float32).tobytes())
    v1 = tf.compat.v1
    with v1.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, [1, 8, 12, 3], name="image")
        values = tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[3], memory_region_name=str(secret))
        tf.identity(logits(tf, image * values), name="logits")
    (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ModelError, match=REFUSED.format("ImmutableConst")):
        convert(tmp_path / "net.pb")


def chain(tf, bodies: list[list[str]]):
    """A GraphDef of functions f0, f1, ...: each calls those named, and the graph calls the first."""
    graph = tf.compat.v1.GraphDef()
    for index, calls in enumerate(bodies):
        function = graph.library.function.add()
        function.signature.name = f"f{index}"
        for number, call in enumerate(calls):
            node = function.node_def.add(name=f"n{number}", op="PartitionedCall")
            node.attr["f"].func.name = call
    graph.node.add(name="call", op="PartitionedCall").attr["f"].func.name = "f0"
    return graph


def test_functions_without_end(tf):
    from trtpost.convert.operators import check_graph_def

    check_graph_def(chain(tf, [["f1", "f1"], ["f2"], []]))
    for bodies, fault in (
        ([["f1"], ["f0"]], "calls itself"),
        (
            [*([f"f{index + 1}"] * 2 for index in range(40)), []],
            r"functions expand to 1\.1e\+12 nodes; more than 1048576",
        ),
        ([*([f"f{index + 1}"] for index in range(4000)), []], "call each other 4001 deep; more than 100"),
    ):
        with pytest.raises(ModelError, match=fault):
            check_graph_def(chain(tf, bodies))


@pytest.mark.usefixtures("in_this_process")
def test_tflite_files_with_operators_of_tensorflow(tf, tmp_path, proof):
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [forward(tf, proof).__call__.get_concrete_function()], forward(tf, proof)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    converter.allow_custom_ops = True
    content = converter.convert()
    proof.unlink(missing_ok=True)
    if content.count(b"FlexWriteFile") != 1:
        pytest.fail("TensorFlow's converter leaves the operator out: the test has no case")
    path = tmp_path / "net.tflite"
    for name in (b"FlexWriteFile", b"FlexTranspose"):  # what is run is the node in its options, whatever it is called
        path.write_bytes(content.replace(b"FlexWriteFile", name))
        with pytest.raises(ModelError, match=REFUSED.format("WriteFile")):
            convert(path)
    path.write_bytes(content.replace(b"\x09WriteFile", b"\x09WriteFil\xff"))
    with pytest.raises(ModelError):
        convert(path)
    assert not proof.exists()


@pytest.mark.usefixtures("in_this_process")
def test_tflite_files_with_operators_of_tensorflow_that_compute(tf, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([1, 8, 12, 3])])
    def network(image):
        return tf.math.tan(logits(tf, image))

    converter = tf.lite.TFLiteConverter.from_concrete_functions([network.get_concrete_function()])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    assert tflite.tensorflow_operators(tmp_path / "net.tflite") == {"Tan"}
    assert "Tan" in [node.op_type for node in convert(tmp_path / "net.tflite").graph.node]


@pytest.mark.usefixtures("in_this_process")
def test_keras_layers_that_load_other_files(tf, tmp_path, proof):
    import keras

    source = saved(tf, forward(tf, proof), tmp_path / "saved", proof)
    layer = keras.layers.TFSMLayer(str(source), call_endpoint="serving_default", name="theirs")
    image = keras.Input((8, 12, 3), batch_size=1)
    keras.Model(image, layer(image)["logits"]).save(tmp_path / "net.keras")
    proof.unlink(missing_ok=True)
    with pytest.raises(
        ModelError, match=r"layer 'theirs' is a TFSMLayer, which runs what another .* holds; code is never"
    ):
        convert(tmp_path / "net.keras")
    assert not proof.exists()


def test_what_is_never_among_the_operators_that_compute(tf):
    del tf
    from trtpost.convert.operators import SAVING, is_computing

    for name in (
        *("WriteFile", "ReadFile", "MatchingFiles", "PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2"),
        *("TextLineReaderV2", "TFRecordReader", "TextLineDataset", "IteratorGetNext", "RemoteCall", "DebugIdentityV2"),
        *("Copy", "CopyHost", "Abort", "InitializeTableFromTextFileV2", "LoadAndRemapMatrix", "WriteSummary"),
        *("CreateSummaryFileWriter", "FileSystemSetConfiguration", "LMDBReader", "CollectiveReduce", "Send", "_Recv"),
        *("ImmutableConst", "SdcaOptimizer", "NoSuchOperator", "", *SAVING),
    ):
        assert not is_computing(name), name


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
    lambda: os.kill(os.getppid(), 0) if fence._landlock_version() >= 6 else os.chdir(outside / "none"),
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
    assert set(done.stdout.split()) <= {"1", "2", "13", "18"}, done.stdout  # EPERM, ENOENT, EACCES, EXDEV
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


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
@pytest.mark.parametrize(
    ("worker", "fault"),
    [
        (
            "fence.CPU_SECONDS = 1\nfence.enclose(Path.cwd(), os.getppid())\nwhile True: pass",
            "seconds of the processor",
        ),
        ("os.kill(os.getpid(), 9)", "as it does where memory runs out"),
    ],
    ids=["time", "memory"],
)
def test_a_conversion_that_is_ended_says_why(worker, fault, tmp_path, monkeypatch):
    (tmp_path / "net.pb").write_bytes(b"\n\x00")
    start = (
        "import os, sys\nif '-m' in sys.argv:\n    from pathlib import Path\n    from trtpost.convert import fence\n"
    )
    body = start + "".join(f"    {line}\n" for line in worker.splitlines())
    (tmp_path / "sitecustomize.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(ModelError, match=fault):
        convert(tmp_path / "net.pb")


@pytest.mark.skipif(sys.platform != "linux", reason="who ends first is said in Linux's /proc")
def test_where_memory_runs_out_the_process_is_the_first_to_end(tmp_path):
    code = "import os, sys\nfrom pathlib import Path\nfrom trtpost.convert import fence\n"
    code += "fence.enclose(Path(sys.argv[1]), os.getppid())\nprint(Path('/proc/self/oom_score_adj').read_text())"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 1000


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


def test_configurations_and_labels_that_other_ways_of_compressing_hide(tmp_path):
    """LZMA unpacks as a whole, to any size; and what an archive says of a size may be a lie."""
    with zipfile.ZipFile(tmp_path / "net.keras", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("model.weights.h5", b"x")
        archive.writestr("config.json", b" " * (1 << 20))
    with pytest.raises(ModelError, match=r"config\.json is compressed in an unusual way: pack it with deflate"):
        keras_file.read_config(tmp_path / "net.keras")
    for content, labels in ((b"sky\nroad\n", ("sky", "road")), (b"sky\n" * (2 << 20), ())):
        path = tmp_path / f"{len(content)}.tflite"
        path.write_bytes(named_tables(4, 0, b"mean"))
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("labels.txt", content)
        data = bytearray(path.read_bytes())
        size = data.rfind(b"PK\1\2") + 24  # in the central directory
        data[size : size + 4] = struct.pack("<I", min(len(content), 1000))
        path.write_bytes(data)
        assert tflite.read_metadata(path).labels == labels


def named_tables(field: int, count: int, name: bytes, slot: int = 0) -> bytes:
    """A TFLite model of which one field is a list of `count` times the same table, which holds a name and no more."""
    import flatbuffers

    builder = flatbuffers.Builder(1 << 20)
    text = builder.CreateString(name)
    builder.StartObject(slot + 1)
    builder.PrependUOffsetTRelativeSlot(slot, text, 0)
    entry = builder.EndObject()
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(entry)
    entries = builder.EndVector()
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(field, entries, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TFL3")
    return bytes(builder.Output())


LIMITED = """
import resource, sys
from pathlib import Path
from trtpost.convert import tflite
from trtpost.errors import ModelError
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
print(tflite.read_metadata(Path(sys.argv[1])) == tflite.Metadata())
try:
    print(tflite.tensorflow_operators(Path(sys.argv[1])))
except ModelError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("content", "operators"),
    [
        ((6, 200_000, b"TFLITE_METADATA"), "set()"),
        ((6, 100_000, b"x" * 20_000_000), "set()"),
        ((1, 100_000, b"x" * 20_000_000, 1), "a name of 20000000 bytes; no more than 4096 are read"),
        ((1, 200_000, b"Flex", 1), "a list of 200000 tables; no more than 131072 are read"),
    ],
    ids=["metadata", "names of metadata", "names of operators", "operators"],
)
def test_tflite_tables_that_share_what_they_hold(content, operators, tmp_path):
    """A list of 200,000 entries that are one table is a file of 800 kB; a name may be as long as the file."""
    (tmp_path / "net.tflite").write_bytes(named_tables(*content))
    command = [sys.executable, "-c", LIMITED, tmp_path / "net.tflite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True\n"), done
    assert operators in done.stdout


def test_the_tables_of_these_cases_are_well_formed():
    """So that the cases above come to where they mean to."""
    tables = tflite._tables(tflite._root(named_tables(6, 3, b"TFLITE_METADATA")), 6)
    assert [tflite._text(table, 0) for table in tables] == ["TFLITE_METADATA"] * 3


def test_a_socket_can_be_made_here():
    """What the fence forbids is possible without it."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
