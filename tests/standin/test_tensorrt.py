"""The stand-in TensorRT, on the stand-in GPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import control
import graphs
import numpy as np
import onnx
import pycuda.driver as cuda
import pytest
import tensorrt as trt
from tensorrt import rtx, standin

from trtpost.packages import installed_version

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
scaled (uint8["N", 3] image, int64[2] output_size) => (float16["N", "H", "W"] mask) {
  one = Constant <value_ints = [1]> ()
  axes = Constant <value_ints = [1, 2]> ()
  batch = Shape <start = 0, end = 1> (image)
  shape = Concat <axis = 0> (batch, output_size)
  numbers = Cast <to = 10> (image)
  sums = ReduceMean <axes = [1]> (numbers)
  tall = Unsqueeze (sums, one)
  mask = Expand (tall, shape)
}"""
SHAPES = {"image": [(1, 3), (2, 3), (8, 3)]}
VALUES = {"output_size": [(1, 1), (4, 4), (64, 64)]}
SIZE = np.array([5, 7], np.int64)


class Log(trt.ILogger):
    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        if severity == trt.ILogger.ERROR:
            self.errors.append(msg)


class Layers(trt.IProfiler):
    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.times: dict[str, float] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        self.times[layer_name] = ms


@pytest.fixture(autouse=True)
def _context(gpu: object) -> Iterator[None]:  # noqa: ARG001 (the check for leaks comes after the release)
    context = cuda.Device(0).retain_primary_context()
    context.push()
    yield
    cuda.Context.pop()
    context.detach()
    control.driver().cuCtxPopCurrent_v2(None)


@pytest.fixture
def log() -> Log:
    return Log()


def plan(**facts: object) -> bytes:
    return standin.plan(onnx.parser.parse_model(MODEL), SHAPES, VALUES, **facts)


def engine_from(log: Log, **facts: object) -> trt.ICudaEngine:
    return trt.Runtime(log).deserialize_cuda_engine(plan(**facts))


class Run:
    """A context with memory for a batch of 2 and a mask of SIZE, and a stream."""

    def __init__(self, engine: trt.ICudaEngine, context: trt.IExecutionContext | None = None) -> None:
        self.context, self.stream = context or engine.create_execution_context(), cuda.Stream()
        self.image = cuda.pagelocked_empty((2, 3), np.uint8)
        self.image[:] = [[1, 2, 3], [3, 4, 5]]
        self.mask = cuda.pagelocked_zeros((2, *SIZE.tolist()), np.float16)
        self.size = SIZE.copy()
        self.device_image, self.device_mask = cuda.mem_alloc(self.image.nbytes), cuda.mem_alloc(self.mask.nbytes)
        self.context.set_input_shape("image", self.image.shape)
        self.context.set_tensor_address("image", int(self.device_image))
        self.context.set_tensor_address("mask", int(self.device_mask))
        self.context.set_tensor_address("output_size", self.size.ctypes.data)

    def enqueue(self) -> bool:
        cuda.memcpy_htod_async(self.device_image, self.image, self.stream)
        done = self.context.execute_async_v3(self.stream.handle)
        cuda.memcpy_dtoh_async(self.mask, self.device_mask, self.stream)
        return done

    def check(self, first: int = 2, second: int = 4) -> None:
        self.stream.synchronize()
        np.testing.assert_array_equal(self.mask[0], first)
        np.testing.assert_array_equal(self.mask[1], second)


def test_it_looks_installed() -> None:
    assert installed_version("tensorrt") == trt.__version__


def test_engine_answers(log) -> None:
    engine = engine_from(log)
    assert engine.name == "scaled"
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    assert names == ["image", "output_size", "mask"]
    assert [engine.get_tensor_mode(name).name for name in names] == ["INPUT", "INPUT", "OUTPUT"]
    assert [engine.get_tensor_dtype(name).name for name in names] == ["UINT8", "INT64", "HALF"]
    assert [engine.get_tensor_location(name).name for name in names] == ["DEVICE", "HOST", "DEVICE"]
    assert [engine.get_tensor_shape(name) for name in names] == [(-1, 3), (2,), (-1, -1, -1)]
    assert engine.get_tensor_profile_shape("image", 0) == [(1, 3), (2, 3), (8, 3)]
    assert engine.get_tensor_profile_values(0, "output_size") == [[1, 1], [4, 4], [64, 64]]
    assert trt.nptype(trt.DataType.HALF) is np.float16


def test_inference(log) -> None:
    run = Run(engine_from(log))
    assert run.context.infer_shapes() == []
    assert run.context.get_tensor_shape("mask") == (2, 5, 7)
    assert run.enqueue()
    run.check()
    assert standin.inferences() == 1
    assert control.work().pageable_copies == 0


def test_results_come_when_the_stream_is_synchronised(log) -> None:
    run = Run(engine_from(log))
    with control.deferred():
        assert run.enqueue()
        assert not run.mask.any()
        run.check()


def test_the_size_is_read_at_the_enqueue(log) -> None:
    run = Run(engine_from(log))
    with control.deferred():
        assert run.enqueue()
        run.size[:] = 60  # as of now; the mask would not fit
        run.check()


def test_a_graph_replays_inference_on_new_pixels(log) -> None:
    run = Run(engine_from(log))
    assert run.enqueue()
    run.check()
    assert graphs.begin(run.stream.handle) == 0
    assert run.enqueue()
    code, captured = graphs.end(run.stream.handle)
    assert code == 0
    graph = graphs.Graph(captured)
    assert graph.nodes == 3
    assert standin.inferences() == 1
    for number in (10, 20):
        run.image[:] = number
        assert graph.launch(run.stream.handle) == 0
        run.check(number, number)
    graph.close()


def test_the_first_enqueue_cannot_be_captured(log) -> None:
    run = Run(engine_from(log))
    with graphs.broken_capture(run.stream.handle):
        assert not run.context.execute_async_v3(run.stream.handle)
    assert "enqueue once before" in log.errors[-1]


def test_a_graph_outlives_its_context(log, gpu) -> None:
    run = Run(engine_from(log))
    run.enqueue()
    graphs.begin(run.stream.handle)
    run.enqueue()
    graph = graphs.Graph(graphs.end(run.stream.handle)[1])
    del run.context
    graph.launch(run.stream.handle)
    graph.close()
    assert standin.mistakes() == {"dead_contexts": 1}
    gpu.allow_mistakes()


def test_per_layer_times(log) -> None:
    run = Run(engine_from(log))
    run.context.profiler = layers = Layers()
    assert run.enqueue()
    run.check()
    assert layers.times
    assert all(time >= 0 for time in layers.times.values())
    layers.times.clear()
    run.context.enqueue_emits_profile = False
    assert run.enqueue()
    run.check()
    assert not layers.times
    assert run.context.report_to_profiler()
    assert layers.times


def test_what_is_missing_fails_the_enqueue(log) -> None:
    engine = engine_from(log)
    context, stream = engine.create_execution_context(), cuda.Stream()
    assert sorted(context.infer_shapes()) == ["image", "output_size"]
    assert context.get_tensor_shape("mask") == (-1, -1, -1)
    assert not context.execute_async_v3(stream.handle)
    assert "image, output_size are not set" in log.errors[-1]
    run = Run(engine)
    run.context.set_tensor_address("mask", 0)
    assert not run.context.execute_async_v3(stream.handle)
    assert "address of mask is not set" in log.errors[-1]
    run.context.set_tensor_address("mask", int(run.device_mask) + 16)
    assert not run.context.execute_async_v3(stream.handle)
    assert "multiple of 256" in log.errors[-1]


def test_outside_of_the_profile(log) -> None:
    run = Run(engine_from(log))
    assert not run.context.set_input_shape("image", (9, 3))
    assert not run.context.set_input_shape("image", (2, 4))
    assert not run.context.set_input_shape("nothing", (2, 4))
    run.size[:] = 65
    assert not run.context.execute_async_v3(run.stream.handle)
    assert "outside of profile 0" in log.errors[-1]


def test_a_mask_that_does_not_fit_loses_the_device(log, gpu) -> None:
    gpu.allow_mistakes()
    run = Run(engine_from(log))
    run.size[:] = 60
    run.context.execute_async_v3(run.stream.handle)
    with pytest.raises(cuda.Error, match="illegal memory access"):
        run.stream.synchronize()


def test_plans_that_cannot_be_read(log) -> None:
    runtime = trt.Runtime(log)
    assert runtime.deserialize_cuda_engine(b"no plan") is None
    assert runtime.deserialize_cuda_engine(plan(version="10.8.0")) is None
    assert "got 10.8.0" in log.errors[-1]
    assert runtime.deserialize_cuda_engine(plan(compute_capability="12.0")) is None
    assert "got compute 12.0" in log.errors[-1]
    assert len(log.errors) == 3


def test_out_of_memory(log) -> None:
    engine = engine_from(log)
    control.device(memory=1 << 10)
    assert engine.create_execution_context() is None
    assert trt.Runtime(log).deserialize_cuda_engine(plan()) is None


def user_managed(engine: trt.ICudaEngine) -> trt.IExecutionContext:
    return engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)


def test_scratch_memory_of_the_caller(log) -> None:
    engine = engine_from(log)
    run = Run(engine, user_managed(engine))
    assert not run.enqueue()
    assert "no device memory" in log.errors[-1]
    size = run.context.update_device_memory_size_for_shapes()
    scratch = cuda.mem_alloc(size)
    run.context.set_device_memory(int(scratch), size - 1)
    assert not run.enqueue()
    run.context.set_device_memory(int(scratch), size)
    assert run.enqueue()
    run.check()


def test_scratch_memory_freed_too_early_loses_the_device(log, gpu) -> None:
    gpu.allow_mistakes()
    engine = engine_from(log)
    run = Run(engine, user_managed(engine))
    size = run.context.update_device_memory_size_for_shapes()
    scratch = cuda.mem_alloc(size)
    run.context.set_device_memory(int(scratch), size)
    scratch.free()
    assert not run.context.execute_async_v3(run.stream.handle)
    assert "cuda error 700" in log.errors[-1]


def test_in_the_place_of_tensorrt_for_rtx(log) -> None:
    runtime = rtx.Runtime(log)
    engine = runtime.deserialize_cuda_engine(plan())
    config = engine.create_runtime_config()
    config.set_execution_context_allocation_strategy(rtx.ExecutionContextAllocationStrategy.STATIC)
    config.set_runtime_cache(config.create_runtime_cache())
    run = Run(engine, engine.create_execution_context(config))
    assert not run.context.is_stream_capturable(run.stream.handle)
    assert run.enqueue()
    run.check()
    assert run.context.is_stream_capturable(run.stream.handle)


def test_an_enqueue_fails_when_told_to(log) -> None:
    run = Run(engine_from(log))
    standin.fail_enqueue(after=1)
    assert [run.enqueue() for _ in range(3)] == [True, False, True]
    assert "wants this enqueue to fail" in log.errors[-1]


def test_two_threads_on_one_context_are_noticed(log, gpu) -> None:
    run = Run(engine_from(log))
    inside, leave = threading.Event(), threading.Event()

    class Slow(trt.IProfiler):
        def report_layer_time(self, layer_name: str, ms: float) -> None:  # noqa: ARG002
            inside.set()
            leave.wait(10)

    run.context.profiler = Slow()
    handle = ctypes.c_void_p()
    control.driver().cuCtxGetCurrent(ctypes.byref(handle))

    def enqueue() -> None:
        control.driver().cuCtxPushCurrent_v2(handle)
        run.context.execute_async_v3(run.stream.handle)
        control.driver().cuCtxPopCurrent_v2(None)

    thread = threading.Thread(target=enqueue)
    thread.start()
    assert inside.wait(10)
    run.context.set_input_shape("image", (2, 3))
    leave.set()
    thread.join()
    assert standin.mistakes() == {"shared_contexts": 1}
    gpu.allow_mistakes()


def test_a_thousand_inferences_leave_nothing(log) -> None:
    run = Run(engine_from(log))
    for _ in range(1000):
        assert run.enqueue()
    run.check()
    assert control.calls("cuMemAlloc") == 4
