"""Sentences on missing packages: commands that work, whether or not trtpost is on a package index."""

from __future__ import annotations

import shlex

import pytest
from packaging.requirements import Requirement

from trtpost.errors import MissingPackageError
from trtpost.packages import installation, installed_version, require

EXTRAS = {
    "tf": {"keras", "tensorflow-cpu", "tf2onnx"},
    "rtx": {"tensorrt-rtx-cu13"},
    "tensorrt": {"tensorrt"},
    "heic": {"pi-heif"},
    "report": {"jinja2", "matplotlib"},
    "triton": {"tritonclient"},
    "ray": {"ray"},
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_command_names_what_the_extra_stands_for(extra):
    """Without `trtpost[extra]`, which pip would look for on the index, and with nothing of the base."""
    program, verb, *rest = shlex.split(installation(extra))
    assert (program, verb) == ("pip", "install")
    if "--extra-index-url" in rest:
        assert extra == "tensorrt"
        rest = rest[: rest.index("--extra-index-url")]
    needed = [Requirement(one) for one in rest]
    assert {one.name for one in needed} == EXTRAS[extra]
    assert all(str(one.specifier).startswith(">=") for one in needed)


def test_what_is_compiled_here_has_a_command_of_ours():
    assert installation("gpu") == "trtpost doctor --fix"


def test_a_missing_package_is_a_sentence():
    with pytest.raises(MissingPackageError, match=r"reports needs the package no_such: pip install 'jinja2>=3\.1'"):
        require("no_such", "report", "writing reports")


def test_versions_of_what_is_here():
    assert installed_version("no_such_module") is None
    assert installed_version("numpy")[0].isdigit()
