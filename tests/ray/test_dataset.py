"""Archives on a real Ray of this machine: nothing is lost, nothing is done twice."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import package
from nets import nchw, save
from PIL import Image

from trtpost.builder.build import build
from trtpost.bundle.folder import read_again
from trtpost.errors import BundleError, MissingPackageError, SpecError, TrtpostError
from trtpost.jobs.paths import plan_jobs
from trtpost.photos.find import find_photos
from trtpost.photos.limits import MAX_PIXELS
from trtpost.ray.actor import RESULTS, Actor, PhotoRow, Settings
from trtpost.ray.cluster import cluster
from trtpost.ray.dataset import dataset_of, photos_in, row_of, segment_dataset, segment_jobs
from trtpost.segment import Segmenter

# Ray's own, which sets its deprecated settings itself
pytestmark = pytest.mark.filterwarnings("ignore:::ray", "ignore::ResourceWarning")

RNG = np.random.default_rng(0)
COUNT, BROKEN = 500, 10


@pytest.fixture(scope="module")
def ray():
    module = package("ray")
    with cluster("local"):
        yield module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def bundle(folder):
    return build(save(nchw(), folder / "net.onnx"), folder / "net.trtpost", flavour="none")


@pytest.fixture(scope="module")
def photos(folder):
    """500 photos in three folders, mixed sizes and formats, 10 of them broken."""
    root = folder / "photos"
    for name in ("a", "a/b", "c d"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for index in range(COUNT):
        name = ("a", "a/b", "c d")[index % 3]
        # every stem twice, so that names have to keep the suffix
        path = root / name / f"{index // 6}.{('jpg', 'png')[index // 3 % 2]}"
        size = (10 + index % 31, 12 + index % 29, 3)
        Image.fromarray(RNG.integers(0, 256, size, np.uint8)).save(path)
        if index % (COUNT // BROKEN) == 7:
            content = path.read_bytes()
            path.write_bytes((b"", content[:80], content[: len(content) // 2], b"text")[index // 50 % 4])
    (root / "notes.txt").write_text("no photo")
    (root / ".hidden.jpg").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def expected(bundle, photos):
    """Masks of one process by their photos' paths; None where it finds an error."""
    segmenter, masks = Segmenter(bundle), {}
    for path in (path for path in sorted(photos.rglob("*.*")) if path.suffix in (".jpg", ".png") and path.stem):
        if path.name.startswith("."):
            continue
        try:
            masks[str(path)] = segmenter(path).mask
        except TrtpostError:
            masks[str(path)] = None
    assert (len(masks), list(map(id, masks.values())).count(id(None))) == (COUNT, BROKEN)
    return masks


def our_actors() -> list[int]:
    """Processes below this one that are actors of ours."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat, name = (entry / "stat").read_text(), (entry / "cmdline").read_text()
            except OSError:  # it has ended
                continue
            parents[int(entry.name)] = (int(stat.rpartition(")")[2].split()[1]), name)

    def below(process: int) -> bool:
        while process in parents:
            process = parents[process][0]
            if process == os.getpid():
                return True
        return False

    return [process for process, (_, name) in parents.items() if "(Actor)" in name and below(process)]


def mask_of(row) -> np.ndarray:
    with Image.open(io.BytesIO(row.mask) if isinstance(row.mask, bytes) else row.mask) as image:
        return np.asarray(image)


@pytest.fixture(scope="module")
def first_run(ray, bundle, photos, folder):  # noqa: ARG001, it must be running
    """Rows of a run on two workers, one of which is killed half-way, and the processes that were killed."""
    output, killed = folder / "masks", []

    def kill() -> None:
        while len(list(output.rglob("*.mask.png"))) < COUNT // 3:
            time.sleep(0.005)
        killed.append(our_actors()[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    rows = [row_of(entry) for entry in segment_dataset(photos_in(photos), bundle, output=output, actors=2).iter_rows()]
    killer.join(10)
    return rows, killed


@pytest.mark.usefixtures("ray")
def test_a_killed_worker_loses_nothing(first_run, expected, folder):
    rows, killed = first_run
    assert len(killed) == 1
    assert {row.path for row in rows} == set(expected)
    assert len(rows) == len({row.mask for row in rows if row.error is None}) + BROKEN == COUNT
    for row in rows:
        mask = expected[row.path]
        assert (row.error is None) == (mask is not None), row
        if mask is None:
            assert row.error
            assert (row.mask, row.size) == (None, (0, 0))
        else:
            assert row.size == mask.shape
            np.testing.assert_array_equal(mask_of(row), mask)
    assert len(list((folder / "masks").rglob("*.mask.png"))) == COUNT - BROKEN
    assert (folder / "masks" / "a" / "b" / "2.jpg.mask.png").is_file()


@pytest.mark.usefixtures("ray", "first_run")
def test_a_second_run_skips_all(bundle, photos, folder, expected):
    output, seen = folder / "masks", []
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.png")}
    jobs = plan_jobs(find_photos([photos]), output, overlay=False)
    outcomes = segment_jobs(jobs, bundle, address="local", done=lambda: seen.append(1))
    assert [outcome.job for outcome in outcomes] == jobs
    assert sum(outcome.skipped for outcome in outcomes) == COUNT - BROKEN
    assert sum(outcome.error is not None for outcome in outcomes) == BROKEN
    assert all(outcome.size == expected[str(outcome.job.photo.path)].shape for outcome in outcomes if outcome.skipped)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.png")} == before
    assert len(seen) == COUNT


def test_content_and_other_columns_to_parquet(ray, bundle, expected, tmp_path):
    parquet = package("pyarrow.parquet")
    paths = [path for index, path in enumerate(expected) if index % 25 == 0 or expected[path] is None]
    dataset = ray.data.read_binary_files(paths, include_paths=True).map(lambda row: row | {"number": len(row["bytes"])})
    segment_dataset(dataset, bundle, encoding="packed").write_parquet(str(tmp_path))
    table = parquet.read_table(tmp_path)
    assert set(table.column_names) == {"path", "number", *RESULTS}
    rows = table.to_pylist()
    assert sorted(row["path"] for row in rows) == sorted(paths)
    for row in rows:
        assert row["number"] == Path(row["path"]).stat().st_size
        mask = expected[row["path"]]
        assert (row["error"] is None) == (mask is not None)
        assert not row["skipped"]
        if mask is not None:
            assert row["mask"][24] == 2  # four classes
            np.testing.assert_array_equal(mask_of(row_of(row)), mask)


@pytest.fixture
def actor(ray, bundle):
    """Makes an actor in this process: what it does with rows, without the wait for a process of its own."""

    def make(output: Path | str | None, **settings) -> Actor:
        values = {"resume": True, "encoding": "palette", "fast_decode": False, "backend": "onnxruntime", "cores": 1}
        values |= {"folder": "/nowhere", "filesystem": None, "output_filesystem": None, "max_pixels": MAX_PIXELS}
        values |= settings
        return Actor(ray.put(read_again(bundle).files), Settings(output=output and str(output), **values))

    return make


def rows_of(actor, **columns) -> list[PhotoRow]:
    pyarrow = package("pyarrow")
    return [row_of(entry) for entry in actor(pyarrow.table(columns)).to_pylist()]


def test_a_photo_of_more_pixels_than_an_actor_may_hold_is_an_error_of_its_row(actor, tmp_path):
    for name, size in (("small.png", (20, 30)), ("large.png", (40, 50))):
        Image.fromarray(RNG.integers(0, 256, (*size, 3), np.uint8)).save(tmp_path / name)
    paths = [str(tmp_path / name) for name in ("small.png", "large.png")]
    small, large = rows_of(actor(None, max_pixels=1999), path=paths)
    assert (small.error, small.size) == (None, (20, 30))
    assert "raise --max-pixels" in large.error
    assert [row.error for row in rows_of(actor(None, max_pixels=2000), path=paths)] == [None, None]


def test_what_is_damaged_or_older_than_its_photo_is_made_again(actor, tmp_path):
    photo, mask = tmp_path / "photo.jpg", tmp_path / "out" / "photo.mask.png"
    Image.fromarray(RNG.integers(0, 256, (40, 50, 3), np.uint8)).save(photo)
    run = actor(tmp_path / "out")

    def skipped() -> bool:
        (row,) = rows_of(run, path=[str(photo)], target=["photo.mask.png"])
        assert (row.error, row.size, row.mask) == (None, (40, 50), str(mask))
        return row.skipped

    assert [skipped(), skipped()] == [False, True]
    good = mask.read_bytes()
    for content in (good[:-1], good[:200], b"", good.replace(b"trtpost\0", b"trtpost\0" + b"0")):
        mask.write_bytes(content)
        assert not skipped()
        assert mask.read_bytes() == good
    os.utime(photo, ns=(1, 1))
    assert [skipped(), skipped()] == [False, True]
    assert not rows_of(actor(tmp_path / "out", resume=False), path=[str(photo)], target=["photo.mask.png"])[0].skipped
    assert not rows_of(actor(tmp_path / "out", fast_decode=True), path=[str(photo)], target=["photo.mask.png"])[
        0
    ].skipped
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["photo.mask.png"]


def test_content_is_skipped_only_where_the_mask_is_of_exactly_this(actor, bundle, tmp_path):
    """Two photos of one name, size and length, without files whose dates could tell them apart."""
    contents = []
    for _ in range(2):
        stream = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (40, 50, 3), np.uint8)).save(stream, "BMP")
        contents.append(stream.getvalue())
    assert len(contents[0]) == len(contents[1])
    run, mask = actor(tmp_path / "out"), tmp_path / "out" / "p.png"

    def skipped(content: bytes | None, path: str = "p.bmp") -> bool:
        (row,) = rows_of(run, path=[path], bytes=[content], target=["p.png"])
        assert (row.error, row.size) == (None, (40, 50))
        return row.skipped

    for content in contents:
        assert [skipped(content), skipped(content)] == [False, True]
        np.testing.assert_array_equal(np.asarray(Image.open(mask)), Segmenter(bundle)(content).mask)
    # neither a mask of a file nor one that does not say what it is of
    (tmp_path / "p.bmp").write_bytes(contents[1])
    assert not skipped(None, str(tmp_path / "p.bmp"))
    assert not skipped(contents[1])
    Segmenter(bundle)(contents[1]).save_mask(mask)
    assert not skipped(contents[1])


def test_whatever_fails_is_a_row(actor, tmp_path):
    photo = tmp_path / "photo.jpg"
    Image.fromarray(RNG.integers(0, 256, (40, 50, 3), np.uint8)).save(photo)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("in the way")
    paths = [str(photo), str(tmp_path / "none.jpg"), str(tmp_path), None, "nowhere://x/y.jpg", str(photo)]
    targets = ["good.mask.png", "a", "b", "c", "d", "file/x.mask.png"]
    rows = rows_of(actor(tmp_path / "out"), path=paths, target=targets)
    assert [row.error is None for row in rows] == [True, False, False, False, False, False]
    assert rows[1].error == f"no such image: {tmp_path / 'none.jpg'}"
    assert "is a folder, not an image" in rows[2].error
    assert "neither a path nor bytes" in rows[3].error
    assert "no file system that pyarrow knows" in rows[4].error
    assert all("\n" not in row.error for row in rows[1:])
    assert not any(file.name.startswith(".") for file in (tmp_path / "out").rglob("*"))


def test_any_file_system_and_names_without_targets(actor, bundle):
    package("pyarrow")
    from pyarrow.fs import _MockFileSystem

    files, stream = _MockFileSystem(), io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (40, 50, 3), np.uint8)).save(stream, "PNG")
    files.create_dir("bucket/x")
    with files.open_output_stream("bucket/x/1.png") as file:
        file.write(stream.getvalue())
    for uri in ("mock://bucket/x/1.png", "bucket/x/1.png"):
        run = actor("mock://masks/", filesystem=files, output_filesystem=files)
        (row,) = rows_of(run, path=[uri])
        assert (row.mask, row.error) == ("mock://masks/bucket/x/1.png.mask.png", None)
        assert row.skipped == (uri == "bucket/x/1.png")
    (row,) = rows_of(run, path=["elsewhere.png"], bytes=[stream.getvalue()])
    assert row.mask == "mock://masks/elsewhere.png.mask.png"
    with files.open_input_file("masks/elsewhere.png.mask.png") as file, Image.open(file) as image:
        np.testing.assert_array_equal(np.asarray(image), Segmenter(bundle)(stream.getvalue()).mask)


def test_different_paths_are_different_masks_of_the_callers_folder(actor, tmp_path):
    """Relative, absolute, with `..`, in a bucket: no two photos share a mask, and no mask is without a name."""
    stream = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (9, 9, 3), np.uint8)).save(stream, "PNG")
    run = actor(tmp_path / "out", folder="/home/me")
    names = {
        "p.jpg": "home/me/p.jpg",
        "../p.jpg": "home/p.jpg",
        "x/../q.jpg": "home/me/q.jpg",
        "/p.jpg": "p.jpg",
        "file:///q.jpg": "q.jpg",
        "s3://p.jpg": "s3/p.jpg",
        "gs://bucket/p.jpg": "gs/bucket/p.jpg",
    }
    rows = rows_of(run, path=list(names), bytes=[stream.getvalue()] * len(names))
    assert [(row.path, row.mask, row.error) for row in rows] == [
        (path, f"{tmp_path}/out/{name}.mask.png", None) for path, name in names.items()
    ]
    assert len(list((tmp_path / "out").rglob("*.png"))) == len(names)
    wrong = ["", None, "s3://bucket/../p.jpg", "s3://bucket//p.jpg"]
    rows = rows_of(run, path=wrong, bytes=[stream.getvalue()] * len(wrong))
    assert all(row.error and row.mask is None for row in rows)
    (row,) = rows_of(run, path=[None], bytes=[stream.getvalue()], target=["t.png"])
    assert row.error is None
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / "p.png").write_bytes(stream.getvalue())
    (row,) = rows_of(actor(None, folder=str(tmp_path / "me")), path=["p.png"])
    assert (row.path, row.size, row.error) == ("p.png", (9, 9), None)


def test_a_target_is_a_file_below_the_output(actor, tmp_path):
    stream = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (9, 9, 3), np.uint8)).save(stream, "PNG")
    wrong = ["../x.png", "a/../../x.png", "t/", "..", ".", "a/.", "/x.png", f"{tmp_path}/x.png"]
    targets = [*wrong, "a/b.png", "..a.png"]
    rows = rows_of(
        actor(tmp_path / "out"), path=["k"] * len(targets), bytes=[stream.getvalue()] * len(targets), target=targets
    )
    assert [row.error for row in rows] == [f"target {one} is no path of a file below the output" for one in wrong] + [
        None,
        None,
    ]
    assert sorted(path.name for path in tmp_path.rglob("*.png")) == ["..a.png", "b.png"]


def test_values_of_other_types_are_rows_with_errors(actor, tmp_path):
    run = actor(tmp_path / "out")
    for columns in ({"path": [3]}, {"path": [b"a"]}, {"path": ["a"], "bytes": ["a"]}, {"path": ["a"], "target": [3]}):
        (entry,) = run(package("pyarrow").table(columns)).to_pylist()
        assert "and has to be" in entry["error"]
        assert entry["path"] == columns["path"][0]


def test_no_rows_give_no_rows(ray, bundle, tmp_path):
    dataset = ray.data.from_items([{"path": "a.jpg"}]).filter(lambda _: False).materialize()
    assert segment_dataset(dataset, bundle, output=tmp_path).take_all() == []


@pytest.mark.usefixtures("ray")
def test_photos_of_a_folder_keep_their_folders(photos, tmp_path):
    dataset = photos_in(photos)
    targets = {row["path"]: row["target"] for row in dataset.take_all()}
    assert len(targets) == len({target.casefold() for target in targets.values()}) == COUNT
    assert targets[str(photos / "c d" / "2.png")] == "c d/2.png.mask.png"
    assert {row["path"]: row["target"] for row in photos_in(f"file://{photos}/").take_all()} == {
        f"file://{path}": target for path, target in targets.items()
    }
    (tmp_path / "A.jpg").write_bytes(b"")
    (tmp_path / "b.jpg").write_bytes(b"")
    (tmp_path / "b.mask.png").write_bytes(b"")
    assert [row["target"] for row in photos_in(tmp_path).take_all()] == ["A.mask.png", "b.mask.png"]
    for empty in (tmp_path / "none", tmp_path / "A.jpg"):
        with pytest.raises(SpecError, match=r"cannot be read|holds no photo"):
            photos_in(empty)
    with pytest.raises(SpecError, match="no file system that pyarrow knows"):
        photos_in("nowhere://photos")


def test_what_cannot_be_is_said_at_once(ray, bundle, tmp_path):
    dataset = dataset_of(["a.jpg"], ["a.mask.png"])
    with pytest.raises(SpecError, match=r"needs a column 'path'.*has name"):
        segment_dataset(ray.data.from_items([{"name": "a.jpg"}]), bundle)
    with pytest.raises(SpecError, match=r"\.jpg is no UTF-8"):
        dataset_of([os.fsdecode(b"\xff.jpg")], ["a.mask.png"])
    with pytest.raises(SpecError, match="has a column 'error' already"):
        segment_dataset(ray.data.from_items([{"path": "a.jpg", "error": ""}]), bundle)
    with pytest.raises(SpecError, match="no room for 1000 actors"):
        segment_dataset(dataset, bundle, actors=1000)
    with pytest.raises(SpecError, match="no room for 1 actors on 1000 of its"):
        segment_dataset(dataset, bundle, cores=1000)
    with pytest.raises(SpecError, match="backend tensorrt cannot run, because the bundle has no plan"):
        segment_dataset(dataset, bundle, backend="tensorrt")
    for column in ({"path": 3}, {"path": b"a"}, {"path": ["a"]}, {"bytes": "a"}, {"bytes": [1]}, {"target": 3}):
        with pytest.raises(SpecError, match=f"column '{next(iter(column))}' is of type"):
            segment_dataset(ray.data.from_items([{"path": "a.jpg"} | column]), bundle)
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(SpecError, match="cores must be a whole number from 1 to 1024"):
            segment_dataset(dataset, bundle, cores=wrong)
        with pytest.raises(SpecError, match="actors must be a whole number from 1,"):
            segment_dataset(dataset, bundle, actors=wrong)
        with pytest.raises(SpecError, match="max_pixels must be a whole number from 1,"):
            segment_dataset(dataset, bundle, max_pixels=wrong)
    with pytest.raises(SpecError, match="backend must be auto, tensorrt or onnxruntime, not 'x'"):
        segment_dataset(dataset, bundle, backend="x")
    with pytest.raises(BundleError, match="no such engine bundle"):
        segment_dataset(dataset, tmp_path / "none.trtpost")


def test_an_actor_takes_a_gpu_where_there_is_one_for_the_plan(ray, bundle, tmp_path, monkeypatch):
    package("tensorrt_rtx")
    pyarrow = package("pyarrow")
    planned = build(save(nchw(), tmp_path / "net.onnx"), tmp_path / "net.trtpost")
    asked = []

    class Dataset:
        def schema(self):
            return pyarrow.schema({"path": pyarrow.string()})

        def map_batches(self, function, **settings):
            assert function is Actor
            asked.append(settings)

    def ask(bundle, **settings):
        segment_dataset(Dataset(), bundle, **settings)
        actor = asked[-1]["fn_constructor_kwargs"]["settings"]
        return {key: asked[-1].get(key) for key in ("num_gpus", "num_cpus")}, actor.backend, actor.cores

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 2.0})
    assert ask(planned) == ({"num_gpus": 1, "num_cpus": None}, "auto", 4)
    assert (asked[-1]["compute"].min_size, asked[-1]["compute"].max_size) == (1, 2)
    assert ask(planned, cores=3, actors=2) == ({"num_gpus": 1, "num_cpus": None}, "auto", 3)
    assert ask(planned, backend="onnxruntime", cores=2) == ({"num_gpus": None, "num_cpus": 2}, "onnxruntime", 2)
    assert asked[-1]["compute"].max_size == 3  # of four, one pair of cores is left to those who read the dataset
    assert ask(bundle) == ({"num_gpus": None, "num_cpus": 1}, "onnxruntime", 1)
    with pytest.raises(SpecError, match="no room for 3 actors on 2 GPUs"):
        ask(planned, actors=3)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    with pytest.raises(SpecError, match="backend tensorrt cannot run, because the cluster has no GPU"):
        ask(planned, backend="tensorrt")


def test_a_missing_ray_is_named(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'ray\[data\]>="):
        segment_dataset(None, bundle)
