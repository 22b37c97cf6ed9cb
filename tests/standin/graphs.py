"""CUDA graphs by ctypes, for the tests of the driver itself: pycuda knows nothing of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import control

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL

CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901
CAPTURE_IMPLICIT = 906
CAPTURED_EVENT = 907
CAPTURE_WRONG_THREAD = 908


class Graph:
    """A captured graph, instantiated; `launch` returns CUDA's error code."""

    def __init__(self, graph: ctypes.c_void_p) -> None:
        self.exec, number = ctypes.c_void_p(), ctypes.c_size_t()
        driver = control.driver()
        assert driver.cuGraphGetNodes(graph, None, ctypes.byref(number)) == 0
        self.nodes = number.value
        assert driver.cuGraphInstantiateWithFlags(ctypes.byref(self.exec), graph, ctypes.c_ulonglong(0)) == 0
        assert driver.cuGraphDestroy(graph) == 0

    def launch(self, stream: int) -> int:
        return control.driver().cuGraphLaunch(self.exec, ctypes.c_void_p(stream))

    def close(self) -> None:
        assert control.driver().cuGraphExecDestroy(self.exec) == 0


def begin(stream: int, mode: int = THREAD_LOCAL) -> int:
    return control.driver().cuStreamBeginCapture_v2(ctypes.c_void_p(stream), mode)


def end(stream: int) -> tuple[int, ctypes.c_void_p]:
    graph = ctypes.c_void_p()
    return control.driver().cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)), graph


@contextmanager
def broken_capture(stream: int, mode: int = THREAD_LOCAL) -> Iterator[None]:
    """A capture that something within must break."""
    assert begin(stream, mode) == 0
    yield
    code, graph = end(stream)
    assert code == CAPTURE_INVALIDATED
    assert not graph.value


def record(event: ctypes.c_void_p, stream: int) -> int:
    """Record an event as a node of the graph being captured; pycuda hides the handles of its own events."""
    return control.driver().cuEventRecordWithFlags(event, ctypes.c_void_p(stream), EXTERNAL)
