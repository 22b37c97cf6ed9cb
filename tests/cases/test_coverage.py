"""Networks whose logits do not cover their input: each pixel of the mask is where it is in the photo."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import package
from nets import GRAY, SIGNS, middle, net, published, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.errors import SpecError
from trtpost.kernels import cpu
from trtpost.progress import Progress
from trtpost.segment import Segmenter
from trtpost.spec import Coverage
from trtpost.verify.run import Replaced, verify


def valid(side: int = 64, convolutions: int = 6, *, extra: str = "", out: int = 0) -> onnx.ModelProto:
    """Bright is class 1, by 5x5 convolutions without padding: 64 become 40."""
    names = ["x", *(f"x{at}" for at in range(convolutions))]
    body = "x = Conv (image, gray)\n" + "\n".join(f"{after} = Conv ({before}, k)" for before, after in pairwise(names))
    out = out or side - 4 * convolutions
    body += f"\n{extra or f'last = Identity ({names[-1]})'}\n logits = Conv (last, signs)"
    return net(
        body,
        f"float[1,3,{side},{side}] image",
        f"float[1,2,{out},{out}] logits",
        gray=GRAY,
        k=middle(5),
        signs=SIGNS,
    )


def pooled(side: int = 95, *, up: bool = True) -> onnx.ModelProto:
    """Bright is class 1, by three pools that round down: 95 become 11, and 88 again where they are resized."""
    names = ["x", "p", "q", "r"]
    body = "x = Conv (image, gray)\n" + "\n".join(
        f"{after} = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> ({before})"
        for before, after in pairwise(names)
    )
    small = side // 8
    out = small * 8 if up else small
    resize = 'u = Resize <mode = "nearest"> (r, , eight)' if up else "u = Identity (r)"
    more = {"eight": np.array([1, 1, 8, 8], np.float32)} if up else {}
    return net(
        f"{body}\n{resize}\n logits = Conv (u, signs)",
        f"float[1,3,{side},{side}] image",
        f"float[1,2,{out},{out}] logits",
        gray=GRAY,
        signs=SIGNS,
        **more,
    )


def photo(size: tuple[int, int], rows: slice, columns: slice) -> np.ndarray:
    """Black, and white in a rectangle."""
    picture = np.zeros((*size, 3), np.uint8)
    picture[rows, columns] = 255
    return picture


def bundle_of(model: onnx.ModelProto, folder: Path, said: list[str] | None = None, **settings: object):
    progress = Progress()
    if said is not None:
        progress.warn = said.append  # type: ignore[method-assign]
    path = save(model, folder / "net.onnx")
    settings = {"flavour": "none", "normalize": "signed"} | settings
    return build(path, folder / "net.trtpost", progress=progress, force=True, **settings)


def mask_of(bundle, picture: np.ndarray) -> np.ndarray:
    with Segmenter(bundle, backend="onnxruntime") as segmenter:
        return segmenter(picture).mask


@pytest.fixture(params=["kernel", "function body"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "function body":
        monkeypatch.setattr(cpu, "is_available", lambda: False)
    elif not cpu.is_available():
        pytest.skip("the CPU extension is not built")
    return request.param


SIZES = {"runtime": "runtime", "fixed": (256, 256), "image": "image"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_valid_convolutions_keep_columns_where_they_are(tmp_path, resize, size):
    said: list[str] = []
    bundle = bundle_of(valid(), tmp_path, said, resize=resize, size=SIZES[size])
    mask = mask_of(bundle, photo((256, 256), slice(None), slice(64, 192)))
    assert np.flatnonzero(mask[128]).tolist() == list(range(64, 192))
    assert any("columns 12 to 52 of the 64x64 input" in one and "--outside" in one for one in said)
    assert bundle.passport.located.covers == Coverage(12, 12, 40, 40, (64, 64))


@pytest.mark.parametrize("up", [True, False], ids=["resized", "as they are"])
def test_pools_that_round_down_keep_an_edge_where_it_is(tmp_path, up):
    bundle = bundle_of(pooled(up=up), tmp_path)
    mask = mask_of(bundle, photo((950, 950), slice(None), slice(0, 400)))
    assert np.flatnonzero(mask[300]).tolist() == list(range(400))
    assert bundle.passport.located.covers == Coverage(0, 0, 88, 88, (95, 95))


def test_interpolated_pools_that_round_down_keep_an_edge_where_it_is(tmp_path):
    mask = mask_of(
        bundle_of(pooled(up=False), tmp_path, resize="bilinear"), photo((950, 950), slice(None), slice(0, 400))
    )
    assert np.flatnonzero(mask[300]).tolist() == list(range(400))


def test_a_letterbox_of_logits_that_lie_on_a_part(tmp_path):
    bundle = bundle_of(valid(), tmp_path, fit="letterbox")
    mask = mask_of(bundle, photo((128, 256), slice(None), slice(64, 192)))
    assert np.flatnonzero(mask[64]).tolist() == list(range(64, 192))
    mask = mask_of(bundle, photo((128, 256), slice(40, 88), slice(None)))
    assert np.flatnonzero(mask[:, 128]).tolist() == list(range(40, 88))


@pytest.mark.parametrize("match", ["tf", "tf1", "opencv", "pil"])
def test_every_convention_of_logits_that_lie_on_a_part(tmp_path, match):
    mask = mask_of(bundle_of(valid(), tmp_path, match=match), photo((256, 256), slice(None), slice(64, 192)))
    assert np.flatnonzero(mask[128]).tolist() == list(range(64, 192))


def test_what_no_logit_covers_is_what_is_nearest_or_a_class_by_its_id(tmp_path):
    white = photo((256, 256), slice(None), slice(None))
    assert mask_of(bundle_of(valid(), tmp_path), white).all()
    mask = mask_of(bundle_of(valid(), tmp_path, outside=0), white)
    assert np.flatnonzero(mask[128]).tolist() == list(range(48, 208))
    assert np.flatnonzero(mask.any(axis=1)).tolist() == list(range(48, 208))
    with pytest.raises(SpecError, match="none of the network's 2 classes"):
        bundle_of(valid(), tmp_path, outside=7)
    with pytest.raises(SpecError, match="--outside does not go with --resize bilinear"):
        bundle_of(valid(), tmp_path, outside=0, resize="bilinear")
    with pytest.raises(SpecError, match="--outside would do nothing"):
        bundle_of(pooled(96), tmp_path, outside=0)


@pytest.mark.parametrize(
    ("tail", "out"),
    [("s = Sigmoid (x5)", "float[1,1,40,40] s"), ("s = ArgMax <axis = 1, keepdims = 0> (l)", "int64[1,40,40] s")],
    ids=["threshold", "labels"],
)
def test_one_channel_and_class_ids_that_cover_a_part(tmp_path, tail, out):
    names = ["x", *(f"x{at}" for at in range(6))]
    body = "x = Conv (image, gray)\n" + "\n".join(f"{after} = Conv ({before}, k)" for before, after in pairwise(names))
    model = net(
        f"{body}\n l = Conv (x5, signs)\n {tail}", "float[1,3,64,64] image", out, gray=GRAY, k=middle(5), signs=SIGNS
    )
    head = "labels" if "ArgMax" in tail else None
    picture = photo((256, 256), slice(None), slice(64, 192))
    assert np.flatnonzero(mask_of(bundle_of(model, tmp_path, head=head), picture)[128]).tolist() == list(range(64, 192))
    mask = mask_of(bundle_of(model, tmp_path, head=head, outside=1), picture)
    assert np.flatnonzero(mask[128]).tolist() == [*range(48), *range(64, 192), *range(208, 256)]


def test_u_net_as_published_keeps_columns_where_they_are(tmp_path):
    mask = mask_of(bundle_of(published(252), tmp_path), photo((504, 504), slice(None), slice(200, 300)))
    assert np.flatnonzero(mask[250]).tolist() == list(range(200, 300))


@pytest.mark.parametrize("resize", ["nearest", "bilinear"])
def test_lower_precision_of_logits_that_lie_on_a_part(tmp_path, resize):
    bundle = bundle_of(pooled(up=False), tmp_path, resize=resize, precision="fp16")
    mask = mask_of(bundle, photo((950, 950), slice(None), slice(0, 400)))
    assert np.flatnonzero(mask[300]).tolist() == list(range(400))


@pytest.mark.parametrize(
    "settings", [{}, {"resize": "bilinear"}, {"outside": 0}, {"post": "kernel"}, {"fit": "letterbox"}]
)
def test_plans_of_logits_that_lie_on_a_part(tmp_path, settings):
    package("tensorrt_rtx")
    assert bundle_of(pooled(up=False), tmp_path, flavour="tensorrt_rtx", **settings).passport.plan is not None


def test_a_user_says_what_the_logits_cover(tmp_path):
    picture = photo((256, 256), slice(None), slice(64, 192))
    mask = mask_of(bundle_of(valid(), tmp_path, covers=(0, 0, 64, 64)), picture)
    assert np.flatnonzero(mask[128])[[0, -1]].tolist() == [26, 229]  # as if all were covered
    turned = valid(
        extra="n = NonZero (x5)\n m = Cast <to = 1> (n)\n z = ReduceMin <keepdims = 0> (m)\n last = Add (x5, z)"
    )
    mask = mask_of(bundle_of(turned, tmp_path, covers=(12, 12, 40, 40)), picture)
    assert np.flatnonzero(mask[128]).tolist() == list(range(64, 192))


def test_verify_lays_logits_out_by_itself_and_notices_a_wrong_part(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    noise = np.kron(np.random.default_rng(0).integers(0, 2, (16, 16), np.uint8) * 255, np.ones((16, 16), np.uint8))
    Image.fromarray(np.stack([noise] * 3, axis=2)).save(photos / "a.png")
    for model in (valid(), pooled(), pooled(up=False)):
        for resize in ("nearest", "bilinear"):
            bundle = bundle_of(model, tmp_path, resize=resize)
            report = verify(bundle, tmp_path / "net.onnx", photos, replaced=Replaced(normalize="signed"))
            assert report.total.real == 0, (resize, report.blame)
    bundle = bundle_of(valid(), tmp_path, outside=1)
    assert verify(bundle, tmp_path / "net.onnx", photos, replaced=Replaced(normalize="signed")).total.real == 0
    bundle = bundle_of(valid(), tmp_path, covers=(8, 12, 40, 40))
    report = verify(bundle, tmp_path / "net.onnx", photos, replaced=Replaced(normalize="signed"))
    assert report.total.real > 1000
    assert report.blame is not None
    assert any(
        "cover 8,12,40,40 of the input, the reference's 12,12,40,40 (--covers)" in one.text
        for one in report.blame.stages
    )
