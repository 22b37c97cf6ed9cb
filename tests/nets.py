"""Small segmentation networks as readable ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_graphsurgeon as gs

from trtpost.graph.reading.model import normalized


def net(body: str, inputs: str, outputs: str, *, opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    """A model from the text of its nodes, e.g. `y = Conv (image, k)`, and its weights by name."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> net ({inputs}) => ({outputs}) {{ {body} }}'
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    return normalized(model, "test net")


def kernel(classes: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Weights of a 1x1 convolution, float32 [classes, channels, 1, 1]."""
    return np.random.default_rng(seed).standard_normal((classes, channels, 1, 1)).astype(np.float32)


def nchw(classes: int = 4, size: str = "8,12", batch: str = "1", **weights: np.ndarray) -> onnx.ModelProto:
    """NCHW in, NCHW logits out."""
    return net(
        "logits = Conv (image, k)",
        f"float[{batch},3,{size}] image",
        f"float[{batch},{classes},{size}] logits",
        k=weights.get("k", kernel(classes)),
    )


def nhwc(classes: int = 4, tail: str = "out = Identity (logits)", out: str | None = None) -> onnx.ModelProto:
    """NHWC in, NHWC logits, then `tail`, as tf2onnx writes it."""
    return net(
        f"""x = Transpose <perm = [0, 3, 1, 2]> (image)
            y = Conv (x, k)
            logits = Transpose <perm = [0, 2, 3, 1]> (y)
            {tail}""",
        "float[1,8,12,3] image",
        out or f"float[1,8,12,{classes}] out",
        k=kernel(classes),
    )


def ending(body: str, out: str, *, classes: int = 4, opset: int = 17, **weights: np.ndarray) -> gs.Variable:
    """The output of a network that ends in `body`, after a convolution that gives `y` [1, 4, 8, 12]."""
    weights["k"] = kernel(classes)
    model = net(f"y = Conv (image, k)\n{body}", "float[1,3,8,12] image", out, opset=opset, **weights)
    return gs.import_onnx(model).outputs[0]


def rescaled() -> onnx.ModelProto:
    """A network that divides its input by 255 itself."""
    return net(
        "s = Div (image, c)\n logits = Conv (s, k)",
        "float[1,3,8,12] image",
        "float[1,4,8,12] logits",
        k=kernel(4),
        c=np.float32(255),
    )


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write the model; gives the path."""
    onnx.save(model, path)
    return path
