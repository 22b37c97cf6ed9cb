"""What keeps a plan from running here is told in a sentence, before anything is loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nets import nchw, save

from trtpost.backends.choice import choose
from trtpost.backends.tensorrt.obstacle import Machine, obstacle
from trtpost.builder.build import build
from trtpost.bundle.folder import Bundle, read_bundle
from trtpost.bundle.passport import Plan
from trtpost.cuda import Device, Driver
from trtpost.errors import BackendError, SpecError

GPU = Driver("13.0", (Device("RTX 4090", "8.9", 24 << 30),))
HERE = Machine(GPU, {"tensorrt": "11.4.0", "tensorrt_rtx": "1.7.1"}, {"tensorrt_rtx": 13}, pycuda=True)
FULL = Plan("tensorrt", "11.4.0", ("8.9",), {}, {})
RTX = Plan("tensorrt_rtx", "1.7.1", ("8.0", "8.6", "8.9", "12.0"), {}, {})


@pytest.fixture(scope="module")
def portable(tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles")
    return build(save(nchw(), folder / "net.onnx"), folder / "my net.trtpost", flavour="none")


def bundle_with(portable, plan):
    return Bundle(portable.path, replace(portable.passport, plan=plan))


def gpu(capability):
    return replace(HERE, driver=Driver("13.0", (Device("Some GPU", capability, 8 << 30),)))


def test_nothing_stands_in_the_way(portable):
    assert obstacle(bundle_with(portable, FULL), HERE) is None
    assert obstacle(bundle_with(portable, RTX), HERE) is None


@pytest.mark.parametrize(
    ("plan", "machine", "why"),
    [
        (FULL, replace(HERE, driver=None), "no NVIDIA driver"),
        (FULL, replace(HERE, driver=Driver("13.0", ())), "sees no GPU"),
        (FULL, replace(HERE, versions={}), r"needs tensorrt 11\.4\.0, which is not installed: .*pip install"),
        (FULL, replace(HERE, versions={"tensorrt": "10.9.0"}), r"built by tensorrt 11\.4\.0.*10\.9\.0 is installed"),
        (FULL, gpu("8.6"), r"for compute capability 8\.9, but Some GPU has 8\.6"),
        (RTX, gpu("7.5"), r"8\.0, 8\.6, 8\.9, 12\.0, but Some GPU has 7\.5"),
        (RTX, gpu("9.0"), r"but Some GPU has 9\.0: build it again here.* --flavour tensorrt --force"),
        (RTX, replace(gpu("9.0"), versions={"tensorrt_rtx": "1.7.1"}), r"pip install tensorrt-cu13 .*; then build it"),
        (RTX, replace(gpu("9.0"), versions={"tensorrt": "11.4.0"}), r"but Some GPU has 9\.0: build it again here"),
        (RTX, gpu("7.0"), r"7\.0, and TensorRT needs 7\.5 or later$"),
        (RTX, replace(HERE, driver=Driver("12.4", GPU.devices)), r"supports CUDA 12\.4, but .* needs CUDA 13: update"),
        (FULL, replace(HERE, pycuda=False), r"trtpost doctor --fix compiles it"),
    ],
)
def test_each_obstacle_has_its_sentence(portable, plan, machine, why):
    found = obstacle(bundle_with(portable, plan), machine)
    assert found is not None
    with pytest.raises(BackendError, match=why):
        raise BackendError(found)


def test_a_mismatch_names_the_command_that_mends_it(portable):
    found = obstacle(bundle_with(portable, FULL), gpu("8.6"))
    assert f"trtpost build net.onnx -o '{portable.path}' --flavour tensorrt --force" in found


@pytest.mark.parametrize(
    ("plan", "capability"),
    [
        (replace(FULL, hardware_compatibility="ampere+"), "9.0"),
        (replace(FULL, hardware_compatibility="same"), "8.9"),
        (RTX, "12.0"),
        (RTX, "12.1"),
    ],
)
def test_plans_for_more_than_one_gpu(portable, plan, capability):
    assert obstacle(bundle_with(portable, plan), gpu(capability)) is None


def test_backends_are_chosen_and_refused_by_name(portable):
    contents = read_bundle(portable.path)
    engine, note = choose(contents)
    assert "ONNX Runtime" in engine.name
    assert note is None
    with pytest.raises(BackendError, match="holds no TensorRT plan"):
        choose(contents, "tensorrt")
    with pytest.raises(SpecError, match=r"tensorrt \(the GPU\) or onnxruntime \(the CPU\), not 'cuda'"):
        choose(contents, "cuda")
