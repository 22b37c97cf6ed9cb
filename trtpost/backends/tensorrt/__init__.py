"""TensorRT in both flavours: build a plan, run it, append post-processing to a network by hand."""
