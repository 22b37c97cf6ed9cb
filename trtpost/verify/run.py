"""`verify`: a bundle against the pipeline that it replaces, on a folder of photos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trtpost.builder.decide import Decided, decide
from trtpost.builder.options import MIN_AGREEMENT, BuildOptions
from trtpost.builder.request import content_of
from trtpost.bundle.folder import Bundle, record_verification
from trtpost.bundle.passport import Passport, Verification
from trtpost.convert import kind_of
from trtpost.describe import counted, describe_spec
from trtpost.errors import BundleError, ImageError, ModelError, SpecError, printable
from trtpost.photos.decode import Photo
from trtpost.photos.find import photos_in
from trtpost.progress import Progress
from trtpost.segment import Result, Segmenter
from trtpost.spec import IGNORED, Backend, Channels, Ending, Fit, Layout, Match, Resize
from trtpost.verify.blame import blame
from trtpost.verify.compare import Figures, Masked, compare
from trtpost.verify.covering import laid_out
from trtpost.verify.frameworks import resizer
from trtpost.verify.kernel_sets import Spread, computes_in_integers
from trtpost.verify.network import Network, load_network
from trtpost.verify.reference import Reference, mask_of, other_masks
from trtpost.verify.report import PhotoFigures, Report
from trtpost.verify.truths import read_truth, truths_in

QUANTISED = 0.999
"""Share of pixels that must agree where the source model computes in integers: ONNX has no exact form of their
roundings, so that logits differ by a step here and there. Fewer are asked for where TensorFlow Lite's own
kernels differ by more."""


@dataclass(frozen=True)
class Replaced:
    """What the replaced pipeline does, where it is not what `trtpost build` would decide for the model by itself.

    Attributes:
        normalize, channels, logits, layout, head, threshold, signature: as in `BuildOptions`; where classes have
            Sigmoids of their own, `head` None is the bundle's, and so is a tensor that was named with `--logits`.
        covers: as in `BuildOptions`.
        fit, resize, outside: None: the bundle's own, which are what its owner chose to get.
        match: whose pixel convention.
    """

    normalize: str | None = None
    channels: Channels | None = None
    fit: Fit | None = None
    resize: Resize | None = None
    match: Match = "tf"
    logits: str | None = None
    layout: Layout | None = None
    head: Ending | None = None
    threshold: float | None = None
    covers: tuple[float, float, float, float] | None = None
    outside: int | None = None
    signature: str | None = None

    def options(self, passport: Passport) -> BuildOptions:
        """A build of the replaced pipeline, with the class names and the network's size of the bundle."""
        multilabel = self.head is None and passport.located.background is not None
        covers = passport.located.covers
        return BuildOptions(
            **asdict(self)
            | {
                "head": "multilabel" if multilabel else self.head,
                "logits": self.logits or (passport.located.logits if passport.located.is_named else None),
                "fit": self.fit or passport.pre.fit,
                "resize": self.resize or passport.post.resize,
                "outside": covers.outside if covers is not None and self.outside is None else self.outside,
                "input_size": (passport.pre.height, passport.pre.width),
                "flavour": "none",
                "check": False,  # what is verified is compared with the source model itself
            }
        )


ROUNDED = 1e-4
"""Share of pixels that roundings may move when no stage is at fault."""

Show = Callable[[PhotoFigures, Photo, Masked, NDArray[Any]], None]
"""A function that is shown each photo with its figures, the reference's mask and the bundle's."""


def verify(
    bundle: Bundle,
    against: Path,
    images: Path,
    *,
    labels: Path | None = None,
    replaced: Replaced | None = None,
    min_agreement: float | None = None,
    backend: Backend = "auto",
    show: Show | None = None,
    progress: Progress | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Report:
    """Run bundle and replaced pipeline on every photo, compare, and write the score into the passport.

    Args:
        bundle: what is verified.
        against: the model that it was built from, in its own format.
        images: folder of photos.
        labels: folder of ground truth: PNG masks of the same stem whose pixel values are class ids, 255 for none.
        replaced: what the replaced pipeline does.
        min_agreement: share of pixels that must agree apart from ties; None: by the bundle's precision.
        backend: as in `Segmenter`.
        show: takes pictures.
        progress: is told of the model's conversion, and warned.
        advance: is called after each photo.

    Raises:
        TrtpostError: with a sentence that says what is wrong and what to do.
    """
    if min_agreement is not None and not 0 <= min_agreement <= 1:
        raise SpecError(f"--min-agreement must be from 0 to 1, not {min_agreement:g}")
    progress, replaced, passport = progress or Progress(), replaced or Replaced(), bundle.passport
    photos = photos_in(images, "--images")
    truths = {} if labels is None else truths_in(labels, photos)
    kind = kind_of(against)
    content = content_of(against, kind)
    notes = []
    if content != passport.source_sha256:
        notes.append(
            f"{against} is not the file that the bundle was built from ({passport.source}, another SHA-256): what "
            "differs may come from that"
        )
    try:
        reference = reference_for(
            against, kind, replaced.options(passport), progress, gray_first=passport.post.size == "image"
        )
    except ModelError as error:
        raise _of_another(bundle, against, error) if notes else error from None
    if replaced.logits is not None and reference.located.output != replaced.logits:
        notes.append(
            f"'{replaced.logits}' lies inside of the model, whose framework shows its outputs only: "
            f"'{reference.located.output}' is compared"
        )
    if reference.decided.origin == "assumed":
        notes.append(
            "the model does not say how pixels are normalised: the replaced pipeline is ASSUMED to take "
            "(pixel - 127.5) / 127.5; settle it with --normalize"
        )
    with Segmenter(bundle, backend=backend) as segmenter:
        done, kernels = [], dict[str, Figures]()
        for one, expected, result in _compared(photos, truths, reference, segmenter, notes, kernels):
            done.append(one)
            if show is not None:
                show(one, result.photo, expected, result.mask)
            advance()
        if not done:
            raise ImageError(f"no photo of {images} fits the engine: {notes[-1].removeprefix(LEFT_OUT)}")
        done.sort(key=lambda one: (one.figures.agreement_apart_from_ties, one.figures.agreement))
        found = None
        if done[0].figures.real:
            found = blame(bundle, reference, segmenter(done[0].photo), done[0].photo.name)
        engine = segmenter.engine
    total = reduce(add, (one.figures for one in done))
    if found is not None and found.begins is None and total.real <= ROUNDED * total.pixels:
        more = counted(total.real, "pixel")
        notes.append(f"{more} differ by roundings that add up, for each stage does the same: counted as ties")
        total, found = replace(total, tied=total.tied + total.real), None
    spread = Spread(reference.network.kernels, tuple(kernels.items())) if kernels else None
    integers = computes_in_integers(reference.decided.model, kind)
    minimum, because = _minimum(min_agreement, passport, integers, spread)
    try:
        record_verification(bundle, _score(against, content, engine, done, total))
    except BundleError as error:
        notes.append(str(error))
    return Report(
        bundle=str(bundle.path),
        against=str(against),
        engine=engine,
        framework=reference.network.name,
        resizer=reference.resizer.name,
        pipeline=_describe(reference),
        classes=passport.classes,
        photos=tuple(done),
        total=total,
        minimum=minimum,
        because=because,
        blame=found,
        notes=tuple(notes),
        spread=spread,
    )


def _compared(
    photos: Iterable[Path],
    truths: dict[Path, Path],
    reference: Reference,
    segmenter: Segmenter,
    notes: list[str],
    kernels: dict[str, Figures],
) -> Iterator[tuple[PhotoFigures, Masked, Result]]:
    """Figures, reference's mask and bundle's result of each photo that fits the engine; others become notes.

    `kernels` takes the figures of the masks that the framework's other kernel sets give, by their names.
    """
    names = segmenter.bundle.passport.classes
    ties_known = True
    for path in photos:
        try:
            result = segmenter(path)
        except ImageError as error:
            notes.append(f"{LEFT_OUT}{'' if path.name in str(error) else f'{path}: '}{error}")
            continue
        truth = read_truth(truths[path], result.mask.shape, names) if path in truths else None
        expected = mask_of(result.photo, (result.mask.shape[0], result.mask.shape[1]), reference)
        ties_known &= expected.ties is not None
        classes = max(len(names), int(expected.labels.max()) + 1, int(result.mask.max()) + 1)
        figures = compare(expected, result.mask, truth, classes, IGNORED)
        for name, mask in other_masks(result.photo, (result.mask.shape[0], result.mask.shape[1]), reference):
            found = compare(expected, mask, None, max(classes, int(mask.max()) + 1))
            kernels[name] = kernels[name] + found if name in kernels else found
        yield PhotoFigures(path, result.photo.shape[:2], figures), expected, result
    if not ties_known:
        notes.append("the model ends in class ids and does not show its logits, so ties cannot be told apart")


LEFT_OUT = "a photo is left out: "


def _of_another(bundle: Bundle, against: Path, error: ModelError) -> ModelError:
    """The fault of a model that the bundle was not built from, whose own advice would lead nowhere."""
    return ModelError(
        f"{bundle.path} was built from another model ({bundle.passport.source}), and {against} does not fit it "
        f"({str(error).partition(':')[0]}): give the model that it was built from with --against"
    )


def reference_for(
    against: Path, kind: str, options: BuildOptions, progress: Progress, *, gray_first: bool
) -> Reference:
    """The replaced pipeline of a model: what a build would decide without a bundle's help.

    Raises:
        TrtpostError: the model cannot be understood, or run in its own framework.
    """
    decided = decide(against, kind, options, progress)
    if options.logits is not None and kind != "onnx":
        shown = {one.name for one in decided.model.graph.output}
        if options.logits not in shown:  # of the tensors inside, only ONNX shows those of a name
            decided = decide(against, kind, replace(options, logits=None), progress)
    resize = resizer(decided.post.resize, decided.post.match)
    network = _on_the_input(load_network(against, kind, decided, options.signature), decided)
    return Reference(decided, network, resize, gray_first)


def _on_the_input(network: Network, decided: Decided) -> Network:
    """The network with its answers laid on all of its input."""
    return replace(
        network,
        run=lambda tensor: laid_out(network.run(tensor), decided.located, decided.post, network.squashed),
        others=tuple(_on_the_input(one, decided) for one in network.others),
    )


def _minimum(given: float | None, passport: Passport, integers: bool, spread: Spread | None) -> tuple[float, str]:
    if given is not None:
        return given, "--min-agreement"
    if passport.precision != "fp32":
        return MIN_AGREEMENT[passport.precision], f"what is asked of {passport.precision}"
    if spread is not None and spread.least < QUANTISED:
        return spread.least, "the model is quantised, and TensorFlow Lite's own kernels differ by as much"
    if integers:
        return QUANTISED, "the model is quantised, and its roundings have no exact form in ONNX"
    return 1.0, "fp32 must be equal"


def _score(against: Path, content: str, engine: str, done: list[PhotoFigures], total: Figures) -> Verification:
    return Verification(
        against=printable(against.resolve().name),
        against_sha256=content,
        engine=engine,
        photos=len(done),
        pixels=total.pixels,
        agreement=total.agreement,
        ties=total.ties,
        real=total.real,
        mean_iou=total.overlap.mean_iou,
    )


def _describe(reference: Reference) -> str:
    background = reference.located.background
    steps = describe_spec(reference.pre, reference.post, reference.decided.origin, background)
    return steps.removesuffix(f", size {reference.post.size}")
