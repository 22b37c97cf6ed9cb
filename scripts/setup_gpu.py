"""A part of `make setup`: where there is an NVIDIA GPU, install what it needs; whatever happens, the CPU goes on."""

from __future__ import annotations

import sys

from trtpost.errors import TrtpostError
from trtpost.gpu_setup import needs, satisfy


def main() -> None:
    """Print a line for each thing that is done or cannot be."""
    missing = needs()
    if missing is None:
        return
    print(f"== {missing.gpu.name}, compute capability {missing.gpu.compute_capability}, CUDA {missing.cuda}")
    for sentence in missing.by_hand:
        print(f"   {sentence}")
    try:
        satisfy(missing, lambda line: print(f"   {line}", flush=True))
    except TrtpostError as error:
        print(f"   {error}", file=sys.stderr)
        print("   going on with the CPU; once that is mended: trtpost doctor --fix", file=sys.stderr)
    else:
        ready = not missing.by_hand
        print(f"   {'plans run on this GPU' if ready else 'until then everything runs on the CPU'}")


if __name__ == "__main__":
    main()
