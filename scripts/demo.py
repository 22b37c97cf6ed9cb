"""`make demo`: two models from their TensorFlow form to masks at the photo's resolution.

A real network (MediaPipe's selfie segmentation, TFLite) on a portrait, and our own (Keras) on a street drawn at
12 megapixels, whose exact labels are known, so that the mask can be scored.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ROOT = Path(os.path.relpath(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str((ROOT / "models").resolve()))

import fetch  # noqa: E402
import scenes  # noqa: E402

from trtpost import BuildOptions, Segmenter, TrtpostError, build  # noqa: E402
from trtpost.cli.console import ConsoleProgress  # noqa: E402
from trtpost.cli.tables import timing_table  # noqa: E402
from trtpost.masks.write import write_picture  # noqa: E402
from trtpost.segment import Result  # noqa: E402
from trtpost.terminal import PlainConsole  # noqa: E402
from trtpost.timing import Stopwatch, Timing  # noqa: E402

MODELS, OUTPUT = ROOT / "models", ROOT / "demo"
SCENE_SEED, SCENE_SIZE = 42, (3024, 4032)


def main() -> int:
    """Run the demo; returns the exit status."""
    console = PlainConsole(width=None if sys.stdout.isatty() else 160)
    progress = ConsoleProgress(console)
    OUTPUT.mkdir(exist_ok=True)
    try:
        console.print("[bold]1. The files that the repository does not hold[/]")
        if fetch.main():
            return 1
        downloads = fetch.DOWNLOADS

        console.print("\n[bold]2. MediaPipe's selfie segmentation (TFLite) on a portrait[/]")
        selfie = build(downloads / "selfie_segmentation.tflite", OUTPUT / "selfie.trtpost", progress=progress)
        portrait = _segment(Segmenter(selfie), downloads / "grace_hopper.jpg", "portrait", console)

        console.print(f"\n[bold]3. Our own network (Keras) on a street drawn at {SCENE_SIZE[0]}x{SCENE_SIZE[1]}[/]")
        photo, truth = _street(console)
        street: list[tuple[str, Timing]] = []
        for resize in ("nearest", "bilinear"):
            options = BuildOptions(resize=resize)
            bundle = build(MODELS / "scenes.keras", OUTPUT / f"street_{resize}.trtpost", options, progress=progress)
            result = _segment(Segmenter(bundle), photo, f"street_{resize}", console)
            score = mean_iou(result.mask, truth, len(result.classes))
            console.print(f"score   {resize}: mean IoU {score:.3f} against the exact labels at 12 megapixels")
            street.append((f"street, {resize}", result.timing))
    except (TrtpostError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    console.print()
    console.show(timing_table([("portrait", portrait.timing), *street]))
    console.print(f"\nLook at the pictures in {OUTPUT}/:")
    for picture in sorted(OUTPUT.glob("*.png")):
        with Image.open(picture) as image:
            console.print(f"  {picture.name:28} {image.height}x{image.width}")
    return 0


def _street(console: PlainConsole) -> tuple[Path, NDArray[np.uint8]]:
    """The drawn photo as a JPEG file, and its labels; drawn once."""
    photo, labels = OUTPUT / "street.jpg", OUTPUT / "street.labels.npy"
    if not (photo.is_file() and labels.is_file()):
        with console.status("drawing the street"):
            image, truth = scenes.draw(scenes.random_scene(SCENE_SEED), *SCENE_SIZE)
        np.save(labels, truth)
        write_picture(Image.fromarray(image), photo)
    known: NDArray[np.uint8] = np.load(labels)
    return photo, known


def _segment(segmenter: Segmenter, photo: Path, name: str, console: PlainConsole) -> Result:
    """Mask and overlay of a photo, written to the demo's folder."""
    console.print(f"run     {name} on {segmenter.engine}", soft_wrap=True)
    if segmenter.note:
        console.print(f"        not on the GPU: {segmenter.note}", soft_wrap=True)
    segmenter.warm_up()
    result = segmenter(photo)
    watch = Stopwatch()
    with watch("encode"):
        result.save_mask(OUTPUT / f"{name}.mask.png")
    write_picture(result.overlay(), OUTPUT / f"{name}.overlay.png")
    return replace(result, timing=replace(result.timing, encode=watch.timing.encode))


def mean_iou(mask: NDArray[np.uint8], truth: NDArray[np.uint8], classes: int) -> float:
    """Mean over the classes that occur of intersection over union."""
    pairs = np.bincount(truth.ravel() * np.int64(classes) + mask.ravel(), minlength=classes**2)
    table = pairs.reshape(classes, classes)
    union = table.sum(0) + table.sum(1) - table.diagonal()
    return float((table.diagonal()[union > 0] / union[union > 0]).mean())


if __name__ == "__main__":
    sys.exit(main())
