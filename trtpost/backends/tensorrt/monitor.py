"""Tells how far a build is, and stops it.

TensorRT builds in native calls that may take many minutes. They run in a thread of their own, so that Ctrl-C reaches
the main thread at once, and never a callback, where TensorRT would swallow it. Between two steps TensorRT asks whether
it shall go on.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Report = Callable[[float, str], None]
"""Takes how much of the build is done, from 0 to 1, and what is being done."""


@dataclass
class _Phase:
    name: str
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """Keeps TensorRT's phases, which nest, and makes one growing number of them.

    TensorRT may call from several threads, and an exception must not reach its native code: it is kept in `failure`,
    and ends the build.
    """

    def __init__(self, report: Report) -> None:
        self.failure: BaseException | None = None
        self._report = report
        self._open: list[_Phase] = []
        self._fraction = 0.0
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Let the build end at its next step."""
        self._stopped.set()

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """A phase begins, inside another one or by itself."""
        with self._lock:
            self._open.append(_Phase(phase_name, parent_phase, max(num_steps, 1)))
        self._tell(phase_name)

    def step_complete(self, phase_name: str, step: int) -> bool:
        """A step of a phase is done; True where the build shall go on."""
        with self._lock:
            for phase in reversed(self._open):
                if phase.name == phase_name:
                    phase.done = min(step + 1, phase.steps)
                    break
        self._tell(phase_name)
        return not self._stopped.is_set()

    def phase_finish(self, phase_name: str) -> None:
        """A phase ends, with all that is open inside it."""
        with self._lock:
            for index in range(len(self._open) - 1, -1, -1):
                if self._open[index].name == phase_name:
                    del self._open[index]
                    break

    def _tell(self, what: str) -> None:
        with self._lock:
            # phases come and go, and names are used again: what is shown never goes back
            self._fraction = fraction = max(self._fraction, self._inside(None))
        try:
            self._report(fraction, what)
        except BaseException as error:
            self.failure = error
            self.stop()

    def _inside(self, parent: str | None) -> float:
        """How much of the newest phase inside `parent` is done, from 0 to 1."""
        for index in range(len(self._open) - 1, -1, -1):
            phase = self._open[index]
            if phase.parent == parent:
                if phase.done == phase.steps:
                    return 1.0
                return (phase.done + self._inside(phase.name)) / phase.steps
        return 0.0


def monitor_of(trt: Any, phases: Phases) -> Any:
    """An `IProgressMonitor` that passes what TensorRT tells on to `phases`."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # a class of whichever flavour the caller has loaded
        """Passes every call on."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.phase_start = phases.phase_start
            self.step_complete = phases.step_complete
            self.phase_finish = phases.phase_finish

    return Monitor()


def interruptible(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """Run `work` in a thread and wait for it.

    An interrupt of this thread calls `stop` and is raised at once: `work` ends by itself when TensorRT asks the next
    time, which may be seconds later. Its result is dropped.

    Raises:
        BaseException: what `work` raises, or the interrupt.
    """
    pool = concurrent.futures.ThreadPoolExecutor(1, "tensorrt-build")
    try:
        future = pool.submit(work)
        while not future.done():
            # by the tenth of a second: on Windows an endless wait is deaf to Ctrl-C
            concurrent.futures.wait([future], timeout=0.1)
        return future.result()
    except BaseException:
        stop()
        raise
    finally:
        pool.shutdown(wait=False)
