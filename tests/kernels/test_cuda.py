"""The CUDA kernels, compiled as C++ for the host: the same masks as the reference and the CPU kernel."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import package
from hypothesis import given, settings
from hypothesis import strategies as st

from trtpost.errors import SpecError
from trtpost.kernels import cpu
from trtpost.kernels import cuda as kernels
from trtpost.kernels.reference import argmax_resize, bilinear, limited
from trtpost.letterbox import Region
from trtpost.spec import MATCHES, Post

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """`plugins/cuda` built for the host; `make test-asan` asks for sanitizers."""
    library = tmp_path_factory.mktemp("kernels") / "host.so"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    flags += os.environ.get("TRTPOST_HOST_FLAGS", "").split()
    subprocess.run(["g++", *flags, "-o", library, ROOT / "plugins/cuda/host.cpp"], check=True)
    return ctypes.CDLL(str(library))


def launch(host, logits, size, post, *, region=None, offset=0, dtype=None):
    """The mask by a launch whose arguments are packed as CUDA packs them; `offset` bytes from an aligned address."""
    kind = dtype or logits.dtype.name
    logits = np.ascontiguousarray(logits)
    source = kernels.spatial(post.layout, logits.shape)[1:]
    rows, columns = kernels.positions(post, source, size, region)
    item = np.dtype(np.int32 if post.wide else np.uint8)
    count = logits.shape[0] * size[0] * size[1]
    memory = np.full(count * item.itemsize + 64 + offset, 0xEE, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    packed = np.zeros(72, np.uint8)
    packed[:24].view(np.uint64)[:] = [logits.ctypes.data, rows.ctypes.data, columns.ctypes.data]
    packed[24:60].view(np.int32)[:] = kernels.numbers(post, logits.shape, size)
    packed[64:72].view(np.uint64)[:] = [memory.ctypes.data + start]
    failed = host.trtpost_host_launch(
        kernels.kernel_name(post, kind).encode(),
        (ctypes.c_uint * 3)(*kernels.grid(logits.shape[0], size)),
        (ctypes.c_uint * 3)(*kernels.BLOCK),
        ctypes.c_void_p(packed.ctypes.data),
        ctypes.c_size_t(packed.size),
    )
    assert failed == 0
    stop = start + count * item.itemsize
    assert (memory[:start] == 0xEE).all(), "written before the mask"
    assert (memory[stop:] == 0xEE).all(), "written behind the mask"
    return memory[start:stop].view(item).reshape(logits.shape[0], *size)


def differences(mask, logits, size, post):
    """Pixels that differ from the reference and are no tie of the two best values within rounding."""
    expected = argmax_resize(logits, size, post)
    wrong = mask != expected
    if post.resize == "nearest" or not wrong.any():
        return int(wrong.sum())
    planar = limited(logits) if post.layout == "NCHW" else limited(logits).transpose(0, 3, 1, 2)
    values = bilinear(planar.transpose(2, 3, 0, 1), size, post.match).transpose(2, 3, 0, 1)
    if post.head == "threshold":
        gap = np.abs(values[:, 0] - post.threshold)
    else:
        chosen = np.take_along_axis(values, mask[:, None].astype(np.int64), 1)[:, 0]
        gap = values.max(axis=1) - chosen
    scale = np.abs(values).max()
    return int((wrong & (gap > 1e-5 * scale)).sum())


def spec(**settings):
    resize, head = settings.pop("resize", "nearest"), settings.pop("head", "argmax")
    classes = 2 if head == "threshold" else settings.pop("classes", 5)
    return Post(resize=resize, head=head, classes=classes, **settings)


@st.composite
def cases(draw):
    resize = draw(st.sampled_from(["nearest", "bilinear"]))
    head = draw(st.sampled_from(["argmax", "argmax", "threshold"]))
    classes = 2 if head == "threshold" else draw(st.sampled_from([1, 2, 3, 7, 19, 40, 300]))
    post = Post(
        resize=resize,
        head=head,
        classes=classes,
        layout=draw(st.sampled_from(["NCHW", "NHWC"])),
        match=draw(st.sampled_from(MATCHES[resize])),
        threshold=draw(st.sampled_from([0.0, 0.5, -1.25])),
    )
    channels = 1 if head == "threshold" else classes
    batch, height, width = draw(st.integers(1, 3)), draw(st.integers(1, 24)), draw(st.integers(1, 40))
    size = (draw(st.integers(1, 90)), draw(st.integers(1, 600)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = random.standard_normal((batch, channels, height, width)).astype(np.float32)
    if draw(st.booleans()):
        logits = np.round(logits)  # ties
    if draw(st.booleans()):
        logits[random.random(logits.shape) < 0.1] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    if post.layout == "NHWC":
        logits = logits.transpose(0, 2, 3, 1)
    dtype = draw(st.sampled_from([np.float32, np.float16]))
    return np.ascontiguousarray(logits.astype(dtype)), size, post, draw(st.integers(0, 15))


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_equals_the_reference_and_the_cpu_kernel(host, case):
    logits, size, post, offset = case
    mask = launch(host, logits, size, post, offset=0 if post.wide else offset)
    assert differences(mask, logits, size, post) == 0
    if post.resize == "nearest" and cpu.is_available():
        np.testing.assert_array_equal(mask, cpu.argmax_resize(logits, size, post))


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", [(1080, 1920), (333, 1001), (512, 512), (100, 70), (1, 1), (2000, 16)], ids=str)
def test_whole_masks_of_smooth_logits(host, resize, size):
    random = np.random.default_rng(7)
    coarse = random.standard_normal((2, 9, 12, 19)).astype(np.float32)
    logits = bilinear(coarse.transpose(1, 2, 3, 0), (96, 128)).transpose(3, 2, 0, 1)
    post = spec(resize=resize, classes=19)
    assert differences(launch(host, logits, size, post), logits, size, post) == 0


def test_the_golden_two_by_two():
    # 2x2 -> 3x3 by hand: with half-pixel centres the middle row lies exactly between the sources
    post = spec(resize="bilinear", classes=2)
    rows, columns = kernels.positions(post, (2, 2), (3, 3))
    np.testing.assert_allclose(rows, [0, 0.5, 1], atol=1e-7)
    np.testing.assert_allclose(columns, [0, 0.5, 1], atol=1e-7)
    assert list(kernels.positions(spec(), (2, 2), (3, 3))[0]) == [0, 1, 1]


def test_bfloat16_logits(host):
    logits = np.random.default_rng(3).standard_normal((1, 5, 9, 11)).astype(np.float32)
    bits = (logits.view(np.uint32) >> 16).astype(np.uint16)
    rounded = (bits.astype(np.uint32) << 16).view(np.float32)
    for resize in ("nearest", "bilinear"):
        post = spec(resize=resize)
        mask = launch(host, bits, (40, 50), post, dtype="bfloat16")
        assert differences(mask, rounded, (40, 50), post) == 0


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_a_region_is_the_logits_cut_out(host, resize):
    logits = np.random.default_rng(5).standard_normal((1, 5, 20, 30)).astype(np.float32)
    region = Region(3, 4, 11, 17)
    inside = logits[:, :, 3:14, 4:21]
    for match in MATCHES[resize]:
        post = spec(resize=resize, match=match)
        mask = launch(host, logits, (64, 81), post, region=region)
        assert differences(mask, inside, (64, 81), post) == 0


def test_a_wrong_block_or_buffer_is_noticed(host):
    name = kernels.kernel_name(spec(), "float32").encode()
    grid, block, buffer = (ctypes.c_uint * 3)(1, 1, 1), (ctypes.c_uint * 3)(*kernels.BLOCK), bytes(72)
    size = ctypes.c_size_t
    assert host.trtpost_host_launch(b"other", grid, block, buffer, size(72)) == 1
    assert host.trtpost_host_launch(name, grid, block, buffer, size(68)) == 2
    assert host.trtpost_host_launch(name, grid, (ctypes.c_uint * 3)(32, 8, 1), buffer, size(72)) == 3


def test_every_name_is_in_the_ptx_with_the_parameters_that_are_passed():
    entries = dict(re.findall(r"\.entry (\w+)\(([^)]*)\)", kernels.ptx()))
    names = {
        kernels.kernel_name(spec(resize=resize, classes=classes), dtype)
        for resize in ("nearest", "bilinear")
        for classes in (19, 300)
        for dtype in kernels.LOGIT_TYPES
    }
    assert set(entries) == names
    for parameters in entries.values():
        types = re.findall(r"\.param \.(\w+)", parameters)
        assert types == ["u64"] * 3 + ["u32"] * len(kernels.Numbers._fields) + ["u64"]


def test_what_has_no_kernel_is_refused():
    with pytest.raises(SpecError, match="labels"):
        kernels.kernel_name(spec(head="labels"), "float32")
    with pytest.raises(SpecError, match="int8"):
        kernels.kernel_name(spec(), "int8")
    with pytest.raises(SpecError, match="as large as"):
        kernels.numbers(spec(), (1, 300, 4096, 4096), (10, 10))


def test_the_ptx_is_what_the_sources_give():
    for name in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        package(name)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/compile_cuda.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
