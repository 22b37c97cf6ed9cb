"""What differs between flavours and versions of TensorRT's Python API."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtpost.backends.tensorrt.flavour import flavour_of, is_capturable, set_device_memory, strongly_typed
from trtpost.errors import SpecError


@pytest.mark.parametrize(
    ("module", "flavour"),
    [
        ("tensorrt_rtx_bindings.api", "tensorrt_rtx"),
        ("tensorrt_bindings.tensorrt", "tensorrt"),
        ("tensorrt.tensorrt", "tensorrt"),
    ],
)
def test_networks(module, flavour):
    assert flavour_of(type("Network", (), {"__module__": module})()) == flavour
    with pytest.raises(SpecError, match="must be a TensorRT INetworkDefinition, not str"):
        flavour_of("network")


@pytest.mark.parametrize(("flags", "result"), [({"STRONGLY_TYPED": 1}, 2), ({}, 0)])
def test_strong_types(flags, result):
    assert strongly_typed(SimpleNamespace(NetworkDefinitionCreationFlag=SimpleNamespace(**flags))) == result


def test_scratch_memory():
    told: list[object] = []
    set_device_memory(SimpleNamespace(set_device_memory=lambda *given: told.append(given)), 7, 9)
    old = SimpleNamespace()
    set_device_memory(old, 7, 9)
    assert (told, old.device_memory) == ([(7, 9)], 7)


@pytest.mark.parametrize(
    ("context", "can"),
    [
        (SimpleNamespace(), True),
        (SimpleNamespace(is_stream_capturable=lambda _stream: False), False),
        (SimpleNamespace(is_stream_capturable=lambda _stream: True), True),
    ],
)
def test_recording(context, can):
    assert is_capturable(context, 1) is can
