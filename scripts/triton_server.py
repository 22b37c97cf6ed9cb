"""A real Triton server for tests and the demo: taken out of a Python package, run on the loopback.

The wheel of `nvidia-pytriton` (Linux, x86-64) carries `tritonserver` 2.51 with its Python backend. Only its files are
used. That backend was compiled for NumPy 1: with NumPy 2 it takes every tensor to be empty, without a word. So the
server's Python gets a NumPy 1 of its own, in front of this environment's packages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

WHEEL, NUMPY = "nvidia-pytriton==0.7.0", "numpy<2"
FOLDER = Path(__file__).parents[1] / "build" / "triton"


def install() -> Path:
    """The folder with the server, downloaded if it is not there yet.

    Raises:
        RuntimeError: there is no such wheel for this platform, or it cannot be downloaded.
    """
    packages = sysconfig.get_path("purelib")
    made_of = f"{WHEEL} {NUMPY} {packages}"
    ready = FOLDER / "ready"
    if ready.is_file() and ready.read_text("utf-8") == made_of:
        return FOLDER
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    _pip("download", "--no-deps", "--only-binary=:all:", WHEEL, "--dest", str(FOLDER))
    environment = FOLDER / "environment"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    _pip("install", "--no-deps", "--only-binary=:all:", NUMPY, "--target", str(site))
    (site / "packages.pth").write_text(f"import site; site.addsitedir({packages!r})\n", encoding="utf-8")
    (wheel,) = FOLDER.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(FOLDER)
    wheel.unlink()
    server = FOLDER / "pytriton" / "tritonserver"
    python = FOLDER / "backends" / "python"
    python.parent.mkdir()
    (server / "backends" / "python").rename(python)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (server / "python_backend_stubs" / version / "triton_python_backend_stub").rename(
        python / "triton_python_backend_stub"
    )
    for program in (server / "bin" / "tritonserver", python / "triton_python_backend_stub"):
        program.chmod(0o755)
    ready.write_text(made_of, "utf-8")
    return FOLDER


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"pip cannot {arguments[0]}: {finished.stderr.strip().splitlines()[-1]}")


@contextlib.contextmanager
def running(repository: Path, log: Path, *, poll: bool = False) -> Iterator[tuple[str, int]]:
    """A server of a model repository: its address `HOST:PORT` for HTTP, and its process id; it ends with the block.

    Args:
        repository: of the models.
        log: file for what the server says.
        poll: look for new versions once a second.

    Raises:
        RuntimeError: the server ends instead of becoming ready; the message holds the end of its log.
    """
    folder = install()
    http, metrics = _free_port(), _free_port()
    libraries = [str(folder / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]),
        # the backend's Python finds its packages by the environment that comes first on the path
        "PATH": f"{folder / 'environment' / 'bin'}:{os.environ.get('PATH', '')}",
    }
    command = [
        str(folder / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={folder / 'backends'}",
        *("--allow-grpc=false", "--http-address=127.0.0.1", f"--http-port={http}"),
        *("--metrics-address=127.0.0.1", f"--metrics-port={metrics}"),
        "--exit-timeout-secs=3",
        *(("--model-control-mode=poll", "--repository-poll-secs=1") if poll else ()),
    ]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        try:
            _wait_until_ready(process, http, log)
            yield f"127.0.0.1:{http}", process.pid
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            lines = log.read_text("utf-8", "replace").splitlines()
            tail = "\n".join([line for line in lines if line.startswith(("E", "error"))][-5:] or lines[-5:])
            raise RuntimeError(f"tritonserver ended with status {process.returncode}:\n{tail}")
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"tritonserver is not ready after a minute: see {log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
