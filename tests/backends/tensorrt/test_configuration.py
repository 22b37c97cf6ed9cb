"""What a flavour lacks is refused in a sentence that names it; what it has reaches TensorRT's configuration."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from conftest import package

from trtpost.backends.tensorrt import configuration
from trtpost.backends.tensorrt.settings import Settings
from trtpost.backends.tensorrt.suitable import RTX_TARGETS
from trtpost.errors import BackendError, SpecError


@pytest.mark.parametrize(
    ("flavour", "settings", "says"),
    [
        ("tensorrt_rtx", {"timing_cache": "x"}, "tensorrt_rtx measures nothing"),
        ("tensorrt_rtx", {"hardware_compatibility": "same"}, "tensorrt_rtx has no hardware compatibility"),
        ("tensorrt_rtx", {"post": "plugin"}, "tensorrt_rtx takes no plugins: use --post kernel"),
        ("tensorrt", {"compute_capabilities": ("8.9",)}, "tensorrt builds for the GPU of this machine"),
        ("none", {"workspace": 64}, "flavour none .* --workspace would do nothing"),
        ("none", {"post": "kernel", "optimization_level": 3}, "--optimization-level, --post"),
    ],
)
def test_what_a_flavour_lacks(tmp_path, flavour, settings, says):
    if "timing_cache" in settings:
        settings = {"timing_cache": tmp_path / "timing.cache"}
    with pytest.raises(SpecError, match=says):
        configuration.check_settings(flavour, Settings(**settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"precision": "fp8"}, "precision must be one of fp32, fp16, bf16, int8"),
        ({"post": "cpu"}, "post must be one of"),
        ({"workspace": 0}, "from 1 to 1048576 MiB"),
        ({"workspace": 1 << 62}, "from 1 to 1048576 MiB"),
        ({"optimization_level": 6}, "from 0 to 5"),
        ({"hardware_compatibility": "all"}, "hardware compatibility must be one of none, ampere"),
        ({"compute_capabilities": ("89",)}, "such as 8.9, not '89'"),
        ({"compute_capabilities": ("8.9", "8.9")}, "given twice"),
    ],
)
def test_settings_without_meaning(settings, says):
    with pytest.raises(SpecError, match=says):
        Settings(**settings)


def test_a_folder_is_no_timing_cache(tmp_path):
    with pytest.raises(SpecError, match="is a folder"):
        Settings(timing_cache=tmp_path)


class Config(SimpleNamespace):
    """TensorRT's `IBuilderConfig` as far as attributes and the workspace go, which here has at most 1 GiB."""

    def set_memory_pool_limit(self, pool, size):
        if size <= 1 << 30:
            self.pool = (pool, size)

    def get_memory_pool_limit(self, pool):
        set_pool, size = getattr(self, "pool", (pool, 0))
        assert set_pool == pool
        return size


def full(levels=("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY")):
    """What `configure` reads of the full TensorRT's module."""
    return SimpleNamespace(
        __version__="11.4",
        ProfilingVerbosity=SimpleNamespace(DETAILED="detailed"),
        MemoryPoolType=SimpleNamespace(WORKSPACE="workspace"),
        HardwareCompatibilityLevel=SimpleNamespace(__members__={level: level for level in levels}),
    )


def test_settings_reach_the_full_tensorrt():
    config = Config()
    configuration.configure(
        full(), config, "tensorrt", Settings(workspace=512, optimization_level=4, hardware_compatibility="ampere+")
    )
    assert vars(config) == {
        "profiling_verbosity": "detailed",
        "pool": ("workspace", 512 << 20),
        "builder_optimization_level": 4,
        "hardware_compatibility_level": "AMPERE_PLUS",
    }


def test_a_version_that_lacks_a_level_says_so():
    with pytest.raises(BackendError, match=r"tensorrt 11\.4 has no hardware compatibility 'same'"):
        configuration.configure(full(("NONE",)), Config(), "tensorrt", Settings(hardware_compatibility="same"))


def test_a_workspace_that_is_refused_is_not_ignored(monkeypatch):
    monkeypatch.setattr(configuration, "logger_of", lambda _: SimpleNamespace(last=lambda: "too large"))
    with pytest.raises(BackendError, match="workspace of 2048 MiB: too large"):
        configuration.configure(full(), Config(), "tensorrt", Settings(workspace=2048))


def test_compute_capabilities_are_those_that_tensorrt_for_rtx_has():
    package("tensorrt_rtx")
    configuration.check_builder("tensorrt_rtx", Settings(compute_capabilities=("7.5", "12.0")))
    with pytest.raises(BackendError, match=r"does not compile for compute capability 9\.0: choose from 7\.5, 8\.0"):
        configuration.check_builder("tensorrt_rtx", Settings(compute_capabilities=("9.0",)))
    assert configuration.targets("tensorrt_rtx", Settings()) == RTX_TARGETS
    assert configuration.targets("tensorrt_rtx", Settings(compute_capabilities=("7.5",))) == ("7.5",)
