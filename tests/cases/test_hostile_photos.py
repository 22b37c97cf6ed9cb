"""Small files that would cost minutes or gigabytes: each is refused in a sentence, or held within a limit."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from nets import nchw, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.errors import ImageError
from trtpost.photos import cost, rgb
from trtpost.photos.admission import Admission, weight_of
from trtpost.photos.read import read_photo

CPU_SECONDS = 20
"""For a process that imports trtpost and does what must be cheap: ten times of what was seen."""


def limited(code: str, *arguments: object, seconds: int = CPU_SECONDS, gigabytes: float = 4) -> str:
    """What a program prints in a process that ends when it takes more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 1e9),) * 2)

    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.strip()


READ = """
import sys
from trtpost.errors import ImageError
from trtpost.photos.admission import weight_of
from trtpost.photos.read import read_photo
weight_of(sys.argv[1], 0)
try:
    print(read_photo(sys.argv[1]).shape)
except ImageError as error:
    print(error)
"""


def encoded(kind: str, mode: str = "RGB", size: tuple[int, int] = (64, 48), **options: object) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def rle_bmp(side: int) -> bytes:
    """A BMP of run lengths whose pixels are nearly all skipped."""
    skips = b"\0\2\0\xff" * (side // 255) + b"\0\2\0" + bytes([side % 255]) + b"\0\1"
    header = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, 0, 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(skips), 0, 0, 1078) + header + bytes(1024) + skips


def progressive(scans: int, size: tuple[int, int] = (64, 48)) -> bytes:
    """A JPEG whose first scan is repeated."""
    whole = encoded("JPEG", size=size, progressive=True)
    start = whole.index(b"\xff\xda")
    length = struct.unpack_from(">H", whole, start + 2)[0]
    return whole[:start] + whole[start : start + 2 + length] * (scans - whole.count(b"\xff\xda")) + whole[start:]


def tiff(pieces: int) -> bytes:
    """A TIFF of one row a strip."""
    entries = [(256, 3, 1, 1), (257, 4, 1, pieces), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    end = 8 + 2 + 9 * 12 + 4
    entries += [(273, 4, pieces, end), (277, 3, 1, 1), (278, 4, 1, 1), (279, 4, pieces, end + 4 * pieces)]
    directory = struct.pack("<H", 9) + b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    offsets = np.full(pieces, 8, "<u4").tobytes()
    return b"II*\0" + struct.pack("<I", 8) + directory + offsets + np.ones(pieces, "<u4").tobytes()


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(extra: bytes) -> bytes:
    whole = encoded("PNG")
    return whole[:33] + extra + whole[33:]


def gif(comments: int) -> bytes:
    whole = encoded("GIF", "P")
    start = 13 + (3 << ((whole[10] & 7) + 1) if whole[10] & 0x80 else 0)
    return whole[:start] + b"\x21\xfe" + (b"\xff" + b"c" * 255) * comments + b"\0" + whole[start:]


def jpeg(extra: bytes) -> bytes:
    whole = encoded("JPEG")
    return whole[:2] + extra + whole[2:]


def jpeg2000(layers: int, tile: int = 64) -> bytes:
    whole = bytearray(encoded("JPEG2000"))
    siz = whole.index(b"\xff\x4f\xff\x51")
    whole[siz + 24 : siz + 32] = struct.pack(">II", tile, tile)
    cod = whole.index(b"\xff\x52")
    whole[cod + 6 : cod + 8] = struct.pack(">H", layers)
    return bytes(whole)


HOSTILE = {
    "rle": (lambda: rle_bmp(13_000), "in run lengths"),
    "scans": (lambda: progressive(1000, (4000, 4000)), "201 scans"),
    "scanned": (lambda: progressive(60, (13_000, 8_000)), "scans or more"),
    "fill": (lambda: jpeg(b"\xff" * 50_000_000), "mean nothing"),
    "segments": (lambda: jpeg(b"\xff\xfe\0\2" * 5_000_000), "10000 segments"),
    "pnm comment": (lambda: b"P6\n#" + b"c" * 40_000_000 + b"\n1 1\n255\n\0\0\0", "bytes before its pixels"),
    "pnm comments": (lambda: b"P5\n" + b"#\n" * 20_000_000 + b"1 1\n255\n\0", "bytes before its pixels"),
    "pnm spaces": (lambda: b"P6" + b" " * 40_000_000 + b"1 1\n255\n\0\0\0", "bytes before its pixels"),
    "pbm spaces": (lambda: b"P4" + b" " * 40_000_000 + b"1 1\n\0", "bytes before its pixels"),
    "pnm text": (lambda: b"P3 1000 9000 255\n" + b"1 " * 27_000_000, "pixels as text"),
    "pnm samples": (lambda: b"P6 5000 5000 254\n" + bytes(75_000_000), "75 million samples that are no bytes"),
    "strips": (lambda: tiff(5_000_000), "5000000 strips"),
    "png chunks": (lambda: png(chunk(b"teST") * 3_000_000), "10000 pieces"),
    "gif comments": (lambda: gif(200_000), "before its first frame"),
    "jp2 layers": (lambda: jpeg2000(65_535), "65535 layers"),
    "jp2 boxes": (lambda: encoded("JPEG2000")[:12] + b"\0\0\0\x08free" * 5_000_000, "10000 boxes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_minutes_is_refused(tmp_path, name):
    """In a moment, for its header says it; the same when only the size in the header is asked for."""
    content, said = HOSTILE[name]
    (tmp_path / "photo").write_bytes(content())
    assert said in limited(READ, tmp_path / "photo")


SOUND = {
    "rle": lambda: rle_bmp(600),
    "scans": lambda: encoded("JPEG", progressive=True),
    "thirty scans": lambda: progressive(30),
    "fill": lambda: jpeg(b"\xff" * 1000),
    "segments": lambda: jpeg((b"\xff\xe2" + struct.pack(">H", 65_535) + b"p" * 65_533) * 40),
    "pnm comment": lambda: b"P6\n#" + b"c" * 10_000 + b"\n200 200\n255\n" + bytes(120_000),
    "pgm that starts like a comment": lambda: b"P5\n400 400\n255\n" + b"#" * 160_000,
    "pnm samples": lambda: b"P6 200 200 254\n" + bytes(120_000),
    "pgm of 16 bits": lambda: b"P5 400 400 65535\n" + bytes(320_000),
    "pbm": lambda: b"P4\n1000 1000\n" + b"#" * 125_000,
    "pnm text": lambda: b"P3 100 100 255\n" + b"1 " * 30_000,
    "strips": lambda: tiff(60_000),
    "png chunks": lambda: png(chunk(b"teST") * 1000),
    "gif comments": lambda: gif(100),
    "jp2": lambda: encoded("JPEG2000", quality_layers=[40, 20, 10]),
    "jp2 tiles": lambda: encoded("JPEG2000", tile_size=(16, 16)),
    "tiff": lambda: encoded("TIFF", compression="tiff_lzw"),
    "webp": lambda: encoded("WEBP"),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_photos_have_is_taken(name):
    """The other side of each limit."""
    content = SOUND[name]()
    assert cost.check_cost(content)
    if name not in ("thirty scans",):  # a scan that is repeated is damage to the decoder, but not to the limit
        assert read_photo(content).ndim == 3
    weight = weight_of(content, -1)
    assert weight > 0


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "RGB", "I;16"])
def test_strips_change_nothing(monkeypatch, mode):
    """Large photos are converted in strips, so that no step holds the whole once more."""
    size, stream = (37, 53), io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    image = Image.fromarray(pixels)
    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 251) if mode == "I;16" else image.convert(mode)
    image.save(stream, "PNG")
    whole = read_photo(stream.getvalue())
    monkeypatch.setattr(rgb, "STRIP_PIXELS", 100)
    assert np.array_equal(read_photo(stream.getvalue()), whole)


def test_pixels_wait_for_each_other():
    """What fits goes in, what does not waits, and what never will is an error."""
    admission, inside, together = Admission(10_000), [0], []

    def run() -> None:
        with admission(content):
            inside[0] += 1
            together.append(inside[0])
            threading.Event().wait(0.01)
            inside[0] -= 1

    content = encoded("PNG")  # 3,072 pixels
    threads = [threading.Thread(target=run) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(together) == 12
    assert max(together) <= 3
    with pytest.raises(ImageError, match="raise --max-pixels"), Admission(3000)(content):
        pass
    with pytest.raises(ImageError, match=r"counts 0\.0 million"), Admission(9000)(encoded("WEBP")):
        pass
    with Admission(1)(b"no image"):  # its header does not tell: it runs alone, and is refused by who reads it
        pass


FOLDER = """
import resource, sys
from pathlib import Path
from trtpost.jobs.paths import plan_jobs
from trtpost.jobs.run import run_all
from trtpost.photos.find import find_photos
from trtpost.segment import Segmenter
with Segmenter(sys.argv[1], threads=2) as segmenter:
    outcomes, _ = run_all(segmenter, plan_jobs(find_photos([Path(sys.argv[2])]), Path(sys.argv[3]), overlay=False),
                          threads=2)
print(sum(one.error is None for one in outcomes), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
for one in outcomes:
    if one.error:
        print(one.error)
"""


@pytest.mark.parametrize(("side", "fine"), [(7_700, 6), (13_300, 0)])
def test_a_folder_of_bombs_takes_two_gigabytes(tmp_path, side, fine):
    """Six WebP files that are one pixel in their code: the largest that are taken, and larger ones."""
    bundle = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "net.trtpost", flavour="none", normalize="unit")
    stream, photos = io.BytesIO(), tmp_path / "photos"
    Image.new("RGB", (side, side)).save(stream, "WEBP", lossless=True)
    photos.mkdir()
    for index in range(6):
        (photos / f"{index}.webp").write_bytes(stream.getvalue())
    done, *rest = limited(FOLDER, bundle.path, photos, tmp_path / "out", seconds=300, gigabytes=16).splitlines()
    count, kilobytes = map(int, done.split())
    assert count == fine
    assert kilobytes < 2_000_000
    assert all("raise --max-pixels" in line for line in rest)


def test_requests_that_a_server_joins_go_in_groups():
    """Those that follow each other while their pixels are within the limit, those that come decoded among them."""
    from trtpost.triton.backend import _groups, _weighed

    assert list(_groups([5, 5, 5, 0, 11, 1], 11)) == [(0, 2), (2, 4), (4, 5), (5, 6)]
    assert list(_groups([], 11)) == []
    small = encoded("PNG")
    assert _weighed([small, small], 6144) == ([small, small], 6144)
    refused, weight = _weighed([small, small], 6143)
    assert isinstance(refused, ImageError)
    assert weight == 0
    pixels = np.zeros((60, 50, 3), np.uint8)
    assert _weighed([pixels, small], 6144)[1] == 3000 + 3072
    assert isinstance(_weighed([pixels, pixels, small], 6144)[0], ImageError)
