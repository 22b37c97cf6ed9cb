"""Plans on the stand-in GPU: the real runtime and pycuda, with masks as ONNX Runtime and the reference make them."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from pathlib import Path

import control
import numpy as np
import onnx
import onnx.parser
import pytest
from conftest import in_threads
from nets import nchw, nhwc, save
from tensorrt import standin

from trtpost import Segmenter, cuda
from trtpost.backends.tensorrt import lane
from trtpost.backends.tensorrt.run import TensorRTEngine
from trtpost.builder.build import build
from trtpost.bundle.folder import Bundle, write_bundle
from trtpost.bundle.passport import Plan
from trtpost.errors import BackendError, ImageError
from trtpost.graph.baking.seam import split

pytestmark = pytest.mark.usefixtures("our_kernels")
SIZE = (40, 50)


def with_plan(bundle: Bundle, post: str = "native", **facts: object) -> Bundle:
    """The bundle with a plan for the stand-in TensorRT."""
    model = onnx.load(bundle.model)
    content = standin.plan(model if post == "native" else split(model)[0], **facts)
    plan = Plan("tensorrt", "11.4.0", ("8.9",), {}, {}, post)
    return write_bundle(bundle.path, model, content, replace(bundle.passport, plan=plan))


def with_content(bundle: Bundle, plan: bytes) -> Bundle:
    """The bundle with something else as its plan."""
    return write_bundle(bundle.path, onnx.load(bundle.model), plan, bundle.passport)


@pytest.fixture
def bundle_of(tmp_path):
    """A bundle of a small network, with a plan."""

    def make(model=None, post="native", **settings):
        name = f"{len(list(tmp_path.iterdir()))}"
        source = save(model or nchw(), tmp_path / f"{name}.onnx")
        return with_plan(
            build(source, tmp_path / f"{name}.trtpost", flavour="none", normalize="signed", **settings), post
        )

    return make


def photo(size=SIZE, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def repeated(segmenter, one, count):
    for _ in range(count):
        segmenter(one)


def on_cpu(bundle, *photos):
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        return [segmenter(one).mask for one in photos]


def check(bundle, *photos):
    """Masks of the GPU are those of the CPU, each time that a photo comes: first, again, and from a graph."""
    expected = on_cpu(bundle, *photos)
    with Segmenter(bundle, backend="tensorrt") as segmenter:
        for _ in range(4):
            for one, mask in zip(photos, expected, strict=True):
                np.testing.assert_array_equal(segmenter(one).mask, mask)


@pytest.mark.parametrize("post", ["native", "kernel"])
@pytest.mark.parametrize("size", ["runtime", "image", SIZE], ids=str)
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_masks_are_those_of_the_cpu(bundle_of, resize, size, post):
    for model in (nchw(), nhwc(1), nchw(batch="N")):
        check(bundle_of(model, post, resize=resize, size=size), photo(), photo(seed=1))


@pytest.mark.parametrize("post", ["native", "kernel"])
@pytest.mark.parametrize("settings", [{"match": "pil"}, {"match": "opencv"}, {"fit": "letterbox"}], ids=str)
def test_tables_and_letterboxes(bundle_of, settings, post):
    check(bundle_of(post=post, **settings), photo((60, 41)), photo((33, 90)))


def test_the_default_takes_the_gpu(bundle_of):
    bundle = bundle_of()
    with Segmenter(bundle) as segmenter:
        assert segmenter.engine == "tensorrt 11.4.0 on Stand-in GPU"
        assert segmenter.note is None
        segmenter(photo())
    assert standin.inferences() == 1


def test_stages_are_timed_and_copies_counted(bundle_of):
    with Segmenter(bundle_of(post="kernel")) as segmenter:
        for _ in range(3):
            timing = segmenter(photo()).timing
            assert min(timing.upload, timing.network, timing.argmax_resize, timing.download) > 0
            assert timing.downloaded == SIZE[0] * SIZE[1]
            assert timing.uploaded == 8 * 12 * 3 + 4 * sum(SIZE)  # pixels at network resolution, and the positions
            assert "GB/s" in timing.copies
    assert control.work().pageable_copies == 0


def test_the_second_time_is_recorded_and_the_third_a_graph(bundle_of):
    with Segmenter(bundle_of()) as segmenter:
        launches = []
        for _ in range(4):
            segmenter(photo())
            launches.append(control.work().graph_launches)
        assert launches == [0, 0, 1, 2]
        assert control.work().captures == 1


def test_many_shapes_keep_few_graphs(bundle_of):
    bundle = bundle_of(size="image")
    sizes = [(10 + step, 20) for step in range(3 * lane.GRAPHS)]
    photos = [photo(size, seed) for seed, size in enumerate(sizes)]
    expected = on_cpu(bundle, *photos)
    with Segmenter(bundle) as segmenter:
        for _ in range(3):
            for one, mask in zip(photos, expected, strict=True):
                np.testing.assert_array_equal(segmenter(one).mask, mask)
        assert control.alive().graph_execs <= lane.GRAPHS
        # the newest stay: their next run is a graph's
        before = control.work().graph_launches
        segmenter(photos[-1])
        assert control.work().graph_launches == before + 1


def test_memory_grows_and_graphs_with_old_addresses_go(bundle_of):
    bundle = bundle_of()
    small, large = photo((20, 20)), photo((200, 300))
    expected = on_cpu(bundle, small, large)
    with Segmenter(bundle) as segmenter:
        for one in (0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0):
            np.testing.assert_array_equal(segmenter([small, large][one]).mask, expected[one])


def test_results_are_independent(bundle_of):
    with Segmenter(bundle_of()) as segmenter:
        first = segmenter(photo())
        kept = first.mask.copy()
        for seed in range(1, 6):
            segmenter(photo(seed=seed))
    np.testing.assert_array_equal(first.mask, kept)


@pytest.mark.parametrize("post", ["native", "kernel"])
def test_batches(bundle_of, post):
    bundle = bundle_of(nchw(batch="N"), post)
    photos = [photo(seed=seed) for seed in range(5)] + [photo((30, 30), 9)]
    expected = on_cpu(bundle, *photos)
    with Segmenter(bundle) as segmenter:
        for _ in range(3):
            for result, mask in zip(segmenter.batch(photos), expected, strict=True):
                np.testing.assert_array_equal(result.mask, mask)


def test_ten_thousand_inferences_leak_nothing(bundle_of):
    bundle = bundle_of(post="kernel")
    photos = [photo((20 + 3 * seed, 30), seed) for seed in range(12)]
    with Segmenter(bundle) as segmenter:
        for one in photos * 3:
            segmenter(one)
        settled = control.alive()
        for count in range(10_000):
            segmenter(photos[count % 5])
        assert control.alive() == settled
        assert standin.inferences() >= 10_000
    assert control.alive().device_bytes == 0
    assert control.alive().host_bytes == 0


def test_garbage_frees_everything(bundle_of):
    segmenter = Segmenter(bundle_of(post="kernel"))
    for _ in range(3):
        segmenter(photo())
    assert control.alive().device_blocks > 0
    del segmenter
    gc.collect()
    assert control.alive().device_blocks == 0
    assert control.alive().graph_execs == control.alive().streams == control.alive().events == 0


def test_another_thread_may_free_it(bundle_of):
    holder = [Segmenter(bundle_of(post="kernel"))]
    holder[0](photo())

    def drop(_: int) -> None:
        holder.clear()
        gc.collect()

    in_threads(1, drop)
    assert control.alive().device_blocks == 0


def test_after_close_a_sentence(bundle_of):
    segmenter = Segmenter(bundle_of())
    segmenter.close()
    segmenter.close()
    with pytest.raises(BackendError, match="closed"):
        segmenter(photo())
    with Segmenter(bundle_of()) as other:
        engine = other._engine
    with pytest.raises(BackendError, match="closed"):
        engine.run(np.zeros((1, 8, 12, 3), np.uint8), SIZE, None)


def test_many_threads_use_one_segmenter(bundle_of):
    bundle = bundle_of(post="kernel")
    photos = [photo((20 + seed, 30), seed) for seed in range(6)]
    expected = on_cpu(bundle, *photos)
    with Segmenter(bundle) as segmenter:

        def work(number: int) -> None:
            for count in range(30):
                index = (number + count) % len(photos)
                np.testing.assert_array_equal(segmenter(photos[index]).mask, expected[index])

        in_threads(6, work)
        assert control.alive().streams <= 2


def test_closing_waits_for_calls_under_way(bundle_of):
    segmenter = Segmenter(bundle_of())

    def work(number: int) -> None:
        try:
            for _ in range(50):
                if number == 3:
                    segmenter.close()
                segmenter(photo())
        except BackendError as error:
            assert "closed" in str(error)  # noqa: PT017

    in_threads(4, work)


def test_closing_from_two_threads_and_closing_interrupted(bundle_of, monkeypatch):
    segmenter = Segmenter(bundle_of())
    entered, go_on, finish = threading.Event(), threading.Event(), lane.Lane._finish

    def slow(*arguments):
        entered.set()
        go_on.wait(20)
        return finish(*arguments)

    monkeypatch.setattr(lane.Lane, "_finish", slow)
    call = threading.Thread(target=lambda: segmenter(photo()))
    call.start()
    assert entered.wait(20)
    wait = segmenter._engine._state.wait
    monkeypatch.setattr(segmenter._engine._state, "wait", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        segmenter.close()
    monkeypatch.setattr(segmenter._engine._state, "wait", wait)
    closers = [threading.Thread(target=segmenter.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    go_on.set()
    for one in (call, *closers):
        one.join(20)
        assert not one.is_alive()


def test_garbage_of_one_engine_while_another_records_a_graph(bundle_of, monkeypatch):
    bundle = bundle_of(post="kernel")
    garbage = [Segmenter(bundle)]
    for _ in range(3):
        garbage[0](photo())
    with Segmenter(bundle) as segmenter:
        segmenter(photo())
        mark = cuda.Stream.mark

        def collecting(stream, index):
            if stream.is_captured:
                garbage.clear()
                gc.collect()
            mark(stream, index)

        monkeypatch.setattr(cuda.Stream, "mark", collecting)
        (expected,) = on_cpu(bundle, photo())
        for _ in range(3):
            np.testing.assert_array_equal(segmenter(photo()).mask, expected)
        assert not garbage
        assert control.work().graph_launches >= 2  # of both
        assert control.work().broken_captures == 0


@pytest.mark.parametrize(
    ("function", "after"), [("cuEventCreate", 0), ("cuEventCreate", 3), ("cuStreamCreate", 0), ("cuMemAlloc_v2", 0)]
)
def test_a_lane_that_cannot_be_made_leaves_nothing(bundle_of, function, after):
    with Segmenter(bundle_of()) as segmenter:
        for _ in range(3):
            control.fail(function, control.OUT_OF_MEMORY, after=after, times=2)
            with pytest.raises(BackendError):
                segmenter(photo())
            control.reset()
        assert control.alive().events == control.alive().streams == 0
        segmenter(photo())


STRANGERS = {
    "two outputs": """(uint8[1,8,12,3] image) => (uint8[1,8,12] mask, uint8[1,8,12] more) {
        mask = ReduceMax <keepdims = 0, axes = [3]> (image)
        more = Identity (mask)
    }""",
    "another input": """(uint8[1,8,12,3] picture) => (uint8[1,8,12] mask) {
        mask = ReduceMax <keepdims = 0, axes = [3]> (picture)
    }""",
    "float pixels": """(float[1,8,12,3] image) => (float[1,8,12] mask) {
        mask = ReduceMax <keepdims = 0, axes = [3]> (image)
    }""",
    "flat logits": """(uint8[1,8,12,3] image) => (float[1,288] logits) {
        f = Cast <to = 1> (image)
        logits = Flatten (f)
    }""",
    "whole logits": """(uint8[1,8,12,3] image) => (int32[1,8,12,3] logits) { logits = Cast <to = 6> (image) }""",
    "too few classes": """(uint8[1,8,12,3] image) => (float[1,8,12,3] logits) { logits = Cast <to = 1> (image) }""",
}


@pytest.mark.parametrize("text", STRANGERS.values(), ids=STRANGERS)
def test_a_plan_that_is_not_the_bundle_s_is_refused(bundle_of, text):
    stranger = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> stranger {text}')
    bundle = with_content(bundle_of(), standin.plan(stranger))
    with pytest.raises(BackendError, match="not the plan of this bundle"):
        TensorRTEngine(bundle)
    with Segmenter(bundle) as segmenter:
        assert segmenter.backend == "onnxruntime"
        assert "not the plan" in segmenter.note


def test_a_plan_of_another_model_is_known_by_its_name(bundle_of):
    mine, other = bundle_of(), bundle_of(nchw(), resize="bilinear")
    for bundle, name, fits in ((mine, mine, True), (mine, other, False)):
        model = onnx.load(bundle.model)
        model.graph.name = name.passport.to_name(4095)
        bundle.plan.write_bytes(standin.plan(model))
        if fits:
            TensorRTEngine(bundle).close()
        else:
            with pytest.raises(BackendError, match="not the plan of this bundle"):
                TensorRTEngine(bundle)


def test_other_contexts_of_the_process_stay_current(bundle_of):
    import pycuda.driver

    context = pycuda.driver.Device(0).retain_primary_context()
    context.push()
    try:
        with Segmenter(bundle_of()) as segmenter:
            segmenter(photo())
        assert pycuda.driver.Context.get_current() is not None
        memory = pycuda.driver.mem_alloc(100)
        memory.free()
    finally:
        pycuda.driver.Context.pop()
        context.detach()
        control.driver().cuCtxPopCurrent_v2(None)


FAULTS = {
    "memory": ("cuMemAlloc_v2", control.OUT_OF_MEMORY, "not enough memory"),
    "page-locked memory": ("cuMemHostAlloc", control.OUT_OF_MEMORY, "not enough memory"),
    "stream": ("cuStreamCreate", control.OUT_OF_MEMORY, "not enough memory|failed"),
    "upload": ("cuMemcpyHtoDAsync_v2", control.INVALID_VALUE, "failed at copying to it"),
    "download": ("cuMemcpyDtoHAsync_v2", control.INVALID_VALUE, "failed at copying from it"),
    "launch": ("cuLaunchKernel", control.LAUNCH_FAILED, "failed at launching"),
    "wait": ("cuStreamSynchronize", control.LAUNCH_FAILED, "failed at running"),
    "marks": ("cuEventRecordWithFlags", control.INVALID_HANDLE, "failed at cuEventRecord"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_sentence_and_the_next_call_is_right(bundle_of, fault):
    function, code, message = FAULTS[fault]
    bundle = bundle_of(post="kernel")
    (expected,) = on_cpu(bundle, photo())
    with Segmenter(bundle) as segmenter:
        for after in range(1 if fault == "stream" else 3):  # a lane has one stream
            control.fail(function, code, after=after, times=2)
            with pytest.raises(BackendError, match=message):
                repeated(segmenter, photo((50 + 9 * after, 60)), 4)
            control.reset()
            np.testing.assert_array_equal(segmenter(photo()).mask, expected)


def test_a_refused_enqueue_is_a_sentence(bundle_of):
    bundle = bundle_of()
    (expected,) = on_cpu(bundle, photo())
    with Segmenter(bundle) as segmenter:
        for after in (0, 1):
            standin.fail_enqueue(after)
            with pytest.raises(BackendError, match=r"tensorrt cannot run the plan: .*the test wants this"):
                repeated(segmenter, photo((after + 9, 9)), 2)
            np.testing.assert_array_equal(segmenter(photo()).mask, expected)


def test_what_cannot_be_captured_runs_without_a_graph(bundle_of):
    bundle = bundle_of()
    (expected,) = on_cpu(bundle, photo())
    with Segmenter(bundle) as segmenter:
        segmenter(photo())
        standin.fail_enqueue(1)  # the one of the recording
        for _ in range(4):
            np.testing.assert_array_equal(segmenter(photo()).mask, expected)
        assert control.work().graph_launches == 0


def test_a_lost_device_fails_with_a_sentence_each_time(bundle_of, gpu):
    gpu.allow_leaks()
    gpu.allow_mistakes()
    segmenter = Segmenter(bundle_of())
    segmenter(photo())
    control.lose()
    for _ in range(2):
        with pytest.raises(BackendError, match="the GPU failed"):
            segmenter(photo())
    control.reset()


def test_too_large_a_photo_is_refused(bundle_of):
    bundle = bundle_of(max_size=(64, 64))
    with Segmenter(bundle) as segmenter, pytest.raises(ImageError, match=r"up to 64x64 .* --max-size 64x100"):
        segmenter(photo((10, 100)))
    # a kernel after the plan takes any size
    check(bundle_of(post="kernel", max_size=(64, 64)), photo((10, 100)))


def test_layers_are_timed(bundle_of):
    with Segmenter(bundle_of()) as segmenter:
        layers = segmenter.profile(photo())
        assert layers
        assert all(milliseconds >= 0 for _, milliseconds in layers)
        (expected,) = on_cpu(segmenter.bundle, photo())
        np.testing.assert_array_equal(segmenter(photo()).mask, expected)


def test_a_plan_that_does_not_load_leaves_the_cpu(bundle_of):
    bundle = with_content(bundle_of(), b"no plan")
    with Segmenter(bundle) as segmenter:
        assert "ONNX Runtime" in segmenter.engine
        assert "cannot load" in segmenter.note
    with pytest.raises(BackendError, match=r"cannot load .* build the bundle again"):
        TensorRTEngine(bundle)


def test_a_plan_for_another_gpu_is_explained_before_it_is_loaded(bundle_of):
    bundle = bundle_of()
    control.device(compute_capability="7.5", name="Old GPU")
    with Segmenter(bundle) as segmenter:
        assert "compute capability 8.9, but Old GPU has 7.5" in segmenter.note
        assert "trtpost build" in segmenter.note
    control.installation(devices=0)
    with Segmenter(bundle) as segmenter:
        assert segmenter.note is None
    with pytest.raises(BackendError, match="sees no GPU"):
        Segmenter(bundle, backend="tensorrt")


@pytest.mark.parametrize(
    ("model", "resize", "post"),
    [
        (model, resize, post)
        for model in ("deeplabv3_257.tflite", "deeplabv3_513_uint8.tflite", "selfie_256.tflite")
        for resize in ("nearest", "bilinear")
        for post in ("native", "kernel")
        if ("513" not in model or resize == "bilinear" or post == "native")  # nearest of that one begins with labels
    ],
)
def test_real_models_and_photos(built, shared: Path, model, resize, post):
    bundle = built(model, resize=resize, flavour="none")
    bundle = with_plan(bundle, post)
    photos = [shared / "photos" / name for name in ("riders_257.jpg", "bird.bmp")]
    with Segmenter(bundle, backend="onnxruntime") as cpu, Segmenter(bundle, backend="tensorrt") as segmenter:
        for one in photos * 3:
            expected, found = cpu(one).mask, segmenter(one).mask
            if resize == "nearest":
                np.testing.assert_array_equal(found, expected)
            else:
                assert (found != expected).mean() < 1e-5  # ties within rounding
