"""Files that are no photos are called what they are; photos are not."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from nets import nchw
from pictures import encoded
from PIL import Image

from trtpost.errors import ImageError
from trtpost.photos.read import read_photo
from trtpost.photos.strangers import START, stranger, stranger_in_text


def made(write) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def box(brand: bytes, *others: bytes) -> bytes:
    body = b"ftyp" + brand + bytes(4) + b"".join(others)
    return struct.pack(">I", len(body) + 4) + body + bytes(100)


def archive(file) -> None:
    with zipfile.ZipFile(file, "w") as one:
        one.writestr("a.txt", "a")


def tar(file) -> None:
    with tarfile.open(fileobj=file, mode="w") as one:
        one.addfile(tarfile.TarInfo("a.txt"))


STRANGERS = {
    "a video (MP4)": [box(b"isom", b"isom", b"avc1"), box(b"mp42"), box(b"M4V ")],
    "a video (MOV)": [box(b"qt  "), b"\0\0\0\x08wide" + bytes(100), b"\0\0\1\0moov" + bytes(100)],
    "a video (AVI)": [b"RIFF\n\0\1\2AVI LIST"],
    "a video (Matroska or WebM)": [b"\x1aE\xdf\xa3\x9fB\x86\x81"],
    "a video (MPEG)": [b"\0\0\x01\xba" + bytes(50), (b"G" + bytes(187)) * 3],
    "sound": [b"RIFF\n\0\1\2WAVEfmt ", b"ID3\4", box(b"M4A ")],
    "a document (PDF)": [b"%PDF-1.7\n%\xe2\xe3"],
    "a document (PostScript)": [b"%!PS-Adobe-3.0 EPSF-3.0\n"],
    "a picture in layers (Photoshop)": [b"8BPS\0\1" + bytes(200)],
    "a picture in JPEG XL, which is not read here": [b"\xff\n\xfa\x1f", b"\0\0\0\x0cJXL \r\n\x87\n"],
    "a medical picture (DICOM)": [bytes(128) + b"DICM\2\0"],
    "a camera's raw file (CR2)": [b"II*\0\x10\0\0\0CR\2\0" + bytes(100)],
    "a camera's raw file (CR3)": [box(b"crx ")],
    "a camera's raw file (DNG)": [
        encoded(Image.new("RGB", (8, 8)), "TIFF", tiffinfo={50706: b"\1\4\0\0"}),
    ],
    "a camera's raw file (ORF)": [b"IIRO\x08\0\0\0"],
    "a ZIP archive, or a document in one": [made(archive)],
    "compressed (gzip, bzip2, xz or Zstandard)": [gzip.compress(b"a")],
    "an archive (7z, RAR or tar)": [made(tar)],
    "an HDF5 file: a Keras model, or arrays": [b"\x89HDF\r\n\x1a\n" + bytes(90)],
    "a model (TFLite)": [b"\x1c\0\0\0TFL3" + bytes(90)],
    "a model (ONNX)": [nchw().SerializeToString()],
    "an array (numpy)": [made(lambda file: np.save(file, np.zeros(3)))],
    "a drawing (SVG)": [b"<svg xmlns='a'/>", b"<?xml version='1.0'?>\n<!-- a -->\n<svg width='9'/>"],
    "a web page (HTML)": [b"\n<!DOCTYPE html>\n<html lang='en'>", b"\xef\xbb\xbf<html>"],
    "XML": [b"<?xml version='1.0'?>\n<a/>"],
    "a pointer of Git LFS": [b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"],
    "text": [b"this is text", b"{}", *((more + "\u00e4" * START).encode() for more in ("", "a"))],
}


@pytest.mark.parametrize(("what", "content"), [(what, one) for what, many in STRANGERS.items() for one in many])
def test_what_is_no_photo_is_called_what_it_is(tmp_path, what, content):
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    for given, name in ((path, str(path)), (content, "the image")):
        with pytest.raises(ImageError) as caught:
            read_photo(given)
        assert str(caught.value).startswith(f"{name} is {what}, not a photo: ")


def test_a_long_video_is_not_read_and_not_called_too_large(tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(box(b"isom"))
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ImageError, match=r"is a video \(MP4\), not a photo: take frames out of it"):
        read_photo(path)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000"])
def test_photos_are_no_strangers(form):
    content = encoded(Image.new("RGB", (40, 30), (9, 99, 199)), form)
    assert stranger(content[:START]) is None
    assert stranger_in_text(content[:START]) is None
    for place, magic in ((128, b"DICM"), (257, b"ustar")):  # tiles and tags may hold anything
        assert stranger(content[:place].ljust(place, b"\0") + magic) is None


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"\0",
        b"P3 1 1 255 1 2 3",
        b"P2\n# a\n1 1 255 1",
        b"II*\0",
        b"MM\0*\xff\xff\xff\xff",
        b"II*\0\x08\0\0\0\xff\xff",
        b"RIFF\0\0\0\0WEBPVP8 ",
        b"\0\0\0\0ftyp",
        box(b"mif1", b"heic"),
        box(b"abcd", b"avif"),
        b"\x01\x02\x03\x04",
    ],
)
def test_what_may_be_a_photo_is_left_to_the_decoders(start):
    assert stranger(start) is None
    assert stranger_in_text(start) is None


def test_onnx_models_are_known_whatever_wrote_them():
    model = nchw()
    for producer in ("", "pytorch", "tf2onnx"):
        model.producer_name = producer
        assert "is a model (ONNX)" in str(stranger(model.SerializeToString()[:START]))
