"""Models as people have them: any format, any name, any age; what cannot be converted is said, and nothing written."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import package, trtpost
from nets import net, save

from trtpost.builder.build import build
from trtpost.cli import app
from trtpost.convert import convert, kind_of
from trtpost.convert.resize_handlers import _index
from trtpost.errors import ModelError
from trtpost.graph.head.locate import locate
from trtpost.graph.reading.model import load_model, metadata, normalized
from trtpost.segment import Segmenter

WEIGHTS = np.random.default_rng(0).standard_normal((3, 3, 3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(1).random((1, 16, 24, 3)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture(scope="module")
def tf():
    return package("tensorflow")


@pytest.fixture(scope="module")
def keras():
    return package("keras")


def answer(model: onnx.ModelProto, image: np.ndarray = IMAGE) -> np.ndarray:
    """The first output of a converted model in ONNX Runtime."""
    session = onnxruntime.InferenceSession(normalized(model, "converted").SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: image})[0]


def network(keras, middle=lambda x: x, dtype=None):
    """A functional network with something in its middle, for photos of the given type."""
    keras.utils.set_random_seed(0)  # the same weights in every run
    layers = keras.layers
    photo = keras.Input((16, 24, 3), name="photo", dtype=dtype)
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu", name="first")(photo)
    x = layers.UpSampling2D(2, interpolation="bilinear")(middle(x))
    return keras.Model(photo, layers.Conv2D(4, 1, name="scores")(x))


@pytest.fixture(scope="module")
def formats(tf, keras, tmp_path_factory):
    """The same network in every format of TensorFlow, and what it answers."""
    folder = tmp_path_factory.mktemp("formats")
    model = network(keras)
    model.save(folder / "net.keras")
    model.save(folder / "net.h5")
    model.export(folder / "saved", verbose=False)
    (folder / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    frozen = freeze(tf, model, folder / "net.pb")
    (folder / "net.pbtxt").write_text(str(frozen))
    keras_2(folder / "net.h5", folder / "keras2.h5")
    return folder, model(IMAGE).numpy()


def freeze(tf, function, path, *specs):
    """Write the frozen graph of a function of a photo; gives the GraphDef."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    specs = specs or (tf.TensorSpec((1, 16, 24, 3), tf.float32, "photo"),)
    concrete = tf.function(function).get_concrete_function(*specs)
    graph = convert_variables_to_constants_v2(concrete).graph.as_graph_def()
    path.write_bytes(graph.SerializeToString())
    return graph


def keras_2(source, target):
    """The HDF5 file as Keras 2 wrote it: `batch_input_shape`, dtypes as names, nodes as nested lists."""
    h5py = package("h5py")
    shutil.copy(source, target)
    with h5py.File(target, "a") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            inner = layer["config"]
            inner["dtype"] = "float32"
            if "batch_shape" in inner:
                inner["batch_input_shape"] = inner.pop("batch_shape")
                inner.pop("optional", None)
            histories = [node["args"][0]["config"]["keras_history"] for node in layer["inbound_nodes"]]
            layer["inbound_nodes"] = [[[*history, {}]] for history in histories]
            for key, value in inner.items():
                if isinstance(value, dict) and "registered_name" in value:
                    known = {name: one for name, one in value["config"].items() if not name.endswith("_axes")}
                    inner[key] = {"class_name": value["class_name"], "config": known}
        config["class_name"] = "Model"
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.4.0"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("net.keras", "net.keras"),
        ("net.h5", "net.h5"),
        ("keras2.h5", "keras2.h5"),
        ("saved", "saved"),
        ("saved", "saved/saved_model.pb"),
        ("net.tflite", "net.tflite"),
        ("net.pb", "net.pb"),
        ("net.pbtxt", "net.pbtxt"),
        # HDF5 named .keras and the reverse, a text graph named .pb, files without or with any suffix
        ("net.h5", "hdf5.keras"),
        ("net.keras", "archive.h5"),
        ("net.keras", "archive"),
        ("net.h5", "weights.model"),
        ("net.pb", "frozen_inference_graph"),
        ("net.pb", "graph.bin"),
        ("net.pbtxt", "text.pb"),
        ("net.tflite", "lite.model"),
    ],
)
def test_a_model_is_known_by_its_content_not_its_name(formats, tmp_path, content, name):
    """Kind: whatever a file is called, what is in it decides; every format gives the numbers of TensorFlow."""
    folder, expected = formats
    source = folder / name
    if not source.exists():
        source = tmp_path / name
        shutil.copy(folder / content, source)
    model = convert(source)
    assert metadata(model)["source"] == source.name
    np.testing.assert_allclose(answer(model), expected, atol=1e-5)
    located = locate(normalized(model, name))
    assert (located.classes, located.layout, located.head) == (4, "NCHW", "argmax")


def test_an_onnx_model_under_another_name_is_built(tmp_path):
    """Kind: content that is ONNX, under a name of another format or none."""
    model = net("logits = Conv (image, k)", "float[1,3,16,24] image", "float[1,4,16,24] logits", k=oihw())
    for name in ("net", "net.pb", "net.bin", "net.json"):
        save(model, tmp_path / "net.onnx").rename(tmp_path / name)
        assert kind_of(tmp_path / name) == "onnx"
        bundle = build(tmp_path / name, tmp_path / f"{name}.trtpost", flavour="none")
        assert bundle.passport.located.classes == 4


def oihw() -> np.ndarray:
    return WEIGHTS.transpose(3, 2, 0, 1)[:, :, 1:2, 1:2].copy()


def archive(**files: bytes):
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name, content in files.items():
                file.writestr(name.replace("__", "/").replace("_dot_", "."), content)

    return write


def saved_model_alone(path: Path) -> None:
    path.write_bytes(b"\x08\x01\x12\x04\x12\x02\x0a\x00")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.pt", archive(net__data_dot_pkl=b"x"), "is a PyTorch file.*torch.onnx.export"),
        ("a.pth", lambda path: path.write_bytes(b"\x80\x02}q\x00."), "is a PyTorch file"),
        ("a.plan", lambda path: path.write_bytes(b"ftrt" + bytes(60)), "is a TensorRT plan already"),
        ("a.zip", archive(net__saved_model_dot_pb=b"x"), "archive of a SavedModel: unpack it"),
        ("model.ckpt.index", lambda path: path.write_bytes(bytes(48)), "is a TensorFlow checkpoint.*export"),
        ("model.ckpt.data-00000-of-00001", lambda path: path.write_bytes(bytes(48)), "is a TensorFlow checkpoint"),
        ("net.pb", saved_model_alone, "saved_model.pb of a SavedModel under another name.*give the SavedModel folder"),
        ("net.onnxtxt", lambda path: path.write_text("ir_version: 8"), "ONNX model as text.*onnx.save"),
        ("a.txt", lambda path: path.write_text("text"), r"unknown model format '\.txt'; trtpost takes \.onnx"),
        ("a.tflite", lambda path: path.write_text("text"), "not a TFLite model: it lacks the identifier TFL3"),
        ("a.keras", archive(a_dot_txt=b"x"), "archive without config.json: not a Keras model"),
        ("b.keras", archive(config_dot_json=b"{}"), "a network without weights"),
        ("c.keras", archive(config_dot_json=b"[1", model_dot_weights_dot_h5=b""), "damaged or cut short"),
        ("a.h5", lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(90)), "damaged or cut short"),
        ("a.pb", lambda path: path.write_text("node {"), "does not parse as a frozen GraphDef"),
        ("b.pb", lambda path: path.write_bytes(b"\x0a\x02\x0a\x00"), "no Placeholder to feed"),
    ],
)
def test_files_that_are_no_model_say_what_they_are(tmp_path, name, write, message):
    """Kind: a file of something else; the message says what it is and what to give instead."""
    write(tmp_path / name)
    with pytest.raises(ModelError, match=message) as caught:
        convert(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.tflite", b"\x1c\x00\x00\x00TFL3" + b"\xff" * 200),
        ("bad.keras", b"no model at all"),
        ("bad.h5", b"no model at all"),
        ("bad.pb", b"no model at all"),
    ],
)
def test_damaged_files_give_one_sentence(tmp_path, monkeypatch, name, content):
    """Kind: content that may crash the libraries that read it; TensorFlow is in a process of its own for that."""
    if name == "bad.tflite":
        monkeypatch.undo()  # TensorFlow's reader in a process of its own
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        convert(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "damage", "message"),
    [
        ("net.keras", lambda data: data[: len(data) // 2], "damaged or cut short"),
        ("net.keras", lambda data: data[: len(data) // 2] + bytes(50) + data[len(data) // 2 + 50 :], "damaged|Bad CRC"),
        ("net.h5", lambda data: data[: len(data) // 2], "damaged or cut short"),
    ],
)
def test_a_damaged_keras_file_is_refused(formats, tmp_path, source, damage, message):
    """Kind: a download that broke off, or bytes that are wrong."""
    path = tmp_path / source
    path.write_bytes(damage((formats[0] / source).read_bytes()))
    with pytest.raises(ModelError, match=message):
        convert(path)


@pytest.mark.parametrize("name", ["w.weights.h5", "w.h5", "w.keras"])
def test_a_file_of_weights_only(keras, tmp_path, name):
    """Kind: `save_weights` in any name: the network is not in the file."""
    network(keras).save_weights(tmp_path / "only.weights.h5")
    (tmp_path / "only.weights.h5").rename(tmp_path / name)
    with pytest.raises(ModelError, match=r"weights without a network.*model\.save"):
        convert(tmp_path / name)


def test_folders(formats, tmp_path):
    """Kind: a folder that is no SavedModel, or has one inside (TensorFlow Serving's numbered versions)."""
    with pytest.raises(ModelError, match=r"without saved_model\.pb: not a SavedModel$"):
        kind_of(tmp_path)
    shutil.copytree(formats[0] / "saved", tmp_path / "1")
    with pytest.raises(ModelError, match=f"did you mean {tmp_path / '1'}"):
        kind_of(tmp_path)
    shutil.rmtree(tmp_path / "1/variables")
    with pytest.raises(ModelError, match="weights are missing: copy its whole folder"):
        convert(tmp_path / "1")
    shutil.copytree(formats[0] / "saved/variables", tmp_path / "1/variables")
    (data,) = (tmp_path / "1/variables").glob("*.data-*")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ModelError, match="weights in 'variables' are damaged"):
        convert(tmp_path / "1")
    with pytest.raises(ModelError, match="no such model"):
        kind_of(tmp_path / "missing.onnx")
    (tmp_path / "empty.pb").touch()
    with pytest.raises(ModelError, match="zero bytes"):
        kind_of(tmp_path / "empty.pb")


@pytest.mark.filterwarnings("ignore:You are saving a model that has not yet been built")
def test_sequential(keras, tmp_path):
    """Kind: Keras 3 Sequential, with an Input or called once; open sizes are asked for, an unbuilt one is refused."""
    conv = keras.layers.Conv2D
    given = keras.Sequential([keras.Input((16, 24, 3)), conv(4, 3, padding="same")])
    called = keras.Sequential([conv(4, 3, padding="same")])
    called(IMAGE)
    for model in (given, called):
        model.save(tmp_path / "net.keras")
        np.testing.assert_allclose(answer(convert(tmp_path / "net.keras")), model(IMAGE).numpy(), atol=1e-5)
    dynamic = keras.Sequential([conv(4, 3, padding="same")])
    dynamic.build((None, None, None, 3))
    dynamic.save(tmp_path / "dynamic.keras")
    with pytest.raises(ModelError, match="choose the network's resolution with --input-size"):
        build(tmp_path / "dynamic.keras", tmp_path / "b", flavour="none")
    sized = convert(tmp_path / "dynamic.keras", input_size=(32, 48))
    assert shape_in(sized) == [32, 48, 3]
    keras.Sequential([conv(4, 3)]).save(tmp_path / "unbuilt.keras")
    with pytest.raises(
        ModelError, match=r"before its input shape was known.*call it on an array \[1, HEIGHT, WIDTH, 3\]"
    ):
        convert(tmp_path / "unbuilt.keras")


def test_keras_layers_of_today(keras, tmp_path):
    """Kind: what networks are made of now: exact GELU (Erfc), group and layer norm, nearest, transposed convolution."""
    layers = keras.layers
    image = keras.Input((16, 24, 3))
    x = layers.Activation("gelu")(layers.Conv2D(4, 3, strides=2, padding="same")(image))
    x = layers.LayerNormalization()(layers.GroupNormalization(2)(x))
    x = layers.UpSampling2D((1, 2), interpolation="nearest")(layers.MaxPooling2D((1, 2))(x))
    model = keras.Model(image, layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x))
    model.save(tmp_path / "net.keras")
    np.testing.assert_allclose(answer(convert(tmp_path / "net.keras")), model(IMAGE).numpy(), atol=1e-4)


@pytest.mark.parametrize("size", ["16x24", "open"])
def test_grouped_convolutions(keras, tmp_path, size):
    """Kind: groups and depth multipliers (ResNeXt, RegNet, SegFormer), which Keras wraps in a function for XLA."""
    layers = keras.layers
    photo = keras.Input((16, 24, 3) if size == "16x24" else (None, None, 3))
    x = layers.Conv2D(8, 1)(photo)
    x = layers.Conv2D(8, 3, padding="same", groups=2, activation="relu")(x)
    x = layers.Conv2D(8, 3, padding="same", groups=4, strides=2, use_bias=False)(x)
    x = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(x)
    model = keras.Model(photo, layers.Conv2D(4, 1)(x))
    model.save(tmp_path / "net.keras")
    model.export(tmp_path / "exported", verbose=False)
    for source in ("net.keras", "exported"):
        converted = convert(tmp_path / source, input_size=(16, 24))
        np.testing.assert_allclose(answer(converted), model(IMAGE).numpy(), atol=1e-5)
        groups = [one.i for node in converted.graph.node for one in node.attribute if one.name == "group"]
        assert groups == [1, 2, 4, 8, 1]


def test_a_dynamic_keras_model_whose_layers_need_the_size(keras, tmp_path):
    """Kind: Keras networks of any size, whose layers compute with the size."""
    image = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(4, 3, strides=2, padding="same")(image)
    model = keras.Model(image, keras.layers.UpSampling2D(2, interpolation="bilinear")(x))
    model.save(tmp_path / "dynamic.keras")
    with pytest.raises(ModelError, match=r"a layer must know them: choose .* with --input-size HxW$"):
        build(tmp_path / "dynamic.keras", tmp_path / "b", flavour="none")
    sized = convert(tmp_path / "dynamic.keras", input_size=(16, 24))
    assert shape_in(sized) == [16, 24, 3]
    np.testing.assert_allclose(answer(sized), model(IMAGE).numpy(), atol=1e-5)


def shape_in(model: onnx.ModelProto) -> list[int]:
    return [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]


def test_packages_of_the_makers_of_keras(keras, tmp_path):
    """Kind: a file of keras-hub, which names its modules: imported if it is here, else named; no others are."""
    network(keras).save(tmp_path / "net.keras")
    with zipfile.ZipFile(tmp_path / "net.keras", "a") as file:
        config = file.read("config.json").replace(b'"module": "keras.layers"', b'"module": "keras_nlp.src.models"')
    with zipfile.ZipFile(tmp_path / "net.keras") as old, zipfile.ZipFile(tmp_path / "named.keras", "w") as new:
        for name in old.namelist():
            new.writestr(name, config if name == "config.json" else old.read(name))
    with pytest.raises(ModelError, match=r"layer 'photo' \(InputLayer\) is of keras-nlp, .*: pip install keras-nlp$"):
        convert(tmp_path / "named.keras")


def test_keras_hub(keras, tmp_path):
    """Kind: networks of keras-hub, whose classes Keras imports."""
    models = package("keras_hub").models
    keras.utils.set_random_seed(0)
    encoder = models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 16, 16, 16],
        stackwise_num_blocks=[1] * 4,
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="basic_block",
        image_shape=(16, 24, 3),
    )
    backbone = models.DeepLabV3Backbone(
        image_encoder=encoder,
        projection_filters=8,
        spatial_pyramid_pooling_key="P3",
        low_level_feature_key="P2",
        upsampling_size=2,
        dilation_rates=[2, 4],
        image_shape=(16, 24, 3),
    )
    model = models.DeepLabV3ImageSegmenter(backbone=backbone, num_classes=4, activation=None)
    model.save(tmp_path / "net.keras")
    expected = model(IMAGE, training=False).numpy()  # without, its normalisations take the statistics of the photo
    np.testing.assert_allclose(answer(convert(tmp_path / "net.keras")), expected, atol=1e-4)


def test_inputs_and_outputs_by_name(keras, tmp_path):
    """Kind: functional networks whose inputs or outputs are dictionaries, or several."""
    conv, photo = keras.layers.Conv2D, keras.Input((16, 24, 3), name="photo")
    by_name = keras.Model({"photo": photo}, {"main": conv(4, 1)(photo), "aux": conv(4, 1)(photo)})
    by_name.save(tmp_path / "names.keras")
    model = normalized(convert(tmp_path / "names.keras"), "names")
    located = locate(model)
    assert (located.input, located.output, located.others) == ("photo", "main", ("aux",))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = by_name({"photo": IMAGE})
    for name in ("main", "aux"):
        np.testing.assert_allclose(session.run([name], {"photo": IMAGE})[0], expected[name].numpy(), atol=1e-5)

    depth = keras.Input((16, 24, 1), name="depth")
    both = conv(4, 1)(keras.layers.Concatenate()([photo, depth]))
    for inputs in ([photo, depth], {"photo": photo, "depth": depth}):
        keras.Model(inputs, both).save(tmp_path / "two.keras")
        with pytest.raises(ModelError, match=r"has 2 inputs, .*'photo'.*trtpost takes networks with one image input"):
            locate(normalized(convert(tmp_path / "two.keras"), "two"))


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
def test_code_is_never_run_out_of_a_file(keras, tmp_path):
    """Kind: Lambda layers, lambdas in layers, unregistered layers and functions, custom models: named, never run."""
    layers = keras.layers

    class Doubled(layers.Layer):
        def call(self, x):
            return 2 * x

    @keras.saving.register_keras_serializable("tests")
    class Own(keras.Model):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.conv = layers.Conv2D(4, 1)

        def call(self, x):
            return self.conv(x)

    def swishy(x):
        return 2 * x

    own = Own()
    own(IMAGE)
    hidden = keras.Sequential([keras.Input((8, 12, 6)), layers.Lambda(lambda x: x, name="twice")], name="inner")
    cases = {
        "layer 'twice' is a Lambda": network(keras, layers.Lambda(lambda x: x * 2, name="twice")),
        "layer 'inner_act' holds a lambda": network(keras, layers.Activation(lambda x: x, name="inner_act")),
        r"layer 'my_one' \(Doubled\) is not one of Keras's own": network(keras, Doubled(name="my_one")),
        r"layer 'act_one' \(Activation\) needs 'swishy'": network(keras, layers.Activation(swishy, name="act_one")),
    }
    for suffix in ("keras", "h5"):
        for message, model in cases.items():
            path = tmp_path / f"own.{suffix}"
            model.save(path)
            with pytest.raises(ModelError, match=rf"{message}.*model\.export\(folder\).*SavedModel folder"):
                convert(path)
    network(keras, hidden).save(tmp_path / "own.keras")
    with pytest.raises(ModelError, match="layer 'twice' is a Lambda"):
        convert(tmp_path / "own.keras")
    own.save(tmp_path / "own.keras")
    np.testing.assert_allclose(answer(convert(tmp_path / "own.keras")), own(IMAGE).numpy(), atol=1e-5)  # known here
    keras.saving.get_custom_objects().pop("tests>Own")
    with pytest.raises(ModelError, match=r"'Own' is not one of Keras's own.*model\.export"):
        convert(tmp_path / "own.keras")
    # the safe way, which the message names
    own.export(tmp_path / "own", verbose=False)
    np.testing.assert_allclose(answer(convert(tmp_path / "own")), own(IMAGE).numpy(), atol=1e-5)


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
def test_keras_2_lambda(keras, tmp_path):
    """Kind: Keras 2 wrote a Lambda's bytecode as a list; it is found without loading it."""
    h5py = package("h5py")
    network(keras, keras.layers.Lambda(lambda x: x * 2, name="twice")).save(tmp_path / "l.h5")
    with h5py.File(tmp_path / "l.h5", "a") as file:
        config = json.loads(file.attrs["model_config"])
        (layer,) = (one for one in config["config"]["layers"] if one["class_name"] == "Lambda")
        layer["config"] |= {"function": ["4wEAAAA=", None, None], "function_type": "lambda"}
        file.attrs["model_config"] = json.dumps(config)
    with pytest.raises(ModelError, match="layer 'twice' is a Lambda, whose code is in the file"):
        convert(tmp_path / "l.h5")


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_keras_layers_called_in_training_mode(keras, tmp_path, suffix):
    """Kind: training=True in the file: the mask changes with the batch or with chance, so it is refused, by name."""
    layers = keras.layers
    inner = keras.Sequential([keras.Input((8, 12, 6)), layers.BatchNormalization(name="deep")], name="inner")
    cases = {
        r"layer 'norm' \(BatchNormalization\) is called with training=True": (
            lambda x: layers.BatchNormalization(name="norm")(x, training=True)
        ),
        r"layer 'drop' \(Dropout\) is called with training=True": (
            lambda x: layers.Dropout(0.5, name="drop")(x, training=True)
        ),
        "layer 'inner' .* in it 'deep', a BatchNormalization, is called": lambda x: inner(x, training=True),
    }
    for message, middle in cases.items():
        network(keras, middle).save(tmp_path / f"net.{suffix}")
        with pytest.raises(ModelError, match=f"{message}.*training=False"):
            convert(tmp_path / f"net.{suffix}")
    # what is no training at all: the argument left out, False, or a frozen layer; layers that augment photos
    frozen = layers.BatchNormalization(trainable=False)
    norm = layers.BatchNormalization(moving_mean_initializer="ones")
    augment = layers.RandomFlip()
    model = network(keras, lambda x: augment(layers.Dropout(0.5)(frozen(norm(x, training=False), training=True))))
    model.save(tmp_path / f"net.{suffix}")
    expected = model.predict(IMAGE, verbose=0)
    np.testing.assert_allclose(answer(convert(tmp_path / f"net.{suffix}")), expected, atol=1e-5)


def test_training_mode_in_saved_models(keras, tmp_path):
    """Kind: a SavedModel has no layers to ask; Keras 3 writes training statistics as plain means, Dropout as random."""
    layers = keras.layers
    normed = network(keras, lambda x: layers.BatchNormalization(name="norm")(x, training=True))
    dropped = network(keras, lambda x: layers.Dropout(0.5, name="drop")(x, training=True))
    for model, message in ((normed, "norm.* over the photos of the batch"), (dropped, "drop.* draws random numbers")):
        model.export(tmp_path / "net", verbose=False)
        with pytest.raises(ModelError, match=message):
            convert(tmp_path / "net")
        shutil.rmtree(tmp_path / "net")


@pytest.mark.parametrize("factor", [1.0, 0.1])
def test_training_mode_in_frozen_graphs(tf, tmp_path, factor):
    """Kind: FusedBatchNorm with is_training: tf2onnx would take the other statistics without a word."""
    ones, zeros = tf.ones(4), tf.zeros(4)
    learnt = {"mean": zeros, "variance": ones} if factor < 1 else {"mean": tf.zeros(0), "variance": tf.zeros(0)}

    def normed(image):
        scores = tf.nn.conv2d(image, WEIGHTS, 1, "SAME")
        how = {"is_training": True, "exponential_avg_factor": factor, "name": "norm"}
        return tf.raw_ops.FusedBatchNormV3(x=scores, scale=ones, offset=zeros, **learnt, **how)[0]

    freeze(tf, normed, tmp_path / "net.pb")
    with pytest.raises(ModelError, match=r"'norm' \(FusedBatchNormV3\) is in training mode.*is_training=False"):
        convert(tmp_path / "net.pb")


def onnx_net(body: str, batch: str = "N", **weights: np.ndarray) -> onnx.ModelProto:
    full = f"scores = Conv (image, k)\n {body}"
    sizes = f"float[{batch},3,16,24] image", f"float[{batch},4,16,24] logits"
    return net(full, *sizes, opset=17, k=oihw(), **weights)


BATCH_NORM = "logits = BatchNormalization {} (scores, one, zero, zero, one)"
MOMENTS = """mean = ReduceMean <axes = [{0}]> (scores)
    centred = Sub (scores, mean)
    square = {1}
    variance = ReduceMean <axes = [{0}]> (square)
    deviation = Sqrt (variance)
    logits = Div (centred, deviation)"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (BATCH_NORM.format("<training_mode = 1>").replace("logits =", "logits, m, v ="), "is in training mode"),
        ("logits = Dropout (scores, half, yes)", "draws random numbers"),
        ("noise = RandomNormalLike (scores)\n logits = Add (scores, noise)", "draws random numbers"),
        (MOMENTS.format("0, 2, 3", "Mul (centred, centred)"), "over the photos of the batch"),
        (MOMENTS.format("-4, 2, 3", "Pow (centred, two)"), "over the photos of the batch"),
    ],
)
def test_training_mode_in_onnx(body, message):
    """Kind: PyTorch exported without eval(): no runtime of ours computes it as meant, so it is refused, by node."""
    constants = {"one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32), "two": np.float32(2)}
    constants |= {"half": np.float32(0.5), "yes": np.array(True)}
    with pytest.raises(ModelError, match=f"test net: node '.*{message}.*export the network for inference"):
        onnx_net(body, **constants)


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (BATCH_NORM.format(""), "N"),
        ("logits = Dropout (scores, half, no)", "N"),
        ("logits = Dropout (scores)", "N"),
        (MOMENTS.format("2, 3", "Mul (centred, centred)"), "N"),  # instance norm
        (MOMENTS.format("0, 2, 3", "Mul (centred, centred)"), "1"),  # nobody is beside the photo
        ("mean = ReduceMean <axes = [0, 2, 3]> (scores)\n logits = Mul (scores, mean)", "N"),
    ],
)
def test_what_looks_like_training_and_is_not(body, batch):
    """Kind: networks for inference that a careless check would refuse."""
    constants = {"one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32)}
    constants |= {"half": np.float32(0.5), "no": np.array(False)}
    assert onnx_net(body, batch, **constants).graph.node


def test_signatures(tf, tmp_path):
    """Kind: SavedModels without, with one and with several signatures, one of which is the default."""

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32)])
        def run(self, image):
            return {"logits": image * 2.0}

        @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32)])
        def other(self, image):
            return {"others": image * 3.0}

    net = Net()

    def saved(**signatures):
        shutil.rmtree(tmp_path / "net", ignore_errors=True)
        tf.saved_model.save(net, str(tmp_path / "net"), signatures=signatures or None)
        return tmp_path / "net"

    def output(path, **settings):
        return convert(path, **settings).graph.output[0].name

    assert output(saved(only=net.run)) == "logits"
    with pytest.raises(ModelError, match="choose one with --signature from a, b"):
        convert(saved(a=net.run, b=net.other))
    assert output(tmp_path / "net", signature="b") == "others"
    assert output(saved(serving_default=net.other, a=net.run)) == "others"
    with pytest.raises(ModelError, match="has no signature 'c': choose one with --signature from a, serving_default"):
        convert(tmp_path / "net", signature="c")
    with pytest.raises(ModelError, match=r"no signature, and functions for several inputs"):
        convert(saved())


def test_functions_without_a_signature(tf, tmp_path):
    """Kind: a custom `call` without signature: traced once it is used, never traced the shape is asked for."""

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(WEIGHTS)

        @tf.function
        def __call__(self, image):
            return tf.nn.conv2d(image, self.weights, 1, "SAME")

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "never"))
    with pytest.raises(ModelError, match=r"no function whose input shape is known.*signatures=.*HEIGHT, WIDTH"):
        convert(tmp_path / "never")
    net(IMAGE)
    # the root is the function itself, as onnx2tf writes it
    function = tf.function(lambda image: tf.nn.conv2d(image, WEIGHTS, 1, "SAME"))
    for shape in ((1, 16, 24, 3), (None, None, None, 3)):
        alone = function.get_concrete_function(tf.TensorSpec(shape, tf.float32, name="image"))
        tf.saved_model.save(alone, str(tmp_path / "alone"))
        np.testing.assert_allclose(answer(convert(tmp_path / "alone")), net(IMAGE).numpy(), atol=1e-4)
    tf.saved_model.save(net, str(tmp_path / "once"))
    np.testing.assert_allclose(answer(convert(tmp_path / "once")), net(IMAGE).numpy(), atol=1e-4)
    net(IMAGE[:, :8])
    tf.saved_model.save(net, str(tmp_path / "twice"))
    with pytest.raises(ModelError, match=r"\(1, 16, 24, 3\).*\(1, 8, 24, 3\).*signatures="):
        convert(tmp_path / "twice")


@pytest.mark.parametrize("shape", [None, (None, None, None, 3), (1, None, None, 3)])
def test_sizes_that_the_model_leaves_open(tf, tmp_path, shape):
    """Kind: a function or placeholder without size, or without any shape: --input-size settles it."""

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])
        def __call__(self, image):
            scores = tf.nn.conv2d(image, WEIGHTS, 2, "SAME")
            return {"logits": tf.image.resize(scores, tf.shape(image)[1:3] * 2 - 1, method="nearest")}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures=net.__call__)
    freeze(tf, lambda image: net(image)["logits"], tmp_path / "net.pb", tf.TensorSpec(shape, tf.float32, "photo"))
    expected = net(IMAGE)["logits"].numpy()
    for name in ("net", "net.pb"):
        sized = convert(tmp_path / name, input_size=(16, 24))
        assert shape_in(sized) == [16, 24, 3]
        np.testing.assert_allclose(answer(sized), expected, atol=1e-4)
    if shape is not None:
        np.testing.assert_allclose(answer(convert(tmp_path / "net")), expected, atol=1e-4)
    else:
        for name in ("net", "net.pb"):
            with pytest.raises(ModelError, match=r"which shape its input '.*' has: give its size with --input-size"):
                convert(tmp_path / name)


def test_signatures_that_take_files_of_photos(tf, tmp_path):
    """Kind: serving functions for encoded strings are refused and the others listed; uint8 pixels are taken."""

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 16, 24, 3), tf.uint8)])
        def pixels(self, image):
            return {"logits": tf.nn.conv2d(tf.cast(image, tf.float32) / 255.0, WEIGHTS, 1, "SAME")}

        @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
        def encoded(self, photo):
            return self.pixels(tf.io.decode_jpeg(photo, 3)[None, :16, :24])

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures={"serving_default": net.encoded, "raw": net.pixels})
    with pytest.raises(ModelError, match=r"'serving_default' takes strings.*takes pixels: .*--signature from raw"):
        convert(tmp_path / "net")
    bundle = build(tmp_path / "net", tmp_path / "bundle", signature="raw", flavour="none", size=(16, 24))
    photo = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        mask = segmenter(photo).mask
    np.testing.assert_array_equal(mask, net.pixels(photo[None])["logits"].numpy()[0].argmax(-1))
    tf.saved_model.save(net, str(tmp_path / "only"), signatures=net.encoded)
    with pytest.raises(ModelError, match=r"takes strings.*export the part after decoding"):
        convert(tmp_path / "only")


@pytest.fixture(scope="module")
def tensorflow_1(tf, tmp_path_factory):
    """Files as TensorFlow 1 wrote them, and the same network as a function."""
    folder = tmp_path_factory.mktemp("tf1")
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session() as session:
        photo = v1.placeholder(tf.float32, (None, 16, 24, 3), "photo")
        switch = v1.placeholder(tf.bool, [], "is_training")
        weights = v1.get_variable("weights", initializer=WEIGHTS)
        scores = tf.nn.conv2d(photo, weights, 1, "SAME")
        logits = tf.identity(v1.cond(switch, lambda: scores * 0.0, lambda: scores), "logits")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder / "simple"), {"image": photo}, {"scores": scores})
        signature = v1.saved_model.predict_signature_def({"image": photo}, {"scores": scores})
        builder = v1.saved_model.Builder(str(folder / "tags"))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.add_meta_graph(["serve", "gpu"], {"serving_default": signature})
        builder.save()
        frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [logits.op.name])
        (folder / "switch.pb").write_bytes(frozen.SerializeToString())
        (folder / "unfrozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder


@pytest.mark.parametrize("name", ["simple", "tags", "switch.pb"])
def test_models_of_tensorflow_1(tf, tensorflow_1, name):
    """Kind: SavedModels of TensorFlow 1, with several graphs in one, and frozen graphs with a training switch."""
    model = convert(tensorflow_1 / name)
    assert len(model.graph.input) == 1
    np.testing.assert_allclose(answer(model), tf.nn.conv2d(IMAGE, WEIGHTS, 1, "SAME").numpy(), atol=1e-4)


def test_a_graph_that_was_not_frozen(tensorflow_1):
    """Kind: a GraphDef without the values of its variables."""
    with pytest.raises(ModelError, match="not frozen: the values of variables such as 'weights'"):
        convert(tensorflow_1 / "unfrozen.pb")


def test_an_operator_without_an_onnx_form_is_named(tf, tmp_path):
    """Kind: an operator that ONNX does not have, in TensorFlow or as TFLite's custom op; no file is left."""

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32)])
        def __call__(self, image):
            return {"logits": tf.nn.conv2d(tf.raw_ops.Betainc(a=image, b=image, x=image), WEIGHTS, 1, "SAME")}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures=net.__call__)
    with pytest.raises(ModelError, match="no ONNX form is known for Betainc"):
        convert(tmp_path / "net")
    converter = tf.lite.TFLiteConverter.from_concrete_functions([net.__call__.get_concrete_function()], net)
    converter.allow_custom_ops = True
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ModelError, match="no ONNX form is known for Betainc"):
        app.convert(tmp_path / "net.tflite", tmp_path / "net.onnx")
    with pytest.raises(ModelError, match="no ONNX form is known for Betainc"):
        build(tmp_path / "net.tflite", tmp_path / "net.trtpost")
    assert sorted(tmp_path.iterdir()) == before


def test_the_command_line_says_it_in_one_line(tmp_path):
    """Kind: every refusal above, as people meet it: exit code 1, one line, nothing written."""
    (tmp_path / "weights.keras").write_bytes(b"PK\x03\x04 cut")
    done = trtpost("convert", "weights.keras", cwd=tmp_path)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("trtpost:"))
    assert "weights.keras: the file is damaged or cut short" in line
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["weights.keras"]


@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_gelu_in_tflite(tf, keras, tmp_path, form):
    """Kind: TFLite's GELU, which tf2onnx does not have."""
    model = network(keras, lambda x: keras.ops.gelu(x, approximate=form == "tanh"))
    source = tmp_path / "net.tflite"
    source.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    interpreter = tf.lite.Interpreter(str(source))
    assert "GELU" in [one["op_name"] for one in interpreter._get_ops_details()]
    np.testing.assert_allclose(answer(convert(source)), model(IMAGE).numpy(), atol=1e-5)


def test_operators_without_an_onnx_form_are_listed_by_name(tf, tmp_path):
    """Kind: many nodes of one operator, with names that TFLite joins: a line that people can read."""
    image = tf.TensorSpec((1, 16, 24, 3), tf.float32, name="image")

    def bessel(x):
        for _ in range(40):
            x = tf.math.bessel_i0(x)
        return x

    function = tf.function(bessel).get_concrete_function(image)
    (tmp_path / "net.pb").write_bytes(function.graph.as_graph_def().SerializeToString())
    with pytest.raises(ModelError) as error:
        convert(tmp_path / "net.pb")
    assert re.search(r"no ONNX form is known for BesselI0 \(node 'bessel_i0[^']*', 40 of them\): ", str(error.value))


@pytest.mark.parametrize("name", ["ResizeBilinear_2", "ResizeBilinear_2:0"])
def test_names_of_tensorflow_that_the_conversion_has_replaced(tf, tmp_path, name):
    """Kind: --logits with the name that TensorFlow shows; the Transpose of that name has gone (DeepLab)."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, (1, 16, 24, 3), name="image")
        x = tf.nn.conv2d(image, WEIGHTS, 2, "SAME")
        x = v1.image.resize_bilinear(x, (16, 24), align_corners=True, name="ResizeBilinear_2")
        tf.argmax(x, 3, name="labels")
    (tmp_path / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    model = normalized(convert(tmp_path / "net.pb"), "net")
    assert name not in [value for node in model.graph.node for value in node.output]
    located = locate(model, logits=name)
    assert (located.layout, located.classes, located.logits_size) == ("NCHW", 4, (16, 24))
    with pytest.raises(ModelError, match="did you mean 'ResizeBilinear_2:0'"):
        locate(model, logits="ResizeBilinear_3:0")
    bundle = build(tmp_path / "net.pb", tmp_path / "bundle", flavour="none", logits=name)
    assert bundle.passport.located.logits.startswith("Resize")


@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs were expected")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_tflite(tf, keras, tmp_path, dtype):
    """Kind: uint8 or int8 in and out: the photo's bytes go in, and the mask is the interpreter's but for ties."""
    rng = np.random.default_rng(0)
    model = network(keras)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([rng.uniform(-1, 1, IMAGE.shape).astype(np.float32)] for _ in range(8))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = getattr(tf, dtype)
    (tmp_path / "net.tflite").write_bytes(converter.convert())

    bundle = build(tmp_path / "net.tflite", tmp_path / "bundle", flavour="none", size=(16, 24))
    assert bundle.passport.pre.is_identity
    assert bundle.passport.located.input_dtype == "uint8"
    photo = rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        mask = segmenter(photo).mask

    interpreter = tf.lite.Interpreter(str(tmp_path / "net.tflite"))
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    pixels = photo if dtype == "uint8" else (photo.astype(int) - 128).astype(np.int8)
    interpreter.set_tensor(source["index"], pixels[None])
    interpreter.invoke()
    scores = interpreter.get_tensor(target["index"])[0].astype(int)
    chosen = np.take_along_axis(scores, mask[..., None].astype(int), -1)[..., 0]
    assert (scores.max(-1) - chosen).max() <= 2  # steps: each of three layers may round to the other side
    assert (scores.argmax(-1) == mask).mean() > 0.95
    with pytest.raises(Exception, match="takes the uint8 pixels themselves"):  # no second normalisation
        build(tmp_path / "net.tflite", tmp_path / "bundle", flavour="none", normalize="signed")


@pytest.mark.filterwarnings("ignore:Statistics for quantized inputs were expected")
def test_steps_of_a_deep_quantised_network(tf, keras, tmp_path):
    """Kind: roundings of thirteen layers add up, in TensorFlow Lite's own three sets of kernels as well."""
    keras.utils.set_random_seed(1)
    photo = x = keras.Input((48, 64, 3))
    for index in range(12):
        activation = "relu" if index % 2 else None
        x = keras.layers.Conv2D(12, 3, padding="same", activation=activation, kernel_initializer="he_normal")(x)
    model = keras.Model(photo, keras.layers.Conv2D(6, 1)(x))
    seen = np.random.default_rng(0).uniform(-1, 1, (8, 48, 64, 3)).astype(np.float32)
    weights, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([weights, bias - model(seen).numpy().mean((0, 1, 2))])  # every class somewhere
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([one[None]] for one in seen)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    bundle = build(tmp_path / "net.tflite", tmp_path / "bundle", flavour="none")
    resolver = tf.lite.experimental.OpResolverType
    found = []
    for kernels in (resolver.AUTO, resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES, resolver.BUILTIN_REF):
        interpreter = tf.lite.Interpreter(str(tmp_path / "net.tflite"), experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
        found.append(interpreter)

    def scores(interpreter, pixels):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], (pixels.astype(int) - 128).astype(np.int8))
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0].astype(int)

    def below(values, mask):
        return int((values.max(-1) - np.take_along_axis(values, mask[..., None].astype(int), -1)[..., 0]).max())

    ours = theirs = 0
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        for seed in range(8):
            pixels = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8)
            answers = [scores(one, pixels[None]) for one in found]
            mask = segmenter(pixels).mask
            ours = max([ours, *(below(values, mask) for values in answers)])
            theirs = max([theirs, *(below(values, one.argmax(-1)) for values in answers for one in answers)])
    assert 2 < ours <= theirs


def test_a_quantised_onnx_model_with_signed_pixels():
    """Kind: int8 images in ONNX: as uint8 with the zero point raised, where the graph only dequantises them."""
    body = "moved = Transpose <perm = [0, 3, 1, 2]> (image)\n x = DequantizeLinear (moved, s, z)\n logits = Conv (x, k)"
    sizes = "int8[1,16,24,3] image", "float[1,4,16,24] logits"
    model = net(body, *sizes, s=np.float32(0.02), z=np.int8(-3), k=oihw())
    assert locate(model).input_dtype == "uint8"
    photo = np.arange(16 * 24 * 3, dtype=np.uint8).reshape(1, 16, 24, 3)
    reals = np.float32(0.02) * (photo.astype(np.float32) - 128 + 3)
    expected = np.einsum("nhwi,oikl->nohw", reals, oihw())
    np.testing.assert_allclose(answer(model, photo), expected, atol=1e-4)
    other = net(body.replace("DequantizeLinear (moved, s, z)", "Cast <to = 1> (moved)"), *sizes, k=oihw())
    with pytest.raises(ModelError, match="no image input"):
        locate(other)


def test_float16_weights(tf, keras, tmp_path):
    """Kind: weights in 16 bits: TFLite's stay a Cast, Keras's own arithmetic stays in 16 bits."""
    model = network(keras)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    np.testing.assert_allclose(answer(convert(tmp_path / "net.tflite")), model(IMAGE).numpy(), atol=1e-2)
    dynamic_range = tf.lite.TFLiteConverter.from_keras_model(model)
    dynamic_range.optimizations = [tf.lite.Optimize.DEFAULT]
    (tmp_path / "range.tflite").write_bytes(dynamic_range.convert())
    np.testing.assert_allclose(answer(convert(tmp_path / "range.tflite")), model(IMAGE).numpy(), atol=5e-2)


@pytest.fixture
def policy(keras):
    """Sets Keras's dtype policy for one test."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("name", ["float16", "mixed_float16"])
@pytest.mark.parametrize("suffix", ["keras", "h5", ""])
def test_keras_in_float16(keras, policy, tmp_path, name, suffix):
    """Kind: networks that compute in 16 bits, all or in part: the resize in them too, and the input."""
    policy(name)
    dtype = "float16" if name == "float16" else "float32"
    model, image = network(keras, dtype=dtype), IMAGE.astype(dtype)
    path = tmp_path / f"net.{suffix}"
    model.save(path) if suffix else model.export(path, verbose=False)
    found = answer(convert(path), image)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, model(image).numpy(), atol=1e-2)


@pytest.mark.parametrize("name", ["mixed_bfloat16", "float64"])
def test_arithmetic_that_no_runtime_of_onnx_has(keras, policy, tmp_path, name):
    """Kind: bfloat16 and float64 convolutions: refused with the way to 32 bits."""
    policy(name)
    network(keras).save(tmp_path / "net.keras")
    with pytest.raises(ModelError, match=r"\(Conv2D\) computes in b?float.*dtype policy float32"):
        convert(tmp_path / "net.keras")


CONVENTIONS = [(False, False), (True, False), (False, True)]
"""Of TensorFlow's resizes: align_corners, half_pixel_centers."""


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int16", "float32"])
def test_a_graph_that_resizes_its_labels(tf, tmp_path, dtype):
    """Kind: ArgMax, ExpandDims and a nearest Resize of integers inside: run to the end, each pixel as TensorFlow's."""

    def labels(image):
        ids = tf.expand_dims(tf.argmax(tf.nn.conv2d(image, WEIGHTS, 1, "SAME"), -1), -1)
        ids = tf.cast(ids, dtype)
        return [
            tf.raw_ops.ResizeNearestNeighbor(
                images=ids, size=(37, 53 + index), align_corners=align, half_pixel_centers=half, name=f"labels_{index}"
            )
            for index, (align, half) in enumerate(CONVENTIONS)
        ]

    expected = labels(tf.constant(IMAGE))
    freeze(tf, labels, tmp_path / "net.pb")
    model = normalized(convert(tmp_path / "net.pb"), "net")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found = session.run(None, {"photo": IMAGE})
    for one, other in zip(
        sorted(expected, key=lambda value: value.shape[2]), sorted(found, key=lambda value: value.shape[2]), strict=True
    ):
        np.testing.assert_array_equal(other, one.numpy())
        assert other.dtype == one.dtype.as_numpy_dtype


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16"])
def test_a_graph_that_resizes_its_labels_is_built(tf, tmp_path, dtype):
    """Kind: the same through the whole, photo to mask and to a plan: TensorRT has no small integers inside."""
    package("tensorrt_rtx")

    def labels(image):
        ids = tf.expand_dims(tf.argmax(tf.nn.conv2d(image, WEIGHTS, 1, "SAME"), -1), -1)
        resized = tf.raw_ops.ResizeNearestNeighbor(images=tf.cast(ids, dtype), size=(37, 53), half_pixel_centers=True)
        return tf.squeeze(resized, -1, name="mask")

    freeze(tf, labels, tmp_path / "net.pb")
    settings = {"flavour": "tensorrt_rtx", "normalize": "none", "size": (37, 53)}
    bundle = build(tmp_path / "net.pb", tmp_path / "bundle", **settings)
    photo = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        mask = segmenter(photo).mask
    expected = labels(tf.round(tf.image.resize(photo, (16, 24)))[None])[0].numpy()
    np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize(("align", "half"), CONVENTIONS)
def test_nearest_selects_tensorflows_pixels(tf, align, half):
    """Kind: every ratio of sizes, up and down, to one pixel and from one: the index table is TensorFlow's."""
    rng = np.random.default_rng(0)
    pairs = [(1, 7), (7, 1), (1, 1), *rng.integers(1, 400, (300, 2)).tolist()]
    for source, target in pairs:
        row = tf.range(source)[None, None, :, None]
        how = {"align_corners": align, "half_pixel_centers": half}
        expected = tf.raw_ops.ResizeNearestNeighbor(images=row, size=(1, target), **how)[0, 0, :, 0]
        np.testing.assert_array_equal(
            _index(source, target, align=align, half=half), expected.numpy(), f"{source} {target}"
        )


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_resizes_inside_the_network(tf, tmp_path, method):
    """Kind: resizes of features, known or computed sizes: 24 -> 53 pixels are 53, with TensorFlow's values."""
    op = tf.raw_ops.ResizeBilinear if method == "bilinear" else tf.raw_ops.ResizeNearestNeighbor

    def resizes(image):
        results = []
        for align, half in CONVENTIONS:
            how = {"align_corners": align, "half_pixel_centers": half}
            for size in ((37, 53), (32, 48), (5, 7), tf.shape(image)[1:3] * 7 // 3):
                results.append(op(images=image, size=size, **how))
        return results

    freeze(tf, resizes, tmp_path / "fixed.pb")
    freeze(tf, resizes, tmp_path / "open.pb", tf.TensorSpec((1, None, None, 3), tf.float32, "photo"))
    expected = [value.numpy() for value in resizes(tf.constant(IMAGE))]
    for name in ("fixed.pb", "open.pb"):
        model = normalized(convert(tmp_path / name), name)
        outputs = [value.name for value in model.graph.output]
        found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"photo": IMAGE})
        assert len(found) == len(expected), outputs
        for index, value in enumerate(expected):
            np.testing.assert_allclose(found[index], value, atol=1e-5, err_msg=f"{name} {index}")


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint16", "uint32", "bool", "int32", "uint8"])
def test_integers_that_onnx_runtime_does_not_resize(tmp_path, dtype):
    """Kind: an ONNX model with a Resize of labels of any integer type: done in int32, given back in its own."""
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = net(
        f"""scores = Conv (image, k)
            ids = ArgMax <axis = 1> (scores)
            typed = Cast <to = {code}> (ids)
            labels = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
                (typed, , , sizes)""",
        "float[1,3,16,24] image",
        f"{onnx.TensorProto.DataType.Name(code).lower()}[1,1,32,48] labels",
        k=oihw(),
        sizes=np.array([1, 1, 32, 48]),
    )
    image = IMAGE.transpose(0, 3, 1, 2).copy()
    ids = np.einsum("nihw,oikl->nohw", image, oihw()).argmax(1, keepdims=True)
    found = answer(model, image)
    np.testing.assert_array_equal(found, ids.repeat(2, 2).repeat(2, 3).astype(dtype))
    assert found.dtype == np.dtype(dtype)
    assert load_model(save(model, tmp_path / "net.onnx")).graph.node


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32"])
def test_class_ids_of_a_small_type_keep_their_values(dtype):
    """Kind: ids cast to a small type inside, then moved, used and given out: the same numbers and types as before."""
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    name = onnx.TensorProto.DataType.Name(code).lower()
    model = net(
        f"""scores = Conv (image, k)
            ids = ArgMax <axis = 1> (scores)
            typed = Cast <to = {code}> (ids)
            flipped = Transpose <perm = [0, 1, 3, 2]> (typed)
            labels = Identity (flipped)
            floats = Cast <to = 1> (flipped)
            doubled = Add (floats, floats)""",
        "float[1,3,16,24] image",
        f"{name}[1,1,24,16] labels, float[1,1,24,16] doubled",
        k=oihw(),
    )
    image = IMAGE.transpose(0, 3, 1, 2).copy()
    ids = np.einsum("nihw,oikl->nohw", image, oihw()).argmax(1, keepdims=True).transpose(0, 1, 3, 2)
    labels, doubled = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": image})
    np.testing.assert_array_equal(labels, ids.astype(dtype))
    assert labels.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(doubled, 2 * ids.astype(np.float32))
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    assert kinds["typed"] == onnx.TensorProto.INT32
