"""What a plan is built with, whatever the flavour of TensorRT: what one of them lacks is refused elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from trtpost.coerce import convert_fields
from trtpost.errors import SpecError
from trtpost.spec import PRECISIONS, Compatibility, Place, Precision, one_of

COMPATIBILITIES: dict[Compatibility, str] = {
    "none": "NONE",
    "ampere+": "AMPERE_PLUS",
    "same": "SAME_COMPUTE_CAPABILITY",
}
"""Our name to the member of TensorRT's `HardwareCompatibilityLevel`."""

MAX_LEVEL = 5

MAX_WORKSPACE = 1 << 20
"""MiB that no GPU exceeds."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the builder is told beside the graph and its ranges; every default is TensorRT's own.

    Attributes:
        precision: that most of the graph must compute in, else the build fails; `fp32`: whatever the graph has.
        post: where the mask is made: `native` layers of the plan, our `kernel` after a plan that ends in logits, or
            our `plugin` in the plan.
        workspace: MiB that a layer may use while it runs; None leaves it to TensorRT.
        optimization_level: 0 (builds fastest) to 5 (runs fastest); None leaves it to TensorRT.
        timing_cache: file with what earlier builds measured; read if it is there, and written after the build.
        hardware_compatibility: GPUs beside the one that builds: `none`, `ampere+`, or `same` compute capability.
        compute_capabilities: to compile for, such as `8.9`; empty: the flavour's default.
    """

    precision: Precision = "fp32"
    post: Place = "native"
    workspace: int | None = None
    optimization_level: int | None = None
    timing_cache: Path | None = None
    hardware_compatibility: Compatibility = "none"
    compute_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self)
        one_of("precision", self.precision, PRECISIONS)
        one_of("post", self.post, get_args(Place))
        one_of("hardware compatibility", self.hardware_compatibility, COMPATIBILITIES)
        if self.workspace is not None and not 1 <= self.workspace <= MAX_WORKSPACE:
            raise SpecError(f"workspace must be from 1 to {MAX_WORKSPACE} MiB, not {self.workspace}")
        if self.optimization_level is not None and not 0 <= self.optimization_level <= MAX_LEVEL:
            raise SpecError(f"optimization level must be from 0 to {MAX_LEVEL}, not {self.optimization_level}")
        for one in self.compute_capabilities:
            if not re.fullmatch(r"[1-9]\d?\.\d", one, re.ASCII):
                raise SpecError(f"a compute capability must be such as 8.9, not '{one}'")
        if len(set(self.compute_capabilities)) < len(self.compute_capabilities):
            raise SpecError(f"compute capabilities are given twice: {', '.join(self.compute_capabilities)}")
        if self.timing_cache is not None and self.timing_cache.is_dir():
            raise SpecError(f"timing cache {self.timing_cache} is a folder: name a file")
