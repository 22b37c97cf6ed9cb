"""A part of `make setup`: where there is an NVIDIA GPU, install what it needs; whatever happens, the CPU goes on."""

from __future__ import annotations

import sys

from trtpost.cli.gpu_setup import needs, satisfy
from trtpost.cuda import driver
from trtpost.errors import TrtpostError


def main() -> None:
    """Print a line for each thing that is done or cannot be."""
    missing = needs()
    if missing is None:
        if driver() is not None:
            print("== the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it): going on with the CPU")
        return
    print(f"== {missing.gpu.name}, compute capability {missing.gpu.compute_capability}, CUDA {missing.cuda}")
    for sentence in missing.by_hand:
        print(f"   {sentence}")
    try:
        satisfy(missing, lambda line: print(f"   {line}", flush=True))
    except (TrtpostError, OSError) as error:
        print(f"   {error}", file=sys.stderr)
        print("   going on with the CPU; once that is mended: trtpost doctor --fix", file=sys.stderr)
    else:
        print(f"   {'going on with the CPU' if missing.by_hand else 'plans run on this GPU'}")


if __name__ == "__main__":
    main()
