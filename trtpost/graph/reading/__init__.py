"""An ONNX file to the one form of graph that the rest knows."""
