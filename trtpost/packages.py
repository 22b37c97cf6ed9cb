"""Optional packages: is one installed, in which version, and how to get it."""

from __future__ import annotations

import importlib
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


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package.

    Raises:
        MissingPackageError: the package is not installed; the message names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise MissingPackageError(
            f"{purpose} needs the package {module.split('.', maxsplit=1)[0]}: pip install 'trtpost[{extra}]'"
        ) from None
