"""The command line as people use it: real processes, real exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import package, trtpost
from nets import kernel, nchw, net, save
from PIL import Image


@pytest.fixture
def place(tmp_path):
    """A folder with a model, two photos, and a bundle."""
    save(nchw(), tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.jpg"):
        Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).save(tmp_path / name)
    done = trtpost("build", "net.onnx", "--flavour", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_build_says_each_step_and_what_is_missing(place):
    done = trtpost("build", "net.onnx", "--flavour", "none", "--force", cwd=place)
    steps = [line.split()[0] for line in done.stdout.splitlines()[:5]]
    assert steps == ["convert", "locate", "bake", "warning", "bundle"]
    assert "warning the model does not say how pixels are normalised" in done.stdout
    assert "no TensorRT plan (--flavour none)" in done.stdout.splitlines()[-1]
    again = trtpost("build", "net.onnx", "--flavour", "none", cwd=place)
    assert "up to date: nothing to do" in again.stdout


def test_infer_writes_masks_and_overlays(place):
    done = trtpost("infer", "a.png", "b.jpg", "-o", "out", "--overlay", cwd=place)
    assert done.returncode == 0, done.stderr
    assert files(place / "out") == ["a.mask.png", "a.overlay.png", "b.mask.png", "b.overlay.png"]
    with Image.open(place / "out/a.mask.png") as mask:
        assert (mask.mode, mask.size) == ("P", (60, 40))
    assert "engine net.trtpost on ONNX Runtime" in done.stdout
    assert "ArgMax+resize" in done.stdout


def test_names_that_look_like_markup_or_are_not_utf8(place):
    (place / "d[").mkdir()
    odd = ["[bold]x.png", "d[/b].png", "[red].png", "sp ace.png", "ü.png", os.fsdecode(b"bad\xe9.png")]
    for name in odd:
        (place / name).write_bytes((place / "a.png").read_bytes())
    done = trtpost("infer", *odd, "-o", "out", cwd=place)
    assert done.returncode == 0, done.stderr
    assert len(files(place / "out")) == len(odd)
    assert "[bold]x.png" in done.stdout
    as_json = trtpost("infer", *odd, "-o", "out", "--json", cwd=place)
    assert len(json.loads(as_json.stdout)["photos"]) == len(odd)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_output_that_cannot_be_printed(place):
    for target in ("/dev/full", "/dev/null"):
        with open(target, "w") as stream:  # noqa: PTH123
            done = subprocess.run(
                [sys.executable, "-c", "from trtpost.cli.entry import main; main()", "inspect", "net.trtpost"],
                cwd=place,
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert "Traceback" not in done.stderr
        assert done.returncode == (1 if target == "/dev/full" else 0)


def test_infer_json(place):
    done = trtpost("infer", "a.png", "missing.png", "--repeat", "3", "--json", cwd=place)
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    good, bad = answer["photos"]
    assert (good["height"], good["width"]) == (40, 60)
    assert sum(one["share"] for one in good["classes"]) == pytest.approx(1, abs=1e-4)
    assert good["repeated"]["count"] == 3
    assert "no such image: missing.png" in bad["error"]


def test_one_bad_photo_does_not_stop_the_rest(place):
    (place / "bad.jpg").write_bytes((place / "b.jpg").read_bytes()[:300])
    done = trtpost("infer", "a.png", "bad.jpg", "b.jpg", "-o", "out", cwd=place)
    assert done.returncode == 1
    assert files(place / "out") == ["a.mask.png", "b.mask.png"]
    assert done.stderr.count("\n") == 1
    assert "bad.jpg is damaged or cut short" in done.stderr


def test_infer_does_not_import_tensorflow(place):
    code = (
        "import sys; from trtpost.cli.app import app; app(['infer', 'a.png'], standalone_mode=False);"
        "print('heavy:', sorted(set(sys.modules) & {'tensorflow', 'tf2onnx', 'tensorrt_rtx', 'torch', 'cv2'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)
    assert "heavy: []" in done.stdout, done.stdout + done.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom trtpost.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "print('heavy:', sorted(set(sys.modules) & {'numpy', 'onnx', 'onnxruntime', 'PIL', 'tensorflow', 'pydantic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "heavy: []" in done.stdout
    for verb in ("convert", "build", "infer", "inspect", "doctor"):
        assert verb in done.stdout


def test_inspect_and_doctor(place):
    bundle = trtpost("inspect", "net.trtpost", cwd=place).stdout
    assert "trtpost::ArgMaxResize (network/logits, output_size)" in bundle
    model = trtpost("inspect", "net.onnx", cwd=place).stdout
    assert "output 'logits': logits of 4 classes" in model
    alone = trtpost("inspect", "net.trtpost/model.onnx", cwd=place).stdout
    assert "trtpost::ArgMaxResize" in alone
    doctor = trtpost("doctor", cwd=place)
    assert doctor.returncode == 0
    assert "onnxruntime" in doctor.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("build missing.onnx", "no such model: missing.onnx"),
        ("build a.png", "unknown model format '.png'"),
        ("build text.onnx", "text.onnx is not an ONNX model"),
        ("build flat.onnx", "no output looks like a segmentation head"),
        ("build net.onnx --logits logit", "did you mean 'logits'"),
        ("build net.onnx --size image --match pil", "float64 index tables"),
        ("build net.onnx --size 10", "size must be 'runtime', 'image' or HxW"),
        ("build net.onnx --size imge", "not 'imge'; did you mean image?"),
        ("build net.onnx --normalize imagnet", "not 'imagnet'; did you mean imagenet?"),
        ("build net.onnx --labels a.png", "a.png is not a text file"),
        ("build net.onnx -o text.onnx/b.trtpost", "cannot write the engine bundle"),
        ("convert net.onnx", "is an ONNX model already"),
        ("convert a.png", "unknown model format"),
        ("convert net.keras -o a.png", "a.png exists and is no ONNX file: choose a name that ends in .onnx"),
        ("infer missing.jpg", "no such image: missing.jpg"),
        ("infer text.onnx", "text.onnx is text, not a photo"),
        ("infer a.png -e missing.trtpost", "no such engine bundle: missing.trtpost"),
        ("infer a.png -e net.onnx", "run `trtpost build net.onnx` first, and give net.trtpost"),
        ("infer a.png -e net.tflite", "run `trtpost build net.tflite` first, and give net.trtpost"),
        ("infer a.png -e saved", "run `trtpost build saved` first, and give saved.trtpost"),
        (
            "build https://example.org/net.onnx",
            "https://example.org/net.onnx is an address, not a file: download it first",
        ),
        ("infer http://example.org/a.jpg", "http://example.org/a.jpg is an address, not a file: download it first"),
        ("infer s3://bucket/a.jpg", "see trtpost.ray for photos in object stores"),
        ("infer http://example.org/a.jpg?size=1", "http://example.org/a.jpg?size=1 is an address, not a file"),
        ("infer a.png -o s3://bucket/masks", "--output s3://bucket/masks is an address, not a file: write to this"),
        ("build net.onnx -o s3://bucket/net", "--output s3://bucket/net is an address"),
        ("infer a.png -e https://example.org/net.trtpost", "engine bundle https://example.org/net.trtpost is an addr"),
        ("export onnx https://example.org/net.trtpost", "engine bundle https://example.org/net.trtpost is an address"),
        ("verify --against net.onnx --images s3://bucket/a", "--images s3://bucket/a is an address, not a file"),
        ("verify --against net.onnx --images . --labels s3://b/a", "--labels s3://b/a is an address, not a file"),
        ("verify --against net.onnx --images . --html s3://b/a.html", "--html s3://b/a.html is an address, not a file"),
        ("infer *.tiff", "nothing matches *.tiff"),
        ("infer a.png b.jpg -o -", "-o - writes one mask to stdout, and there are 2 photos"),
        ("infer a.png -o - --overlay --json", "leave --overlay, --json out"),
        ("infer a.png -o - --max-pixels 1000", "leave --max-pixels out"),
        *(
            (f"{verb} net.pt{more}", "is a PyTorch file, which trtpost does not run: export the network in Python")
            for verb, more in (
                ("build", ""),
                ("convert", ""),
                ("inspect", ""),
                ("verify net.trtpost --images . --against", ""),
            )
        ),
        ("infer a.png -o text.onnx/out", "text.onnx is a file, not a folder"),
        ("infer a.png b.jpg -o one.png", "give a folder"),
        ("infer a.png -o a.png", "would overwrite a photo"),
        ("infer a.png -o a.jpg", "masks are PNG"),
        ("build net.onnx --threshold 0.5", "networks of one channel"),
        ("build net.onnx --labels blank.txt", "blank.txt holds no class names"),
        (f"build {'x' * 300}.onnx", "cannot be read"),
        (f"infer {'x' * 300}.jpg", "cannot be read"),
        ("build net.onnx --precision int8", "--calibration"),
        ("build net.onnx --precision int8 --calibration nowhere", "nowhere is not a folder"),
        ("build net.onnx --min-agreement 0.9", "precision fp32 leaves the model as it is"),
        ("build net.onnx --precision fp16 --min-agreement 90", "min agreement must be from 0 to 1"),
        ("build net.onnx --flavour none --post kernel", "flavour none builds no TensorRT plan"),
        ("build net.onnx --flavour tensorrt_rtx --timing-cache t", "tensorrt_rtx measures nothing"),
        ("build net.onnx --flavour tensorrt_rtx --post plugin", "use --post kernel"),
        ("build net.onnx --compute-capabilities 8", "such as 8.9, not '8'"),
        ("inspect missing", "no such"),
        ("inspect .", "not an engine bundle"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_1(place, arguments, says):
    (place / "text.onnx").write_text("this is no model")
    (place / "blank.txt").write_text("\n\n")
    (place / "net.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    (place / "saved").mkdir()
    (place / "saved" / "saved_model.pb").touch()
    with zipfile.ZipFile(place / "net.pt", "w") as archive:
        archive.writestr("net/data.pkl", b"x")
    save(
        net("p = GlobalAveragePool (image)\n out = Flatten (p)", "float[1,3,8,12] image", "float[1,3] out"),
        place / "flat.onnx",
    )
    before = files(place)
    done = trtpost(*arguments.split(), cwd=place)
    assert done.returncode == 1
    assert done.stderr.startswith("trtpost: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert files(place) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("build", "model is missing; `trtpost build --help` shows what there is"),
        ("infer", "images is missing; `trtpost infer --help`"),
        ("frobnicate", "there is no command 'frobnicate'; `trtpost --help`"),
        ("bild net.onnx", "there is no command 'bild'; did you mean build?"),
        ("bench pots", "there is no command 'pots'; did you mean post?; `trtpost bench --help`"),
        ("infer a.png --repeat 0", "--repeat"),
        ("infer a.png --repeat often", "valid integer"),
        ("infer a.png -o", "-o needs a value"),
        ("build net.onnx again", "there is more than it takes: again"),
        ("infer a.png --mask grey", "--mask must be one of palette, packed, gray, not 'grey'; did you mean gray?"),
        ("build net.onnx --fast", "there is no option --fast"),
        ("build net.onnx --resiz nearest", "there is no option --resiz; did you mean --resize?"),
        ("build net.onnx --precision fp8", "--precision must be one of fp32, fp16, bf16, int8, not 'fp8'"),
        ("build net.onnx --resize bilinar", "must be one of nearest, bilinear, not 'bilinar'; did you mean bilinear?"),
        ("infer a.png --backend cuda", "--backend must be one of auto, tensorrt, onnxruntime, not 'cuda'"),
        ("verify --match pytorch", "--match must be one of tf, tf1, torch, opencv, pil, align_corners, not 'pytorch'"),
        ("export triton net.trtpost -o m --form pythn", "did you mean python?"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(tmp_path, arguments, says, command_line):
    status, output, errors = command_line(*arguments.split(), cwd=tmp_path)
    assert (status, output) == (2, "")
    assert errors.startswith("trtpost: ")
    assert errors.count("\n") == 1
    assert says in errors


@pytest.mark.parametrize("columns", [80, 200])
def test_help_names_choices_and_panels(columns, command_line, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    status, output, _ = command_line("build", "--help", cwd=tmp_path)
    assert status == 0
    assert "\u2026" not in output
    for panel in ("What decides a pixel", "The plan", "Precision", "TensorRT's builder"):
        assert panel in output
    for choices in ("nearest|bilinear", "fp32|fp16|bf16|int8", "none|ampere+|same"):
        assert re.search(rf"[<\[]{re.escape(choices)}[>\]]", output) or columns < 200
    assert max(map(len, output.splitlines())) <= columns
    assert "\x1b" not in output


@pytest.mark.parametrize("command", [("build",), ("infer",), ("verify",), ("export", "triton")])
@pytest.mark.parametrize("columns", [40, 60, 79])
def test_help_cuts_no_name_where_the_terminal_is_narrow(place, command, columns):
    """Nor what an option may be; that takes a process, as the help's form is chosen once."""
    texts = [
        subprocess.run(
            [sys.executable, "-m", "trtpost", *command, "--help"],
            cwd=place,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": str(width)},
        ).stdout
        for width in (columns, 300)
    ]
    narrow, wide = (set(re.findall(r"--[a-z][a-z-]+|[a-z0-9_+]+(?:\|[a-z0-9_+]+)+", text)) for text in texts)
    assert len(wide) > 5
    assert narrow >= wide
    assert "\u2026" not in texts[0]


@pytest.mark.parametrize(
    "environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"NO_COLOR": "1", "TERM": "dumb"}]
)
def test_help_and_tables_in_any_environment(place, environment):
    for arguments in (("build", "--help"), ("infer", "a.png"), ("doctor",), ("inspect", "net.trtpost")):
        done = subprocess.run(
            [sys.executable, "-m", "trtpost", *arguments],
            cwd=place,
            capture_output=True,
            check=False,
            env={**os.environ, "COLUMNS": "40", **environment},
        )
        assert done.returncode == 0, done.stderr
        assert b"\x1b" not in done.stdout
        assert b"\\u" not in done.stdout  # a mark that the terminal lacks
        done.stdout.decode("ascii" if "PYTHONIOENCODING" in environment else "utf-8")


def test_commands_to_copy_are_never_cut(place):
    """Whatever the width: what follows `run it:` is one line."""
    long = place / ("x" * 60 + ".trtpost")
    done = subprocess.run(
        [sys.executable, "-m", "trtpost", "build", "net.onnx", "--flavour", "none", "-o", long.name],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "40"},
    )
    assert done.stdout.splitlines()[-1].endswith(f"run it: trtpost infer PHOTO --engine {long.name}")


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of another kind")
@pytest.mark.parametrize(
    "arguments", ["infer a.png", "infer a.png b.jpg --repeat 2", "doctor", "verify --against net.onnx --images ."]
)
def test_a_narrow_terminal_cuts_nothing(place, arguments):
    """Not the numbers in a table, and no command within a line: it shows the words that a pipe gets."""
    import fcntl
    import pty
    import struct
    import termios

    command = [sys.executable, "-m", "trtpost", *arguments.split()]
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with subprocess.Popen(command, cwd=place, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # of a terminal whose other end is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
    os.close(ours)
    assert process.returncode == 0, shown
    piped = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "\u2026" not in text
    numbers = re.compile(r"\d+\.\d+")
    assert len(numbers.findall(text)) == len(numbers.findall(piped)) > 2
    if arguments == "doctor":
        assert text.split() == piped.split()
        assert len(text.splitlines()) == len(piped.splitlines())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_choices(shell):
    words = "trtpost build net.onnx --match t"
    environment = {
        "_TRTPOST_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": "4",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_WORD_TO_COMPLETE": "t",
    }
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'trtpost'; from trtpost.cli.entry import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    for choice in ("tf", "tf1", "torch"):
        assert choice in done.stdout, done.stdout + done.stderr
    assert "opencv" not in done.stdout


def test_a_reader_that_leaves_early(place):
    done = subprocess.run(
        f"{sys.executable} -m trtpost build --help | head -1", shell=True, cwd=place, capture_output=True, check=False
    )
    assert done.stderr == b""


def test_inspect_and_doctor_for_programs(place, command_line):
    _, output, _ = command_line("inspect", "net.trtpost", "--json", cwd=place)
    found = json.loads(output)
    assert found["passport"]["post"]["resize"] == "nearest"
    assert found["inputs"][0] == {"name": "image", "dtype": "uint8", "shape": [1, 8, 12, 3]}
    assert (found["located"], found["problem"]) == (None, None)
    found = json.loads(command_line("inspect", "net.onnx", "--json", cwd=place)[1])
    assert found["passport"] is None
    assert found["located"]["logits"] == "logits"
    doctor = json.loads(command_line("doctor", "--json", cwd=place)[1])
    assert {"name", "text", "present"} == set(doctor[0])
    assert next(one for one in doctor if one["name"] == "onnxruntime")["present"] is True


def test_a_mask_to_stdout(place):
    done = subprocess.run(
        [sys.executable, "-m", "trtpost", "infer", "a.png", "-o", "-", "--mask", "gray"],
        cwd=place,
        capture_output=True,
        check=True,
    )
    assert trtpost("infer", "a.png", "-o", "out.png", cwd=place).returncode == 0
    with Image.open(io.BytesIO(done.stdout)) as piped, Image.open(place / "out.png") as written:
        assert (piped.mode, written.mode) == ("L", "P")
        np.testing.assert_array_equal(np.asarray(piped), np.asarray(written))


def test_quoted_patterns(place, command_line):
    (place / "*.png").write_bytes((place / "a.png").read_bytes())
    assert command_line("infer", "*.png", "-o", "literal", cwd=place)[0] == 0
    assert files(place / "literal") == ["*.mask.png"]
    (place / "*.png").unlink()
    assert command_line("infer", "[ab].*g", "-o", "out", cwd=place)[0] == 0
    assert files(place / "out") == ["a.mask.png", "b.mask.png"]
    assert command_line("infer", "a.png", cwd=place)[0] == 0
    _, output, _ = command_line("infer", "*.png", cwd=place)
    assert "a.mask.mask" not in output  # masks are no photos


def test_another_encoding_is_written_again(place, command_line):
    (place / "photos").mkdir()
    (place / "photos/a.png").write_bytes((place / "a.png").read_bytes())
    for encoding, mode, skipped in (("palette", "P", 0), ("gray", "L", 0), ("gray", "L", 1)):
        status, output, errors = command_line("infer", "photos", "-o", "masks", "--mask", encoding, "--json", cwd=place)
        assert status == 0, errors
        assert ("skipped" in json.loads(output)["photos"][0]) == bool(skipped)
        with Image.open(place / "masks/a.mask.png") as mask:
            assert mask.mode == mode


def test_a_damaged_bundle_is_refused(place):
    model = place / "net.trtpost/model.onnx"
    model.write_bytes(model.read_bytes()[:-1])
    done = trtpost("infer", "a.png", cwd=place)
    assert done.returncode == 1
    assert "not the file that was built" in done.stderr
    assert not (place / "a.mask.png").exists()


@pytest.fixture
def deep(tmp_path):
    """A model of 300 layers, which TensorRT for RTX takes two seconds to build."""
    package("tensorrt_rtx")
    layers = [f"c{i} = Conv <pads = [1, 1, 1, 1]> (x{i}, w)\n x{i + 1} = Sigmoid (c{i})" for i in range(300)]
    model = net(
        "\n".join(["x0 = Conv (image, first)", *layers, "logits = Conv (x300, last)"]),
        "float[1,3,64,96] image",
        "float[1,4,64,96] logits",
        first=kernel(16),
        last=kernel(4, 16),
        w=np.full((16, 16, 3, 3), 0.01, np.float32),
    )
    save(model, tmp_path / "deep.onnx")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGINT, "trtpost: interrupted\n"), (signal.SIGTERM, "")], ids=["Ctrl-C", "kill"]
)
def test_a_build_can_be_stopped_and_leaves_nothing(deep, number, says):
    # a shell that starts this in the background makes children ignore Ctrl-C
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-c",
            f"{heed}; from trtpost.cli.entry import main; main()",
            "build",
            "deep.onnx",
            "--flavour",
            "tensorrt_rtx",
        ],
        cwd=deep,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        for line in process.stdout:
            if line.startswith("warning"):  # the line before the build
                break
        time.sleep(0.5)
        sent = time.perf_counter()
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        assert time.perf_counter() - sent < 1
    assert process.returncode == 128 + number
    assert errors == says
    assert output == ""  # neither the build's line nor the bundle's
    assert files(deep) == ["deep.onnx"]


LOST = """
import os, signal, sys, threading, time, types
from pathlib import Path
from trtpost.cli import entry
from trtpost.errors import TrtpostError
from trtpost.storage.whole_file import write_whole

number = int(sys.argv[1])

class Lost:
    def __del__(self):
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # the exception is raised in here, and Python only prints it

def slow(file):
    file.write(b"x")
    file.flush()
    time.sleep(60)

def app(**_):
    threading.Thread(target=write_whole, args=(Path("mask.png"), slow, TrtpostError), daemon=True).start()
    while not any(name.startswith(".mask.png") for name in os.listdir()):
        time.sleep(0.01)
    Lost()
    time.sleep(60)

entry.GRACE_SECONDS = 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules["trtpost.cli.app"] = types.SimpleNamespace(app=app)
entry.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that could be handled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "kill"])
def test_a_signal_ends_the_process_even_where_its_exception_is_lost(tmp_path, number):
    """In a finalizer; and what another thread is writing is removed."""
    command = [sys.executable, "-c", LOST, str(int(number))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert "Exception ignored in" in done.stderr
    assert done.stderr.endswith("trtpost: interrupted\n") == (number == signal.SIGINT)
    assert files(tmp_path) == []


def test_signals_are_in_hand_before_anything_heavy_is_imported():
    """A process that is stopped while it starts must not show a traceback."""
    code = (
        "import sys; before = set(sys.modules); import trtpost.cli.entry; "
        "print({'typer', 'rich', 'numpy', 'onnx', 'PIL', 'importlib.metadata'} & (sys.modules.keys() - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_inspect_shows_what_a_plan_computes_in(place):
    package("tensorrt_rtx")
    done = trtpost("build", "net.onnx", "--flavour", "tensorrt_rtx", "--post", "kernel", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "compute layers: 1 in fp32" in done.stdout
    shown = trtpost("inspect", "net.trtpost", cwd=place).stdout
    assert "compute layers: 1 in fp32" in shown
    assert "it ends in logits, our kernel makes the mask" in shown
    assert "precision  as in the source model" in shown
