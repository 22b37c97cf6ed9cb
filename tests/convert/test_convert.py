"""TensorFlow in all its file formats to ONNX; what cannot be converted is named."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package

from trtpost.convert import convert, kind_of
from trtpost.convert.tflite import read_metadata
from trtpost.errors import MissingPackageError, ModelError
from trtpost.graph.locate import locate
from trtpost.graph.model import metadata, normalized


@pytest.fixture(scope="module")
def keras_model():
    keras = package("keras")
    layers = keras.layers
    keras.utils.set_random_seed(0)
    image = keras.Input((16, 24, 3), name="photo")
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    return keras.Model(image, layers.Conv2D(4, 1, name="scores")(x))


@pytest.fixture(scope="module")
def saved(keras_model, tmp_path_factory):
    """The same network in every format of TensorFlow."""
    tf = package("tensorflow")
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    folder = tmp_path_factory.mktemp("formats")
    keras_model.save(folder / "net.keras")
    keras_model.save(folder / "net.h5")
    keras_model.export(folder / "saved_model", verbose=False)
    (folder / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(keras_model).convert())
    function = tf.function(keras_model).get_concrete_function(tf.TensorSpec((1, 16, 24, 3), tf.float32, "photo"))
    graph = convert_variables_to_constants_v2(function).graph.as_graph_def()
    (folder / "frozen.pb").write_bytes(graph.SerializeToString())
    return folder


@pytest.mark.parametrize(
    "name", ["net.keras", "net.h5", "saved_model", "saved_model/saved_model.pb", "net.tflite", "frozen.pb"]
)
def test_every_format_gives_the_same_numbers(saved, keras_model, name):
    model = convert(saved / name)
    assert metadata(model)["source"] == (saved / name).name
    image = np.random.default_rng(0).random((1, 16, 24, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: image})
    np.testing.assert_allclose(found, keras_model(image).numpy(), atol=1e-5)
    located = locate(normalized(model, name))
    assert (located.classes, located.layout, located.head) == (4, "NCHW", "argmax")


def test_keras_argmax_and_custom_layers(keras_model, tmp_path):
    keras = package("keras")

    @keras.saving.register_keras_serializable("tests")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    ends_in_argmax = keras.Model(keras_model.input, keras.ops.argmax(keras_model.output, axis=-1))
    ends_in_argmax.save(tmp_path / "argmax.keras")
    model = convert(tmp_path / "argmax.keras")
    image = np.random.default_rng(0).random((2, 16, 24, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (labels,) = session.run(None, {"photo": image})
    np.testing.assert_array_equal(labels, ends_in_argmax(image).numpy())
    assert locate(normalized(model, "argmax")).head == "labels"

    keras.Model(keras_model.input, Doubled()(keras_model.output)).save(tmp_path / "custom.keras")
    with pytest.raises(ModelError, match=r"'Doubled'.*model\.export"):
        convert(tmp_path / "custom.keras")
    keras.Model(keras_model.input, keras.layers.Lambda(lambda x: x)(keras_model.output)).save(tmp_path / "l.keras")
    with pytest.raises(ModelError, match=r"a Lambda layer.*model\.export"):
        convert(tmp_path / "l.keras")


def test_a_dynamic_keras_model_whose_layers_need_the_size(tmp_path):
    keras = package("keras")
    image = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(4, 3, strides=2, padding="same")(image)
    keras.Model(image, keras.layers.UpSampling2D(2, interpolation="bilinear")(x)).save(tmp_path / "dynamic.keras")
    sized = convert(tmp_path / "dynamic.keras", input_size=(32, 48))
    assert [dim.dim_value for dim in sized.graph.input[0].type.tensor_type.shape.dim[1:]] == [32, 48, 3]


def test_a_module_of_the_users_named_tensorflow_is_not_imported(saved, tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('imported by mistake')")
    monkeypatch.chdir(tmp_path)
    assert convert(saved / "net.tflite").graph.node


def test_keras_names_and_dynamic_batch_are_kept(saved):
    model = convert(saved / "net.keras")
    assert [value.name for value in model.graph.input] == ["photo"]
    assert [value.name for value in model.graph.output] == ["scores"]
    assert locate(normalized(model, "net")).batch == 0


def test_an_operator_without_an_onnx_form_is_named(tmp_path):
    tf = package("tensorflow")

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32)])
        def __call__(self, image):
            return {"logits": tf.raw_ops.Betainc(a=image, b=image, x=image)}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures=net.__call__)
    with pytest.raises(ModelError, match="no ONNX form is known for Betainc"):
        convert(tmp_path / "net")


def signatures_model(path, names):
    tf = package("tensorflow")

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32)])
        def run(self, image):
            return {"logits": image * 2.0}

    net = Net()
    tf.saved_model.save(net, str(path), signatures=dict.fromkeys(names, net.run))
    return path


def test_signatures(tmp_path):
    assert convert(signatures_model(tmp_path / "one", ["only"])).graph.output[0].name == "logits"
    assert convert(signatures_model(tmp_path / "none", [])).graph.node
    two = signatures_model(tmp_path / "two", ["a", "b"])
    with pytest.raises(ModelError, match="choose one with --signature from a, b"):
        convert(two)
    assert convert(two, signature="b").graph.output[0].name == "logits"


@pytest.mark.parametrize("name", ["bad.keras", "bad.h5", "bad.pb", "bad.tflite"])
@pytest.mark.parametrize("content", [b"no model at all", b"\x1c\x00\x00\x00TFL3" + b"\xff" * 200])
def test_damaged_files_give_one_sentence(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        convert(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_formats_are_told_apart(tmp_path):
    with pytest.raises(ModelError, match="no such model"):
        kind_of(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match=r"without saved_model\.pb"):
        kind_of(tmp_path)
    (tmp_path / "empty.pb").touch()
    with pytest.raises(ModelError, match="zero bytes"):
        kind_of(tmp_path / "empty.pb")
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(ModelError, match=r"unknown model format '\.txt'"):
        kind_of(tmp_path / "a.txt")


def test_without_tensorflow_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "net.keras").write_text("x")
    monkeypatch.setattr("trtpost.convert.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"tensorflow and tf2onnx: pip install 'trtpost\[tf\]'"):
        convert(tmp_path / "net.keras")


def test_metadata_of_real_tflite_files(shared):
    deeplab = read_metadata(shared / "models/deeplabv3_257.tflite")
    assert (deeplab.mean, deeplab.std) == ((127.5,), (127.5,))
    assert len(deeplab.labels) == 21
    assert deeplab.labels[8] == "cat"
    selfie = read_metadata(shared / "models/selfie_256.tflite")
    assert (selfie.mean, selfie.std, selfie.labels) == ((0.0,), (255.0,), ("selfie",))
    portrait = read_metadata(shared / "models/portrait_256.tflite")
    assert not portrait.mean
    assert not portrait.labels


def test_mediapipes_transposed_convolution(shared):
    """tf2onnx cannot convert it; TFLite's own interpreter cannot run it either, so numpy checks it."""
    model = convert(shared / "models/selfie_256.tflite")
    (node,) = (one for one in model.graph.node if one.op_type == "ConvTranspose")
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    assert (attributes["strides"], attributes["kernel_shape"]) == ([2, 2], [2, 2])
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    kernel, bias = weights[node.input[1]], weights[node.input[2]]

    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in (node.input[0], node.output[0]))
    image = np.random.default_rng(0).random((1, 256, 256, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(probe.SerializeToString())
    source, result = session.run([node.input[0], node.output[0]], {"input_1": image})
    # kernel 2, stride 2: every input pixel becomes its own 2x2 block
    blocks = np.einsum("nihw,iokl->nohkwl", source, kernel)
    expected = blocks.reshape(result.shape) + bias.reshape(1, -1, 1, 1)
    np.testing.assert_allclose(result, expected, atol=1e-4)
