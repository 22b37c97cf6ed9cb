"""ArgMax and Resize inside the engine: segmentation masks at the photo's resolution.

import trtpost as tp
bundle = tp.build("model.onnx")
segmenter = tp.Segmenter(bundle)
result = segmenter("photo.jpg")
result.overlay().save("overlay.png")
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtpost.builder.build import build as build
    from trtpost.builder.options import BuildOptions as BuildOptions
    from trtpost.bundle.folder import Bundle as Bundle
    from trtpost.bundle.folder import load_bundle as load_bundle
    from trtpost.errors import DoubtWarning as DoubtWarning
    from trtpost.errors import TrtpostError as TrtpostError
    from trtpost.segment import Result as Result
    from trtpost.segment import Segmenter as Segmenter

__version__: str
__all__ = ["BuildOptions", "Bundle", "DoubtWarning", "Result", "Segmenter", "TrtpostError", "build", "load_bundle"]

# ONNX Runtime reads this when it is imported: it would keep a device id and a database in the user's cache folder
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# imported at first use, so that `import trtpost` and `trtpost --help` cost nothing
_HOMES = {
    "BuildOptions": "trtpost.builder.options",
    "Bundle": "trtpost.bundle.folder",
    "DoubtWarning": "trtpost.errors",
    "Result": "trtpost.segment",
    "Segmenter": "trtpost.segment",
    "build": "trtpost.builder.build",
    "TrtpostError": "trtpost.errors",
    "load_bundle": "trtpost.bundle.folder",
}


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("trtpost")
    if name not in _HOMES:
        raise AttributeError(f"module 'trtpost' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
