"""Load on a Triton server, from the client's side: how long requests take, whether any fails, whether memory grows.

`python scripts/serve_load.py [SECONDS]` exports the newest bundle of the demo, starts a server on the loopback, and
prints a row for one client and one for eight.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import triton_server
from numpy.typing import NDArray

from trtpost.bundle.folder import load_bundle, newest_bundle
from trtpost.triton.export import export_triton

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Load:
    """What the clients saw.

    Attributes:
        milliseconds: of every answered request.
        seconds: from the first request to the last answer.
        errors: sentences of those that failed.
        grown: bytes by which the server and its children grew from a quarter of the time on.
    """

    milliseconds: NDArray[np.float64]
    seconds: float
    errors: tuple[str, ...]
    grown: int

    def row(self) -> str:
        """One line for people."""
        p50, p95, p99 = np.percentile(self.milliseconds, (50, 95, 99))
        return (
            f"{len(self.milliseconds)} requests in {self.seconds:.1f} s: {len(self.milliseconds) / self.seconds:.1f} a "
            f"second; p50 {p50:.1f} ms, p95 {p95:.1f}, p99 {p99:.1f}; {len(self.errors)} errors; "
            f"memory {self.grown / 2**20:+.1f} MiB"
        )


def ask(client: object, model: str, photo: bytes, output: str = "png") -> NDArray[np.generic]:
    """One request: the content of a photo's file to `mask` [1, H, W], or to `png` [1, 1]."""
    from tritonclient import http

    given = http.InferInput("photo", [1, 1], "BYTES")
    given.set_data_from_numpy(np.array([[photo]], np.object_))
    answer = client.infer(model, [given], outputs=[http.InferRequestedOutput(output)])  # type: ignore[attr-defined]
    found: NDArray[np.generic] = answer.as_numpy(output)
    return found


def load(address: str, process: int, model: str, photos: Sequence[bytes], *, clients: int, seconds: float) -> Load:
    """Have so many clients ask for masks for so long, each as soon as it has its last answer."""
    from tritonclient import http

    times: list[float] = []
    errors: list[str] = []
    start = time.perf_counter()

    def work(number: int) -> None:
        client = http.InferenceServerClient(address, network_timeout=120, connection_timeout=120)
        turn = number
        while time.perf_counter() < start + seconds:
            before = time.perf_counter()
            try:
                ask(client, model, photos[turn % len(photos)])
            except Exception as error:
                errors.append(str(error) or type(error).__name__)
            else:
                times.append(1000 * (time.perf_counter() - before))
            turn += 1
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 4)
    warm = memory(process)
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    return Load(np.array(times), elapsed, tuple(errors), memory(process) - warm)


def memory(process: int) -> int:
    """Resident bytes of a process and its children, from /proc."""
    total, waiting = 0, [process]
    while waiting:
        folder = Path("/proc") / str(waiting.pop())
        try:
            status = (folder / "status").read_text()
            children = [task.read_text() for task in folder.glob("task/*/children")]
        except OSError:  # it has ended
            continue
        total += next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS")), 0)
        waiting += [int(child) for text in children for child in text.split()]
    return total


def main() -> int:
    """Run it; returns the exit status."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    bundle = load_bundle(newest_bundle(ROOT / "demo"))
    photo = (ROOT / "models" / "example.jpg").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        export_triton(bundle, repository, name="demo")
        with triton_server.running(repository, Path(folder) / "log.txt") as (address, process):
            load(address, process, "demo", [photo], clients=1, seconds=2)
            for clients in (1, 8):
                result = load(address, process, "demo", [photo], clients=clients, seconds=seconds)
                print(f"{clients} client{'s' if clients > 1 else ''}: {result.row()}")
                if result.errors:
                    print(result.errors[0], file=sys.stderr)
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
