"""Reading and rewriting ONNX graphs: find the logits, append the post-processing, prepend the preprocessing."""
