"""What the tests share: real models and photos, converted once, and skipping that CI turns into failing."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import hypothesis
import onnx
import pytest

from trtpost.builder.build import build
from trtpost.bundle.folder import Bundle
from trtpost.cli.entry import main
from trtpost.convert import convert, worker

STRICT = bool(os.environ.get("TRTPOST_STRICT"))
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")  # the same cases for everybody; others by --hypothesis-profile=default
SKIPPED = "trtpost/skipped"  # what pytest's cache remembers of the last whole run
SHARED = Path(__file__).parents[2] / "shared"


if folder := os.environ.get("TRTPOST_CPU_EXTENSION"):  # another build of the native kernel, with sanitizers say
    (_library,) = Path(folder).glob("_cpu*.so")
    _spec = importlib.util.spec_from_file_location("trtpost._cpu", _library)
    sys.modules["trtpost._cpu"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["trtpost._cpu"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped", action="store_true", help="run only the tests that the last whole run skipped")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --skipped, leave out what ran."""
    if not config.getoption("--skipped"):
        return
    skipped = set(config.cache.get(SKIPPED, []))
    missing = skipped - {item.nodeid for item in items}
    if missing or not skipped:
        raise pytest.UsageError(f"no run of all tests before this one, or of other tests: {sorted(missing)[:3]}")
    ran = [item for item in items if item.nodeid not in skipped]
    config.hook.pytest_deselected(items=ran)
    items[:] = [item for item in items if item.nodeid in skipped]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Remember what a run of all tests skipped."""
    narrowed = config.args != config.getini("testpaths") or any(map(config.getoption, ("--skipped", "-k", "-m")))
    if not narrowed:
        config.cache.set(SKIPPED, sorted(report.nodeid for report in terminalreporter.stats.get("skipped", [])))


def skip(reason: str) -> None:
    """Skip, or fail where the environment promises that nothing is missing."""
    if STRICT:
        pytest.fail(f"would skip, but TRTPOST_STRICT is set: {reason}")
    pytest.skip(reason)


def package(name: str) -> ModuleType:
    """An optional package, or a skip."""
    try:
        return importlib.import_module(name)
    except ImportError:
        skip(f"{name} is not installed")
        raise


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` to `work(count - 1)` at once; what one of them raises fails the test."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


@pytest.fixture
def in_this_process(monkeypatch):
    """Models are converted in the test's own process, which imports TensorFlow once, not in a process for each."""
    monkeypatch.setattr("trtpost.convert._in_a_process", worker.answer)


def trtpost(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from trtpost.cli.entry import main; main()", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs the command line in this process: exit status, stdout and stderr; for all but signals and encodings."""

    def run(*arguments: object, cwd: Path) -> tuple[int, str, str]:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["trtpost", *map(str, arguments)])
        capfd.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capfd.readouterr()

    return run


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models and photos beside the project."""
    if not SHARED.is_dir():
        skip("real models and photos (../shared) are not here")
    return SHARED


@pytest.fixture(scope="session")
def converted(shared: Path, tmp_path_factory: pytest.TempPathFactory):
    """The ONNX file of a shared model; converts each model once."""
    folder = tmp_path_factory.mktemp("converted")

    def get(model: str) -> Path:
        source = folder / f"{Path(model).stem}.onnx"
        if not source.is_file():
            onnx.save(convert(shared / "models" / model), source)
        return source

    return get


@pytest.fixture(scope="session")
def built(converted: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory):
    """Builds bundles of the shared models, each once."""
    folder = tmp_path_factory.mktemp("built")
    bundles: dict[tuple, Bundle] = {}

    def get(model: str, **settings: object) -> Bundle:
        key = (model, *sorted(settings.items()))
        if key not in bundles:
            bundles[key] = build(converted(model), folder / f"{len(bundles)}.trtpost", **settings)
        return bundles[key]

    return get
