"""The plan of the house: imports go down only, and what only runs needs little."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(importlib.util.find_spec("trtpost").origin).parent

FLOORS = (
    {"errors"},
    {"spec", "letterbox", "cores", "timing", "progress", "packages", "terminal", "onnx_runtime"},
    {"cuda", "coerce", "storage", "kernels", "graph"},
    {"photos", "bundle", "graph.reading"},
    {"masks", "convert", "graph.head"},
    {"graph.baking"},
    {"graph.precision", "export"},
    {"backends"},
    {"describe", "segment"},
    {"jobs", "builder"},
    {"verify", "triton", "ray"},
    {"bench"},
    {"cli"},
)
"""Rooms, and modules that are one by themselves, from the ground up: each imports from its own and from lower floors,
and never from a room beside it."""

FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

FRONT = {"__init__", "__main__", "_cpu"}
"""What is no room: the names of `import trtpost`, the way in, and the compiled kernels."""


def room_of(module: tuple[str, ...]) -> str:
    """`('graph', 'head', 'locate')` is in `graph.head`, and `('graph', 'proto')` in `graph`."""
    inner = module[:1] == ("graph",) and len(module) > 1 and (PACKAGE / "graph" / module[1]).is_dir()
    return ".".join(module[: 2 if inner else 1])


def imports_of(path: Path) -> Iterator[tuple[str, ...]]:
    """Modules of ours that a file imports, those in functions among them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "trtpost":
            base = tuple(node.module.split(".")[1:])
            for name in node.names:
                inner = (*base, name.name)
                is_module = (PACKAGE.joinpath(*inner)).is_dir() or PACKAGE.joinpath(*inner).with_suffix(".py").exists()
                yield inner if is_module else base


def sources() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).with_suffix("").parts
        if module[0] not in FRONT:
            yield room_of(module[:-1] if module[-1] == "__init__" else module), path


def test_every_room_is_on_a_floor():
    assert {room for room, _ in sources()} == set(FLOOR)


@pytest.mark.parametrize("room", sorted(FLOOR))
def test_imports_go_down(room):
    for _, path in ((one, path) for one, path in sources() if one == room):
        for module in imports_of(path):
            other = room_of(module)
            if module and module[0] not in FRONT and other != room:
                assert FLOOR[other] < FLOOR[room], f"{path} imports {'.'.join(module)}"


def loaded_by(module: str) -> list[str]:
    """Modules of ours with code in them, not the empty ones that make a folder a package, that an import loads."""
    code = f"import sys, {module}; print(*sorted(name for name in sys.modules if name.startswith('trtpost.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folders = {".".join(("trtpost", *path.parent.relative_to(PACKAGE).parts)) for path in PACKAGE.rglob("__init__.py")}
    return [name for name in done.stdout.split() if name not in folders]


@pytest.mark.parametrize(
    ("module", "most", "rooms"),
    [
        ("trtpost.bundle.folder", 8, {"bundle", "errors", "graph", "spec", "storage"}),
        ("trtpost.verify.compare", 1, {"verify"}),
        (
            "trtpost.segment",
            35,
            {
                *("errors", "spec", "letterbox", "cores", "timing", "packages", "cuda", "onnx_runtime", "storage"),
                *("kernels", "graph", "photos", "bundle", "masks", "backends", "segment"),
            },
        ),
    ],
)
def test_what_only_runs_needs_little(module, most, rooms):
    loaded = loaded_by(module)
    assert len(loaded) <= most, loaded
    assert {room_of(tuple(name.split(".")[1:])) for name in loaded} <= rooms
