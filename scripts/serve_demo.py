"""`make serve-demo`: a bundle behind a real Triton server, a photo sent to it, and the mask that comes back."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import serve_load
import triton_server
from PIL import Image

from trtpost import BuildOptions, TrtpostError, build
from trtpost.masks.overlay import overlay
from trtpost.masks.png import palette
from trtpost.masks.write import write_picture
from trtpost.photos.read import read_photo
from trtpost.spec import parse_labels
from trtpost.triton.export import export_triton

ROOT = Path(os.path.relpath(Path(__file__).resolve().parents[1]))
MODELS, OUTPUT = ROOT / "models", ROOT / "demo"
REQUESTS = 50


def main() -> int:
    """Run the demo; returns the exit status."""
    OUTPUT.mkdir(exist_ok=True)
    labels = parse_labels((MODELS / "scenes.labels.txt").read_text())
    photo = MODELS / "example.jpg"
    try:
        print("1. A bundle of our own network, as a model of a Triton repository")
        bundle = build(MODELS / "scenes.keras", OUTPUT / "scenes.trtpost", BuildOptions(labels=labels))
        with tempfile.TemporaryDirectory() as folder:
            repository = Path(folder) / "models"
            export_triton(bundle, repository, name="scenes")
            for file in sorted(repository.rglob("*")):
                print(f"   {file.relative_to(folder)}")
            print("2. Triton, taken out of the Python package nvidia-pytriton, serves it on the loopback")
            triton_server.install()
            with triton_server.running(repository, Path(folder) / "log.txt") as (address, _):
                _ask(address, photo, labels)
    except (TrtpostError, RuntimeError, OSError) as error:
        print(f"serve-demo: {error}", file=sys.stderr)
        return 1
    return 0


def _ask(address: str, photo: Path, labels: tuple[str, ...]) -> None:
    from tritonclient import http

    client = http.InferenceServerClient(address)
    content = photo.read_bytes()
    for output in ("mask", "png"):
        milliseconds = []
        for _ in range(REQUESTS):
            before = time.perf_counter()
            found = serve_load.ask(client, "scenes", content, output)
            milliseconds.append(1000 * (time.perf_counter() - before))
        size = found.nbytes if output == "mask" else len(found[0, 0])
        p50, p95 = np.percentile(milliseconds, (50, 95))
        sizes = f"{photo.name} ({len(content) / 1000:.0f} kB) to `{output}` ({size / 1000:.0f} kB)"
        print(f"   {sizes}: {REQUESTS} requests, p50 {p50:.1f} ms, p95 {p95:.1f} ms as the client sees it")
    client.close()
    with Image.open(io.BytesIO(found[0, 0])) as png:
        mask = np.asarray(png)
    target = OUTPUT / "served.overlay.png"
    write_picture(overlay(read_photo(photo), mask, labels, palette(labels)), target)
    print(f"3. Look at {target}")


if __name__ == "__main__":
    sys.exit(main())
