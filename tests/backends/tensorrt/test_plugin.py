"""The plugin for the full TensorRT, where there is none: what it would launch, and the mask that the kernel then makes.

TensorRT's `tensorrt.plugin` is played by a few classes that do what its documentation says, and refuse what it refuses.
Logits and positions come from the network's own layers, evaluated with numpy; the kernel is compiled for the host.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import subprocess
import typing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import package
from interpreter import evaluate

from trtpost.backends.tensorrt import append, flavour, layers, plugin
from trtpost.errors import BackendError, SpecError
from trtpost.kernels import cuda as kernels
from trtpost.kernels.reference import argmax_resize, size_inputs
from trtpost.letterbox import Region
from trtpost.spec import MATCHES, Post

ROOT = Path(__file__).parents[3]
SOURCE, SIZE, BATCH = (13, 17), (70, 301), 2
REGION = Region(3, 2, 8, 13)


class SymInt32:
    """A dimension, which is never negative."""

    def __init__(self, value):
        self.value = value.value if isinstance(value, SymInt32) else value
        assert type(self.value) is int
        assert self.value >= 0

    def __add__(self, other):
        return SymInt32(self.value + SymInt32(other).value)


class TensorDesc:
    def __init__(self, shape, dtype):
        self.shape_expr = [SymInt32(dim) for dim in shape]
        self.dtype = dtype


class SymIntExprs:
    def __init__(self, length):
        self.items = [None] * length

    def __setitem__(self, index, item):
        assert isinstance(item, SymInt32)  # TensorRT: a TypeError for anything else
        self.items[index] = item


class KernelLaunchParams:
    def __init__(self, grid_x=1, grid_y=1, grid_z=1, block_x=1, block_y=1, block_z=1, shared_mem=0):
        self.grid = [SymInt32(each).value for each in (grid_x, grid_y, grid_z)]
        self.block = [SymInt32(each).value for each in (block_x, block_y, block_z)]
        assert shared_mem == 0


class Trtp:
    """The module `tensorrt.plugin`."""

    TensorDesc, SymInt32, SymIntExprs, KernelLaunchParams = TensorDesc, SymInt32, SymIntExprs, KernelLaunchParams

    def __init__(self):
        self.op = SimpleNamespace()
        self.plugins = {}

    @staticmethod
    def cdiv(first, second):
        return SymInt32(-(-first.value // second))

    @staticmethod
    def from_shape_expr(shape, dtype):
        return TensorDesc(shape, dtype)

    def register(self, identifier):
        namespace, name = identifier.split("::")
        assert identifier not in self.plugins

        def decorate(describe):
            signature = inspect.signature(describe)
            kinds = [parameter.annotation for parameter in signature.parameters.values()]
            assert kinds == [TensorDesc] * kinds.count(TensorDesc) + [str] * kinds.count(str)
            assert signature.return_annotation is TensorDesc
            names = list(signature.parameters)[kinds.count(TensorDesc) :]

            def operator(*tensors, **attributes):
                assert len(tensors) == kinds.count(TensorDesc)
                assert list(attributes) == names  # in this order
                assert all(type(value) is str for value in attributes.values())
                return tensors, attributes

            self.plugins[identifier] = SimpleNamespace(describe=describe, parameters=list(signature.parameters))
            setattr(self.op, namespace, SimpleNamespace(**{name: operator}))
            return describe

        return decorate

    def aot_impl(self, identifier):
        def decorate(implement):
            signature = inspect.signature(implement)
            found = self.plugins[identifier]
            assert list(signature.parameters) == [*found.parameters, "outputs", "tactic"]
            assert typing.get_origin(signature.parameters["outputs"].annotation) is tuple
            returned = typing.get_args(signature.return_annotation)
            assert returned == (str, str, KernelLaunchParams, SymIntExprs)
            found.implement = implement
            return implement

        return decorate


class WithPlugins:
    """A network of TensorRT for RTX that takes plugins: an input of the network stands for what a plugin gives."""

    def __init__(self, trt, trtp, builder):
        self.builder = builder  # must outlive its network
        self.network = builder.create_network(flavour.strongly_typed(trt))
        self.trt, self.trtp = trt, trtp

    def __getattr__(self, name):
        return getattr(self.network, name)

    def add_plugin(self, operator, ahead_of_time):
        assert ahead_of_time
        self.tensors, self.attributes = operator
        (found,) = self.trtp.plugins.values()
        descriptions = [TensorDesc([1] * len(tensor.shape), tensor.dtype) for tensor in self.tensors]
        described = found.describe(*descriptions, **self.attributes)
        output = self.network.add_input("plugin", described.dtype, [-1] * len(described.shape_expr))
        return SimpleNamespace(get_output=lambda _index: output)


@pytest.fixture(name="network_of")
def _network_of(monkeypatch):
    """Makes networks that take plugins."""
    trt, trtp = package("tensorrt_rtx"), Trtp()
    monkeypatch.setattr(layers, "flavour_of", lambda _network: "tensorrt")
    for module in (layers, plugin):
        monkeypatch.setattr(module, "load", lambda _flavour: trt)
    monkeypatch.setattr(plugin, "load_plugins", lambda _flavour: trtp)
    plugin.registered.cache_clear()
    yield lambda: WithPlugins(trt, trtp, trt.Builder(flavour.logger_of("tensorrt_rtx")))
    plugin.registered.cache_clear()


@pytest.fixture(name="host", scope="module")
def _host(tmp_path_factory):
    library = tmp_path_factory.mktemp("plugin") / "host.so"
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", library, ROOT / "plugins/cuda/host.cpp"], check=True)
    return ctypes.CDLL(str(library))


def appended(network, post, dtype=np.float32, **settings):
    trt = network.trt
    channels = 1 if post.head == "threshold" else post.classes
    shape = (-1, channels, *SOURCE) if post.layout == "NCHW" else (-1, *SOURCE, channels)
    logits = network.add_input("logits", trt.float16 if dtype == np.float16 else trt.float32, shape)
    return append.append_postprocess(network, logits, post, lowering="plugin", **settings)


def launched(network, host, arrays):
    """The kernel as TensorRT would launch it: inputs, extra arguments, output."""
    (found,) = network.trtp.plugins.values()
    inputs = [TensorDesc(array.shape, None) for array in arrays]
    described = found.describe(*inputs, **network.attributes)
    name, ptx, launch, extra = found.implement(*inputs, **network.attributes, outputs=(described,), tactic=0)
    assert f".visible .entry {name}(" in ptx
    kind = {network.trt.int8: np.uint8, network.trt.int32: np.int32}[described.dtype]
    mask = np.full([dim.value for dim in described.shape_expr], 99, kind)
    numbers = [item.value for item in extra.items]
    assert len(re.search(rf"{name}\(([^)]*)\)", ptx)[1].split(",")) == len(inputs) + len(numbers) + 1
    packed = np.zeros(72, np.uint8)
    packed[:24].view(np.uint64)[:] = [array.ctypes.data for array in arrays]
    packed[24:60].view(np.int32)[:] = numbers
    packed[64:].view(np.uint64)[:] = mask.ctypes.data
    failed = host.trtpost_host_launch(
        name.encode(),
        (ctypes.c_uint * 3)(*launch.grid),
        (ctypes.c_uint * 3)(*launch.block),
        ctypes.c_void_p(packed.ctypes.data),
        ctypes.c_size_t(packed.size),
    )
    assert failed == 0
    return mask, launch, numbers


def values_of(post, dtype=np.float32):
    channels = 1 if post.head == "threshold" else post.classes
    values = np.random.default_rng(3).normal(size=(BATCH, channels, *SOURCE)).astype(dtype)
    return np.ascontiguousarray(values if post.layout == "NCHW" else values.transpose(0, 2, 3, 1))


def inputs_of(network, post, values):
    """Logits, rows and cols as the network's layers make them for the plugin."""
    known = {"logits": values, "image": np.zeros((1, *SIZE, 3), np.float32)}
    known["plugin"] = np.zeros(
        (BATCH, *SIZE), {"u8": np.int8, "i32": np.int32}[network.attributes["kernel"].split("_")[-1]]
    )
    known |= size_inputs(post, REGION if post.region == "runtime" else Region(0, 0, *SOURCE), SIZE)
    names = [network.get_input(index).name for index in range(network.num_inputs)]
    result = evaluate(network.trt, network, {name: known.get(name, known["plugin"]) for name in names})
    return [np.ascontiguousarray(result[tensor.name]) for tensor in network.tensors]


@pytest.mark.parametrize("size", ["runtime", "image", SIZE])
@pytest.mark.parametrize(("resize", "match"), [(resize, match) for resize in MATCHES for match in MATCHES[resize]])
def test_the_mask_is_that_of_the_reference(network_of, host, resize, match, size):
    for head, classes in (("argmax", 5), ("threshold", 2)):
        for layout in ("NCHW", "NHWC"):
            for region in ("whole", "runtime"):
                if size == "image" and (region == "runtime" or match in ("opencv", "pil")):
                    continue  # has no meaning
                post = Post(head, layout, classes, resize, match, size, -0.25, region)
                network = network_of()
                image = network.add_input("image", network.trt.float32, (1, -1, -1, 3)) if size == "image" else None
                tables = post.needs_tables and size == SIZE and region == "runtime"
                mask = appended(network, post, image=image, **({"region": REGION} if tables else {}))
                assert (mask.name, mask.dtype) == ("mask", network.trt.int8)
                values = values_of(post)
                arrays = inputs_of(network, post, values)
                inside = REGION if region == "runtime" else None
                for made, wanted in zip(arrays[1:], expected_positions(post, inside), strict=True):
                    np.testing.assert_array_equal(made, wanted)
                result, launch, numbers = launched(network, host, arrays)
                # what the runtime would launch after an engine that ends in logits
                assert launch.grid == list(kernels.grid(BATCH, SIZE))
                assert launch.block == list(kernels.BLOCK)
                assert tuple(numbers) == tuple(kernels.numbers(post, values.shape, SIZE))
                assert network.attributes["kernel"] == kernels.kernel_name(post, "float32")
                np.testing.assert_array_equal(result, argmax_resize(inside_of(values, post, inside), SIZE, post))


def expected_positions(post, inside):
    return kernels.positions(post, SOURCE, SIZE, inside)


def inside_of(values, post, inside):
    if inside is None:
        return values
    rows, cols = slice(inside.top, inside.top + inside.height), slice(inside.left, inside.left + inside.width)
    return values[:, :, rows, cols] if post.layout == "NCHW" else values[:, rows, cols]


def test_half_precision(network_of, host):
    post = Post(classes=7, resize="bilinear")
    network = network_of()
    appended(network, post, np.float16)
    values = values_of(post, np.float16)
    result, _launch, _numbers = launched(network, host, inputs_of(network, post, values))
    assert network.attributes["kernel"] == "trtpost_bilinear_f16_u8"
    np.testing.assert_array_equal(result, argmax_resize(values, SIZE, post))


@pytest.mark.parametrize(
    ("classes", "kernel", "mask"), [(128, "u8", "int8"), (129, "i32", "uint8"), (300, "i32", "int32")]
)
def test_types_by_number_of_classes(network_of, host, classes, kernel, mask):
    post = Post(classes=classes)
    network = network_of()
    assert appended(network, post).dtype == getattr(network.trt, mask)
    assert network.attributes["kernel"] == f"trtpost_nearest_f32_{kernel}"
    values = values_of(post)
    result, _launch, _numbers = launched(network, host, inputs_of(network, post, values))
    np.testing.assert_array_equal(result, argmax_resize(values, SIZE, post))


def test_what_no_kernel_is_for(network_of):
    network = network_of()
    labels = network.add_input("labels", network.trt.int32, (1, *SOURCE))
    with pytest.raises(SpecError, match="no kernel for head 'labels'"):
        append.append_postprocess(network, labels, Post("labels"), lowering="plugin")
    logits = network.add_input("large", network.trt.float32, (1, 64, 1 << 13, 1 << 13))
    with pytest.raises(SpecError, match="no logits as large"):
        append.append_postprocess(network, logits, Post(classes=64, size=SIZE), lowering="plugin")


def test_versions_without_such_plugins(monkeypatch):
    monkeypatch.setattr(flavour, "load", lambda _flavour: SimpleNamespace(__version__="10.0.1"))
    with pytest.raises(BackendError, match=r"tensorrt 10\.0\.1 has no plugins .* 10\.8 or later"):
        flavour.load_plugins("tensorrt")
    with pytest.raises(BackendError, match="tensorrt_rtx takes no plugins"):
        flavour.load_plugins("tensorrt_rtx")
