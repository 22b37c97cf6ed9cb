"""A Ray cluster: one that is there, or one that is started on this machine and goes again."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtpost.cores import default_threads
from trtpost.errors import SpecError, TrtpostError, reason
from trtpost.packages import require


def ray_package() -> Any:
    ray = require("ray", "ray", "segmenting archives")
    require("ray.data", "ray", "segmenting archives")
    return ray


@contextlib.contextmanager
def cluster(address: str) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine (`local`) that goes with all its files.

    A connection that the process has already is used, and stays.

    Raises:
        TrtpostError: there is no cluster at that address.
        MissingPackageError: Ray is not installed.
    """
    ray = ray_package()
    if ray.is_initialized():
        yield
        return
    _check_address(address)
    temporary = None
    settings: dict[str, Any] = {"address": address}
    if address == "local":
        temporary = tempfile.mkdtemp(prefix="trtpost-")  # a short path: sockets lie in it
        settings |= {"num_cpus": default_threads(), "include_dashboard": False, "_temp_dir": temporary}
    try:
        try:
            ray.init(**settings, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # of several kinds
            raise TrtpostError(f"there is no Ray cluster at {address}: {reason(error)}") from None
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # the caller shows what is done
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
    finally:
        ray.shutdown()
        if temporary is not None:
            _remove(Path(temporary))


def _check_address(address: str) -> None:
    """Is there anybody at HOST:PORT? Ray would try for minutes."""
    host, separator, port = address.rpartition("://")[2].rpartition(":")
    if address in ("local", "auto"):
        return
    if not (separator and host and port.isdigit()):
        raise SpecError(
            f"a Ray cluster is given as HOST:PORT, auto (of this machine) or local (a new one), not {address}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise TrtpostError(f"there is no Ray cluster at {address}: {reason(error)}") from None


def _remove(folder: Path) -> None:
    """Remove a folder that processes on their way out may still write to."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
