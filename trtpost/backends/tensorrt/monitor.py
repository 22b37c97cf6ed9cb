"""A build under way: how far it is, and stopping it.

TensorRT builds in one native call that may take many minutes. It runs in a thread of its own, so that Ctrl-C reaches
the main thread at once; TensorRT asks between two steps whether it shall go on.
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
    """`phases` as TensorRT takes them."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        """Passes every call on."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.phase_start = phases.phase_start
            self.step_complete = phases.step_complete
            self.phase_finish = phases.phase_finish

    return Monitor()


def interruptible(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """Run `work` in a thread; an interrupt of this one calls `stop`, waits for the end of `work`, and goes on.

    Raises:
        BaseException: what `work` raises, or the interrupt.
    """
    with concurrent.futures.ThreadPoolExecutor(1, "tensorrt-build") as pool:
        future = pool.submit(work)
        try:
            while not future.done():
                # by the tenth of a second: on Windows an endless wait is deaf to Ctrl-C
                concurrent.futures.wait([future], timeout=0.1)
        except BaseException:
            stop()
            raise
        return future.result()
