"""What one command of the shell costs, against the least that could do the same.

Every command runs in turn with its floor, in a process of its own, and the table gives medians and their ratio:

    python scripts/bench_cli.py --pairs 30 --markdown docs/bench-cli.md --machine "2 cores of an AMD EPYC"

The network is the one that the repository ships, built for the CPU (TensorFlow converts it), unless --bundle and
--photo name others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]

PLAIN = """
import sys
import numpy as np
import onnxruntime
from PIL import Image

photo = Image.open(sys.argv[1]).convert("RGB")
session = onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"])
_, height, width, _ = session.get_inputs()[0].shape
scale = (photo.width / width, 0, 0, 0, photo.height / height, 0)
small = photo.transform((width, height), Image.Transform.AFFINE, scale, Image.Resampling.BILINEAR)
size = np.array([photo.height, photo.width])
(mask,) = session.run(["mask"], {"image": np.asarray(small)[None], "output_size": size})
result = Image.frombytes("P", photo.size, mask[0].tobytes())
result.putpalette(list(range(256)) * 3)
result.save(sys.argv[3], compress_level=1)
"""

PROGRAM = """
import typer
app = typer.Typer()
@app.command()
def one(name: str) -> None:
    {doing}
@app.command()
def other(name: str = "x") -> None: ...
app({arguments!r})
"""
"""A program of two commands that does what cannot be done without."""


@dataclass(frozen=True)
class Pair:
    """A command, what is compared with it, and that in words."""

    name: str
    command: list[str]
    floor: list[str]
    words: str


def seconds(command: list[str], folder: Path) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - start


def pairs_of(folder: Path, bundle: Path, photo: Path, source: Path | None) -> list[Pair]:
    trtpost = [sys.executable, "-c", "from trtpost.cli.entry import main; main()"]
    plain = folder / "plain.py"
    plain.write_text(PLAIN)
    floor = [sys.executable, str(plain), str(photo), str(bundle / "model.onnx"), str(folder / "plain.png")]

    def program(doing: str, *arguments: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM.format(doing=doing, arguments=arguments)]

    infer = [*trtpost, "infer", str(photo), "-e", str(bundle), "-o", str(folder / "ours.png")]
    loads = f"import rich.table, onnx; onnx.load({str(bundle / 'model.onnx')!r})"
    looks = "import rich.table, numpy"
    found = [
        Pair("infer of one photo", infer, floor, "a script with Pillow, NumPy and ONNX Runtime, without any check"),
        Pair("--help", [*trtpost, "--help"], program("...", "--help"), "the help of a typer program"),
        Pair("inspect", [*trtpost, "inspect", str(bundle)], program(loads, "one", "x"), "typer, rich, onnx.load"),
        Pair("doctor", [*trtpost, "doctor"], program(looks, "one", "x"), "typer; import rich.table, numpy"),
    ]
    if source is not None:
        build = [*trtpost, "build", str(source), "-o", str(bundle), "--flavour", "none"]
        files = [str(source), str(bundle / "model.onnx")]
        hashes = f"import rich.table, numpy, hashlib; [hashlib.sha256(open(name, 'rb').read()) for name in {files!r}]"
        words = "typer; import rich.table, numpy; SHA-256 of the files"
        found.append(Pair("build with nothing to do", build, program(hashes, "one", "x"), words))
    return found


def measured(pairs: list[Pair], count: int, folder: Path) -> list[str]:
    lines = ["| command | ms | floor, ms | ratio | floor |", "|---|---|---|---|---|"]
    for pair in pairs:
        for command in (pair.command, pair.floor):
            seconds(command, folder)  # once, so that files are in memory and bytecode is written
        ours: list[float] = []
        floors: list[float] = []
        for index in range(count):
            for which in (0, 1) if index % 2 else (1, 0):  # neither is always the first
                (floors if which else ours).append(seconds(pair.floor if which else pair.command, folder))
        one, other = statistics.median(ours), statistics.median(floors)
        ratio = statistics.median(a / b for a, b in zip(ours, floors, strict=True))
        lines.append(f"| `{pair.name}` | {one * 1e3:.0f} | {other * 1e3:.0f} | {ratio:.2f} | {pair.words} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, help="to run [models/scenes.keras, built]")
    parser.add_argument("--photo", type=Path, default=ROOT / "models/example.jpg")
    parser.add_argument("--pairs", type=int, default=20, help="runs of each command and of its floor, in turn")
    parser.add_argument("--markdown", type=Path, help="page to write")
    parser.add_argument("--machine", default="", help="in words, for the page")
    options = parser.parse_args()
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # of the plain script too, so that both do the same
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    with tempfile.TemporaryDirectory(prefix="trtpost-") as name:
        folder = Path(name)
        bundle, source = options.bundle, None
        if bundle is None:
            source, bundle = folder / "scenes.keras", folder / "scenes.trtpost"
            shutil.copy(ROOT / "models/scenes.keras", source)
            command = [sys.executable, "-c", "from trtpost.cli.entry import main; main()", "build", str(source)]
            seconds([*command, "-o", str(bundle), "--flavour", "none"], folder)
        pairs = pairs_of(folder, bundle.resolve(), options.photo.resolve(), source)
        lines = measured(pairs, options.pairs, folder)
        ours, plain = (np.asarray(Image.open(folder / f"{one}.png")) for one in ("ours", "plain"))
        same = f"The plain script writes the same mask: {(ours == plain).mean():.3%} of the pixels have the same class"
        same += " (Pillow rounds resized pixels one level the other way)." if (ours != plain).any() else "."
        print(same)
        if options.markdown:
            page = ["# What a command costs", "", (__doc__ or "").split("\n\n")[1].rstrip(":") + ".", ""]
            page += [f"Machine: {options.machine}. Pairs: {options.pairs}.", "", *lines, "", same, ""]
            options.markdown.write_text("\n".join(page))


if __name__ == "__main__":
    main()
