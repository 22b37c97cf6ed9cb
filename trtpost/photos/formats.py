"""Which formats are decoded, told by their first bytes; Pillow is made ready for them here, and silent."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import logging
import threading
import warnings

from PIL import Image, _imaging

from trtpost.packages import installation
from trtpost.photos.strangers import START, stranger_in_text

FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, by Pillow's names. The decoders of its other formats are old, rarely tested, or other programs
(EPS runs Ghostscript); some have no signature, so that any file may pass for one."""

TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG",),
    "GIF": (b"GIF8",),
    "TIFF": TIFF_SIGNATURES,
    "WEBP": (b"RIFF",),
    "BMP": (b"BM",),
    "JPEG2000": (b"\0\0\0\x0cjP", b"\xffO\xffQ"),
}
_COMMON = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"P5", b"P6")
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")

logging.getLogger("PIL").addHandler(logging.NullHandler())  # what is wrong with a photo is said by an `ImageError`


def decoders(content: bytes) -> list[str]:
    """The names of those `FORMATS` that Pillow has here; makes libtiff silent, and HEIC known, before their first."""
    if content.startswith(_COMMON):
        Image.preinit()  # half of the time that all formats take, for which the first photo waits
    else:
        Image.init()
    if _is_heic(content):
        _register_heif()
    elif content.startswith(TIFF_SIGNATURES):
        silence_libtiff()
    return [name for name in FORMATS if name in Image.OPEN]


def unidentified(content: bytes) -> str:
    """What is wrong with a file that none of the decoders takes, without its subject."""
    Image.init()
    if _is_heic(content) and "HEIF" not in Image.OPEN:
        return f"is HEIC, which needs a decoder: {installation('heic')}, or convert it to JPEG"
    for format_name, signatures in _SIGNATURES.items():
        if content.startswith(signatures) and format_name in Image.OPEN:
            return f"is damaged, cut short, or a kind of {format_name} that Pillow does not decode: save it as PNG"
    if said := stranger_in_text(content[:START]):
        return said
    names = ", ".join(name for name in FORMATS if name in Image.OPEN or name == "HEIF")
    return f"is not an image in a format that is read here ({names}): save it as PNG or JPEG"


def _is_heic(content: bytes) -> bool:
    """HEIF as phones write it; AVIF is another brand of the same container, or names itself among the compatible."""
    box = content[: int.from_bytes(content[:4], "big")][:256]
    return content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS and b"avif" not in box


@functools.cache
def _register_heif() -> None:
    if "HEIF" not in Image.OPEN:
        with contextlib.suppress(ImportError):
            importlib.import_module("pi_heif").register_heif_opener()


@functools.cache
def silence_libtiff() -> None:
    """Keep libtiff from writing to stderr by itself; what it cannot decode is an error of Pillow's as well."""
    with contextlib.suppress(OSError, AttributeError):  # linked in another way
        library = ctypes.CDLL(_imaging.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            function = getattr(library, name)
            function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_void_p
            function(None)


class _NoWarnings:
    """Keeps Pillow's warnings back: of large photos and odd tags; what matters is an error.

    `warnings.catch_warnings` alone would not do: in two threads, the first that leaves gives the other's warnings
    free, and the last leaves the first one's filters in place for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._caught = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._caught.__exit__(None, None, None)


no_warnings = _NoWarnings()
