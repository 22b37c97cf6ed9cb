"""What surrounds the mask, measured: decoding, scaling, PNG, and the whole pipeline; writes docs/pipeline.md.

A quarter of an hour on two cores.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "models"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import scenes  # noqa: E402

from trtpost import BuildOptions, Segmenter, build  # noqa: E402
from trtpost.bench.measure import machine, medians  # noqa: E402
from trtpost.bench.output import shown  # noqa: E402
from trtpost.bench.picture import write_photo  # noqa: E402
from trtpost.bench.pipeline import bench_pipeline  # noqa: E402
from trtpost.bench.post import make_logits  # noqa: E402
from trtpost.bench.tables import pipeline_grids, pipeline_title  # noqa: E402
from trtpost.kernels.reference import bilinear  # noqa: E402
from trtpost.masks import png  # noqa: E402
from trtpost.masks.png import palette  # noqa: E402
from trtpost.photos.read import read_photo, read_reduced  # noqa: E402
from trtpost.photos.scale import scaled  # noqa: E402
from trtpost.spec import Post  # noqa: E402

SIZE = (3024, 4032)
SCENE_SEEDS = (42, 43, 44, 45)
ROUNDS = 15

HEAD = """# Photo file to mask file: what was measured, and what was decided

Written by `python scripts/bench_files.py`. Everybody in one process, in turn, medians; {machine}.
The machine is shared: single figures wander by a third, ratios are steadier.

"""


def main() -> int:
    """Measure everything; returns the exit status."""
    target = ROOT / "docs" / "pipeline.md"
    text = HEAD.format(machine=machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        street = folder / "street.jpg"
        image, _ = scenes.draw(scenes.random_scene(SCENE_SEEDS[0]), *SIZE)
        Image.fromarray(image).save(street, quality=90)
        bundles = {
            resize: build(
                ROOT / "models" / "scenes.keras",
                folder / f"{resize}.trtpost",
                BuildOptions(flavour="none", resize=resize),
            )
            for resize in ("nearest", "bilinear")
        }
        masks = {f"street, {resize}": Segmenter(bundle)(street).mask for resize, bundle in bundles.items()}
        masks["19 classes, smooth, bilinear"] = _smooth_mask()
        masks["street, nearest, two classes"] = (masks["street, nearest"] > 3).astype(np.uint8)
        sections = [_whole(bundles["nearest"], street)]
        sections += [_decoding(street), _fast_decode(bundles["nearest"], folder)]
        sections += [_scaling(read_photo(street)), _encoding(masks)]
    target.write_text(text + "\n".join(sections), encoding="utf-8")
    print(target.read_text(encoding="utf-8"))
    return 0


# --- the whole


def _whole(bundle: Any, street: Path) -> str:
    source = ROOT / "models" / "scenes.keras"
    drawn = bench_pipeline(bundle, source, image=street, megapixels=(), rounds=ROUNDS)
    growing = bench_pipeline(bundle, source, megapixels=(1, 12, 50, 100), rounds=5)
    lines = [_text(pipeline_title(drawn)), _text(shown(pipeline_grids(drawn)))]
    lines += ["", _text(shown(pipeline_grids(growing)))]
    return (
        "## The whole\n\n`trtpost bench pipeline models/scenes.keras --image street.jpg`, a street drawn at 12 "
        "megapixels; then `--megapixels 1,12,50,100`, pictures as full of detail as photos. `pixels as ours` is no "
        "error of anybody's: OpenCV and PyTorch have nearest conventions of their own, and TensorFlow decodes JPEGs "
        "with another DCT.\n\n```\n" + "\n".join(lines) + "\n```\n"
    )


def _text(what: Any) -> str:
    stream = io.StringIO()
    Console(file=stream, width=180, highlight=False).print(what)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


# --- decoding


def _decoding(street: Path) -> str:
    import cv2
    import tensorflow as tf

    contents = {"drawn street": street.read_bytes()}
    with tempfile.TemporaryDirectory() as folder:
        detailed = Path(folder) / "detailed.jpg"
        write_photo(detailed, SIZE, None)
        contents["full of detail"] = detailed.read_bytes()
    ways: dict[str, Callable[[bytes], Any]] = {
        "Pillow, `np.asarray(image.convert('RGB'))`": lambda b: np.asarray(Image.open(io.BytesIO(b)).convert("RGB")),
        "OpenCV `imdecode`": lambda b: cv2.imdecode(np.frombuffer(b, np.uint8), cv2.IMREAD_COLOR_RGB),
        "TensorFlow `decode_jpeg`": lambda b: tf.io.decode_jpeg(b, channels=3),
        "**trtpost**: simplejpeg": read_photo,
        "Pillow `draft`, 1/2": lambda b: read_reduced(b, (1025, 1025))[0],
        "Pillow `draft`, 1/4": lambda b: read_reduced(b, (513, 513))[0],
        "Pillow `draft`, 1/8": lambda b: read_reduced(b, (257, 257))[0],
        "OpenCV `IMREAD_REDUCED_COLOR_8`": lambda b: cv2.imdecode(
            np.frombuffer(b, np.uint8), cv2.IMREAD_REDUCED_COLOR_8
        ),
        "simplejpeg, 1/8": _reduced_by_simplejpeg,
    }
    lines = [f"## Decoding a JPEG of {SIZE[0]}x{SIZE[1]}", "", "| | ms: drawn street | ms: full of detail | pixels |"]
    lines += ["|---|---|---|---|"]
    times = {name: _times(ways, content) for name, content in contents.items()}
    reference = read_photo(contents["full of detail"])
    for name, way in ways.items():
        pixels = np.asarray(way(contents["full of detail"]))
        same = "a fraction" if pixels.shape != reference.shape else f"{(pixels != reference).any(-1).mean():.0%} differ"
        cells = " | ".join(f"{times[content][name]:.1f}" for content in contents)
        lines.append(f"| {name} | {cells} | {same.replace('0% differ', 'the same') if same[0] == '0' else same} |")
    return "\n".join(lines) + (
        "\n\nPillow, OpenCV and simplejpeg are the same libjpeg-turbo and give the same pixels; Pillow keeps four "
        "bytes a pixel and copies them out, simplejpeg decodes into the array. That is worth a dependency of 0.4 MB "
        "that needs NumPy alone; where it has no wheel, Pillow decodes. At a fraction there is little to copy, and "
        "Pillow is as good.\n"
    )


def _reduced_by_simplejpeg(content: bytes) -> Any:
    import simplejpeg

    return simplejpeg.decode_jpeg(content, min_height=257, min_width=257)


def _times(ways: dict[str, Callable[[Any], Any]], argument: Any) -> dict[str, float]:
    def bound(way: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: way(argument)

    return medians({name: bound(way) for name, way in ways.items()}, rounds=ROUNDS, budget=5.0)


# --- decoding at a fraction


def _fast_decode(bundle: Any, folder: Path) -> str:
    lines = ["## `infer --fast-decode`", "", "| street | the masks agree | mean IoU with the truth | fast |"]
    lines += ["|---|---|---|---|"]
    whole, fast = Segmenter(bundle), Segmenter(bundle, fast_decode=True)
    for seed in SCENE_SEEDS:
        image, truth = scenes.draw(scenes.random_scene(seed), *SIZE)
        path = folder / f"{seed}.jpg"
        Image.fromarray(image).save(path, quality=90)
        one, other = whole(path).mask, fast(path).mask
        lines.append(
            f"| {seed} | {(one == other).mean():.2%} | {_mean_iou(one, truth):.3f} | {_mean_iou(other, truth):.3f} |"
        )
    return "\n".join(lines) + (
        "\n\nIt averages the pixels that a resize without antialiasing leaves out. So the network sees another "
        "picture, and the mask differs at its edges; whether for the better depends on how the network was trained. "
        "Hence it is a flag, and off. Only JPEGs are decoded at a fraction, never below the network's size, and the "
        "mask's size comes from the header, turned as EXIF says; an overlay needs the whole photo and is refused.\n"
    )


def _mean_iou(mask: NDArray[Any], truth: NDArray[Any]) -> float:
    found = [
        ((mask == one) & (truth == one)).sum() / ((mask == one) | (truth == one)).sum() for one in np.unique(truth)
    ]
    return float(statistics.fmean(found))


# --- scaling


def _scaling(photo: NDArray[np.uint8]) -> str:
    import cv2

    lines = [f"## {SIZE[0]}x{SIZE[1]} to the network's size, bilinear", ""]
    lines += ["| | ms: 192x256 | ms: 513x513 | pixels that are not the reference's |", "|---|---|---|---|"]
    sizes = ((192, 256), (513, 513))
    ways: dict[str, Callable[[tuple[int, int]], NDArray[Any]]] = {
        "`reference.bilinear` in numpy, rounded: the reference": lambda size: np.rint(bilinear(photo, size)).astype(
            np.uint8
        ),
        "**trtpost**: the same arithmetic, native": lambda size: scaled(photo, size),
        "OpenCV `INTER_LINEAR`": lambda size: np.asarray(cv2.resize(photo, size[::-1])),
        "Pillow `BILINEAR`, which antialiases": lambda size: np.asarray(
            Image.fromarray(photo).resize(size[::-1], Image.Resampling.BILINEAR)
        ),
    }
    times = {size: _times(ways, size) for size in sizes}
    reference = next(iter(ways.values()))(sizes[1])
    for name, way in ways.items():
        wrong = (way(sizes[1]) != reference).any(-1).mean()
        cells = " | ".join(f"{times[size][name]:.2f}" for size in sizes)
        lines.append(f"| {name} | {cells} | {'none' if wrong == 0 else f'{wrong:.0%}'} |")
    return "\n".join(lines) + "\n"


# --- PNG


def _smooth_mask() -> NDArray[np.uint8]:
    from trtpost.kernels import cpu

    logits = make_logits(19, (512, 512), "smooth")
    return np.asarray(cpu.argmax_resize(logits, SIZE, Post(resize="bilinear", classes=19))[0])


def _encoding(masks: dict[str, NDArray[np.uint8]]) -> str:
    import cv2
    import tensorflow as tf

    colours = palette([f"{index}" for index in range(256)])

    def pillow(level: int) -> Callable[[Any], bytes]:
        def run(mask: NDArray[np.uint8]) -> bytes:
            image, stream = Image.fromarray(mask), io.BytesIO()
            image.putpalette(colours.tobytes())
            image.save(stream, "PNG", compress_level=level)
            return stream.getvalue()

        return run

    def opencv(*settings: int) -> Callable[[Any], bytes]:
        return lambda mask: cv2.imencode(".png", mask, settings)[1].tobytes()

    def raw(up: bool, level: int, strategy: int) -> Callable[[Any], bytes]:
        def run(mask: NDArray[np.uint8]) -> bytes:
            rows = np.zeros((mask.shape[0], mask.shape[1] + 1), np.uint8)
            rows[:, 1:] = mask
            if up:
                rows[:, 0] = png.UP
                np.subtract(mask[1:], mask[:-1], out=rows[1:, 1:])
            packer = zlib.compressobj(level=level, strategy=strategy)
            return packer.compress(rows.data) + packer.flush()

        return run

    level, strategy, filtering = cv2.IMWRITE_PNG_COMPRESSION, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_FILTER
    rle, huffman = cv2.IMWRITE_PNG_STRATEGY_RLE, cv2.IMWRITE_PNG_STRATEGY_HUFFMAN_ONLY
    ways: dict[str, Callable[[Any], bytes]] = {
        "TensorFlow `encode_png`": lambda mask: tf.io.encode_png(mask[..., None]).numpy(),
        "TensorFlow, compression 1": lambda mask: tf.io.encode_png(mask[..., None], compression=1).numpy(),
        "Pillow, level 1 (ours until now)": pillow(1),
        "Pillow, level 6": pillow(6),
        "OpenCV": opencv(),
        "OpenCV, level 6": opencv(level, 6),
        "OpenCV, RLE": opencv(level, 1, strategy, rle),
        "OpenCV, RLE, filter Up": opencv(level, 1, strategy, rle, filtering, cv2.IMWRITE_PNG_FILTER_UP),
        "OpenCV, Huffman only": opencv(level, 1, strategy, huffman),
        "zlib, no filter, level 1": raw(False, 1, zlib.Z_DEFAULT_STRATEGY),
        "zlib, Up, level 1": raw(True, 1, zlib.Z_DEFAULT_STRATEGY),
        "zlib, Up, level 6": raw(True, 6, zlib.Z_DEFAULT_STRATEGY),
        "zlib, Up, RLE: trtpost without the kernel": raw(True, 1, zlib.Z_RLE),
        "**trtpost**": lambda mask: png.palette_png(mask, colours),
        "**trtpost**, `--mask packed`": lambda mask: png.palette_png(mask, colours[: int(mask.max()) + 1], pack=True),
    }
    lines = [f"## A mask of {SIZE[0]}x{SIZE[1]} as PNG", "", f"| ms, kB | {' | '.join(masks)} |"]
    lines += ["|---|" + "---|" * len(masks)]
    times = {name: _times(ways, mask) for name, mask in masks.items()}
    for way, run in ways.items():
        cells = [f"{times[name][way]:.1f}, {len(run(mask)) / 1000:.0f}" for name, mask in masks.items()]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines) + (
        "\n\nWhat a mask holds is its edges. The filter Up turns all else into zeros, and then runs are the only "
        "matches worth looking for: RLE is smaller than level 6 and as fast as level 1. zlib still touches every byte, "
        "12 million of them; our own compressor passes over rows that are like the one above, which after a nearest "
        "resize are nearly all. Its files are at most a few kilobytes larger, because it chooses its codes anew less "
        "often.\n\n`--mask packed` writes 1, 2 or 4 bits a pixel for up to 2, 4 or 16 classes (the street has 8), and "
        "8 above. Rows of zeros cost nothing either way; what is left, the edges, takes fewer bytes.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
