"""A real browser for the reports: headless Chromium, as Debian packages it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from conftest import skip

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,1600"),
)


def chromium(page: Path, *arguments: str) -> str:
    """Open a page; what Chromium prints, or a skip where there is none."""
    program = shutil.which("chromium")
    if program is None:
        skip("chromium is not installed (apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [program, *FLAGS, f"--user-data-dir={profile}", *arguments, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    return done.stdout
