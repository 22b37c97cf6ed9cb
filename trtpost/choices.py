"""The choices that users have and that decide no pixel; those that do are in `trtpost.spec`.

The command line shows and enforces them, so importing this module costs nothing.
"""

from __future__ import annotations

from typing import Literal

Backend = Literal["auto", "tensorrt", "onnxruntime"]
"""What runs a bundle: `auto` takes the GPU where there is one that can run the plan."""

Flavour = Literal["auto", "none", "tensorrt", "tensorrt_rtx"]
"""What builds the plan: `auto` takes what is installed, `none` builds none."""

Lowering = Literal["function", "inline"]
"""How the post-processing is written: as one node with a function body, or in standard ops."""

Place = Literal["native", "kernel", "plugin"]
"""Where the mask is made: by `native` layers or our `plugin` in the plan, or by our `kernel` after it."""

Compatibility = Literal["none", "ampere+", "same"]
"""GPUs beside the one that built it that may run a plan of the full TensorRT."""

Form = Literal["python", "tensorrt_plan", "onnxruntime_onnx"]
"""What a model of a Triton repository is."""

Pattern = Literal["smooth", "noise"]
"""Logits that a benchmark draws: smooth as networks give them, or with a boundary in every cell."""

Encoding = Literal["palette", "packed", "gray"]
"""How a mask's PNG holds class ids: 8 bits and a palette, as few bits as hold them, or as levels of gray."""

MAX_PIXELS = 178_956_970
"""Of one photo, which is Pillow's own guard against decompression bombs; by default, of all that are in memory."""

SERVED_PIXELS = 1 << 27
"""By default of all in memory where a server decodes what anybody sends: 16384x8192, so that of 100 megapixels too."""
