"""Optional packages: is one installed, in which version, and how to get it."""

from __future__ import annotations

import importlib
import shlex
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trtpost.errors import MissingPackageError

if TYPE_CHECKING:
    from importlib.metadata import Distribution


@cache
def installed_version(module: str) -> str | None:
    """Version of the package that brings a module, under whichever name it was installed; None where it is missing."""
    if find_spec(module) is None:
        return None
    found = packages_of(module)
    return found[0].version if found else "unknown version"


@cache
def packages_of(module: str) -> tuple[Distribution, ...]:
    """The installed packages that bring a module.

    Most are called like it, with an addition or without: `packages_distributions`, which reads the list of files of
    all that is installed, takes longer than a photo.
    """
    from importlib.metadata import Distribution, distribution, packages_distributions

    folders = (folder for entry in sys.path for folder in Path(entry).glob(f"{module}*.dist-info"))
    alike = tuple(one for one in map(Distribution.at, folders) if _brings(one, module))
    return alike or tuple(map(distribution, packages_distributions().get(module, ())))


def _brings(package: Distribution, module: str) -> bool:
    stated = package.read_text("top_level.txt")
    if stated is not None:
        return module in stated.split()
    return any(line.startswith(f"{module}/") for line in (package.read_text("RECORD") or "").splitlines())


def require(module: str, extra: str | None, purpose: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: what is imported.
        extra: the one of ours that brings it; None: none does, because only benchmarks against it want it.
        purpose: what needs it.

    Raises:
        MissingPackageError: the package is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise MissingPackageError(
            f"{purpose} needs the package {module.split('.', maxsplit=1)[0]}: "
            + (installation(extra) if extra else f"pip install {_RIVALS.get(module, module)}")
        ) from None


def installation(extra: str) -> str:
    """The command that installs what an extra of ours stands for, here and now, wherever trtpost came from."""
    if extra == "gpu":
        return "trtpost doctor --fix"
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    needed = [Requirement(text) for text in requires("trtpost") or ()]
    wanted = [one for one in needed if one.marker and one.marker.evaluate({"extra": extra})]
    alone = [one for one in wanted if not one.marker.evaluate({"extra": ""})]  # type: ignore[union-attr]
    names = " ".join(f"'{one.name}{_in_brackets(one.extras)}{one.specifier}'" for one in alone)
    return f"pip install {names}{INDEXES.get(extra, '')}"


def pip_here() -> str:
    """The command of the pip that installs into the environment which runs this, whichever the shell's is."""
    try:
        python = str(Path(sys.executable).relative_to(Path.cwd()))
    except (ValueError, OSError):
        python = sys.executable
    return f"{shlex.quote(python)} -m pip"


_RIVALS = {"cv2": "opencv-python-headless"}
"""Packages that are not called like their modules."""

INDEXES = {"tensorrt": " --extra-index-url https://pypi.nvidia.com"}
"""Options of the command that installs an extra whose libraries are not on the usual index."""


def _in_brackets(extras: set[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""
