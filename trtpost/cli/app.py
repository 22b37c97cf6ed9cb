"""The command line: reads options, calls one function, prints what comes back."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from trtpost.photos.limits import MAX_PIXELS, SERVED_PIXELS
from trtpost.spec import (
    Backend,
    Channels,
    Compatibility,
    Encoding,
    Ending,
    Fit,
    Flavour,
    Form,
    Layout,
    Lowering,
    Match,
    Pattern,
    Place,
    Precision,
    Resize,
)

# in less than this the boxes of the panels leave names of options no room, and cut them
_MARKUP: Literal["rich"] | None = "rich" if shutil.get_terminal_size().columns >= 80 else None

app = typer.Typer(
    help="Segmentation masks at the photo's resolution: ArgMax and Resize inside the engine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
)
bench = typer.Typer(help="Measure: everybody in one process, in turn.", no_args_is_help=True, rich_markup_mode=_MARKUP)
app.add_typer(bench, name="bench")
export = typer.Typer(
    help="Take a bundle to other servers and runtimes.", no_args_is_help=True, rich_markup_mode=_MARKUP
)
app.add_typer(export, name="export")

PIXEL, MODEL = "What decides a pixel", "The model"
PLAN, PRECISION, BUILDER = "The plan", "Precision", "TensorRT's builder"
RUN, REPLACED = "How it runs", "The pipeline that is replaced"
"""Panels of the help."""

_OWN, _FOUND = "the model's own", "found by itself"
"""Defaults that are not known before the model is."""

CHECK = typer.Option(
    "--check/--no-check", help="run the model in TensorFlow and in ONNX on two pictures, and refuse what differs"
)

JSON = typer.Option("--json", help="print JSON instead of tables")


def _version(wanted: bool) -> None:
    if wanted:
        from trtpost import __version__

        print(f"trtpost {__version__}")
        raise typer.Exit


def _written(path: Path | None) -> Path | None:
    """Let a target pass that is a file or folder of this machine, and no address of another."""
    from trtpost.errors import SpecError
    from trtpost.storage.files import refuse_address

    if path is not None:
        refuse_address(path, "--output", SpecError, written=True)
    return path


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Segmentation masks at the photo's resolution: ArgMax and Resize inside the engine."""


@app.command()
def convert(
    model: Annotated[
        Path, typer.Argument(help="SavedModel folder, .keras, .h5, frozen .pb or .tflite", readable=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", callback=_written, help="ONNX file to write", show_default="MODEL.onnx"),
    ] = None,
    signature: Annotated[str | None, typer.Option(help="of a SavedModel that has several")] = None,
    input_size: Annotated[str | None, typer.Option(help="HxW, for a network whose own is dynamic")] = None,
    check: Annotated[bool, CHECK] = True,
) -> None:
    """Convert a TensorFlow model to ONNX."""
    from trtpost.convert import conversion, kind_of
    from trtpost.describe import describe_check, describe_failed_check
    from trtpost.errors import ModelError
    from trtpost.graph.reading.model import save_model
    from trtpost.spec import parse_pair

    if output is not None and output.suffix.lower() != ".onnx" and output.exists():
        raise ModelError(f"{output} exists and is no ONNX file: choose a name that ends in .onnx")
    if kind_of(model) == "onnx":
        raise ModelError(f"{model} is an ONNX model already: go on with `trtpost build {model}`")
    target = output or Path(model.resolve().stem + ".onnx")
    with _progress().step("convert") as step:
        size = parse_pair(input_size) if input_size else None
        converted = conversion(model, signature=signature, input_size=size, check=check)
        worst = converted.check_of("")
        if worst is not None and not worst.passed:
            raise ModelError(f"{model}: {describe_failed_check(worst)}")
        save_model(converted.model, target, replaces=lambda _: target.suffix.lower() == ".onnx")
        step.result = f"{target}: {len(converted.model.graph.node)} nodes"
    if check:
        with _progress().step("check") as step:
            step.result = describe_check(worst, converted.seconds) if worst else f"left out: {converted.unchecked}"


@app.command()
def build(
    model: Annotated[Path, typer.Argument(help="model in any TensorFlow format, or ONNX", readable=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", callback=_written, help="bundle to write", show_default="MODEL.trtpost"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="build even if nothing has changed")] = False,
    normalize: Annotated[
        str | None,
        typer.Option(
            help="none, unit (0..1), signed (-1..1), imagenet (by colour), or MEAN/STD in 8-bit pixels (in the "
            "order of --channels)",
            show_default=_OWN,
            rich_help_panel=PIXEL,
        ),
    ] = None,
    channels: Annotated[
        Channels | None,
        typer.Option(help="in which order the network wants them", show_default="rgb", rich_help_panel=PIXEL),
    ] = None,
    fit: Annotated[
        Fit, typer.Option(help="stretch the photo to the network's size, or letterbox it", rich_help_panel=PIXEL)
    ] = "stretch",
    resize: Annotated[
        Resize,
        typer.Option(help="of the labels; or bilinear: of the logits first, then ArgMax", rich_help_panel=PIXEL),
    ] = "nearest",
    match: Annotated[Match, typer.Option(help="whose pixel convention", rich_help_panel=PIXEL)] = "tf",
    size: Annotated[
        str,
        typer.Option(help="of the mask: runtime, image (the engine takes whole photos), HxW", rich_help_panel=PIXEL),
    ] = "runtime",
    head: Annotated[
        Ending | None,
        typer.Option(
            help="what the network ends in; multilabel: each class by itself",
            show_default=_FOUND,
            rich_help_panel=PIXEL,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="for one channel, or multilabel",
            show_default="0.5 for a probability, 0 for a logit",
            rich_help_panel=PIXEL,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="file with a class name a line, or JSON: id2label or a list",
            show_default="the model's own, or MODEL.labels.txt or labels.txt beside it",
            rich_help_panel=MODEL,
        ),
    ] = None,
    logits: Annotated[
        str | None, typer.Option(help="tensor to take", show_default=_FOUND, rich_help_panel=MODEL)
    ] = None,
    layout: Annotated[
        Layout | None, typer.Option(help="of the logits", show_default=_FOUND, rich_help_panel=MODEL)
    ] = None,
    input_size: Annotated[
        str | None, typer.Option(help="HxW, for a network whose own is dynamic", rich_help_panel=MODEL)
    ] = None,
    covers: Annotated[
        str | None,
        typer.Option(
            help="TOP,LEFT,HEIGHT,WIDTH of the network's input that its logits lie on",
            show_default=_FOUND,
            rich_help_panel=MODEL,
        ),
    ] = None,
    outside: Annotated[
        int | None,
        typer.Option(help="class id where no logit lies", show_default="that of the nearest", rich_help_panel=PIXEL),
    ] = None,
    signature: Annotated[
        str | None, typer.Option(help="of a SavedModel that has several", rich_help_panel=MODEL)
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="run it in TensorFlow and in ONNX on two pictures, and refuse what differs",
            rich_help_panel=MODEL,
        ),
    ] = True,
    lowering: Annotated[
        Lowering, typer.Option(help="one node with a function body, or standard ops inline", rich_help_panel=MODEL)
    ] = "function",
    flavour: Annotated[Flavour, typer.Option(help="TensorRT that builds it", rich_help_panel=PLAN)] = "auto",
    post: Annotated[
        Place,
        typer.Option(help="in the plan: native layers, or plugin; or kernel: ours, after it", rich_help_panel=PLAN),
    ] = "native",
    max_batch: Annotated[
        int, typer.Option(help="images in one call, where the network allows several", rich_help_panel=PLAN)
    ] = 8,
    max_size: Annotated[
        str, typer.Option(help="HxW of the largest mask that the plan allows", rich_help_panel=PLAN)
    ] = "8192x8192",
    precision: Annotated[
        Precision, typer.Option(help="fp32 keeps the model's own types", rich_help_panel=PRECISION)
    ] = "fp32",
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="folder of photos: needed for int8, measures the agreement with fp32", rich_help_panel=PRECISION
        ),
    ] = None,
    min_agreement: Annotated[
        float | None,
        typer.Option(
            help="share of pixels that must agree with fp32",
            show_default="fp16 0.99, bf16 0.95, int8 0.9",
            rich_help_panel=PRECISION,
        ),
    ] = None,
    workspace: Annotated[
        int | None,
        typer.Option(help="MiB that a layer may use", show_default="TensorRT's choice", rich_help_panel=BUILDER),
    ] = None,
    optimization_level: Annotated[
        int | None,
        typer.Option(
            help="0 (builds fastest) to 5 (runs fastest)", show_default="TensorRT's choice", rich_help_panel=BUILDER
        ),
    ] = None,
    timing_cache: Annotated[
        Path | None,
        typer.Option(help="file that makes the next build faster (tensorrt)", rich_help_panel=BUILDER),
    ] = None,
    hardware_compatibility: Annotated[
        Compatibility,
        typer.Option(
            help="other GPUs that may run the plan (tensorrt); same: of its compute capability",
            rich_help_panel=BUILDER,
        ),
    ] = "none",
    compute_capabilities: Annotated[
        str | None,
        typer.Option(
            help="to compile for (tensorrt_rtx), such as 8.9,12.0",
            show_default="8.0,8.6,8.9,12.0",
            rich_help_panel=BUILDER,
        ),
    ] = None,
) -> None:
    """Build an engine bundle: convert, locate, bake, build."""
    given = locals()  # all but the first three are settings of a build, by their names
    from trtpost.builder.build import build as build_bundle
    from trtpost.builder.labels import read_labels
    from trtpost.builder.options import options_from
    from trtpost.describe import next_step
    from trtpost.spec import parse_covers, parse_pair, parse_size

    progress = _progress()
    settings = {name: value for name, value in given.items() if name not in ("model", "output", "force")}
    settings |= {
        "labels": read_labels(labels, progress.warn) if labels else (),
        "size": parse_size(size),
        "input_size": parse_pair(input_size) if input_size else None,
        "covers": parse_covers(covers) if covers else None,
        "max_size": parse_pair(max_size),
        "compute_capabilities": map(str.strip, compute_capabilities.split(",")) if compute_capabilities else (),
    }
    options = options_from(settings)
    bundle = build_bundle(model, output, options, progress=progress, force=force)
    _say(next_step(bundle, flavour))


@app.command()
def infer(
    images: Annotated[
        list[Path],
        typer.Argument(
            help="photos, folders of them, quoted patterns such as 'photos/*.jpg', - for stdin",
            show_default=False,
            readable=False,
        ),
    ],
    engine: Annotated[
        Path | None, typer.Option("--engine", "-e", help="bundle", show_default="the newest one here")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", callback=_written, help="folder; for one photo NAME.png, or - for stdout")
    ] = Path(),
    mask: Annotated[
        Encoding,
        typer.Option(help="how class ids are held; OpenCV and TensorFlow read a palette as colours, and gray as ids"),
    ] = "palette",
    overlay: Annotated[bool, typer.Option("--overlay", help="write NAME.overlay.png too")] = False,
    force: Annotated[bool, typer.Option("--force", help="photos of folders too whose masks are there already")] = False,
    as_json: Annotated[bool, JSON] = False,
    backend: Annotated[Backend, typer.Option(help="auto: the GPU if it can", rich_help_panel=RUN)] = "auto",
    fast_decode: Annotated[
        bool,
        typer.Option(
            "--fast-decode", help="JPEGs at the smallest fraction that has the network's pixels", rich_help_panel=RUN
        ),
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, max=1024, help="of the CPU", show_default="all cores", rich_help_panel=RUN)
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(min=1, help="of all photos that are in memory at once", rich_help_panel=RUN)
    ] = MAX_PIXELS,
    repeat: Annotated[
        int, typer.Option(min=1, help="run each photo N times; gives median and p95", rich_help_panel=RUN)
    ] = 1,
    profile: Annotated[
        bool, typer.Option("--profile", help="time each layer of the TensorRT plan", rich_help_panel=RUN)
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option("--ray", help="run on a Ray cluster: its address HOST:PORT, auto, or local", rich_help_panel=RUN),
    ] = None,
) -> None:
    """Write the mask of each photo: NAME.mask.png, whose pixel values are the class ids.

    A mask or an overlay that trtpost wrote is replaced by the next one of its name, and no other file is.
    """
    from trtpost.bundle.folder import load_bundle, newest_bundle
    from trtpost.errors import SpecError
    from trtpost.jobs.paths import plan_jobs
    from trtpost.jobs.run import run_all, to_stdout
    from trtpost.photos.find import STDIN as STDOUT
    from trtpost.photos.find import find_photos
    from trtpost.segment import Segmenter

    path = engine or newest_bundle(Path())
    if fast_decode and overlay:
        raise SpecError("--overlay needs whole photos: do without --fast-decode")
    photos = find_photos(images)
    if output == STDOUT:
        given = {"--overlay": overlay, "--json": as_json, "--repeat": repeat > 1, "--profile": profile, "--ray": ray}
        given["--max-pixels"] = max_pixels != MAX_PIXELS
        if surplus := [flag for flag, value in given.items() if value]:
            raise SpecError(f"-o - writes a mask to stdout and nothing else: leave {', '.join(surplus)} out")
        with Segmenter(path, backend=backend, threads=threads, fast_decode=fast_decode) as segmenter:
            to_stdout(segmenter, photos, mask)
        return
    jobs = plan_jobs(photos, output, overlay=overlay)
    if ray is not None:
        given = {"--overlay": overlay, "--repeat": repeat > 1, "--profile": profile, "-": Path("-") in images}
        if surplus := [flag for flag, value in given.items() if value]:
            raise SpecError(f"--ray makes masks of files, and times none: leave {', '.join(surplus)} out")
        from trtpost.ray.dataset import segment_jobs

        start = time.perf_counter()
        with _bar(len(jobs), "photos", quiet=as_json) as advance:
            outcomes = segment_jobs(
                jobs,
                load_bundle(path),
                address=ray,
                done=advance,
                resume=not force and all(job.photo.searched for job in jobs),
                encoding=mask,
                fast_decode=fast_decode,
                backend=backend,
                cores=threads,
                max_pixels=max_pixels,
            )
        _show_outcomes(path, {"engine": "Ray", "address": ray}, outcomes, time.perf_counter() - start, as_json=as_json)
        return
    with Segmenter(path, backend=backend, threads=threads, fast_decode=fast_decode) as segmenter:
        # a run whose only use is that later ones are not slowed by first-time work: one photo does without
        warm_up = segmenter.warm_up() if len(jobs) > 1 or repeat > 1 or profile else None
        layers = segmenter.profile(jobs[0].photo.source) if profile else []
        with _bar(len(jobs), "photos", quiet=as_json) as advance:
            outcomes, seconds = run_all(
                segmenter,
                jobs,
                repeat=repeat,
                encoding=mask,
                again=force or repeat > 1,
                threads=threads,
                max_pixels=max_pixels,
                done=advance,
            )
        passport, name, note = segmenter.bundle.passport, segmenter.engine, segmenter.note
        facts: dict[str, Any] = {"engine": name, "backend": segmenter.backend, "precision": passport.precision}
    if not as_json:
        warmed = "the first run, not warmed up" if warm_up is None else f"warm-up {warm_up:.1f} ms, not counted below"
        _say(f"engine {path} on {name}; {warmed}")
        if note:
            _say(f"not on the GPU: {note}")
        if passport.normalization == "assumed":
            _say("normalisation of the pixels was assumed when the engine was built: see trtpost inspect")
    facts["warm_up_ms"] = None if warm_up is None else round(warm_up, 3)
    _show_outcomes(path, facts, outcomes, seconds, layers, as_json=as_json)


def _show_outcomes(
    path: Path, engine: dict[str, Any], outcomes: Any, seconds: float, layers: Any = (), *, as_json: bool
) -> None:
    """What became of the photos, on the terminal or as JSON; exit code 1 where one failed."""
    from trtpost.cli import tables
    from trtpost.errors import one_line
    from trtpost.jobs import report

    if as_json:
        print(report.to_json(path, engine, outcomes, seconds, layers))
    else:
        listed = len(outcomes) <= report.LISTED
        rows = report.timing_rows(outcomes)
        if rows:
            _console().show(tables.timing_table(rows))
        if layers:
            _console().show(tables.layer_table(layers))
        for one in outcomes:
            if one.error is not None:
                print(f"trtpost: {one_line(one.error)}", file=sys.stderr)
            elif listed and not one.skipped:
                _say(one.describe())
        if len(outcomes) > 1 and not any(one.summary for one in outcomes):
            _say(report.summary_line(outcomes, seconds))
    if any(one.error for one in outcomes):
        raise typer.Exit(1)


@app.command()
def inspect(
    path: Annotated[
        Path, typer.Argument(help="bundle, baked .onnx, or a model in any format that build takes", readable=False)
    ],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Show inputs, outputs, passport, the located head and the baked node."""
    from trtpost.cli.inspect import inspect_path
    from trtpost.cli.tables import facts_json, facts_text
    from trtpost.progress import Progress

    facts = inspect_path(path, Progress() if as_json else _progress())
    print(facts_json(facts) if as_json else facts_text(facts))


@app.command()
def verify(
    bundle: Annotated[
        Path | None, typer.Argument(help="bundle", show_default="the newest one here", readable=False)
    ] = None,
    against: Annotated[Path | None, typer.Option(help="the model it was built from, in its own format")] = None,
    images: Annotated[Path | None, typer.Option(help="folder of photos")] = None,
    labels: Annotated[Path | None, typer.Option(help="folder of ground truth: a PNG of class ids a photo")] = None,
    html: Annotated[Path | None, typer.Option(help="write a report with pictures, one file")] = None,
    orders: Annotated[
        bool, typer.Option("--orders", help="builds nearest and bilinear, and scores both against --labels")
    ] = False,
    min_agreement: Annotated[
        float | None,
        typer.Option(help="share of pixels that must agree apart from ties", show_default="by the bundle's precision"),
    ] = None,
    normalize: Annotated[
        str | None, typer.Option(help="as for build", show_default="the model's", rich_help_panel=REPLACED)
    ] = None,
    channels: Annotated[
        Channels | None, typer.Option(help="as for build", show_default="rgb", rich_help_panel=REPLACED)
    ] = None,
    fit: Annotated[
        Fit | None, typer.Option(help="as for build", show_default="the bundle's", rich_help_panel=REPLACED)
    ] = None,
    resize: Annotated[
        Resize | None, typer.Option(help="as for build", show_default="the bundle's", rich_help_panel=REPLACED)
    ] = None,
    match: Annotated[Match, typer.Option(help="whose resize it uses", rich_help_panel=REPLACED)] = "tf",
    logits: Annotated[
        str | None,
        typer.Option(help="as for build", show_default="the bundle's, or found by itself", rich_help_panel=REPLACED),
    ] = None,
    layout: Annotated[
        Layout | None, typer.Option(help="as for build", show_default=_FOUND, rich_help_panel=REPLACED)
    ] = None,
    head: Annotated[
        Ending | None, typer.Option(help="as for build", show_default=_FOUND, rich_help_panel=REPLACED)
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="as for build", show_default="0.5 or 0", rich_help_panel=REPLACED)
    ] = None,
    covers: Annotated[
        str | None, typer.Option(help="as for build", show_default=_FOUND, rich_help_panel=REPLACED)
    ] = None,
    outside: Annotated[
        int | None, typer.Option(help="as for build", show_default="the bundle's", rich_help_panel=REPLACED)
    ] = None,
    signature: Annotated[
        str | None, typer.Option(help="of a SavedModel that has several", rich_help_panel=REPLACED)
    ] = None,
    backend: Annotated[Backend, typer.Option(help="auto: the GPU if it can")] = "auto",
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Compare a bundle with the pipeline that it replaces, which runs MODEL in its own framework."""
    given = locals()  # what is replaced, by its names, among the rest
    from trtpost.builder.options import BuildOptions
    from trtpost.bundle.folder import load_bundle, newest_bundle
    from trtpost.cli import tables
    from trtpost.errors import SpecError
    from trtpost.photos.find import photos_in
    from trtpost.progress import Progress
    from trtpost.spec import parse_covers
    from trtpost.verify.html_report import Gallery, write_page
    from trtpost.verify.orders import compare_orders, orders_to_json
    from trtpost.verify.report import report_to_json
    from trtpost.verify.run import Replaced
    from trtpost.verify.run import verify as run_verify

    if against is None or images is None:
        raise SpecError("verify needs the model (--against MODEL) and a folder of photos (--images DIR)")
    _check_page(html)
    progress = Progress() if as_json else _progress()
    count = len(photos_in(images, "--images"))
    given["covers"] = parse_covers(covers) if covers else None
    replaced = Replaced(**{one.name: given[one.name] for one in fields(Replaced)})
    if orders:
        others = {"BUNDLE": bundle, "--html": html, "--min-agreement": min_agreement, "--resize": resize}
        if surplus := [name for name, value in others.items() if value is not None]:
            raise SpecError(f"--orders builds bundles of its own and shows a table: leave {', '.join(surplus)} out")
        if labels is None:
            raise SpecError("--orders scores against ground truth: give it with --labels DIR")
        options = BuildOptions(**{name: value for name, value in asdict(replaced).items() if value is not None})
        with _bar(count, "photos", quiet=as_json) as advance:
            found = compare_orders(
                against, images, labels, options, backend=backend, progress=progress, advance=advance
            )
        if as_json:
            print(orders_to_json(found))
        else:
            _console().show(tables.orders_table(found))
        return
    opened = load_bundle(bundle or newest_bundle(Path()))
    gallery = Gallery(opened.passport.classes) if html else None
    with _bar(count, "photos", quiet=as_json) as advance:
        result = run_verify(
            opened,
            against,
            images,
            labels=labels,
            replaced=replaced,
            min_agreement=min_agreement,
            backend=backend,
            show=gallery.show if gallery else None,
            progress=progress,
            advance=advance,
        )
    if html and gallery:
        write_page(result, gallery, html)
    if as_json:
        print(report_to_json(result))
    else:
        _console().show(tables.verify_tables(result))
        if html:
            _say(f"report    {html}")
    if not result.passed:
        raise typer.Exit(1)


HTML = typer.Option(help="write a page with plots, one file")
THREADS = typer.Option(min=1, max=1024, help="for everybody", show_default="all cores")


@bench.command()
def post(
    classes: Annotated[int, typer.Option(min=2, max=256, help="channels of the logits")] = 19,
    source: Annotated[str, typer.Option(help="HxW of the logits")] = "512x512",
    size: Annotated[str, typer.Option(help="HxW of the mask")] = "3024x4032",
    pattern: Annotated[Pattern, typer.Option(help="smooth, as networks give them, or noise")] = "smooth",
    threads: Annotated[int | None, THREADS] = None,
    rounds: Annotated[int, typer.Option(min=3, help="runs of each row")] = 15,
    html: Annotated[Path | None, HTML] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Logits to mask: ours against everything people use, in one process."""
    from trtpost.bench import plots, tables
    from trtpost.bench.post import bench_post
    from trtpost.spec import parse_pair

    _check_page(html)
    with _bar(rounds, "rounds", quiet=as_json) as advance:
        result = bench_post(
            classes,
            parse_pair(source),
            parse_pair(size),
            pattern=pattern,
            threads=threads,
            rounds=rounds,
            advance=advance,
        )
    grids = tables.post_grids(result)
    _show(result, grids, ("Logits to mask", grids[0].title), plots.post_plots, html, as_json=as_json)


@bench.command()
def pipeline(
    model: Annotated[
        Path, typer.Argument(help="the model as people run it: Keras file, SavedModel, ONNX ...", readable=False)
    ],
    engine: Annotated[
        Path | None, typer.Option("--engine", "-e", help="its bundle", show_default="built for this run")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="photo to take", show_default="one is drawn")] = None,
    megapixels: Annotated[
        str | None,
        typer.Option(help="sizes of the photo, such as 1,12,50,100", show_default="12, or the image as it is"),
    ] = None,
    threads: Annotated[int | None, THREADS] = None,
    rounds: Annotated[int, typer.Option(min=3, help="runs of each system on each photo")] = 7,
    html: Annotated[Path | None, HTML] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Photo file to mask file, stage by stage: ours against the pipelines people have, with the same network."""
    from trtpost.bench import plots, tables
    from trtpost.bench.pipeline import bench_pipeline, bundle_of, parse_megapixels

    _check_page(html)
    sizes = parse_megapixels(megapixels) if megapixels else () if image else (12.0,)
    with bundle_of(model, engine) as bundle, _bar(rounds * max(len(sizes), 1), "rounds", quiet=as_json) as advance:
        result = bench_pipeline(
            bundle, model, image=image, megapixels=sizes, threads=threads, rounds=rounds, advance=advance
        )
    grids = tables.pipeline_grids(result)
    title = tables.pipeline_title(result)
    if not as_json:
        _say(title)
    _show(result, grids, ("Photo file to mask file", title), plots.pipeline_plots, html, as_json=as_json)


@export.command()
def triton(
    bundle: Annotated[Path, typer.Argument(help="bundle", readable=False)],
    repository: Annotated[
        Path,
        typer.Option(
            "--output", "-o", callback=_written, help="model repository: made, or given a new version of the model"
        ),
    ],
    name: Annotated[str | None, typer.Option(help="of the model", show_default="the bundle's")] = None,
    form: Annotated[
        Form, typer.Option(help="python is trtpost inside Triton, the others are Triton's own backends")
    ] = "python",
    instances: Annotated[int, typer.Option(min=1, max=1024, help="that run at once, on each GPU or the CPU")] = 1,
    max_batch: Annotated[
        int | None,
        typer.Option(min=1, max=65536, help="photos that Triton may join", show_default="python 8, else the bundle's"),
    ] = None,
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", min=1, help="of all photos that the server has in memory at once")
    ] = SERVED_PIXELS,
) -> None:
    """Write a model repository for NVIDIA Triton, or a new version into one that is being served."""
    from trtpost.bundle.folder import load_bundle
    from trtpost.triton.export import export_triton, next_step

    written = export_triton(
        load_bundle(bundle),
        repository,
        name=name,
        form=form,
        instances=instances,
        max_batch=max_batch,
        max_pixels=max_pixels,
    )
    for folder in written:
        _say(str(folder))
    _say(next_step(repository, written))


@export.command("onnx")
def export_onnx(
    bundle: Annotated[Path, typer.Argument(help="bundle, or a baked .onnx", readable=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", callback=_written, help="file to write", show_default="NAME.inlined.onnx"),
    ] = None,
) -> None:
    """Write the graph in standard ops alone, for OpenVINO, OpenCV and others that know no functions."""
    from trtpost.bundle.folder import load_bundle
    from trtpost.export import export_onnx as write_onnx

    _say(str(write_onnx(load_bundle(bundle), output)))


@app.command()
def doctor(
    as_json: Annotated[bool, JSON] = False,
    fix: Annotated[bool, typer.Option("--fix", help="install what this machine's GPU needs")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before --fix installs anything")] = False,
) -> None:
    """Show what is installed, which GPU there is, and what build and infer would use here."""
    from trtpost.cli.doctor import examine
    from trtpost.cli.tables import findings_json, findings_table
    from trtpost.errors import SpecError

    if yes and not fix:
        raise SpecError("--yes answers what --fix asks, and does nothing alone: give both, or leave it out")
    if fix:
        _fix(yes=yes)
        return
    findings = examine()
    if as_json:
        print(findings_json(findings))
    else:
        console = _console()
        console.show(findings_table(findings, ascii_only=console.options.ascii_only))


def _fix(*, yes: bool) -> None:
    """Install what the GPU needs, once the user agrees."""
    from trtpost.cli.gpu_setup import needs, satisfy
    from trtpost.cuda import driver
    from trtpost.errors import SpecError

    missing = needs()
    if missing is None:
        why = "there is no NVIDIA driver on this machine"
        if driver() is not None:
            why = "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)"
        _say(f"{why}, so there is nothing to fix")
        return
    _say(f"{missing.gpu.name}, compute capability {missing.gpu.compute_capability}, CUDA {missing.cuda}")
    for sentence in missing.by_hand:
        _say(sentence)
    if not missing.steps:
        _say("nothing else is missing" if missing.by_hand else "nothing is missing")
        return
    _say(f"into {sys.prefix}:")
    for step in missing.steps:
        _say(f"  {step}")
    if not yes:
        if not sys.stdin.isatty():
            raise SpecError("this is no terminal to answer on: trtpost doctor --fix --yes does it without asking")
        typer.confirm("do it?", abort=True)
    satisfy(missing, _say)
    _say("done; trtpost doctor shows what is there now")


def _check_page(path: Path | None) -> None:
    """Refuse a page that could not be written, before the work and not after it."""
    from trtpost.storage.pages import check_page

    if path is not None:
        check_page(path)


def _show(result: Any, grids: Any, titles: tuple[str, str], plots: Any, html: Path | None, *, as_json: bool) -> None:
    """A benchmark's result on the terminal, and on a page where one is wanted."""
    from trtpost.bench import output

    if html:
        output.write_page(html, *titles, plots(result), grids)
    if as_json:
        print(output.to_json(result))
        return
    _console().show(output.shown(grids))
    if html:
        _say(f"page {html}")


def _say(text: str) -> None:
    """Print a line in which nothing acts on the terminal."""
    from trtpost.errors import one_line

    print(one_line(text))


def _console() -> Any:
    from trtpost.terminal import PlainConsole

    # a pipe or a log has no width of its own; tables must not be squeezed into 80 columns there
    return PlainConsole(width=None if sys.stdout.isatty() else 160)


def _progress() -> Any:
    from trtpost.cli.console import ConsoleProgress

    return ConsoleProgress(_console())


def _bar(total: int, unit: str, *, quiet: bool) -> Any:
    if quiet or total < 2:  # what would draw it takes as long to import as a photo takes to run
        return contextlib.nullcontext(lambda: None)
    from trtpost.cli.console import progress_bar

    return progress_bar(_console(), total, unit, quiet=quiet)
