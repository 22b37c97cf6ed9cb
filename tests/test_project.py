"""The files around the package: valid where a tool reads them, and true where a person does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import package, skip

import trtpost

ROOT = Path(__file__).parents[1]
WORKFLOW, HOOKS = ROOT / ".github" / "workflows" / "ci.yml", ROOT / ".pre-commit-config.yaml"
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def passes(*command: object) -> None:
    done = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def in_checkout(path: Path) -> Path:
    """A file of a checkout, which archives of the source do not have."""
    if not path.exists():
        skip(f"{path.name} is not here: this is no checkout")
    return path


def test_the_workflow_is_valid():
    package("check_jsonschema")
    passes("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", in_checkout(WORKFLOW))


def test_the_hooks_are_valid():
    package("pre_commit")
    passes("-m", "pre_commit", "validate-config", in_checkout(HOOKS))


def test_the_index_lists_every_page():
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8")))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_files_that_the_guides_name_are_there(page):
    text = (ROOT / page).read_text("utf-8")
    for name in re.findall(r"`((?:trtpost|plugins|tests|scripts|models)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name


def test_the_changelog_tells_of_this_version():
    assert re.search(rf"\b{re.escape(trtpost.__version__)}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"))


def test_every_python_that_is_claimed_is_tested():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    claimed = re.findall(r"Python :: (3\.\d+)", project)
    (tested,) = re.findall(r"python: \[(.*)\]", in_checkout(WORKFLOW).read_text("utf-8"))
    assert re.findall(r"3\.\d+", tested) == claimed
    assert re.findall(r"cp3\d+-", project) == [f"cp{one.replace('.', '')}-" for one in claimed]
