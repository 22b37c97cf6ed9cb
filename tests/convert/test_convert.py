"""TensorFlow to ONNX: names, processes, metadata, MediaPipe's operator; `tests/cases` has what people give."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package

from trtpost.convert import convert
from trtpost.convert.tflite_file import read_metadata
from trtpost.errors import MissingPackageError
from trtpost.graph.head.locate import locate
from trtpost.graph.reading.model import normalized

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture(scope="module")
def keras_model():
    keras = package("keras")
    layers = keras.layers
    keras.utils.set_random_seed(0)
    image = keras.Input((16, 24, 3), name="photo")
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(image)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    return keras.Model(image, layers.Conv2D(4, 1, name="scores")(x))


def test_the_argmax_of_keras(keras_model, tmp_path):
    keras = package("keras")

    ends_in_argmax = keras.Model(keras_model.input, keras.ops.argmax(keras_model.output, axis=-1))
    ends_in_argmax.save(tmp_path / "argmax.keras")
    model = convert(tmp_path / "argmax.keras")
    image = np.random.default_rng(0).random((2, 16, 24, 3)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (labels,) = session.run(None, {"photo": image})
    np.testing.assert_array_equal(labels, ends_in_argmax(image).numpy())
    assert locate(normalized(model, "argmax")).head == "labels"


def test_a_module_of_the_users_named_tensorflow_is_not_imported(keras_model, tmp_path, monkeypatch):
    monkeypatch.undo()  # a process of its own
    keras_model.save(tmp_path / "net.keras")
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('imported by mistake')")
    monkeypatch.chdir(tmp_path)
    assert convert(tmp_path / "net.keras").graph.node


def test_keras_names_and_dynamic_batch_are_kept(keras_model, tmp_path):
    keras_model.save(tmp_path / "net.keras")
    model = convert(tmp_path / "net.keras")
    assert [value.name for value in model.graph.input] == ["photo"]
    assert [value.name for value in model.graph.output] == ["scores"]
    assert locate(normalized(model, "net")).batch == 0


def test_without_tensorflow_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "net.keras").write_text("x")
    monkeypatch.setattr("trtpost.convert.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"tensorflow and tf2onnx: pip install 'tensorflow-cpu>=2.18'"):
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
