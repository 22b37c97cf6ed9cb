"""What is no photo, told by its first bytes: videos, documents, archives, cameras' raw files, models, texts."""

from __future__ import annotations

import codecs
import re
import struct

START = 4096
"""Bytes from the beginning of a file that are looked at."""

_FRAMES = "take frames out of it, with ffmpeg -i VIDEO frame%05d.png say, and give those"
_SAVE = "save it as PNG or JPEG"
_DEVELOP = "develop it, and save it as PNG, JPEG or TIFF"
_UNPACK = "unpack it, and give the photos in it"
_GIVE = "give the photo itself"
_MODEL = "give photos here, and models to trtpost build"

_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (rb"\x1aE\xdf\xa3", "a video (Matroska or WebM)", _FRAMES),
    (rb"RIFF....AVI ", "a video (AVI)", _FRAMES),
    (rb"FLV\x01", "a video (Flash)", _FRAMES),
    (rb"\0\0\x01[\xba\xb3]|G.{187}G.{187}G", "a video (MPEG)", _FRAMES),
    (rb"0&\xb2u\x8ef\xcf\x11", "a video (Windows Media)", _FRAMES),
    (rb"OggS", "a video or sound (Ogg)", _FRAMES),
    (rb"RIFF....WAVE|ID3|fLaC", "sound", _GIVE),
    (rb"%PDF-", "a document (PDF)", "save its pages as pictures, with pdftoppm -png say, and give those"),
    (rb"%!PS", "a document (PostScript)", _SAVE),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an office program", "save the pictures in it as PNG or JPEG"),
    (rb"8BPS", "a picture in layers (Photoshop)", _SAVE),
    (rb"gimp xcf", "a picture in layers (GIMP)", _SAVE),
    (rb"\xff\n|\0\0\0\x0cJXL ", "a picture in JPEG XL, which is not read here", _SAVE),
    (rb"v/1\x01", "a picture of floating point (OpenEXR)", _SAVE),
    (rb".{128}DICM", "a medical picture (DICOM)", _SAVE),
    (rb"IIRO|IIRS", "a camera's raw file (ORF)", _DEVELOP),
    (rb"IIU\0", "a camera's raw file (RW2)", _DEVELOP),
    (rb"FUJIFILMCCD-RAW", "a camera's raw file (RAF)", _DEVELOP),
    (rb"PK\x03\x04", "a ZIP archive, or a document in one", _UNPACK),
    (rb"\x1f\x8b|BZh|\xfd7zXZ\0|\(\xb5/\xfd", "compressed (gzip, bzip2, xz or Zstandard)", _UNPACK),
    (rb"7z\xbc\xaf'\x1c|Rar!\x1a\x07|.{257}ustar", "an archive (7z, RAR or tar)", _UNPACK),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file: a Keras model, or arrays", _MODEL),
    (rb"....TFL3", "a model (TFLite)", _MODEL),
    (rb"\x08[\x03-\x10](?:\x12[\0-\x40]|[:B])", "a model (ONNX)", _MODEL),
    (rb"\x93NUMPY", "an array (numpy)", "give the array to a Segmenter in Python, or save it as PNG"),
)
"""Patterns of how files begin, what these are, and what to do. None begins like a photo."""

_PHOTOS = re.compile(
    rb"\xff\xd8\xff|\x89PNG|GIF8|BM|P[1-7fF]\s|RIFF....WEBP|\0\0\0\x0cjP|\xffO\xffQ|II\+\0|MM\0\+", re.DOTALL
)
"""How the photos begin that nothing else begins like; what lies behind that may be anything."""

_TIFF = (b"II*\0", b"MM\0*")
_DNG_VERSION = 50706
"""A tag that every DNG has, and no other TIFF."""

_BOXES = (b"ftyp", b"moov", b"mdat", b"wide")
_QUICKTIME = "a video (MOV)", _FRAMES
_BRANDS = {b"qt  ": _QUICKTIME, b"crx ": ("a camera's raw file (CR3)", _DEVELOP), b"M4A ": ("sound", _GIVE)}
_PICTURES = frozenset(b"avif avis mif1 mif2 msf1 miaf heic heix heim heis hevc hevx hevm hevs".split())
"""Brands of HEIF and AVIF."""

_TEXTS: tuple[tuple[bytes, str, str], ...] = (
    (rb"version https://git-lfs", "a pointer of Git LFS", "fetch the photo with git lfs pull"),
    (rb".*<svg[\s>]", "a drawing (SVG)", "draw it as PNG, with rsvg-convert say"),
    (rb"(?i).*<(?:!doctype html|html)[\s>]", "a web page (HTML)", "load the photo again, for this came in its place"),
    (rb"\s*<\?xml", "XML", _GIVE),
    (rb"", "text", _GIVE),
)


def stranger(start: bytes) -> str | None:
    """Say what a file is that is no photo, and what to do, without its subject; None: it may be one.

    Args:
        start: its first `START` bytes.
    """
    if _PHOTOS.match(start):
        return None
    if start.startswith(_TIFF):
        raw = "CR2" if start[8:12] == b"CR\x02\0" else "DNG" if _has_tag(start, _DNG_VERSION) else ""
        return _sentence(f"a camera's raw file ({raw})", _DEVELOP) if raw else None
    return _in_boxes(start) if start[4:8] in _BOXES else _told(start, _BEGINNINGS)


def stranger_in_text(start: bytes) -> str | None:
    """As `stranger`, for texts; to be asked when no decoder takes the file, for some photos are texts (PNM)."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start)  # its last character may be cut
    except UnicodeDecodeError:
        return None
    if not text.strip() or re.search(r"[\0-\x08\x0e-\x1a\x1c-\x1f]", text) or _PHOTOS.match(start):
        return None
    return _told(start, _TEXTS)


def _told(start: bytes, table: tuple[tuple[bytes, str, str], ...]) -> str | None:
    found = next((row for row in table if re.match(row[0], start, re.DOTALL)), None)
    return _sentence(*found[1:]) if found else None


def _sentence(what: str, todo: str) -> str:
    return f"is {what}, not a photo: {todo}"


def _in_boxes(start: bytes) -> str | None:
    """As `stranger`, for what begins with a box of a length and a name: MP4, MOV and their kin, not HEIF and AVIF."""
    if start[4:8] != b"ftyp":  # QuickTime of before there were brands
        return _sentence(*_QUICKTIME)
    box = start[: min(int.from_bytes(start[:4], "big"), 256)][8:]
    brands = {box[place : place + 4] for place in range(0, len(box), 4)}
    if not brands or brands & _PICTURES:
        return None
    return _sentence(*_BRANDS.get(box[:4], ("a video (MP4)", _FRAMES)))


def _has_tag(start: bytes, wanted: int) -> bool:
    """True where the first directory of a TIFF, as far as it lies in `start`, has a tag."""
    order = "<" if start.startswith(b"II") else ">"
    if len(start) < 8:
        return False
    (place,) = struct.unpack_from(f"{order}I", start, 4)
    if place + 2 > len(start):
        return False
    (count,) = struct.unpack_from(f"{order}H", start, place)
    tags = range(place + 2, min(place + 2 + 12 * count, len(start) - 1), 12)
    return any(struct.unpack_from(f"{order}H", start, tag)[0] == wanted for tag in tags)
