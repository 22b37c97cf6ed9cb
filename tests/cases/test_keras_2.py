"""Files of Keras 2, made by Keras 2 itself: what it has and Keras 3 reads otherwise, and what a file must not do."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import package

from trtpost.convert import convert, keras_2
from trtpost.errors import ModelError
from trtpost.graph.reading.model import normalized

IMAGE = np.random.default_rng(1).random((1, 16, 24, 3)).astype(np.float32)

pytestmark = [
    pytest.mark.usefixtures("in_this_process"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
]


@pytest.fixture(scope="module")
def tf():
    return package("tensorflow")


@pytest.fixture(scope="module")
def tf_keras():
    return package("tf_keras")


def answer(source: Path, **settings: object) -> np.ndarray:
    """The first output of a model, converted, in ONNX Runtime."""
    model = normalized(convert(source, **settings), "converted")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: IMAGE})[0]


def layers(tf_keras, photo):
    """Depthwise, separable, grouped and transposed convolutions, and a Sequential within."""
    one = tf_keras.layers
    x = one.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(photo)
    x = one.ReLU(6.0)(one.BatchNormalization()(x))
    x = one.SeparableConv2D(8, 3, strides=2, padding="same", activation="swish")(x)
    x = one.Conv2D(8, 3, padding="same", groups=2)(x)
    inner = [one.Conv2D(8, 3, padding="same", input_shape=(8, 12, 8)), one.LeakyReLU()]
    x = tf_keras.Sequential(inner, name="inner")(x)
    x = one.Conv2DTranspose(8, 3, strides=2, padding="same")(x)
    return one.Conv2D(4, 1, name="scores")(x)


def functions(tf, tf_keras, photo):
    """Functions of TensorFlow between the layers, which a file names."""
    x = tf_keras.layers.Conv2D(8, 3, padding="same")(photo / 127.5 - 1)
    x = tf.nn.relu6(x) * tf.math.sigmoid(x)
    mean = tf.reduce_mean(x, axis=[1, 2], keepdims=True)
    x = tf.concat([x, tf.broadcast_to(mean, tf.shape(x))], -1)
    x = tf.image.resize(x, (8, 12))
    x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])[:, 1:-1, 1:-1]
    x = tf_keras.backend.resize_images(x, 2, 2, "channels_last", interpolation="bilinear")
    return tf_keras.layers.Conv2D(4, 1, name="scores")(x)


@pytest.mark.parametrize("suffix", ["h5", "keras"])
@pytest.mark.parametrize("kind", ["layers", "functions", "sequential", "compiled within"])
def test_keras_2_equals_itself(tf, tf_keras, tmp_path, kind, suffix):
    """Kind: what Keras 2 wrote and Keras 3 refuses, in both of its formats."""
    one = tf_keras.layers
    tf_keras.utils.set_random_seed(0)
    photo = tf_keras.Input((16, 24, 3), name="photo")
    if kind == "sequential":
        first = one.Conv2D(8, 3, padding="same", input_shape=(16, 24, 3))
        model = tf_keras.Sequential([first, one.DepthwiseConv2D(3, padding="same"), one.Conv2D(4, 1, name="scores")])
    elif kind == "compiled within":
        inner = tf_keras.Sequential([one.Conv2D(8, 3, padding="same", input_shape=(16, 24, 3))])
        inner.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
        model = tf_keras.Model(photo, one.Conv2D(4, 1, name="scores")(inner(photo)))
    else:
        made = layers(tf_keras, photo) if kind == "layers" else functions(tf, tf_keras, photo)
        model = tf_keras.Model(photo, made)
    model.save(tmp_path / f"net.{suffix}")
    np.testing.assert_allclose(answer(tmp_path / f"net.{suffix}"), model(IMAGE).numpy(), atol=1e-5)
    assert [value.name for value in convert(tmp_path / f"net.{suffix}").graph.output] == ["scores"]


def edited(path: Path, change, version: str | None = None) -> Path:
    """The HDF5 file with another configuration: what `change` makes of the one that it has."""
    h5py = package("h5py")
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = json.dumps(change(json.loads(file.attrs["model_config"])))
        file.attrs["keras_version"] = version or file.attrs["keras_version"]
    return path


def as_in_2_1(config):
    """A Sequential as Keras 2.0 to 2.2 wrote it: its layers alone, the first with the shape."""
    kept = [layer for layer in config["config"]["layers"] if layer["class_name"] != "InputLayer"]
    kept[0]["config"]["batch_input_shape"] = [None, 16, 24, 3]
    return {"class_name": "Sequential", "config": kept}


def test_a_sequential_that_is_a_list(tf_keras, tmp_path):
    conv = tf_keras.layers.Conv2D
    model = tf_keras.Sequential([conv(8, 3, padding="same", input_shape=(16, 24, 3)), conv(4, 1)])
    model.save(tmp_path / "net.h5")
    old = edited(tmp_path / "net.h5", as_in_2_1, "2.1.6")
    np.testing.assert_allclose(answer(old), model(IMAGE).numpy(), atol=1e-5)


def test_an_open_size(tf_keras, tmp_path):
    photo = tf_keras.Input((None, None, 3))
    x = tf_keras.layers.Conv2D(4, 3, strides=2, padding="same")(photo)
    model = tf_keras.Model(photo, tf_keras.layers.UpSampling2D(2, interpolation="bilinear")(x))
    model.save(tmp_path / "net.keras")
    np.testing.assert_allclose(answer(tmp_path / "net.keras"), model(IMAGE).numpy(), atol=1e-5)
    np.testing.assert_allclose(answer(tmp_path / "net.keras", input_size=(16, 24)), model(IMAGE).numpy(), atol=1e-5)


def test_without_tf_keras_it_is_named(tmp_path, monkeypatch):
    """Kind: `tf_keras` depends on the full TensorFlow, so it is no part of an extra: the message has the command."""
    keras = package("keras")
    monkeypatch.setattr(keras_2, "is_installed", lambda: False)
    keras.Sequential([keras.Input((16, 24, 3)), keras.layers.Conv2D(4, 1)]).save(tmp_path / "net.h5")
    old = edited(tmp_path / "net.h5", as_in_2_1, "2.1.6")
    with pytest.raises(ModelError, match=r"a file of Keras 2\.1\.6, .*: pip install --no-deps 'tf_keras==2\.\d+\.\*'$"):
        convert(old)


def of_layer(class_name: str, module: str | None = None, **config: object) -> dict[str, object]:
    """The configuration of a model with one layer."""
    layer = {"class_name": class_name, "config": {"name": "odd", **config}} | ({"module": module} if module else {})
    return {"class_name": "Functional", "config": {"name": "net", "layers": [layer]}}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            of_layer("TFOpLambda", function="io.write_file"),
            r"layer 'odd' calls 'tf\.io\.write_file', which is not known",
        ),
        (of_layer("SlicingOpLambda", function="io.gfile.remove"), r"calls 'tf\.io\.gfile\.remove'"),
        (of_layer("TFOpLambda", function="compat.v1.py_func"), r"calls 'tf\.compat\.v1\.py_func'"),
        (of_layer("TFOpLambda", function="keras.utils.get_file"), r"calls 'tf\.keras\.utils\.get_file'"),
        (of_layer("TFOpLambda", function="keras.backend.print_tensor"), "print_tensor"),
        (of_layer("TFOpLambda", function="raw_ops.WriteFile"), "WriteFile"),
        (of_layer("TFOpLambda", function="math.__loader__.get_data"), "__loader__"),
        (of_layer("TFOpLambda"), r"calls 'tf\.None'"),
        (of_layer("TensorFlowOpLayer", node_def={"op": "WriteFile", "name": "x"}), "holds the operator WriteFile,"),
        (of_layer("TensorFlowOpLayer", node_def="\n\x01x\x12\tWriteFile"), "holds the operator WriteFile,"),
        (of_layer("TensorFlowOpLayer", node_def="junk"), "holds the operator ,"),
        (
            of_layer("Lambda", function="system", module="os", function_type="function"),
            "is a Lambda, which may run code",
        ),
        (of_layer("StringLookup", vocabulary="/etc/passwd"), "is a StringLookup, which may run code or read another"),
        (of_layer("ClassMethod", cls_symbol="io.gfile.GFile", method_name="write"), r"\(ClassMethod\) is not one of"),
        (of_layer("InstanceMethod", attr_name="numpy"), r"\(InstanceMethod\) is not one of Keras's own"),
        (of_layer("get_file", "keras.utils"), r"\(get_file\) is not one of Keras's own"),
        (of_layer("urlretrieve", "tf_keras.src.utils.data_utils"), r"\(urlretrieve\) is not one of Keras's own"),
        (
            of_layer(
                "Activation", activation={"class_name": "function", "config": "get_file", "module": "keras.utils"}
            ),
            r"layer 'odd' \(Activation\) needs 'get_file', which is not one of Keras's own",
        ),
    ],
)
def test_what_a_file_of_keras_2_must_not_hold(tf_keras, config, said):
    """Kind: releases of tf_keras import any module and call any function of TensorFlow that a file names."""
    del tf_keras
    with pytest.raises(ModelError, match=said):
        keras_2.check_classes(config)


def test_a_function_that_writes_is_not_called(tf, tf_keras, tmp_path):
    photo = tf_keras.Input((16, 24, 3))
    tf_keras.Model(photo, tf.math.maximum(photo, 0.5)).save(tmp_path / "net.h5")
    proof = tmp_path / "written"

    def acting(config):
        text = json.dumps(config).replace('"math.maximum"', '"io.write_file"')
        return json.loads(text.replace("0.5", json.dumps(str(proof))))

    with pytest.raises(ModelError, match=r"calls 'tf\.io\.write_file'"):
        convert(edited(tmp_path / "net.h5", acting))
    assert not proof.exists()


def test_modules_of_others_are_not_imported(tf_keras, tmp_path):
    """`keras_hub` is of Keras 3, so a file of Keras 2 may not name it."""
    model = tf_keras.Sequential([tf_keras.layers.Conv2D(4, 1, input_shape=(16, 24, 3), name="mine")])
    model.save(tmp_path / "net.keras")
    for module in ("this.imports", "keras_hub.src", "keras_evil.src"):
        path = tmp_path / f"{module}.keras"
        with zipfile.ZipFile(tmp_path / "net.keras") as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                content = old.read(name)
                if name == "config.json":
                    content = content.replace(b'"module": "keras.layers"', f'"module": "{module}"'.encode())
                new.writestr(name, content)
        with pytest.raises(ModelError, match=r"is not one of Keras's own.*model\.export"):
            convert(path)


@pytest.mark.parametrize(
    ("version", "old"), [("2.4.0", True), ("2.2.4-tf", True), ("1.2.2", True), ("3.12.0", False), (None, False)]
)
def test_which_versions_are_keras_2(version, old):
    assert keras_2.is_keras_2(version) is old
