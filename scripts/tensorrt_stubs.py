"""Fetch the published type stubs of TensorRT into `build/`, for mypy; `make lint` runs it.

They are kept out of the environment, because installed they would be mistaken for TensorRT itself, and they would
overwrite parts of one that is really there. As published they do not parse, which is mended here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "tensorrt-stubs==10.13.0.35.1"
FOLDER = Path(__file__).parents[1] / "build" / "tensorrt-stubs"  # on mypy_path

MENDS = (
    # a keyword is no name for a parameter
    (r"\bin: list\[", "inputs: list["),
    # a parameter without a default behind those that have one
    (r"power: Weights = None, channel_axis: int\)", "power: Weights = None, channel_axis: int = ...)"),
    # the module has a data type `bool`, which hides Python's
    (r"(->|:) bool\b", r"\1 builtins.bool"),
    (r"^import numpy\n", "import builtins\nimport numpy\n"),
    # dimensions are a sequence, though only __getitem__ says so
    (r"^class Dims:\n", "class Dims(typing.Sequence[int]):\n"),
    # any sequence will do for dimensions and values: the bindings convert it
    (r"(?<=: )(?:Dims|list\[int\])(?=[,)])", "typing.Sequence[int]"),
    # a layer that cannot be added is None, says each docstring
    (r"(    def add_\w+\(self,.*\) -> I\w+Layer):", r"\1 | None:"),
)


def main() -> None:
    """Install, mend, and move into place."""
    wanted = FOLDER / PACKAGE
    if wanted.exists():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER), PACKAGE]
    subprocess.run(command, check=True)
    stub = FOLDER / "tensorrt_bindings" / "tensorrt.pyi"
    text = stub.read_text(encoding="utf-8")
    for pattern, replacement in MENDS:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if not count:
            sys.exit(f"{PACKAGE} has nothing to mend for {pattern}")
    stub.write_text(text, encoding="utf-8")
    wanted.touch()


if __name__ == "__main__":
    main()
