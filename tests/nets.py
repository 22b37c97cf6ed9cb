"""Small segmentation networks as readable ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_graphsurgeon as gs

from trtpost.graph.reading.model import normalized

GRAY = np.full((1, 3, 1, 1), 1 / 3, np.float32)
"""Weights that make one channel of three."""

SIGNS = np.array([-1, 1], np.float32).reshape(2, 1, 1, 1)
"""Weights that make two classes of one channel: what is above zero is class 1."""


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


def middle(extent: int) -> np.ndarray:
    """Weights of a convolution that gives what is in its middle: without padding it loses a border, no more."""
    weights = np.zeros((1, 1, extent, extent), np.float32)
    weights[..., extent // 2, extent // 2] = 1
    return weights


def published(side: int = 572) -> onnx.ModelProto:
    """U-Net as published: 3x3 convolutions without padding, four levels, cropped copies beside what comes up."""
    lines, size, last, kept, weights = ["e0 = Conv (image, gray)"], side, "e0", [], {}
    for level in range(5):
        lines += [f"a{level} = Conv ({last}, k3)", f"b{level} = Conv (a{level}, k3)"]
        size, last = size - 4, f"b{level}"
        if level < 4:
            kept.append((last, size))
            lines.append(f"d{level} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({last})")
            size, last = size // 2, f"d{level}"
    for level in reversed(range(4)):
        copy, before = kept[level]
        size *= 2
        crop = (before - size) // 2
        weights |= {f"s{level}": np.array([crop, crop]), f"t{level}": np.array([crop + size, crop + size])}
        lines += [
            f"u{level} = ConvTranspose <strides = [2, 2]> ({last}, ones)",
            f"c{level} = Slice ({copy}, s{level}, t{level}, spatial)",
            f"j{level} = Concat <axis = 1> (c{level}, u{level})",
            f"f{level} = Conv (j{level}, k3of2)",
            f"g{level} = Conv (f{level}, k3)",
        ]
        size, last = size - 4, f"g{level}"
    return net(
        "\n".join([*lines, f"logits = Conv ({last}, head)"]),
        f"float[1,3,{side},{side}] image",
        f"float[1,2,{size},{size}] logits",
        gray=GRAY,
        head=SIGNS,
        k3=middle(3),
        k3of2=np.concatenate([middle(3) * 0.9, middle(3) * 0.1], axis=1),
        ones=np.ones((1, 1, 2, 2), np.float32),
        spatial=np.array([2, 3]),
        **weights,
    )


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write the model; gives the path."""
    onnx.save(model, path)
    return path
