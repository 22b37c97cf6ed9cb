"""Optional packages: is one installed, in which version, and how to get it."""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from types import ModuleType

from trtpost.errors import MissingPackageError


@cache
def installed_version(module: str) -> str | None:
    """Version of the package that brings a module, under whichever name it was installed; None where it is missing."""
    if find_spec(module) is None:
        return None
    names = packages_distributions().get(module, [])
    return version(names[0]) if names else "unknown version"


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
