"""What is written for Triton: parsed back, checked against the engine it describes, never over somebody else's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import in_threads
from nets import nchw, save

import trtpost as tp
from trtpost.bundle.folder import load_bundle, read_bundle, write_bundle
from trtpost.bundle.passport import Plan
from trtpost.errors import SpecError, TrtpostError
from trtpost.triton.config import from_text
from trtpost.triton.export import export_triton

KINDS = {2: "uint8", 8: "int32", 9: "int64"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")

    def get(batch: str = "1", **settings):
        path = folder / f"{batch}{len(list(folder.iterdir()))}.trtpost"
        return tp.build(save(nchw(batch=batch), folder / "net.onnx"), path, flavour="none", **settings)

    return get


def config(folder: Path):
    return from_text((folder / "config.pbtxt").read_text(), str(folder))


def test_the_whole_bundle_is_one_model(bundle, tmp_path):
    (version,) = export_triton(bundle(), tmp_path / "repository", name="net", instances=3, max_batch=5)
    found = config(version.parent)
    assert (found.name, found.backend, found.max_batch_size, found.instance_group[0].count) == ("net", "python", 5, 3)
    assert {one.name: one.optional for one in found.input} == {"photo": True, "image": True}
    assert found.HasField("dynamic_batching")
    assert found.version_policy.latest.num_versions == 1
    assert found.model_warmup[0].inputs["image"].dims == [8, 12, 3]
    assert (version.parent / "labels.txt").read_text().splitlines() == [f"class {n}" for n in range(4)]
    assert load_bundle(version / "bundle.trtpost").passport.classes == tuple(f"class {n}" for n in range(4))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("batch", "settings", "limit"),
    [
        ("1", {}, 0),
        ("1", {"match": "pil"}, 0),
        ("1", {"fit": "letterbox"}, 0),
        ("1", {"size": (20, 30)}, 0),
        ("1", {"size": "image"}, 0),
        ("N", {"size": (20, 30)}, 8),
        ("N", {"size": "image"}, 8),
        ("N", {}, 0),
    ],
)
def test_the_configuration_is_that_of_the_engine(bundle, tmp_path, batch, settings, limit):
    built = bundle(batch, **settings)
    versions = export_triton(built, tmp_path / "repository", name="net", form="onnxruntime_onnx")
    engine = next(version for version in versions if (version / "model.onnx").is_file())
    found, session = config(engine.parent), onnxruntime.InferenceSession(engine / "model.onnx")
    assert found.max_batch_size == limit
    for stated, real in ((found.input, session.get_inputs()), (found.output, session.get_outputs())):
        shapes = {one.name: [dim if isinstance(dim, int) else -1 for dim in one.shape] for one in real}
        assert {one.name: ([-1] if limit else []) + list(one.dims) for one in stated} == shapes
        types = {one.name: one.type for one in real}
        assert {one.name: f"tensor({KINDS[one.data_type]})" for one in stated} == types
    assert len(versions) == (1 if settings.get("size") == "image" else 3)
    feeds = {}
    for name, value in found.model_warmup[0].inputs.items():
        shape = [1, *value.dims] if limit else value.dims
        file = engine.parent / "warmup" / value.input_data_file
        feeds[name] = np.fromfile(file, np.int64).reshape(shape) if value.input_data_file else np.zeros(shape, np.uint8)
    (mask,) = session.run(None, feeds)
    assert mask.ndim == 3


def test_the_ensemble_joins_steps_by_name(bundle, tmp_path):
    versions = export_triton(bundle(match="opencv"), tmp_path, name="net", form="onnxruntime_onnx")
    photo, engine, whole = (config(version.parent) for version in versions)
    assert (
        [step.model_name for step in whole.ensemble_scheduling.step]
        == ["net_photo", "net_engine"]
        == [
            photo.name,
            engine.name,
        ]
    )
    assert [one.name for one in photo.output] == [one.name for one in engine.input] == ["image", "rows", "cols"]
    assert [(one.name, list(one.dims)) for one in whole.output] == [("mask", [1, -1, -1])]


def test_a_plan_of_the_full_tensorrt_is_taken_as_it_is(bundle, tmp_path):
    built = bundle(fit="letterbox")
    plan = Plan("tensorrt", "10.9.0", ("8.9",), {}, {})

    def with_plan(changed: Plan):
        contents = read_bundle(built.path)
        return write_bundle(built.path, contents.model, b"a plan", replace(built.passport, plan=changed))

    _, engine, _ = export_triton(with_plan(plan), tmp_path, name="net", form="tensorrt_plan")
    assert (engine / "model.plan").read_bytes() == b"a plan"
    found = config(engine.parent)
    assert (found.backend, found.platform) == ("tensorrt", "tensorrt_plan")
    assert {one.name: one.is_shape_tensor for one in found.input} == {
        "image": False,
        "output_size": True,
        "region": True,
    }
    for changed, word in ((replace(plan, flavour="tensorrt_rtx"), "RTX"), (replace(plan, post="kernel"), "kernel")):
        refused = with_plan(changed)
        with pytest.raises(SpecError, match=word):
            export_triton(refused, tmp_path, name="other", form="tensorrt_plan")
    assert not (tmp_path / "other").exists()


def test_versions_count_up_and_nothing_else_is_replaced(bundle, tmp_path):
    built = bundle()
    for number in (1, 2, 3):
        assert export_triton(built, tmp_path, name="net") == [tmp_path / "net" / str(number)]
    before = (tmp_path / "net" / "config.pbtxt").stat().st_mtime_ns
    export_triton(built, tmp_path, name="net")
    assert (tmp_path / "net" / "config.pbtxt").stat().st_mtime_ns == before  # Triton would load everything again
    export_triton(built, tmp_path, name="net", instances=2)
    assert config(tmp_path / "net").instance_group[0].count == 2
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.pbtxt").write_text('name: "theirs" backend: "python"')
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "config.pbtxt").write_text("no configuration {")
    (tmp_path / "empty").mkdir()
    for name, form, word in (
        ("theirs", "python", "did not write"),
        ("empty", "python", "did not write"),
        ("strange", "python", "not a configuration"),
        ("net", "onnxruntime_onnx", "another kind"),
    ):
        with pytest.raises(TrtpostError, match=word):
            export_triton(built, tmp_path, name=name, form=form)
    (tmp_path / "file").write_text("")
    with pytest.raises(TrtpostError, match="cannot write the model repository"):
        export_triton(built, tmp_path / "file", name="net")


def test_what_makes_no_model(bundle, tmp_path):
    built = bundle()
    for settings, word in (
        ({"name": "a/b"}, "letters"),
        ({"name": ""}, "letters"),
        ({"form": "pytorch"}, "form must be one of"),
        ({"instances": 0}, "at least one"),
        ({"max_batch": 0}, "1 to 65536"),
        ({"max_batch": 4_000_000_000}, "1 to 65536"),
        ({"form": "tensorrt_plan"}, "no TensorRT plan"),
        ({"form": "onnxruntime_onnx", "max_batch": 4}, "batch is fixed"),
    ):
        with pytest.raises(SpecError, match=word):
            export_triton(built, tmp_path / "repository", **({"name": "net"} | settings))
    with pytest.raises(SpecError, match="value of each request"):
        export_triton(bundle("N"), tmp_path / "repository", name="net", form="onnxruntime_onnx", max_batch=4)
    assert not (tmp_path / "repository").exists()


def test_the_name_is_that_of_the_bundle(bundle, tmp_path):
    built = bundle()
    named = built.path.rename(tmp_path / "Straße 1.trtpost")
    (version,) = export_triton(load_bundle(named), tmp_path / "repository")
    assert version.parent.name == "Stra_e_1"


def test_a_part_of_an_ensemble_is_no_model_of_its_own(bundle, tmp_path):
    """A name that another model's part has, or would take, is left to that."""
    built = bundle()
    export_triton(built, tmp_path, name="steps", form="onnxruntime_onnx")
    export_triton(built, tmp_path, name="whole_photo")
    for name, form in (("steps_photo", "python"), ("whole", "onnxruntime_onnx")):
        with pytest.raises(TrtpostError, match="another kind"):
            export_triton(built, tmp_path, name=name, form=form)
    with pytest.raises(TrtpostError, match="other inputs or outputs"):
        export_triton(bundle(match="pil"), tmp_path, name="steps", form="onnxruntime_onnx")
    assert not (tmp_path / "whole").exists()
    assert [path.name for path in (tmp_path / "steps_photo").glob("[0-9]*")] == ["1"]


def test_exports_at_once_count_on(bundle, tmp_path):
    built = bundle()
    in_threads(8, lambda _: export_triton(built, tmp_path / "repository", name="net"))
    assert {path.name for path in (tmp_path / "repository" / "net").glob("[0-9]*")} == set("12345678")
    assert not [path for path in tmp_path.rglob(".*") if path.is_dir()]


def test_a_repository_whose_parent_cannot_hold_the_new_version(bundle, tmp_path, monkeypatch):
    """A mounted volume, say: the version is put together in the model's own folder."""
    built, repository = bundle(), tmp_path / "repository"
    monkeypatch.setattr("trtpost.triton.export.os.access", lambda *_: False)
    for number in (1, 2):
        (version,) = export_triton(built, repository, name="net")
        assert version == repository / "net" / str(number)
    (repository / "net" / "9²").mkdir()
    export_triton(built, repository, name="net")
    assert sorted(path.name for path in (repository / "net").iterdir()) == [
        *("1", "2", "3", "9²", "config.pbtxt", "labels.txt")
    ]


def test_what_a_killed_export_left_goes_with_the_next(bundle, tmp_path):
    """It lies hidden beside the repository, and nobody has locked it."""
    left, theirs = tmp_path / ".repository.abcd_123.part", tmp_path / ".repository.backup"
    for folder in (left, theirs):
        folder.mkdir()
        (folder / "1").touch()
    export_triton(bundle(), tmp_path / "repository", name="net")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".repository.backup", "repository"]
