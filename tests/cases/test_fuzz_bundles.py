"""500 damaged models, passports, plans and bundles, and odd ones: each is refused by a sentence, or works.

Every seed mutates another file, always in the same way; `fuzzing` says how to run one again by hand.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import time
import zipfile
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cases.fuzzing import check
from conftest import package
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from nets import kernel, nchw, net, nhwc, save
from quantised import drawn

from trtpost.backends.tensorrt.obstacle import Machine, obstacle
from trtpost.builder.build import build
from trtpost.builder.request import content_of
from trtpost.bundle.folder import MODEL, PASSPORT, PLAN, Bundle, load_bundle, read_bundle, write_bundle
from trtpost.bundle.passport import Plan
from trtpost.convert import convert, kind_of
from trtpost.convert.tflite_file import read_metadata
from trtpost.cuda import Device, Driver
from trtpost.errors import BundleError
from trtpost.segment import Segmenter

PHOTO = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
NUMBERS = (0, 1, 2, 3, 5, 7, 13, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1)
TEXTS = ("", "image", "mask", "logits", "x" * 500, "\0", "../../../etc/passwd", "Loop", "If", "Resize", "é\n")
JSON = (
    None,
    True,
    -1,
    0,
    2,
    1 << 16,
    1 << 40,
    10**30,
    0.5,
    -1.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    [],
    {},
    [[]],
)


# --- what is mutated


@cache
def sources() -> list[bytes]:
    """Small models that between them have every construct that is read: subgraphs, functions, shapes by arithmetic."""
    spatial = {"inputs": "float[1,3,8,12] image", "outputs": "float[1,4,8,12] logits"}
    models = [
        nchw(),
        nchw(batch="N"),
        nhwc(4, "a = ArgMax <axis = 3, keepdims = 0> (logits)\n out = Cast <to = 6> (a)", "int32[1,8,12] out"),
        nhwc(1, "out = Sigmoid (logits)"),
        net(
            """a = Conv <strides = [2, 2], kernel_shape = [1, 1]> (image, k)
               s = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
               logits = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (a, , s)""",
            k=kernel(4),
            **spatial,
        ),
        net(
            """a = Conv (image, k)
               b = Shape (a)
               c = ConstantOfShape <value = float[1] {0.5}> (b)
               d = Expand (c, b)
               r = Tile (d, t)
               e = Pad (r, p)
               logits = Add (a, e)""",
            k=kernel(4),
            t=np.ones(4, np.int64),
            p=np.zeros(8, np.int64),
            **spatial,
        ),
        net(
            """y = Conv (image, k)
               z = Constant <value = bool {1}> ()
               logits = If (z) <
                 then_branch = one () => (float[1,4,8,12] p) { p = Relu (y) },
                 else_branch = two () => (float[1,4,8,12] q) { q = Neg (y) }
               >""",
            k=kernel(4),
            **spatial,
        ),
        net(
            """y = Conv (image, k)
               n = Constant <value = int64 {2}> ()
               z = Constant <value = bool {1}> ()
               logits = Loop (n, z, y) <
                 body = step (int64 i, bool c, float[1,4,8,12] v) => (bool d, float[1,4,8,12] w) {
                   d = Identity (c)
                   w = Add (v, v)
                 }
               >""",
            k=kernel(4),
            **spatial,
        ),
        net(
            """y = Conv (image, k)
               f = Reshape (y, s)
               g = Transpose <perm = [0, 2, 1]> (f)
               h = Softmax <axis = 2> (g)
               i = Transpose <perm = [0, 2, 1]> (h)
               logits = Reshape (i, t)""",
            k=kernel(4),
            s=np.array([1, 4, 96], np.int64),
            t=np.array([1, 4, 8, 12], np.int64),
            **spatial,
        ),
    ]
    with_function = nchw()
    body = onnx.helper.make_node("Relu", ["a"], ["b"])
    function = onnx.helper.make_function("ours", "twice", ["a"], ["b"], [body], [onnx.helper.make_opsetid("", 17)])
    with_function.functions.append(function)
    with_function.opset_import.append(onnx.helper.make_opsetid("ours", 1))
    with_function.graph.node[0].output[0] = "before"
    with_function.graph.node.append(onnx.helper.make_node("twice", ["before"], ["logits"], domain="ours"))
    quantised = [drawn(random.Random(seed)) for seed in (0, 7)]  # QOperator, and QDQ with a bias
    return [model.SerializeToString() for model in [*models, with_function, *quantised]]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"resize": "bilinear"},
    {"size": "image"},
    {"size": (9, 7)},
    {"lowering": "inline"},
    {"match": "pil"},
    {"fit": "letterbox"},
]


@cache
def bundles() -> list[Bundle]:
    """One bundle with each kind of setting, one of them with a plan; not to be changed."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="fuzz-bundles-"))
    source = save(nchw(), folder / "net.onnx")
    found = [build(source, folder / f"{n}.trtpost", flavour="none", **one) for n, one in enumerate(SETTINGS)]
    plan = Plan("tensorrt", "11.4.0", ("8.9",), {"CONVOLUTION": 1}, {"fp32": 1})
    first = read_bundle(found[0].path)
    found.append(
        write_bundle(
            folder / "planned.trtpost", first.model, bytes(range(256)) * 9, replace(first.bundle.passport, plan=plan)
        )
    )
    return found


# --- how


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """A few bytes other, cut off, doubled or put in."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                del data[place:]
            case 1:
                data[place : place + 1] = bytes([rng.randrange(256)])
            case 2:
                data[place:place] = rng.randbytes(rng.choice([1, 4, 100]))
            case 3:
                del data[place : place + rng.choice([1, 4, 100])]
            case 4:
                data[place:place] = data[place // 2 : place // 2 + rng.choice([8, 64])]
            case _:
                for index in range(place, min(place + rng.choice([1, 8]), len(data))):
                    data[index] ^= 1 << rng.randrange(8)
    return bytes(data)


def mutated_message(content: bytes, rng: random.Random) -> bytes:
    """Fields of an ONNX model other, missing, doubled or those of another message; it still parses."""
    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        messages = list(_messages(model))
        message = rng.choice(messages)
        fields = message.ListFields()
        if fields:
            _mutate_field(message, *rng.choice(fields), messages, rng)
    return model.SerializeToString()


def _messages(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in [value] if isinstance(value, Message) else value:
                found += _messages(one)
    return found


def _mutate_field(
    message: Message, field: FieldDescriptor, value: Any, messages: list[Message], rng: random.Random
) -> None:
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif isinstance(value, Message):
        if other := [one for one in messages if one.DESCRIPTOR == value.DESCRIPTOR and one is not value]:
            value.CopyFrom(copy.deepcopy(rng.choice(other)))  # one may lie inside the other
    elif field.enum_type is not None and isinstance(value, int):
        setattr(message, field.name, rng.choice(field.enum_type.values).number)
    elif isinstance(value, (str, bytes, int, float)):
        setattr(message, field.name, _other(value, messages, rng))
    elif len(value):
        index = rng.randrange(len(value))
        match rng.randrange(4):
            case 0:
                del value[index]
            case 1:
                value.extend([value[index]])
            case 2 if len(value) > 1:
                items = copy.deepcopy(list(value))
                rng.shuffle(items)
                del value[:]
                value.extend(items)
            case _ if not isinstance(value[index], Message):
                value[index] = _other(value[index], messages, rng)


def _other(value: Any, messages: list[Message], rng: random.Random) -> Any:
    if isinstance(value, bytes):
        return mutated_bytes(value, rng)
    if isinstance(value, float):
        return rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf"), 0.5])
    if isinstance(value, str):
        names = [text for one in messages for text in _texts(one)]
        return rng.choice([*TEXTS, *names])
    return rng.choice([*(NUMBERS[:8] if abs(value) < 50 else NUMBERS), *NUMBERS, value + 1]) % (1 << 31)


def _texts(message: Message) -> list[str]:
    values = [one for _, value in message.ListFields() for one in ([value] if isinstance(value, str) else [])]
    return values + (list(message.input) + list(message.output) if isinstance(message, onnx.NodeProto) else [])


def mutated_json(text: str | bytes, rng: random.Random) -> str:
    """Entries of a passport other, missing, doubled or new."""
    content = json.loads(text)
    for _ in range(rng.choice([1, 1, 2])):
        places = list(_places(content))
        (container, key), (one, other) = rng.choice(places), rng.choice(places)
        match rng.randrange(5):
            case 0 if isinstance(container, dict):
                del container[key]
            case 1 if isinstance(container, dict):
                container["new"] = rng.choice(JSON)
            case 2:
                container[key] = copy.deepcopy(one[other])
            case _:
                container[key] = rng.choice(JSON)
    written = json.dumps(content)
    match rng.randrange(12):
        case 0:
            return written[:-1] + ', "max_batch": 3}'
        case 1:
            return "\ufeff" + written
        case 2:
            return written.replace('"source"', '"source": ' + "[" * 5000 + "]" * 5000 + ', "x"')
        case 3:
            return written.replace("8192", "9" * 5000)
    return written


def _places(content: Any) -> list[tuple[Any, Any]]:
    keys = content.keys() if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    found = [(content, key) for key in keys]
    return found + [place for key in keys for place in _places(content[key])]


# --- the cases


def runs(path: Path | Bundle) -> None:
    """A bundle that loads makes a mask of the photo's size, of its class ids' type."""
    with Segmenter(path, backend="onnxruntime", threads=1) as segmenter:
        mask = segmenter(PHOTO).mask
        wide = segmenter.bundle.passport.post.wide
    assert mask.shape == PHOTO.shape[:2]
    assert mask.dtype == (np.int32 if wide else np.uint8)


def source_model(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    mutate = mutated_bytes if rng.random() < 0.2 else mutated_message
    source = folder / "net.onnx"
    source.write_bytes(mutate(rng.choice(sources()), rng))
    settings = rng.choice([{}, *SETTINGS, {"precision": "fp16"}, {"input_size": (8, 12)}, {"head": "multilabel"}])
    target = folder / "net.trtpost"
    try:
        bundle = build(source, target, flavour="none", **settings)
    except BaseException:
        assert not target.exists()
        raise
    runs(bundle)


def quantised_model(seed: int, folder: Path) -> None:
    """A plan of a quantised network, or a sentence why there is none; without a plan it works always."""
    source = save(drawn(random.Random(seed)), folder / "net.onnx")
    runs(build(source, folder / "net.trtpost", flavour="none"))
    runs(build(source, folder / "net.trtpost", flavour="tensorrt_rtx"))


def baked_model(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    mutate = mutated_bytes if rng.random() < 0.3 else mutated_message
    path = folder / "baked.onnx"
    path.write_bytes(mutate(rng.choice(bundles()).model.read_bytes(), rng))
    runs(path)


def passport(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    bundle = copied(rng.choice(bundles()), folder)
    card = bundle / PASSPORT
    if rng.random() < 0.3:
        card.write_bytes(mutated_bytes(card.read_bytes(), rng))
    else:
        card.write_text(mutated_json(card.read_bytes(), rng), "utf-8")
    runs(bundle)


def embedded_passport(seed: int, folder: Path) -> None:
    """A passport that lies inside the graph, with nothing to compare it with."""
    rng = random.Random(seed)
    model = onnx.load(rng.choice(bundles()).model)
    (entry,) = model.metadata_props
    entry.value = mutated_json(entry.value, rng)
    runs(save(model, folder / "baked.onnx"))


def whole_bundle(seed: int, folder: Path) -> None:
    """Files cut short, mixed up, missing or in excess; half of the time their hashes are made to fit."""
    rng = random.Random(seed)
    bundle = copied(rng.choice(bundles()), folder)
    for _ in range(rng.choice([1, 2])):
        file = rng.choice(sorted(one for one in bundle.iterdir() if one.is_file()))
        match rng.randrange(6):
            case 0:
                file.unlink()
                if rng.random() < 0.3:
                    file.mkdir()
            case 1:
                other = rng.choice(bundles()).path / rng.choice([MODEL, PASSPORT])
                file.write_bytes(other.read_bytes())
            case 2:
                file.write_bytes(b"" if rng.random() < 0.5 else rng.randbytes(1000))
            case _:
                file.write_bytes(mutated_bytes(file.read_bytes(), rng))
    if rng.random() < 0.5:
        make_hashes_fit(bundle)
    runs(bundle)


def plan(seed: int, folder: Path) -> None:
    """A plan that is not the one that was built is known before TensorRT sees it."""
    rng = random.Random(seed)
    bundle = copied(bundles()[-1], folder)
    file = bundle / PLAN
    before = file.read_bytes()
    file.write_bytes(mutated_bytes(before, rng))
    if file.read_bytes() != before:
        with pytest.raises(BundleError, match=r"plan is not the file that was built"):
            load_bundle(bundle)
    (bundle / PASSPORT).write_text(mutated_json((bundle / PASSPORT).read_bytes(), rng), "utf-8")
    make_hashes_fit(bundle)
    machine = Machine(
        Driver("13.0", (Device("GPU", "8.9", 1 << 30),)), {"tensorrt": "11.4.0"}, {"tensorrt": 13}, pycuda=True
    )
    obstacle(load_bundle(bundle), machine)


def other_formats(seed: int, folder: Path) -> None:
    """What is looked at before TensorFlow is started."""
    rng = random.Random(seed)
    suffix = rng.choice([".tflite", ".keras", ".h5", ".pb"])
    path = folder / f"model{suffix}"
    contents = {
        ".tflite": tflite(),
        ".keras": zip_file(folder),
        ".h5": b"\x89HDF\r\n\x1a\n" + bytes(90),
        ".pb": b"\n\x09\n\x01x\x12\x04Cast",
    }
    path.write_bytes(mutated_bytes(contents[suffix], rng))
    read_metadata(path)
    content_of(path, kind_of(path))
    if seed // len(KINDS) in (3, 12, 21):  # it takes seconds to start
        convert(path)


# --- helpers of the cases


def copied(bundle: Bundle, folder: Path) -> Path:
    target = folder / "b.trtpost"
    target.mkdir()
    for file in bundle.path.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def make_hashes_fit(bundle: Path) -> None:
    try:
        card = json.loads((bundle / PASSPORT).read_bytes())
        card["files"] = {name: sha256((bundle / name).read_bytes()).hexdigest() for name in card["files"]}
        (bundle / PASSPORT).write_text(json.dumps(card), "utf-8")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # it is damaged enough


def zip_file(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "zip", "w") as archive:
        archive.writestr("config.json", '{"class_name": "Functional", "config": {"layers": []}}')
        archive.writestr("model.weights.h5", bytes(100))
    return (folder / "zip").read_bytes()


@cache
def tflite() -> bytes:
    """As much of a TFLite file as is read without TensorFlow: normalisation, and a zip of class names at its end."""
    from flatbuffers import Builder

    def table(builder: Builder, **slots: tuple[str, int]) -> int:
        builder.StartObject(8)
        for slot, (kind, value) in slots.items():
            add = {"offset": builder.PrependUOffsetTRelativeSlot, "byte": builder.PrependByteSlot}
            add.get(kind, builder.PrependUint32Slot)(int(slot[1:]), value, 0)
        return builder.EndObject()

    def vector(builder: Builder, offsets: list[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    inner = Builder()
    mean, std = (inner.CreateNumpyVector(np.array(value, np.float32)) for value in ([127.5], [127.5]))
    options = table(inner, f0=("offset", mean), f1=("offset", std))
    unit = table(inner, f0=("byte", 1), f1=("offset", options))
    tensor = table(inner, f4=("offset", vector(inner, [unit])))
    subgraph = table(inner, f2=("offset", vector(inner, [tensor])))
    inner.Finish(table(inner, f3=("offset", vector(inner, [subgraph]))))

    outer = Builder()
    data, name = outer.CreateByteVector(bytes(inner.Output())), outer.CreateString("TFLITE_METADATA")
    buffers = [table(outer), table(outer, f0=("offset", data))]
    entry = table(outer, f0=("offset", name), f1=("number", 1))
    model = table(outer, f4=("offset", vector(outer, buffers)), f6=("offset", vector(outer, [entry])))
    outer.Finish(model, file_identifier=b"TFL3")
    stream = io.BytesIO(bytes(outer.Output()))
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labelmap.txt", "background\nperson\n" * 20)
    return stream.getvalue()


# --- the tests

KINDS = [source_model] * 8 + [baked_model] * 4 + [passport, embedded_passport] * 2 + [whole_bundle] * 2
KINDS += [plan, other_formats]


def damaged(seed: int, folder: Path) -> None:
    KINDS[seed % len(KINDS)](seed, folder)


def test_damaged_models_passports_plans_and_bundles():
    outcomes = check(damaged, range(500))
    assert outcomes["accepted"] > 50  # what is mutated without harm still works
    assert sum(outcomes.values()) - outcomes["accepted"] > 250


def test_plans_of_quantised_models():
    """QDQ and QOperator, both types of activations, scalars, channels with scales of their own, defaults."""
    package("tensorrt_rtx")
    outcomes = check(quantised_model, range(40))
    assert outcomes.keys() == {"accepted", "BackendError"}
    assert outcomes["accepted"] > 25  # those of QOperator have no plan


def test_what_is_mutated_is_read_when_it_is_not_mutated(tmp_path):
    for index, content in enumerate(sources()):
        (tmp_path / f"{index}.onnx").write_bytes(content)
        runs(build(tmp_path / f"{index}.onnx", tmp_path / f"{index}.trtpost", flavour="none"))
    for bundle in bundles():
        runs(bundle)
        runs(bundle.model)
    (tmp_path / "net.tflite").write_bytes(tflite())
    assert read_metadata(tmp_path / "net.tflite").mean == (127.5,)
    assert len(read_metadata(tmp_path / "net.tflite").labels) == 40


VAST = 1 << 40
DEMANDS: dict[str, dict[str, np.ndarray]] = {
    "z = ConstantOfShape (s)": {"s": np.array([VAST, VAST])},
    "z = Tile (a, s)": {"s": np.array([1, 1, VAST, VAST])},
    "z = Expand (a, s)": {"s": np.array([VAST, 4, 8, 12])},
    "z = Pad (a, s)": {"s": np.array([0, 0, 0, 0, 0, 0, VAST, VAST])},
    "z = Pad (a, s)\n\n": {"s": np.array([0, 0, -VAST, 0, 0, 0, 0, 0])},
    'z = Resize <mode = "nearest"> (a, , s)': {"s": np.array([1, 1, 1e9, 1e9], np.float32)},
    'z = Resize <mode = "linear"> (a, , s)': {"s": np.array([1, 1, -1, np.nan], np.float32)},
    "z = Range (s, t, u)": {"s": np.float32(0), "t": np.float32(1e18), "u": np.float32(1)},
    "z = Range (s, t, u)\n\n": {"s": np.float32(0), "t": np.float32(1), "u": np.float32(0)},
    "z = Gather <axis = 1> (a, s)": {"s": np.array([0, VAST])},
    "z = Conv <pads = [1073741824, 1073741824, 1073741824, 1073741824]> (image, k)": {},
    "z = Conv <group = 0> (image, k)": {},
    "z = Conv <strides = [0, 0]> (image, k)": {},
    "z = MaxPool <kernel_shape = [1, 1], strides = [0, 0]> (a)": {},
    "z = DepthToSpace <blocksize = 0> (a)": {},
    "z = Transpose <perm = [9, -1, 3, 2]> (a)": {},
    "z = Reshape (a, s)": {"s": np.array([-1, -1, 0, 12])},
    "z, i = TopK <axis = 1> (a, s)": {"s": np.array([VAST])},
}
"""Operators that ask for all the memory in the world, or for what there is not."""


def demanding(seed: int, folder: Path) -> None:
    text, weights = list(DEMANDS.items())[seed]
    model = net(
        f"a = Conv (image, k)\n {text}\n m = ReduceMax <keepdims = 0> (z)\n logits = Add (a, m)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
        **weights,
    )
    runs(build(save(model, folder / "net.onnx"), folder / "net.trtpost", flavour="none"))


def chained(calls: int, first: str) -> onnx.ModelProto:
    """A network whose function n calls function n-1 twice, and function 0 the one that is named."""
    model, versions = nchw(), [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ours", 1)]
    make = onnx.helper.make_node
    for index in range(calls):
        before = f"f{index - 1}" if index else first
        nodes = [make(before, ["a"], ["m"], domain="ours"), make(before, ["m"], ["b"], domain="ours")]
        if before == "Relu":
            nodes = [make(before, ["a"], ["b"])]
        model.functions.append(onnx.helper.make_function("ours", f"f{index}", ["a"], ["b"], nodes, versions))
    model.opset_import.append(versions[1])
    model.graph.node[0].output[0] = "y"
    model.graph.node.append(make(f"f{calls - 1}", ["y"], ["logits"], domain="ours"))
    return model


def resized(*shape: int) -> onnx.ModelProto:
    """A network whose input and output are said to have these sides."""
    model = nchw()
    for value in (model.graph.input[0], model.graph.output[0]):
        for axis, side in zip((0, 2, 3), shape, strict=True):
            value.type.tensor_type.shape.dim[axis].dim_value = side
    return model


def endless(seed: int, folder: Path) -> None:
    model = [
        lambda: chained(40, "Relu"),
        lambda: chained(1, "f0"),
        lambda: chained(3, "f2"),
        lambda: resized(1, 60_000, 60_000),
        lambda: resized(1, VAST, 1),
        lambda: resized(1 << 24, 8, 12),
        lambda: resized(VAST, 8, 12),
        lambda: net(
            "a = Conv (image, k)\n logits = Expand (a, s)",
            "float[1,3,8,12] image",
            "float[1,1073741824,8,12] logits",
            k=kernel(1),
            s=np.array([1, 1 << 30, 1, 1]),
        ),
    ][seed]()
    path = save(model, folder / "net.onnx")
    build(path, folder / "net.trtpost", flavour="none")


def test_models_that_ask_for_everything():
    """A few bytes that want all memory, or have no end: refused before, or when the runtime refuses the memory."""
    assert check(demanding, range(len(DEMANDS)))["accepted"] == 0
    assert check(endless, range(8), workers=1)["accepted"] == 0


def test_label_lists_that_are_no_texts(tmp_path):
    """The archive in a TFLite file: encrypted, compressed in an unknown way, damaged, or a bomb."""
    good, path = tflite(), tmp_path / "net.tflite"
    entry, data = good.rfind(b"PK\x01\x02"), good.find(b"labelmap.txt") + len("labelmap.txt")
    damaged_texts = []
    for place, value in ((entry + 8, 1), (entry + 10, 99), (data + 1, good[data + 1] ^ 255)):
        damaged_texts.append(good[:place] + bytes([value]) + good[place + 1 :])
    bomb = io.BytesIO(b"TFL3" * 30)
    with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.txt", bytes(30_000_000))
    for content in (*damaged_texts, bomb.getvalue()):
        path.write_bytes(content)
        assert read_metadata(path).labels == ()


def hostile(seed: int, folder: Path) -> None:
    match seed:
        case 0:
            os.abort()
        case 1:
            time.sleep(30)
        case 2:
            os.write(1, b"native libraries say what they like")
        case 3:
            raise ValueError("not for the user")
        case 4:
            len(b"x" * (240 << 20))
        case 5:
            (folder / ".half").touch()
        case 6:
            raise BundleError("for the user")


def test_the_runner_sees_every_kind_of_fault():
    with pytest.raises(AssertionError) as caught:
        check(hostile, range(8), seconds=1, memory=1 << 28)
    found = str(caught.value).splitlines()
    assert found[0] == "6 of 8 cases are not sound"
    for seed, says in enumerate(["SIGABRT", "takes too long", "native libraries", "Traceback", "memory", r".half"]):
        assert any(f"hostile {seed}: " in line and says in line for line in found), (seed, says)
