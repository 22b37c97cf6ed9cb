"""Reading and rewriting of ONNX graphs: from a file to one graph that takes pixels and gives class ids. What runs when:

1. `reading.model` loads a file and gives its graph the one form that the rest knows: functions inlined, opset raised
   (`canonical`, `opsets`), what is still being trained refused (`training`), integers widened (`integer_types`).
2. `head.input_sizes` and `head.probe` run the network on zeros, where only that tells which sizes it takes and which
   shapes it has; then `head.locate` finds the image input and the logits, and says what they mean.
3. `baking.bake` joins `preprocess`, network and `postprocess` into one graph.
4. `precision.reduce` makes its network fp16, bf16 or int8, and `emulate` computes on a CPU what a GPU does then.

Every step asks `proto` of protobufs, `walks` of graphsurgeon's tensors, and `ops` of what operators mean. What only
runs takes files apart again with `baked` and `wire`.
"""
