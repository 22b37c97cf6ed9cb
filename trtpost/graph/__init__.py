"""Reading and rewriting ONNX graphs: find the logits, append the post-processing, prepend the preprocessing."""

from onnx_graphsurgeon.logger import G_LOGGER

G_LOGGER.severity = G_LOGGER.CRITICAL  # its remarks on models are for its own developers
