"""How far a build is, and stopping it, without TensorRT."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from trtpost.backends.tensorrt.monitor import Phases, interruptible


def phases():
    heard = []
    return Phases(lambda fraction, what: heard.append((round(fraction, 3), what))), heard


def test_phases_inside_phases_make_one_growing_number():
    build, heard = phases()
    build.phase_start("Building", None, 4)
    assert build.step_complete("Building", 0)
    build.phase_start("Timing", "Building", 2)
    build.phase_start("Kernels", "Timing", 5)
    assert build.step_complete("Kernels", 4)
    build.phase_finish("Kernels")
    assert build.step_complete("Timing", 0)
    build.phase_start("Kernels", "Timing", 10)  # the same name again
    build.phase_finish("Kernels")
    build.phase_finish("Timing")  # before its last step: allowed
    assert build.step_complete("Building", 3)
    build.phase_finish("Building")
    assert heard == [
        (0.0, "Building"),
        (0.25, "Building"),
        (0.25, "Timing"),
        (0.25, "Kernels"),
        (0.375, "Kernels"),
        (0.375, "Timing"),
        (0.375, "Kernels"),
        (1.0, "Building"),
    ]


def test_phases_that_were_never_announced_do_no_harm():
    build, heard = phases()
    assert build.step_complete("unknown", 3)
    build.phase_finish("unknown")
    build.phase_start("empty", None, 0)
    assert build.step_complete("empty", 7)
    assert heard[-1] == (1.0, "empty")


def test_stopping_answers_false():
    build, _ = phases()
    build.phase_start("Building", None, 4)
    build.stop()
    assert not build.step_complete("Building", 0)


def test_a_fault_in_the_display_ends_the_build_and_is_kept():
    def broken(*_):
        raise BrokenPipeError

    build = Phases(broken)
    build.phase_start("Building", None, 4)
    assert not build.step_complete("Building", 0)
    assert isinstance(build.failure, BrokenPipeError)


def test_a_result_or_an_exception_comes_back():
    assert interruptible(threading.current_thread, pytest.fail) is not threading.current_thread()
    stopped = []
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0, lambda: stopped.append(True))


def test_an_interrupt_arrives_while_the_work_goes_on():
    stop = threading.Event()
    ended = threading.Event()

    def work():
        stop.wait(10)
        time.sleep(0.3)  # a native call that cannot be cut short
        ended.set()

    threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        start = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            interruptible(work, stop.set)
        assert time.perf_counter() - start < 5
        assert stop.is_set()
        assert not ended.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.wait(5)
