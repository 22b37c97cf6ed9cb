"""What a Keras file says of its model, read without Keras and without running anything that is in it.

The configuration is JSON: `config.json` of a `.keras` archive, or the attribute `model_config` of an HDF5 file.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trtpost.convert.formats import HDF5
from trtpost.convert.tflite_file import UNPACKED
from trtpost.errors import ModelError, reason
from trtpost.storage.files import open_regular

_ACTIVE_IN_TRAINING = re.compile(r"BatchNorm|Dropout|Noise")
"""Classes of layers that do something else when they are called with `training=True`.

Not those that augment photos: they say so of themselves in every file, and are inactive in every prediction.
"""

_OF_KERAS = frozenset({"keras_hub", "keras_cv", "keras_nlp"})
"""Packages of the makers of Keras, which imports from them what a file names, and from no others."""

_PACKAGES = frozenset({"keras", "builtins"}) | _OF_KERAS
"""Packages whose modules a configuration may name: some releases of Keras import any that it names."""

_PACKAGES_OF_KERAS_2 = frozenset({"keras", "tf_keras", "builtins"})
"""The same of files that `tf_keras` loads, which has the classes of `keras` itself."""

_OTHER_MODELS = frozenset({"TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"})
"""Layers that load a model of another kind, from anywhere, or unpickle one."""

_AS_MEANT = "call its layers with training=False, or leave the argument out, and save the model again"


@dataclass(frozen=True)
class Layer:
    """A layer of a configuration.

    Attributes:
        name, class_name: what the user and Keras call it.
        config: the JSON of the layer, and of the layers inside it.
    """

    name: str
    class_name: str
    config: dict[str, Any]


def is_archive(path: Path) -> bool:
    """Is it the zip archive that `.keras` files are, or else HDF5?"""
    with open_regular(path) as file:
        return file.read(len(HDF5)) != HDF5


MAX_CONFIG = 64 << 20
"""Most bytes of a configuration; a network of a thousand layers has one MiB."""


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of the model.

    Raises:
        ModelError: the file is damaged, or holds weights without a network.
    """
    try:
        text = _config_of_archive(path) if is_archive(path) else _config_of_hdf5(path)
        found = json.loads(text)
    except (OSError, zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ModelError(f"the file is damaged or cut short: {reason(error)}") from None
    if not isinstance(found, dict):
        raise ModelError("the file is damaged: its configuration is not one of a model")
    return found


def check_config(config: dict[str, Any], *, is_keras_2: bool = False) -> None:
    """Refuse what would be run out of the file, and layers whose mask depends on who runs the model.

    Args:
        config: of the model.
        is_keras_2: the file is one of Keras 2.

    Raises:
        ModelError: naming the layer.
    """
    packages = _PACKAGES_OF_KERAS_2 if is_keras_2 else _PACKAGES
    # what a model is trained with is not loaded
    for value in dicts_in({key: one for key, one in config.items() if key != "compile_config"}):
        module, code = value.get("module"), value.get("class_name")
        if not isinstance(module, str) or not isinstance(code, str):
            continue
        package = module.split(".")[0]
        if package not in packages and not _is_registered(value):
            name = value.get("config") if code == "function" else code
            raise ModelError(f"{described(config, str(name))} is not one of Keras's own; {how_to_export()}")
        if package in _OF_KERAS and find_spec(package) is None:
            needed = package.replace("_", "-")
            raise ModelError(f"{described(config, code)} is of {needed}, which is not here: pip install {needed}")
    for layer in layers_of(config):
        if layer.class_name.rsplit(">", maxsplit=1)[-1] in _OTHER_MODELS:
            raise ModelError(
                f"layer '{layer.name}' is a {layer.class_name}, which runs a model of another kind; {how_to_export()}"
            )
        if _own_code(layer):
            kind = "is a Lambda" if layer.class_name == "Lambda" else "holds a lambda"
            raise ModelError(f"layer '{layer.name}' {kind}, whose code is in the file; {how_to_export()}")
        if (culprit := _called_in_training(layer)) is not None:
            inside = "" if culprit is layer else f", and in it '{culprit.name}', a {culprit.class_name},"
            raise ModelError(
                f"layer '{layer.name}' ({layer.class_name}){inside} is called with training=True: model(photo) obeys "
                "that, so that the mask changes with the photos beside it or with chance, and model.predict does not; "
                f"{_AS_MEANT}"
            )


def _is_registered(value: dict[str, Any]) -> bool:
    """Has the caller's own code made this class or function known to Keras?"""
    from keras.saving import get_registered_object

    name = value.get("registered_name")
    return isinstance(name, str) and get_registered_object(name) is not None


def how_to_export() -> str:
    """The safe way for a model whose code is not Keras's own."""
    return (
        "code is never run out of a model file: where that code is, load the model, call model.export(folder), "
        "and give the SavedModel folder"
    )


def described(config: dict[str, Any], code: str) -> str:
    """A class or function that Keras does not have, for a message: the layer that is of it, or needs it."""
    layers = layers_with(config, code)
    if not layers:
        return f"'{code}'"
    layer = layers[-1]
    needs = "" if layer.class_name == code else f" needs '{code}', which"
    return f"layer '{layer.name}' ({layer.class_name}){needs}"


def layers_with(config: dict[str, Any], code: str) -> list[Layer]:
    """The innermost layers that are of the class `code`, or use the function of that name."""
    found = [layer for layer in layers_of(config) if code in (layer.class_name, *_functions(layer.config))]
    return found or [layer for layer in layers_of(config) if code.rsplit(">", maxsplit=1)[-1] == layer.class_name]


def layers_of(config: object) -> Iterator[Layer]:
    """Every layer of a configuration, outer ones first; the model itself is the first."""
    for value in dicts_in(config):
        inner = value.get("config")
        if isinstance(inner, dict) and isinstance(inner.get("name"), str) and isinstance(value.get("class_name"), str):
            yield Layer(inner["name"], value["class_name"], value)


def _config_of_archive(path: Path) -> str | bytes:
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if "config.json" not in names:
            raise ModelError("it is an archive without config.json: not a Keras model")
        if not any(name.startswith("model.weights.") for name in names):
            raise ModelError("the Keras file holds a network without weights: save the whole model with model.save")
        if archive.getinfo("config.json").compress_type not in UNPACKED:
            raise ModelError("its config.json is compressed as Keras does not: save the model again")
        with archive.open("config.json") as entry:  # what the archive says of its size need not be true
            text = entry.read(MAX_CONFIG + 1)
        if len(text) > MAX_CONFIG:
            raise ModelError(f"its config.json has more than {MAX_CONFIG >> 20} MiB, and no network's is that long")
        return text


def _config_of_hdf5(path: Path) -> str | bytes:
    import h5py  # type: ignore[import-untyped]

    with h5py.File(path) as file:
        if "model_config" not in file.attrs:
            raise ModelError(
                "the file holds weights without a network (model.save_weights): build the network where its code is, "
                "load them, and save the whole with model.save"
            )
        text: str | bytes = file.attrs["model_config"]
        return text


def _own_code(layer: Layer) -> bool:
    """Is there a Python lambda? Keras 3 marks those of Lambda layers, and elsewhere writes bytecode into a list."""
    return any(
        value.get("class_name") == "__lambda__" or any(map(_is_bytecode, value.values()))
        for value in _own_dicts(layer.config["config"])
    )


def _is_bytecode(value: object) -> bool:
    """Is it marshalled code in base64, with defaults and closure?"""
    if not (isinstance(value, list) and len(value) == 3 and isinstance(value[0], str)):
        return False
    with contextlib.suppress(ValueError):
        return base64.b64decode(value[0])[:1] in (b"\xe3", b"c")
    return False


def _called_in_training(layer: Layer) -> Layer | None:
    """The layer that is active because of `training=True` in a call of this one, which may be itself or inside it."""
    calls = layer.config.get("inbound_nodes", [])
    if not any(call.get("training") in (True, 1) for call in dicts_in(calls)):
        return None
    for one in layers_of(layer.config):
        frozen = "BatchNorm" in one.class_name and one.config["config"].get("trainable") is False
        if _ACTIVE_IN_TRAINING.search(one.class_name) and not frozen:
            return layer if one.config is layer.config else one
    return None


def _functions(config: dict[str, Any]) -> Iterator[str]:
    """Names of the functions that a layer itself is configured with, such as activations."""
    for value in _own_dicts(config["config"]):
        if value.get("class_name") == "function" and isinstance(value.get("config"), str):
            yield value["config"]
        yield from (one for one in value.values() if isinstance(one, str))


def _own_dicts(value: object) -> Iterator[dict[str, Any]]:
    """The dictionaries inside a layer's configuration, without those of the layers in it."""
    if isinstance(value, dict):
        yield value
        for key, one in value.items():
            if key not in ("layers", "layer"):
                yield from _own_dicts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _own_dicts(one)


def dicts_in(value: object) -> Iterator[dict[str, Any]]:
    """All dictionaries inside a JSON value, outer ones first."""
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in children:
        yield from dicts_in(one)
