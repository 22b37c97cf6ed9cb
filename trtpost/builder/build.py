"""The way from a model file to an engine bundle: convert, locate, bake, lower the precision, build, bundle.

What a step needs is imported when it is taken: importing `onnx` takes longer than to see that nothing has changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trtpost import __version__, cuda
from trtpost.backends.tensorrt import configuration, suitable
from trtpost.builder.options import ONLY_NATIVE, BuildOptions, options_from
from trtpost.builder.request import Request, request_for, up_to_date
from trtpost.bundle.folder import SUFFIX, Bundle, check_replaceable, write_bundle
from trtpost.bundle.passport import Passport
from trtpost.convert.formats import kind_of, saved_model_folder
from trtpost.errors import BackendError, ModelError, PrecisionError, SpecError, printable
from trtpost.progress import Progress

if TYPE_CHECKING:
    import onnx

    from trtpost.builder.decide import Decided


def build(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    options: BuildOptions | None = None,
    *,
    progress: Progress | None = None,
    force: bool = False,
    **settings: object,
) -> Bundle:
    """Build an engine bundle from a TensorFlow or ONNX model.

    Args:
        model: SavedModel folder, `.keras`, `.h5`, frozen `.pb`, `.tflite` or `.onnx`.
        output: the bundle's folder; default the model's name with `.trtpost`, in the working folder.
        options: what to build.
        progress: is told of each step and each doubt; None: doubts are warnings, of the class `DoubtWarning`.
        force: build even if the bundle is up to date.
        settings: fields of `BuildOptions` by name, instead of `options`.

    Returns:
        The bundle that was built, or the one that was there if nothing has changed.

    Raises:
        TrtpostError: with a sentence that says what is wrong and what to do.
    """
    if options is None:
        options = options_from(settings)
    elif settings:
        raise SpecError("give options or single settings to build, not both")
    if not isinstance(options, BuildOptions):
        raise SpecError(
            f"options must be BuildOptions, not a {type(options).__name__}: or give single settings by name"
        )
    if not isinstance(model, str | os.PathLike):
        raise ModelError(f"a model is given by its path, not as a {type(model).__name__}: write it to a file first")
    progress, source = progress or Progress(), Path(os.fsdecode(model))
    kind = kind_of(source)
    path = Path(os.fsdecode(output)) if output is not None else Path(_stem(source) + SUFFIX)
    check_replaceable(path)
    request = request_for(source, kind, options)
    if not force and (current := up_to_date(path, request)) is not None:
        with progress.step("bundle") as step:
            step.result = f"{path} is up to date: nothing to do"
        return current
    return _build(path, request, progress, wants_plan=options.wants_plan)


def _build(path: Path, request: Request, progress: Progress, *, wants_plan: bool) -> Bundle:
    """Take all the steps; a plan that cannot be built is only a warning, unless `wants_plan`."""
    options, flavour, source = request.options, request.flavour, request.source
    if flavour in suitable.FLAVOURS:  # loads a large library, so only where there is something to build
        _check_builder(flavour, options, progress)

    from trtpost.builder.decide import decide, doubts
    from trtpost.builder.loadable import check_loads
    from trtpost.describe import describe_spoilt
    from trtpost.graph.baking.seam import inlined
    from trtpost.graph.precision.reduce import spoilt_weights
    from trtpost.graph.reading.model import understood

    decided = decide(source, request.kind, options, progress)
    baked = _baked(decided, request, progress)
    passport = _passport(decided, request)
    look = check_loads(baked, passport, path)
    for warning in doubts(decided, options, look):
        progress.warn(warning)
    with understood(source):
        spoilt = spoilt_weights(baked)
    for weight in spoilt[:1]:
        progress.warn(describe_spoilt(weight))
    if options.precision != "fp32":
        from trtpost.builder.precision import lowered

        with understood(source):
            baked, passport = lowered(decided.model, baked, passport, request.photos, options, progress)
        check_loads(baked, passport, path)
    plan = None
    if flavour in suitable.FLAVOURS:
        from trtpost.builder.plan import planned

        try:
            plan, passport = planned(baked, passport, flavour, options, progress)
        except BackendError as error:
            if wants_plan or isinstance(error, PrecisionError):
                raise
            progress.warn(f"no engine.plan, the bundle holds the portable engine alone: {error}")
    with progress.step("bundle") as step:
        result = inlined(baked) if options.lowering == "inline" else baked
        embed(result, passport)
        bundle = write_bundle(path, result, plan, passport)
        step.result = str(path)
    return bundle


def _check_builder(flavour: str, options: BuildOptions, progress: Progress) -> None:
    """Refuse what cannot be built here, and say what will not run here, unless somebody has chosen the GPUs."""
    configuration.check_builder(flavour, options)
    driver = cuda.driver() if flavour == "tensorrt_rtx" and not options.compute_capabilities else None
    if driver and driver.devices and (other := suitable.beyond_rtx(driver)):
        progress.warn(f"the plan is for other GPUs than this machine's, where the CPU goes on: {other}")


def _baked(decided: Decided, request: Request, progress: Progress) -> onnx.ModelProto:
    """The baked graph."""
    from trtpost.describe import describe_spec
    from trtpost.graph.baking.bake import bake
    from trtpost.graph.reading.model import understood

    located, pre, post, source = decided.located, decided.pre, decided.post, request.source
    with progress.step("bake") as step, understood(source):
        if request.options.post != "native" and post.head == "labels":
            raise SpecError(ONLY_NATIVE)
        if request.options.outside is not None and located.covers is None:
            raise SpecError(
                "--outside would do nothing, for the logits are taken to cover all of the network's input: leave it "
                "out, or say with --covers what they cover"
            )
        baked = bake(decided.model, located, pre, post)
        step.result = describe_spec(pre, post, decided.origin, located.background)
    return baked


def _passport(decided: Decided, request: Request) -> Passport:
    """What is known of the bundle before there are files of it."""
    post = decided.post
    return Passport(
        version=__version__,
        request=request.sha256,
        source=printable(request.source.resolve().name),
        source_sha256=request.source_sha256,
        pre=decided.pre,
        post=post,
        located=decided.located,
        normalization=decided.origin,
        classes=decided.classes,
        max_batch=decided.located.batch or request.options.max_batch,
        max_size=post.size if isinstance(post.size, tuple) else request.options.max_size,
        check=decided.check,
    )


def embed(model: onnx.ModelProto, passport: Passport) -> None:
    """Write the passport into the model's metadata."""
    from trtpost.graph.reading.model import set_metadata

    set_metadata(model, {"passport": passport.to_json()})


def _stem(source: Path) -> str:
    resolved = saved_model_folder(source.resolve())
    return resolved.name if resolved.is_dir() else resolved.stem
