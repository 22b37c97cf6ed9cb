"""Runs seeded cases in processes of their own, so that none can hang, crash, flood or silence the tests.

A case is a function at module level, `case(seed, folder)`, that mutates a file by the seed's random numbers, in a
folder of its own, and gives it to trtpost. It is sound if it returns, or raises a `TrtpostError`, and neither writes to
stdout or stderr nor leaves a temporary file. By hand: `python tests/cases/fuzzing.py FILE CASE SEED`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

TESTS = Path(__file__).parents[1]
Case = Callable[[int, Path], None]

START_SECONDS = 120
"""For a worker to start and import what the case needs."""

PATIENCE = 6


def check(case: Case, seeds: Sequence[int], *, workers: int = 2, seconds: float = 20, memory: int = 4 << 30) -> Counter:
    """Run a case once a seed; fails with a line for each seed that was not sound.

    Args:
        case: a function at module level.
        seeds: its first argument, one after the other.
        workers: processes that share the seeds.
        seconds: that one case may take of a core's time. On the clock it has `PATIENCE` times as long, since other
            programs may have the cores.
        memory: bytes that one case may have resident.

    Returns:
        How many cases were `accepted`, and how many refused by which type of `TrtpostError`.
    """
    queue: SimpleQueue[int] = SimpleQueue()
    for seed in seeds:
        queue.put(seed)
    with ThreadPoolExecutor(workers) as pool:
        shares = list(pool.map(lambda _: list(_outcomes(case, queue, seconds, memory)), range(workers)))
    found = sorted(outcome for share in shares for outcome in share)
    source, name = _address(case)
    faults = [f"{sys.executable} {__file__} {source} {name} {seed}: {fault}" for seed, _, fault in found if fault]
    assert not faults, "\n".join([f"{len(faults)} of {len(seeds)} cases are not sound", *faults])
    assert len(found) == len(seeds)
    return Counter(what for _, what, _ in found)


def _address(case: Case) -> tuple[str, str]:
    return case.__code__.co_filename, case.__name__


def _outcomes(case: Case, queue: SimpleQueue[int], seconds: float, memory: int) -> Iterator[tuple[int, str, str]]:
    """Seed, outcome and fault of each case, by one worker after another: a case may take its worker with it."""
    worker = None
    try:
        while True:
            try:
                seed = queue.get_nowait()
            except Empty:
                return
            worker = worker or _Worker(case, memory)
            answer = worker.run(seed, seconds)
            if "fault" in answer:
                worker.end()
                worker = None
            yield seed, answer.get("outcome", ""), answer.get("fault", "")
    finally:
        if worker is not None:
            worker.end()


class _Worker:
    """A process that runs cases; what it says by itself goes into a file."""

    def __init__(self, case: Case, memory: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._noise = self._folder / "noise"
        answers, theirs = os.pipe()
        self._answers = os.fdopen(answers, "rb")
        with self._noise.open("wb") as noise:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *_address(case), "--worker", str(theirs), str(memory), str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=noise,
                stderr=noise,
                pass_fds=[theirs],
            )
        os.close(theirs)
        if "ready" not in (answer := self._answer(START_SECONDS)):
            self.end()
            raise AssertionError(f"the worker does not start: {answer}")

    def run(self, seed: int, seconds: float) -> dict[str, str]:
        """Outcome or fault of one case."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n".encode())
        self._process.stdin.flush()
        return self._answer(PATIENCE * seconds, seconds)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()
        self._answers.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, seconds: float, core_seconds: float = float("inf")) -> dict[str, str]:
        end, before = time.monotonic() + seconds, _core_seconds(self._process.pid)
        while not (there := select.select([self._answers], [], [], 0.5)[0]):
            if time.monotonic() > end or _core_seconds(self._process.pid) - before > core_seconds:
                break
        if not there:
            os.kill(self._process.pid, signal.SIGABRT)  # faulthandler then writes where it hangs
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            return {"fault": f"takes too long: {self._said()}"}
        line = self._answers.readline()
        if not line:
            status = self._process.wait()
            end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            return {"fault": f"ends the process by {end}: {self._said()}"}
        answer: dict[str, str] = json.loads(line)
        return answer

    def _said(self) -> str:
        return self._noise.read_text("utf-8", "replace")[-2000:]


def _core_seconds(process: int) -> float:
    """What a process and its children have used; of all its threads together."""
    total, waiting = 0, [process]
    while waiting:
        folder = Path("/proc") / str(waiting.pop())
        with contextlib.suppress(OSError):  # it has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
            waiting += [int(one) for task in folder.glob("task/*/children") for one in task.read_text().split()]
    return total / os.sysconf("SC_CLK_TCK")


def _loaded(source: str, name: str) -> Case:
    sys.path[:0] = [str(TESTS)]
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    case: Case = getattr(module, name)
    return case


def _work(case: Case, answers: int, memory: int, home: Path) -> None:
    """A worker's life: a seed a line on stdin, an answer a line on the pipe."""
    faulthandler.enable()
    # twice of what is allowed to be resident: this only keeps a case from taking the whole machine
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + 2 * memory,) * 2)
    with os.fdopen(answers, "w", buffering=1) as pipe:
        print(json.dumps({"ready": ""}), file=pipe)
        for line in sys.stdin:
            print(json.dumps(_run(case, int(line), memory, home)), file=pipe)


def _run(case: Case, seed: int, memory: int, home: Path) -> dict[str, str]:
    import warnings

    from trtpost.errors import DoubtWarning, TrtpostError

    warnings.simplefilter("ignore", DoubtWarning)  # most of the models do not say how pixels are normalised

    folder = home / str(seed)
    folder.mkdir()
    said = os.fstat(2).st_size
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    try:
        case(seed, folder)
        outcome, message = "accepted", "ok"
    except TrtpostError as error:
        outcome, message = type(error).__name__, str(error)
    except BaseException:
        return {"fault": traceback.format_exc()[-3000:]}
    sys.stdout.flush()
    if not message or len(message) > 1000:
        return {"fault": f"a message of {len(message)} characters: {message[:200]}"}
    if os.fstat(2).st_size > said:
        return {
            "fault": "writes to stdout or stderr: "
            + (home / "noise").read_bytes()[said:][:1000].decode(errors="replace")
        }
    if (peak := _status("VmHWM")) > memory:
        return {"fault": f"takes {peak >> 20} MiB of memory"}
    if left := [str(path) for path in folder.rglob(".*")]:
        return {"fault": f"leaves {left}"}
    shutil.rmtree(folder, ignore_errors=True)
    return {"outcome": outcome}


def _status(key: str) -> int:
    """An entry of /proc/self/status, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[key].split()[0]) << 10


if __name__ == "__main__":
    _source, _name, *_rest = sys.argv[1:]
    if _rest[0] == "--worker":
        _work(_loaded(_source, _name), int(_rest[1]), int(_rest[2]), Path(_rest[3]))
    else:
        with tempfile.TemporaryDirectory() as _folder:
            _loaded(_source, _name)(int(_rest[0]), Path(_folder))
