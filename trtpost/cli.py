"""The command line: reads options, calls one function, prints what comes back."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Segmentation masks at the photo's resolution: ArgMax and Resize inside the engine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure: everybody in one process, in turn.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench, name="bench")
export = typer.Typer(help="Take a bundle to other servers.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(export, name="export")


def _version(wanted: bool) -> None:
    if wanted:
        from trtpost import __version__

        print(f"trtpost {__version__}")
        raise typer.Exit


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
    output: Annotated[Path | None, typer.Option("--output", "-o", help="ONNX file to write [MODEL.onnx]")] = None,
    signature: Annotated[str | None, typer.Option(help="of a SavedModel that has several")] = None,
    input_size: Annotated[str | None, typer.Option(help="HxW, for a network whose own is dynamic")] = None,
) -> None:
    """Convert a TensorFlow model to ONNX."""
    from trtpost.convert import convert as convert_model
    from trtpost.convert import kind_of
    from trtpost.errors import ModelError
    from trtpost.graph.model import save_model
    from trtpost.spec import parse_pair

    if output is not None and output.suffix.lower() != ".onnx" and output.exists():
        raise ModelError(f"{output} exists and is no ONNX file: choose a name that ends in .onnx")
    if kind_of(model) == "onnx":
        raise ModelError(f"{model} is an ONNX model already: go on with `trtpost build {model}`")
    target = output or Path(model.resolve().stem + ".onnx")
    with _progress().step("convert") as step:
        converted = convert_model(model, signature=signature, input_size=parse_pair(input_size) if input_size else None)
        save_model(converted, target)
        step.result = f"{target}: {len(converted.graph.node)} nodes"


@app.command()
def build(
    model: Annotated[Path, typer.Argument(help="model in any TensorFlow format, or ONNX", readable=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="bundle to write [MODEL.trtpost]")] = None,
    normalize: Annotated[
        str | None,
        typer.Option(help="none, unit (0..1), signed (-1..1), imagenet, or MEAN/STD in 8-bit pixels [the model's own]"),
    ] = None,
    channels: Annotated[str | None, typer.Option(help="rgb, bgr or gray [rgb]")] = None,
    fit: Annotated[str, typer.Option(help="stretch the photo to the network's size, or letterbox it")] = "stretch",
    labels: Annotated[Path | None, typer.Option(help="text file with a class name a line [the model's own]")] = None,
    resize: Annotated[str, typer.Option(help="nearest, or bilinear (logits first, then ArgMax)")] = "nearest",
    match: Annotated[str, typer.Option(help="pixel convention: tf, tf1, torch, opencv, pil, align_corners")] = "tf",
    size: Annotated[
        str, typer.Option(help="of the mask: runtime, image (the engine takes whole photos), HxW")
    ] = "runtime",
    logits: Annotated[str | None, typer.Option(help="tensor to take [found by itself]")] = None,
    layout: Annotated[str | None, typer.Option(help="of the logits: NHWC or NCHW [found by itself]")] = None,
    head: Annotated[
        str | None,
        typer.Option(help="argmax, threshold, labels, or multilabel (each class by itself) [found by itself]"),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="for one channel, or multilabel [0.5 for a probability, 0 for a logit]")
    ] = None,
    input_size: Annotated[str | None, typer.Option(help="HxW, for a network whose own is dynamic")] = None,
    max_batch: Annotated[int, typer.Option(help="images in one call, where the network allows several")] = 8,
    max_size: Annotated[str, typer.Option(help="HxW of the largest mask that the plan allows")] = "8192x8192",
    lowering: Annotated[str, typer.Option(help="function (one node), or inline (standard ops)")] = "function",
    signature: Annotated[str | None, typer.Option(help="of a SavedModel that has several")] = None,
    flavour: Annotated[str, typer.Option(help="of TensorRT: auto, none, tensorrt, tensorrt_rtx")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32 (the model's own types), fp16, bf16 or int8")] = "fp32",
    calibration: Annotated[
        Path | None, typer.Option(help="folder of photos: needed for int8, measures the agreement with fp32")
    ] = None,
    min_agreement: Annotated[
        float | None, typer.Option(help="share of pixels that must agree with fp32 [fp16 0.99, bf16 0.95, int8 0.9]")
    ] = None,
    post_processing: Annotated[
        str, typer.Option("--post", help="in the plan: native layers, or plugin; or kernel: ours, after the plan")
    ] = "native",
    workspace: Annotated[int | None, typer.Option(help="MiB that a layer may use [TensorRT's choice]")] = None,
    optimization_level: Annotated[
        int | None, typer.Option(help="0 (builds fastest) to 5 (runs fastest) [TensorRT's choice]")
    ] = None,
    timing_cache: Annotated[Path | None, typer.Option(help="file that makes the next build faster (tensorrt)")] = None,
    hardware_compatibility: Annotated[
        str, typer.Option(help="other GPUs that may run the plan (tensorrt): none, ampere+, same (compute capability)")
    ] = "none",
    compute_capabilities: Annotated[
        str | None, typer.Option(help="to compile for (tensorrt_rtx), such as 8.9,12.0 [8.0,8.6,8.9,12.0]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="build even if nothing has changed")] = False,
) -> None:
    """Build an engine bundle: convert, locate, bake, build."""
    from trtpost import builder
    from trtpost.errors import one_line
    from trtpost.options import BuildOptions
    from trtpost.spec import parse_pair, parse_size

    options = BuildOptions(
        normalize=normalize,
        channels=channels,  # type: ignore[arg-type]
        fit=fit,  # type: ignore[arg-type]
        labels=_labels(labels),
        logits=logits,
        layout=layout,  # type: ignore[arg-type]
        head=head,  # type: ignore[arg-type]
        threshold=threshold,
        resize=resize,  # type: ignore[arg-type]
        match=match,  # type: ignore[arg-type]
        size=parse_size(size),
        input_size=parse_pair(input_size) if input_size else None,
        max_batch=max_batch,
        max_size=parse_pair(max_size),
        lowering=lowering,
        signature=signature,
        flavour=flavour,
        precision=precision,  # type: ignore[arg-type]
        calibration=calibration,
        min_agreement=min_agreement,
        post=post_processing,  # type: ignore[arg-type]
        workspace=workspace,
        optimization_level=optimization_level,
        timing_cache=timing_cache,
        hardware_compatibility=hardware_compatibility,  # type: ignore[arg-type]
        compute_capabilities=tuple(map(str.strip, compute_capabilities.split(","))) if compute_capabilities else (),
    )
    bundle = builder.build(model, output, options, progress=_progress(), force=force)
    print(one_line(builder.next_step(bundle, flavour)))


@app.command()
def infer(
    images: Annotated[
        list[Path], typer.Argument(help="photos, folders of them, - for stdin", show_default=False, readable=False)
    ],
    engine: Annotated[Path | None, typer.Option("--engine", "-e", help="bundle [the newest one here]")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder, or NAME.png for one photo")] = Path(),
    overlay: Annotated[bool, typer.Option("--overlay", help="write NAME.overlay.png too")] = False,
    fast_decode: Annotated[
        bool, typer.Option("--fast-decode", help="JPEGs at the smallest fraction that has the network's pixels")
    ] = False,
    backend: Annotated[str, typer.Option(help="auto (the GPU if it can), tensorrt, onnxruntime")] = "auto",
    repeat: Annotated[int, typer.Option(min=1, help="run each photo N times; gives median and p95")] = 1,
    profile: Annotated[bool, typer.Option("--profile", help="time each layer of the TensorRT plan")] = False,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads")] = None,
    pack: Annotated[
        bool, typer.Option("--pack", help="masks of up to 2, 4 or 16 classes with 1, 2 or 4 bits a pixel")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="photos of folders too whose masks are there already")] = False,
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", min=1, help="of all photos that are in memory at once")
    ] = 178_956_970,
    ray: Annotated[
        str | None, typer.Option("--ray", help="run on a Ray cluster: its address HOST:PORT, auto, or local")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Write the mask of each photo: NAME.mask.png, whose pixel values are the class ids.

    A mask or an overlay that trtpost wrote is replaced by the next one of its name, and no other file is.
    """
    from trtpost import inference
    from trtpost.builder import ASSUMED
    from trtpost.bundle import load_bundle, newest_bundle
    from trtpost.errors import SpecError, one_line
    from trtpost.photos import find_photos
    from trtpost.segment import Segmenter

    path = engine or newest_bundle(Path())
    if fast_decode and overlay:
        raise SpecError("--overlay needs whole photos: do without --fast-decode")
    jobs = inference.plan_jobs(find_photos(images), output, overlay=overlay)
    if ray is not None:
        given = {"--overlay": overlay, "--repeat": repeat > 1, "--profile": profile, "-": Path("-") in images}
        if surplus := [flag for flag, value in given.items() if value]:
            raise SpecError(f"--ray makes masks of files, and times none: leave {', '.join(surplus)} out")
        from trtpost.ray import segment_jobs

        start = time.perf_counter()
        with _bar(len(jobs), "photos", quiet=as_json) as advance:
            outcomes = segment_jobs(
                jobs,
                load_bundle(path),
                address=ray,
                done=advance,
                resume=not force and all(job.photo.searched for job in jobs),
                pack=pack,
                fast_decode=fast_decode,
                backend=backend,
                cores=threads,
            )
        _show_outcomes(path, {"engine": "Ray", "address": ray}, outcomes, time.perf_counter() - start, as_json=as_json)
        return
    with Segmenter(path, backend=backend, threads=threads, fast_decode=fast_decode) as segmenter:
        warm_up = segmenter.warm_up()
        layers = segmenter.profile(jobs[0].photo.source) if profile else []
        with _bar(len(jobs), "photos", quiet=as_json) as advance:
            outcomes, seconds = inference.run_all(
                segmenter,
                jobs,
                repeat=repeat,
                pack=pack,
                again=force or repeat > 1,
                threads=threads,
                max_pixels=max_pixels,
                done=advance,
            )
        passport, name, note = segmenter.bundle.passport, segmenter.engine, segmenter.note
        facts: dict[str, Any] = {"engine": name, "backend": segmenter.backend, "precision": passport.precision}
    if not as_json:
        print(f"engine {one_line(str(path))} on {name}; warm-up {warm_up:.1f} ms, not counted below")
        if note:
            print(f"not on the GPU: {note}")
        if passport.normalization == ASSUMED:
            print("normalisation of the pixels was assumed when the engine was built: see trtpost inspect")
    _show_outcomes(path, facts | {"warm_up_ms": round(warm_up, 3)}, outcomes, seconds, layers, as_json=as_json)


def _show_outcomes(
    path: Path, engine: dict[str, Any], outcomes: Any, seconds: float, layers: Any = (), *, as_json: bool
) -> None:
    """What became of the photos, on the terminal or as JSON; exit code 1 where one failed."""
    from trtpost import inference, report
    from trtpost.errors import one_line

    if as_json:
        print(inference.to_json(path, engine, outcomes, seconds, layers))
    else:
        listed = len(outcomes) <= inference.LISTED
        rows = inference.timing_rows(outcomes)
        if rows:
            _console().print(report.timing_table(rows))
        if layers:
            _console().print(report.layer_table(layers))
        for one in outcomes:
            if one.error is not None:
                print(f"trtpost: {one_line(one.error)}", file=sys.stderr)
            elif listed and not one.skipped:
                print(one.describe())
        if len(outcomes) > 1 and not any(one.summary for one in outcomes):
            print(inference.summary_line(outcomes, seconds))
    if any(one.error for one in outcomes):
        raise typer.Exit(1)


@app.command()
def inspect(
    path: Annotated[
        Path, typer.Argument(help="bundle, baked .onnx, or a model in any format that build takes", readable=False)
    ],
) -> None:
    """Show inputs, outputs, passport, the located head and the baked node."""
    from trtpost.inspect import inspect_path
    from trtpost.report import facts_text

    print(facts_text(inspect_path(path, _progress())))


@app.command()
def verify(
    bundle: Annotated[Path | None, typer.Argument(help="bundle [the newest one here]", readable=False)] = None,
    against: Annotated[Path | None, typer.Option(help="the model it was built from, in its own format")] = None,
    images: Annotated[Path | None, typer.Option(help="folder of photos")] = None,
    labels: Annotated[Path | None, typer.Option(help="folder of ground truth: a PNG of class ids a photo")] = None,
    html: Annotated[Path | None, typer.Option(help="write a report with pictures, one file")] = None,
    orders: Annotated[
        bool, typer.Option("--orders", help="builds nearest and bilinear, and scores both against --labels")
    ] = False,
    min_agreement: Annotated[
        float | None, typer.Option(help="share of pixels that must agree apart from ties [by the bundle's precision]")
    ] = None,
    normalize: Annotated[str | None, typer.Option(help="of the replaced pipeline, as for build [the model's]")] = None,
    channels: Annotated[str | None, typer.Option(help="of the replaced pipeline [rgb]")] = None,
    fit: Annotated[str | None, typer.Option(help="of the replaced pipeline [the bundle's]")] = None,
    resize: Annotated[str | None, typer.Option(help="of the replaced pipeline [the bundle's]")] = None,
    match: Annotated[str, typer.Option(help="whose resize the replaced pipeline uses")] = "tf",
    logits: Annotated[str | None, typer.Option(help="as for build [found by itself]")] = None,
    layout: Annotated[str | None, typer.Option(help="as for build [found by itself]")] = None,
    head: Annotated[str | None, typer.Option(help="as for build [found by itself]")] = None,
    threshold: Annotated[float | None, typer.Option(help="as for build [0.5 or 0]")] = None,
    signature: Annotated[str | None, typer.Option(help="of a SavedModel that has several")] = None,
    backend: Annotated[str, typer.Option(help="auto (the GPU if it can), tensorrt, onnxruntime")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of tables")] = False,
) -> None:
    """Compare a bundle with the pipeline that it replaces, which runs MODEL in its own framework."""
    from trtpost import report
    from trtpost.bundle import load_bundle, newest_bundle
    from trtpost.calibration import photos_in
    from trtpost.errors import SpecError, one_line
    from trtpost.options import BuildOptions
    from trtpost.progress import Progress
    from trtpost.verify.orders import compare_orders, orders_to_json
    from trtpost.verify.page import Gallery, write_page
    from trtpost.verify.run import Replaced, report_to_json
    from trtpost.verify.run import verify as run_verify

    if against is None or images is None:
        raise SpecError("verify needs the model (--against MODEL) and a folder of photos (--images DIR)")
    _check_page(html)
    progress = Progress() if as_json else _progress()
    count = len(photos_in(images, "--images"))
    if orders:
        given = {"BUNDLE": bundle, "--html": html, "--min-agreement": min_agreement, "--resize": resize}
        if surplus := [name for name, value in given.items() if value is not None]:
            raise SpecError(f"--orders builds bundles of its own and shows a table: leave {', '.join(surplus)} out")
        if labels is None:
            raise SpecError("--orders scores against ground truth: give it with --labels DIR")
        options = BuildOptions(
            normalize=normalize,
            channels=channels,  # type: ignore[arg-type]
            fit=fit or "stretch",  # type: ignore[arg-type]
            match=match,  # type: ignore[arg-type]
            logits=logits,
            layout=layout,  # type: ignore[arg-type]
            head=head,  # type: ignore[arg-type]
            threshold=threshold,
            signature=signature,
        )
        with _bar(count, "photos", quiet=as_json) as advance:
            found = compare_orders(
                against, images, labels, options, backend=backend, progress=progress, advance=advance
            )
        if as_json:
            print(orders_to_json(found))
        else:
            _console().print(report.orders_table(found))
        return
    opened = load_bundle(bundle or newest_bundle(Path()))
    replaced = Replaced(
        normalize=normalize,
        channels=channels,  # type: ignore[arg-type]
        fit=fit,  # type: ignore[arg-type]
        resize=resize,  # type: ignore[arg-type]
        match=match,  # type: ignore[arg-type]
        logits=logits,
        layout=layout,  # type: ignore[arg-type]
        head=head,  # type: ignore[arg-type]
        threshold=threshold,
        signature=signature,
    )
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
        _console().print(report.verify_tables(result), soft_wrap=True)
        if html:
            print(one_line(f"report    {html}"))
    if not result.passed:
        raise typer.Exit(1)


HTML = typer.Option(help="write a page with plots, one file")
JSON = typer.Option("--json", help="print JSON instead of tables")
THREADS = typer.Option(min=1, max=1024, help="for everybody [all cores]")


@bench.command()
def post(
    classes: Annotated[int, typer.Option(min=2, max=256, help="channels of the logits")] = 19,
    source: Annotated[str, typer.Option(help="HxW of the logits")] = "512x512",
    size: Annotated[str, typer.Option(help="HxW of the mask")] = "3024x4032",
    pattern: Annotated[str, typer.Option(help="smooth, as networks give them, or noise")] = "smooth",
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
            pattern=pattern,  # type: ignore[arg-type]
            threads=threads,
            rounds=rounds,
            advance=advance,
        )
    grids = tables.post_grids(result)
    _show(result, grids, ("Logits to mask", grids[0].title), plots.post_plots, html, as_json=as_json)


@bench.command()
def resize(
    source: Annotated[str, typer.Option(help="HxW of the photo")] = "480x640",
    factor: Annotated[int, typer.Option(min=1, help="the result is so many times as high and as wide")] = 3,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="for everybody")] = 1,
    rounds: Annotated[int, typer.Option(min=3, help="turns of each row")] = 50,
    html: Annotated[Path | None, HTML] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """A gray photo made larger in a loop that decodes it: what is decoding, what is conversion, what is the resize."""
    from trtpost.bench import plots, tables
    from trtpost.bench.resize import bench_resize
    from trtpost.spec import parse_pair

    _check_page(html)
    with _bar(rounds, "rounds", quiet=as_json) as advance:
        result = bench_resize(parse_pair(source), factor, threads=threads, rounds=rounds, advance=advance)
    grids = tables.resize_grids(result)
    _show(result, grids, ("A gray photo made larger", grids[0].title), plots.resize_plots, html, as_json=as_json)


@bench.command()
def pipeline(
    model: Annotated[
        Path, typer.Argument(help="the model as people run it: Keras file, SavedModel, ONNX ...", readable=False)
    ],
    engine: Annotated[Path | None, typer.Option("--engine", "-e", help="its bundle [built for this run]")] = None,
    image: Annotated[Path | None, typer.Option(help="photo to take [one is drawn]")] = None,
    megapixels: Annotated[
        str | None, typer.Option(help="sizes of the photo, such as 1,12,50,100 [12, or the image as it is]")
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
        print(title)
    _show(result, grids, ("Photo file to mask file", title), plots.pipeline_plots, html, as_json=as_json)


@export.command()
def triton(
    bundle: Annotated[Path, typer.Argument(help="bundle", readable=False)],
    repository: Annotated[
        Path, typer.Option("--output", "-o", help="model repository: made, or given a new version of the model")
    ],
    name: Annotated[str | None, typer.Option(help="of the model [the bundle's]")] = None,
    form: Annotated[
        str, typer.Option(help="python (trtpost inside Triton), tensorrt_plan or onnxruntime_onnx (Triton's own)")
    ] = "python",
    instances: Annotated[int, typer.Option(min=1, max=1024, help="that run at once, on each GPU or the CPU")] = 1,
    max_batch: Annotated[
        int | None, typer.Option(min=1, max=65536, help="photos that Triton may join [python 8, else the bundle's]")
    ] = None,
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", min=1, help="of all photos that the server has in memory at once")
    ] = 1 << 27,
) -> None:
    """Write a model repository for NVIDIA Triton, or a new version into one that is being served."""
    from trtpost.bundle import load_bundle
    from trtpost.errors import one_line
    from trtpost.triton.export import export_triton, next_step

    written = export_triton(
        load_bundle(bundle),
        repository,
        name=name,
        form=form,  # type: ignore[arg-type]
        instances=instances,
        max_batch=max_batch,
        max_pixels=max_pixels,
    )
    for folder in written:
        print(one_line(str(folder)))
    print(one_line(next_step(repository, written)))


@app.command()
def doctor() -> None:
    """Show what is installed, which GPU there is, and what build and infer would use here."""
    from trtpost.doctor import examine
    from trtpost.report import findings_table

    _console().print(findings_table(examine()))


def _check_page(path: Path | None) -> None:
    """Before the work, not after it."""
    from trtpost.errors import SpecError
    from trtpost.files import check_page

    if path is not None:
        check_page(path, SpecError)


def _show(result: Any, grids: Any, titles: tuple[str, str], plots: Any, html: Path | None, *, as_json: bool) -> None:
    """A benchmark's result on the terminal, and on a page where one is wanted."""
    from trtpost.bench import page, tables
    from trtpost.errors import one_line

    if html:
        page.write_page(html, *titles, plots(result), grids)
    if as_json:
        print(tables.to_json(result))
        return
    _console().print(tables.shown(grids))
    if html:
        print(one_line(f"page {html}"))


def _labels(path: Path | None) -> tuple[str, ...]:
    from trtpost.errors import SpecError, reason
    from trtpost.files import read_limited
    from trtpost.spec import parse_labels

    if path is None:
        return ()
    try:
        names = parse_labels(read_limited(path, "label file", 16 << 20, SpecError).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not a text file with a class name a line: {reason(error)}") from None
    if not names:
        raise SpecError(f"{path} holds no class names: write one a line")
    return names


def _console() -> Any:
    from rich.console import Console

    # a pipe or a log has no width of its own; tables must not be squeezed into 80 columns there
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def _progress() -> Any:
    from trtpost.console import ConsoleProgress

    return ConsoleProgress(_console())


def _bar(total: int, unit: str, *, quiet: bool) -> Any:
    from trtpost.console import progress_bar

    return progress_bar(_console(), total, unit, quiet=quiet)
