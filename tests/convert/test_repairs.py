"""What tf2onnx's own rules make of a network, and what ours do; and that a build sees the difference."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from conftest import package

from trtpost.builder.build import build
from trtpost.convert import conversion
from trtpost.errors import DoubtWarning, ModelError
from trtpost.graph.reading.model import normalized

pytestmark = pytest.mark.usefixtures("in_this_process")
RNG = np.random.default_rng(0)
WEIGHTS, CLASSES = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 8), (1, 1, 8, 5)))


@pytest.fixture(scope="module")
def tf():
    return package("tensorflow")


def attention(tf, image):
    """Attention of one head: a Transpose that moves an axis of length 1, after a Reshape."""
    batch = tf.shape(image)[0]
    k = tf.tensordot(tf.reshape(image, [batch, 256, 3]), WEIGHTS, [[2], [0]])
    k = tf.transpose(tf.reshape(k, [batch, -1, 1, 8]), [0, 2, 1, 3])
    y = tf.matmul(tf.nn.softmax(tf.matmul(k, k, transpose_b=True)), k)
    y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [batch, 16, 16, 8])
    return tf.nn.conv2d(y, CLASSES, 1, "SAME")


def gate(tf, image):
    """What is no whole number away from zero is cut off before it becomes a gate."""
    is_open = tf.cast(tf.cast(tf.cast(image * 3, tf.int32), tf.bool), tf.float32)
    return tf.nn.conv2d(image * is_open, np.resize(CLASSES, (1, 1, 3, 5)), 1, "SAME")


def saved(tf, network, folder):
    @tf.function(input_signature=[tf.TensorSpec((None, 16, 16, 3), tf.float32, name="image")])
    def serving(image):
        return {"logits": network(tf, image)}

    module = tf.Module()
    module.serving = serving
    tf.saved_model.save(module, str(folder), signatures=serving.get_concrete_function())
    return serving


@pytest.mark.parametrize("network", [attention, gate])
def test_rules_that_change_what_is_computed(tf, tmp_path, network, monkeypatch):
    """Kind: the converter merges nodes that may not be merged; shapes fit by chance, so nothing fails."""
    serving = saved(tf, network, tmp_path / "net")
    converted = conversion(tmp_path / "net")
    session = onnxruntime.InferenceSession(normalized(converted.model, "net").SerializeToString())
    image = RNG.uniform(-1, 1, (2, 16, 16, 3)).astype(np.float32)
    (ours,) = session.run(None, {session.get_inputs()[0].name: image})
    np.testing.assert_allclose(ours, serving(image)["logits"], atol=1e-5)
    assert converted.check_of("logits").passed

    from tf2onnx.optimizer import back_to_back_optimizer as rules

    theirs = rules.BackToBackOptimizer
    monkeypatch.setattr("trtpost.convert.worker.repair", lambda: None)
    monkeypatch.setitem(rules._func_map, ("Reshape",), theirs._optimize_reshape_reshape)
    monkeypatch.setitem(rules._func_map, ("Cast",), theirs._optimize_cast)
    with pytest.raises(ModelError, match=r"output 'logits' differs from TensorFlow .* by .* of its range .*--no-check"):
        build(tmp_path / "net", tmp_path / "a.trtpost", flavour="none", normalize="signed")
    assert not (tmp_path / "a.trtpost").exists()
    bundle = build(tmp_path / "net", tmp_path / "a.trtpost", flavour="none", normalize="signed", check=False)
    assert bundle.passport.check is None


def test_reshapes_that_may_be_merged_still_are(tf, tmp_path):
    """Kind: a repair that switches off what was right."""

    def network(tf, image):
        y = tf.reshape(tf.reshape(image * 2, [-1, 48]), [-1, 16, 16, 3])
        return tf.nn.conv2d(y, np.resize(CLASSES, (1, 1, 3, 5)), 1, "SAME")

    saved(tf, network, tmp_path / "net")
    model = conversion(tmp_path / "net").model
    assert sum(node.op_type == "Reshape" for node in model.graph.node) < 2


@pytest.fixture(scope="module")
def lite(tf, tmp_path_factory):
    """The same network as TFLite, quantised in several ways; gives the file of one."""
    keras = package("keras")
    keras.utils.set_random_seed(0)
    photo, layers = keras.Input((32, 48, 3)), keras.layers
    x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(photo)
    x = layers.UpSampling2D(2)(layers.Conv2D(64, 3, padding="same", activation="relu")(x))
    model = keras.Model(photo, layers.Conv2D(5, 1)(x))
    folder = tmp_path_factory.mktemp("lite")

    def get(kind):
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if kind == "half":
            converter.target_spec.supported_types = [tf.float16]
        if kind in ("int8", "edges"):
            photos = RNG.uniform(-1, 1, (4, 1, 32, 48, 3)).astype(np.float32)
            converter.representative_dataset = lambda: ([one] for one in photos)
        if kind == "edges":
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        path = folder / f"{kind}.tflite"
        path.write_bytes(converter.convert())
        return path

    return get


@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs")
@pytest.mark.parametrize("kind", ["int8", "edges"])
def test_quantised_tflite_is_compared_in_steps(lite, kind):
    (check,) = conversion(lite(kind)).checks
    assert check.passed
    assert check.arithmetic == "quantised"
    assert check.unit == "steps"
    assert check.difference < 1


def test_float16_weights_are_floats_in_the_interpreter_too(lite):
    (check,) = conversion(lite("half")).checks
    assert check.passed
    assert check.unit == "range"
    assert check.difference < 1e-5


def test_dynamic_range_is_said(lite, tmp_path):
    """Kind: the interpreter rounds activations that a bundle does not, so masks differ by nature: said, not refused."""
    with pytest.warns(DoubtWarning, match="dynamic-range quantisation: .* differs from TensorFlow Lite's"):
        bundle = build(lite("dynamic"), tmp_path / "a.trtpost", flavour="none", normalize="signed")
    assert bundle.passport.check.arithmetic == "dynamic range"
    assert 1e-5 < bundle.passport.check.difference < bundle.passport.check.bound
