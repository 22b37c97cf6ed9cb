"""The stand-in driver, through the real pycuda."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import control
import graphs
import numpy as np
import pycuda.driver as cuda
import pytest

from trtpost.cuda import driver as driver_here
from trtpost.kernels.cuda import BLOCK, LOGIT_TYPES, ptx

PTX = """//
.version 8.8
.target sm_75
.address_size 64
/* .entry not_this_one( .param .u32 x ) */
.visible .entry scale(
    .param .u64 .ptr .global .align 16 values,
    .param .f32 factor,
    .param .u32 number
)
.maxntid 256, 1, 1
{
    ret;
}
.visible .entry by_value(
    .param .u8 flag,
    .param .align 8 .b8 region[24],
    .param .s32 last
)
.reqntid 32
{
    ret;
}
.visible .entry unknown_to_the_host() { ret; }
"""


@contextmanager
def primary_context() -> Iterator[cuda.Context]:
    context = cuda.Device(0).retain_primary_context()
    context.push()
    try:
        yield context
    finally:
        cuda.Context.pop()
        context.detach()
        control.driver().cuCtxPopCurrent_v2(None)  # detaching pushes the context and, with a primary one, pops nothing


@pytest.fixture
def context(gpu: object) -> Iterator[cuda.Context]:  # noqa: ARG001 (the check for leaks comes after the release)
    with primary_context() as context:
        yield context


in_context = pytest.mark.usefixtures("context")


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    compiler = os.environ.get("CC", "gcc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, Path(__file__).parent / "kernels.c"], check=True, timeout=60
    )
    return library


def page_locked(values: np.ndarray) -> np.ndarray:
    copy = cuda.pagelocked_empty(values.shape, values.dtype)
    copy[:] = values
    return copy


VALUES = np.arange(1000, dtype=np.float32)


# ---- devices and contexts ----


def test_our_own_look_at_the_driver_sees_the_stand_in() -> None:
    control.device("Another GPU", "12.0", 2 << 30)
    control.installation("12.8")
    here = driver_here()
    assert here is not None
    assert here.cuda == "12.8"
    assert [(one.name, one.compute_capability, one.memory) for one in here.devices] == [
        ("Another GPU", "12.0", 2 << 30)
    ]


def test_no_device() -> None:
    control.installation(devices=0)
    assert driver_here().devices == ()


def test_pycuda_sees_the_device() -> None:
    control.device("Another GPU", "12.0", 2 << 30)
    device = cuda.Device(0)
    assert (device.name(), device.compute_capability(), device.total_memory()) == ("Another GPU", (12, 0), 2 << 30)
    assert device.get_attribute(cuda.device_attribute.WARP_SIZE) == 32


def test_the_primary_context_is_counted() -> None:
    before = control.alive().primary_refs
    with primary_context():
        assert control.alive().primary_refs == before + 1
    assert control.alive().primary_refs == before


def test_nothing_works_without_a_context() -> None:
    for make in (lambda: cuda.mem_alloc(16), cuda.Stream, cuda.Event, lambda: cuda.module_from_buffer(PTX.encode())):
        with pytest.raises(cuda.LogicError, match="invalid device context"):
            make()


def test_a_context_that_was_not_popped_shows(gpu) -> None:
    gpu.allow_leaks()
    handle = ctypes.c_void_p()
    driver = control.driver()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0) == 0
    assert driver.cuCtxPushCurrent_v2(handle) == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
    assert control.pop_contexts() == 1


def test_a_released_context_is_dead(gpu) -> None:
    gpu.allow_mistakes()
    handle, address = ctypes.c_void_p(), ctypes.c_uint64()
    driver = control.driver()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0)
    driver.cuCtxPushCurrent_v2(handle)
    driver.cuDevicePrimaryCtxRelease_v2(0)
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16)) == 709  # context is destroyed
    assert driver.cuCtxPopCurrent_v2(None) == 0
    assert driver.cuCtxPushCurrent_v2(handle) == control.INVALID_CONTEXT
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == control.INVALID_CONTEXT
    assert control.mistakes().bad_frees == 1


# ---- memory ----


@in_context
def test_there_and_back() -> None:
    stream = cuda.Stream()
    source, target = page_locked(VALUES), page_locked(np.zeros_like(VALUES))
    there, across = cuda.mem_alloc(VALUES.nbytes), cuda.mem_alloc(VALUES.nbytes)
    cuda.memcpy_htod_async(there, source, stream)
    cuda.memcpy_dtod_async(across, there, VALUES.nbytes, stream)
    cuda.memcpy_dtoh_async(target, across, stream)
    stream.synchronize()
    np.testing.assert_array_equal(target, VALUES)
    work = control.work()
    assert (work.copies_to_device, work.copies_on_device, work.copies_to_host) == (1, 1, 1)
    assert (work.bytes_to_device, work.bytes_to_host) == (VALUES.nbytes, VALUES.nbytes)
    assert work.pageable_copies == 0


@in_context
def test_pageable_memory_is_noticed() -> None:
    device = cuda.mem_alloc(VALUES.nbytes)
    cuda.memcpy_htod_async(device, VALUES, cuda.Stream())
    assert control.work().pageable_copies == 1
    cuda.memcpy_htod(device, VALUES)
    assert control.work().pageable_copies == 1


@in_context
def test_what_is_alive_is_counted() -> None:
    before = control.alive()
    device, host, stream, event = cuda.mem_alloc(100), page_locked(VALUES), cuda.Stream(), cuda.Event()
    now = control.alive()
    assert (now.device_blocks - before.device_blocks, now.device_bytes - before.device_bytes) == (1, 100)
    assert (now.host_blocks - before.host_blocks, now.host_bytes - before.host_bytes) == (1, VALUES.nbytes)
    assert (now.streams - before.streams, now.events - before.events) == (1, 1)
    del device, host, stream, event
    assert control.alive() == before


@in_context
def test_new_memory_is_not_zero() -> None:
    device, host = cuda.mem_alloc(64), np.zeros(64, np.uint8)
    cuda.memcpy_dtoh(host, device)
    assert host.all()
    cuda.memset_d8(device, 0, 64)
    cuda.memcpy_dtoh(host, device)
    assert not host.any()


@in_context
def test_freed_twice_and_never_allocated(gpu) -> None:
    gpu.allow_mistakes()
    device = cuda.mem_alloc(64)
    address = ctypes.c_uint64(int(device))
    device.free()
    driver = control.driver()
    assert driver.cuMemFree_v2(address) == control.INVALID_VALUE
    assert driver.cuMemFree_v2(ctypes.c_uint64(4096)) == control.INVALID_VALUE
    assert driver.cuMemFreeHost(ctypes.c_void_p(int(address.value))) == control.INVALID_VALUE
    assert control.mistakes().bad_frees == 3


@in_context
def test_a_write_past_the_end_is_seen_when_freed(gpu, capfd) -> None:
    gpu.allow_mistakes()
    device = cuda.mem_alloc(100)
    ctypes.memset(int(device) + 100, 0, 4)
    device.free()
    assert control.mistakes().overruns == 1
    assert "past the end of a block of 100 bytes" in capfd.readouterr().err


@in_context
def test_out_of_memory() -> None:
    control.device(memory=1 << 20)
    block = cuda.mem_alloc(600_000)
    with pytest.raises(cuda.MemoryError, match="out of memory"):
        cuda.mem_alloc(600_000)
    assert cuda.mem_get_info() == ((1 << 20) - 600_000, 1 << 20)
    block.free()
    cuda.mem_alloc(600_000)


@in_context
def test_a_copy_past_the_end_loses_the_device(gpu) -> None:
    gpu.allow_mistakes()
    before = control.alive()
    device = cuda.mem_alloc(VALUES.nbytes - 4)
    with pytest.raises(cuda.LogicError, match="illegal memory access"):
        cuda.memcpy_htod(device, VALUES)
    for call in (cuda.Context.synchronize, cuda.Stream, lambda: cuda.mem_alloc(16)):
        with pytest.raises(cuda.Error, match="illegal memory access"):
            call()
    del device  # a free on a lost device fails, and is counted all the same
    assert control.alive() == before
    assert control.mistakes().bad_accesses == 1
    control.reset()
    cuda.Context.synchronize()


@in_context
def test_freed_page_locked_memory_is_not_read(gpu) -> None:
    gpu.allow_mistakes()
    device, host = cuda.mem_alloc(VALUES.nbytes), page_locked(VALUES)
    address = host.ctypes.data
    del host
    size = ctypes.c_size_t(VALUES.nbytes)
    code = control.driver().cuMemcpyHtoD_v2(ctypes.c_uint64(int(device)), ctypes.c_void_p(address), size)
    assert code == control.INVALID_VALUE
    assert control.mistakes().bad_accesses == 1


# ---- streams and events ----


@in_context
def test_events_take_time() -> None:
    start, end, stream = cuda.Event(), cuda.Event(), cuda.Stream()
    start.record(stream)
    cuda.memset_d32_async(cuda.mem_alloc(4000), 7, 1000, stream)
    end.record(stream)
    end.synchronize()
    assert start.time_till(end) >= 0


@in_context
def test_an_event_never_recorded_has_no_time() -> None:
    start, end = cuda.Event(), cuda.Event()
    start.record()
    with pytest.raises(cuda.LogicError, match="invalid resource handle"):
        start.time_till(end)


@in_context
def test_dead_handles_are_refused(gpu) -> None:
    gpu.allow_mistakes()
    driver, stream, event = control.driver(), cuda.Stream(), ctypes.c_void_p()
    dead = ctypes.c_void_p(stream.handle)
    del stream
    assert driver.cuEventCreate(ctypes.byref(event), 0) == 0
    assert driver.cuStreamSynchronize(dead) == control.INVALID_HANDLE
    assert driver.cuEventRecord(event, dead) == control.INVALID_HANDLE
    assert driver.cuStreamDestroy_v2(dead) == control.INVALID_HANDLE
    assert driver.cuEventDestroy_v2(event) == 0
    assert driver.cuEventSynchronize(event) == control.INVALID_HANDLE
    assert control.mistakes().bad_handles == 3
    assert control.mistakes().bad_frees == 1


@pytest.mark.parametrize("wait", ["stream", "event", "context", "other stream"])
@in_context
def test_deferred_work_waits_for_somebody_to_wait(wait) -> None:
    stream, event, other = cuda.Stream(), cuda.Event(), cuda.Stream()
    source, target = page_locked(VALUES), page_locked(np.zeros_like(VALUES))
    device = cuda.mem_alloc(VALUES.nbytes)
    with control.deferred():
        cuda.memcpy_htod_async(device, source, stream)
        cuda.memcpy_dtoh_async(target, device, stream)
        event.record(stream)
        assert not target.any()
        if wait == "stream":
            stream.synchronize()
        elif wait == "event":
            event.synchronize()
        elif wait == "context":
            cuda.Context.synchronize()
        else:
            other.wait_for_event(event)
        np.testing.assert_array_equal(target, VALUES)


@in_context
def test_a_free_waits_for_deferred_work() -> None:
    stream, target, device = cuda.Stream(), page_locked(VALUES), cuda.mem_alloc(VALUES.nbytes)
    with control.deferred():
        cuda.memcpy_dtoh_async(target, device, stream)
        assert control.work().copies_to_host == 0
        device.free()
        assert control.work().copies_to_host == 1


# ---- faults ----


@in_context
def test_a_call_fails_when_told_to() -> None:
    control.fail("cuMemAlloc", control.OUT_OF_MEMORY, after=1, times=2)
    first = cuda.mem_alloc(16)
    with pytest.raises(cuda.MemoryError):
        cuda.mem_alloc(16)
    second = cuda.mem_alloc(16)
    assert int(first) != int(second)
    assert control.calls("cuMemAlloc") == 4


@in_context
def test_a_lost_device_stays_lost() -> None:
    before = control.alive()
    stream, device, host = cuda.Stream(), cuda.mem_alloc(VALUES.nbytes), page_locked(VALUES)
    control.lose(control.LAUNCH_FAILED)
    with pytest.raises(cuda.LaunchError, match="unspecified launch failure"):
        stream.synchronize()
    with pytest.raises(cuda.LaunchError, match="unspecified launch failure"):
        cuda.memcpy_htod_async(device, host, stream)
    with pytest.raises(cuda.LaunchError, match="unspecified launch failure"):
        cuda.Event()
    del stream, device, host
    assert control.alive() == before


# ---- graphs ----


def test_pycuda_has_no_graphs_of_its_own() -> None:
    """If this fails, `graphs.py` and the runtime could use pycuda's."""
    names = [*dir(cuda), *dir(cuda.Stream)]
    assert not [name for name in names if "capture" in name.lower() or "graph" in name.lower().replace("graphics", "")]
    assert not hasattr(cuda.Event, "handle")


def captured_round_trip(stream: cuda.Stream, source: np.ndarray, target: np.ndarray, device: int) -> graphs.Graph:
    assert graphs.begin(stream.handle) == 0
    cuda.memcpy_htod_async(device, source, stream)
    cuda.memcpy_dtoh_async(target, device, stream)
    code, graph = graphs.end(stream.handle)
    assert code == 0
    return graphs.Graph(graph)


@in_context
def test_a_capture_records_and_a_launch_replays() -> None:
    stream = cuda.Stream()
    source, target, device = page_locked(VALUES), page_locked(VALUES * 0), cuda.mem_alloc(VALUES.nbytes)
    graph = captured_round_trip(stream, source, target, device)
    assert graph.nodes == 2
    assert not target.any()
    for factor in (1, 2, 3):
        source[:] = VALUES * factor
        assert graph.launch(stream.handle) == 0
        stream.synchronize()
        np.testing.assert_array_equal(target, VALUES * factor)
    graph.close()
    assert control.work().graph_launches == 3


@in_context
def test_a_launch_after_a_free_loses_the_device(gpu) -> None:
    gpu.allow_mistakes()
    stream = cuda.Stream()
    source, target, device = page_locked(VALUES), page_locked(VALUES), cuda.mem_alloc(VALUES.nbytes)
    graph = captured_round_trip(stream, source, target, device)
    device.free()
    assert graph.launch(stream.handle) == control.ILLEGAL_ADDRESS
    control.reset()
    graph.close()


@in_context
def test_graphs_are_counted(gpu) -> None:
    gpu.allow_mistakes()
    stream = cuda.Stream()
    graph = captured_round_trip(stream, page_locked(VALUES), page_locked(VALUES), cuda.mem_alloc(VALUES.nbytes))
    assert (control.alive().graphs, control.alive().graph_execs) == (0, 1)
    graph.close()
    assert graph.launch(stream.handle) == control.INVALID_VALUE
    assert control.driver().cuGraphExecDestroy(graph.exec) == control.INVALID_VALUE
    assert control.mistakes().bad_frees == 1


@in_context
def test_synchronising_breaks_the_capture() -> None:
    stream, event = cuda.Stream(), cuda.Event()
    with graphs.broken_capture(stream.handle), pytest.raises(cuda.Error, match="stream is capturing"):
        stream.synchronize()
    with graphs.broken_capture(stream.handle), pytest.raises(cuda.Error, match="stream is capturing"):
        stream.is_done()
    with graphs.broken_capture(stream.handle), pytest.raises(cuda.Error, match="stream is capturing"):
        cuda.Context.synchronize()
    with graphs.broken_capture(stream.handle, graphs.RELAXED):
        event.record(stream)
        with pytest.raises(cuda.Error, match="event last recorded in a capturing stream"):
            event.query()
        with pytest.raises(cuda.Error, match="previous error during capture"):
            cuda.memset_d8_async(cuda.mem_alloc(16), 0, 16, stream)
    assert control.work().broken_captures == 4
    stream.synchronize()


@in_context
def test_the_default_stream_breaks_the_capture_of_a_blocking_stream() -> None:
    blocking, free = cuda.Stream(), cuda.Stream(1)  # CU_STREAM_NON_BLOCKING
    device = cuda.mem_alloc(16)
    with graphs.broken_capture(blocking.handle, graphs.RELAXED), pytest.raises(cuda.Error, match="legacy stream"):
        cuda.memset_d8(device, 0, 16)
    assert graphs.begin(free.handle, graphs.RELAXED) == 0
    cuda.memset_d8(device, 0, 16)
    code, graph = graphs.end(free.handle)
    assert code == 0
    graphs.Graph(graph).close()


@pytest.mark.parametrize(("mode", "breaks"), [(graphs.GLOBAL, True), (graphs.THREAD_LOCAL, False)])
@in_context
def test_allocating_in_another_thread_breaks_a_global_capture(mode, breaks) -> None:
    stream, failed = cuda.Stream(), []

    def allocate() -> None:
        with primary_context():
            try:
                cuda.mem_alloc(16).free()
            except cuda.Error as error:
                failed.append(error)

    assert graphs.begin(stream.handle, mode) == 0
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    code, graph = graphs.end(stream.handle)
    assert bool(failed) == breaks
    assert code == (graphs.CAPTURE_INVALIDATED if breaks else 0)
    if not breaks:
        graphs.Graph(graph).close()


@in_context
def test_a_capture_ends_in_its_own_thread() -> None:
    stream, codes = cuda.Stream(), []

    def end() -> None:
        with primary_context():
            codes.append(graphs.end(stream.handle)[0])

    assert graphs.begin(stream.handle) == 0
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert codes == [graphs.CAPTURE_WRONG_THREAD]
    code, graph = graphs.end(stream.handle)
    assert code == 0
    graphs.Graph(graph).close()


@in_context
def test_only_external_events_of_a_graph_have_a_time() -> None:
    driver, stream, plain = control.driver(), cuda.Stream(), cuda.Event()
    start, end, time = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float(-1)
    for event in (start, end):
        assert driver.cuEventCreate(ctypes.byref(event), 0) == 0
    device = cuda.mem_alloc(16)
    assert graphs.begin(stream.handle) == 0
    plain.record(stream)
    assert graphs.record(start, stream.handle) == 0
    cuda.memset_d8_async(device, 0, 16, stream)
    assert graphs.record(end, stream.handle) == 0
    _, captured = graphs.end(stream.handle)
    graph = graphs.Graph(captured)
    assert graph.nodes == 3
    assert driver.cuEventElapsedTime(ctypes.byref(time), start, end) == control.INVALID_HANDLE
    assert graph.launch(stream.handle) == 0
    assert driver.cuEventSynchronize(end) == 0
    assert driver.cuEventElapsedTime(ctypes.byref(time), start, end) == 0
    assert time.value >= 0
    with pytest.raises(cuda.Error, match="event last recorded in a capturing stream"):
        plain.synchronize()
    assert graphs.record(end, stream.handle) == control.INVALID_VALUE  # external only while capturing
    graph.close()
    for event in (start, end):
        assert driver.cuEventDestroy_v2(event) == 0


# ---- kernels ----


@pytest.fixture
def loaded(context: object, host_kernels: Path) -> None:  # noqa: ARG001 (loads with the context current)
    control.kernels(host_kernels)


with_kernels = pytest.mark.usefixtures("loaded")


def prepared(arguments: str = "PfI") -> cuda.Function:
    """The kernel `scale`. No fixture: pytest keeps their values until after the context has gone."""
    function = cuda.module_from_buffer(PTX.encode()).get_function("scale")
    function.prepare(arguments)
    return function


@with_kernels
def test_a_launch_runs_the_host_build() -> None:
    scale = prepared()
    stream, host, device = cuda.Stream(), page_locked(VALUES), cuda.mem_alloc(VALUES.nbytes)
    cuda.memcpy_htod_async(device, host, stream)
    scale.prepared_async_call((4, 1), (256, 1, 1), stream, device, np.float32(3), np.uint32(VALUES.size))
    cuda.memcpy_dtoh_async(host, device, stream)
    stream.synchronize()
    np.testing.assert_array_equal(host, VALUES * 3)
    scale(device, np.float32(2), np.uint32(VALUES.size), grid=(4, 1), block=(256, 1, 1))
    cuda.memcpy_dtoh(host, device)
    np.testing.assert_array_equal(host, VALUES * 6)
    assert control.work().launches == 2


@with_kernels
def test_a_launch_in_a_graph_keeps_its_arguments() -> None:
    scale = prepared()
    stream, host, device = cuda.Stream(), page_locked(VALUES), cuda.mem_alloc(VALUES.nbytes)
    cuda.memcpy_htod(device, host)
    assert graphs.begin(stream.handle) == 0
    scale.prepared_async_call((4, 1), (256, 1, 1), stream, device, np.float32(3), np.uint32(VALUES.size))
    _, captured = graphs.end(stream.handle)
    assert control.work().launches == 0
    graph = graphs.Graph(captured)
    assert graph.launch(stream.handle) == 0
    assert graph.launch(stream.handle) == 0
    cuda.memcpy_dtoh(host, device)
    np.testing.assert_array_equal(host, VALUES * 9)
    graph.close()


@with_kernels
def test_launch_by_pointers_to_the_parameters() -> None:
    device, host = cuda.mem_alloc(VALUES.nbytes), VALUES.copy()
    cuda.memcpy_htod(device, host)
    values = [ctypes.c_uint64(int(device)), ctypes.c_float(3), ctypes.c_uint32(VALUES.size)]
    parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in values))
    driver, module, function = control.driver(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), PTX.encode()) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"scale") == 0
    assert driver.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, None, parameters, None) == 0
    assert driver.cuModuleUnload(module) == 0
    cuda.memcpy_dtoh(host, device)
    np.testing.assert_array_equal(host, VALUES * 3)


@pytest.mark.parametrize(
    ("grid", "block", "arguments"),
    [
        ((4, 1), (256, 1, 1), "PfII"),
        ((4, 1), (256, 1, 1), "Pf"),
        ((4, 1), (257, 1, 1), "PfI"),
        ((0, 1), (256, 1, 1), "PfI"),
        ((1, 65536), (256, 1, 1), "PfI"),
    ],
)
@with_kernels
def test_a_wrong_launch_is_refused(gpu, grid, block, arguments) -> None:
    gpu.allow_mistakes()
    values = [cuda.mem_alloc(64), np.float32(1), np.uint32(16), np.uint32(0)]
    scale = prepared(arguments)
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        scale.prepared_async_call(grid, block, cuda.Stream(), *values[: len(arguments)])
    assert control.mistakes().bad_launches == 1
    assert control.work().launches == 0


@with_kernels
def test_parameters_of_every_kind_are_packed_by_their_alignment(gpu) -> None:
    gpu.allow_mistakes()
    function = cuda.module_from_buffer(PTX.encode()).get_function("by_value")
    good, bad = b"\1" + bytes(7) + bytes(24) + bytes(4), b"\1" + bytes(24) + bytes(4)
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        function._launch_kernel((1,), (32, 1, 1), bad, 0, None)
    with pytest.raises(cuda.LogicError, match="invalid argument"):  # .reqntid
        function._launch_kernel((1,), (64, 1, 1), good, 0, None)
    with pytest.raises(cuda.LogicError, match="not found"):  # the size is right; the host has no such kernel
        function._launch_kernel((1,), (32, 1, 1), good, 0, None)


@in_context
def test_unknown_kernels_and_bad_ptx() -> None:
    module = cuda.module_from_buffer(PTX.encode())
    with pytest.raises(cuda.LogicError, match="named symbol not found"):
        module.get_function("not_this_one")
    with pytest.raises(cuda.Error, match="device kernel image is invalid"):
        cuda.module_from_buffer(b"\x7fELF")
    with pytest.raises(cuda.Error, match="no kernel image is available"):
        cuda.module_from_buffer(PTX.replace("sm_75", "sm_90").encode())
    with pytest.raises(cuda.Error, match="unsupported toolchain"):
        cuda.module_from_buffer(PTX.replace("8.8", "9.1").encode())


@in_context
def test_our_own_kernels_load() -> None:
    module = cuda.module_from_buffer(ptx().encode())
    for types in LOGIT_TYPES.values():
        for resize in ("nearest", "bilinear"):
            for labels in ("u8", "i32"):
                function = module.get_function(f"trtpost_{resize}_{types}_{labels}")
                assert function.max_threads_per_block == np.prod(BLOCK)


# ---- threads ----


@in_context
def test_streams_of_many_threads() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with primary_context():
                stream, host, device = cuda.Stream(), page_locked(VALUES * number), cuda.mem_alloc(VALUES.nbytes)
                back = page_locked(VALUES * 0)
                for _ in range(100):
                    back[:] = 0
                    cuda.memcpy_htod_async(device, host, stream)
                    cuda.memcpy_dtoh_async(back, device, stream)
                    stream.synchronize()
                    np.testing.assert_array_equal(back, host)
                del stream, host, device, back
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert control.work().copies_to_host == 400
