"""Which options make a build that must have a plan, and where they come from."""

from __future__ import annotations

from dataclasses import fields

import pytest

from trtpost.backends.tensorrt.settings import Settings
from trtpost.builder.options import BuildOptions, options_from, region_for
from trtpost.errors import SpecError


@pytest.mark.parametrize(
    ("settings", "wants"),
    [
        ({}, False),
        ({"flavour": "none"}, False),
        ({"precision": "fp16"}, False),  # the portable engine has it as well
        ({"flavour": "tensorrt"}, True),
        ({"flavour": "tensorrt_rtx"}, True),
        ({"post": "kernel"}, True),
        ({"workspace": 1}, True),
        ({"optimization_level": 0}, True),
        ({"timing_cache": "a.cache"}, True),
        ({"hardware_compatibility": "same"}, True),
        ({"compute_capabilities": ("8.9",)}, True),
    ],
)
def test_who_says_how_a_plan_is_built_wants_one(settings, wants):
    assert BuildOptions(**settings).wants_plan == wants


def test_what_the_builder_of_plans_is_told_are_options_too():
    """Each is stated once."""
    assert issubclass(BuildOptions, Settings)
    assert not BuildOptions.__annotations__.keys() & {one.name for one in fields(Settings)}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"workspace": 0}, "workspace must be from 1 to 1048576 MiB, not 0"),
        ({"precision": "fp8"}, "precision must be one of fp32, fp16, bf16, int8, not 'fp8'"),
        ({"hardware_compatibility": "any"}, r"hardware compatibility must be one of none, ampere\+, same, not 'any'"),
        ({"lowering": "out"}, "lowering must be one of function, inline, not 'out'"),
        ({"head": "out"}, "head must be one of argmax, threshold, labels, multilabel, not 'out'"),
        ({"flavour": "lite"}, "flavour must be auto, none, tensorrt or tensorrt_rtx, not 'lite'"),
        ({"precision": "int8"}, "precision int8 needs photos to calibrate with"),
        ({"min_agreement": 0.5}, "precision fp32 leaves the model as it is, so --min-agreement would do nothing"),
        ({"flavour": "none", "workspace": 1}, "flavour none builds no TensorRT plan, so --workspace would do nothing"),
        ({"presicion": "fp16"}, "build has no setting 'presicion'; did you mean precision"),
        ({"zzz": 1}, "build has no setting 'zzz'; there are .*normalize, .*max_size, .*"),
    ],
)
def test_sentences(settings, says):
    with pytest.raises(SpecError, match=f"^{says}"):
        options_from(settings)


def test_a_letterbox_leaves_its_bars_out():
    assert (region_for("letterbox"), region_for("stretch")) == ("runtime", "whole")
