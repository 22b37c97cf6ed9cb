"""Small networks as quantisers write them, in every form of which one was seen."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnx.parser
from onnx.numpy_helper import from_array

IMAGE, LOGITS = "float[1,3,8,12] image", "float[1,4,8,12] logits"


def from_text(
    body: str, outputs: str = LOGITS, image: str = IMAGE, opset: int = 17, **weights: object
) -> onnx.ModelProto:
    """A model from the text of its nodes, as its quantiser left it; `ms.Op` is ONNX Runtime's own."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> net ({image}) => ({outputs})'
        f"{{ {body.replace('ms.', 'com.microsoft.')} }}"
    )
    model.graph.initializer.extend(from_array(np.asarray(value), name) for name, value in weights.items())
    return model


def drawn(rng: random.Random) -> onnx.ModelProto:
    """A quantised network: QDQ or QOperator, of either activation type, with scalars, scales a channel, defaults."""
    kind = rng.choice([np.uint8, np.int8])
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    asymmetric = kind is np.uint8 or rng.random() < 0.3
    weights: dict[str, object] = {"s": np.float32(1 / 128), "t": np.float32(0.05)}
    has_zero = kind is np.int8 or rng.random() < 0.8  # without one, what is quantised is uint8
    zero = kind(rng.choice([3, 100, 128 if kind is np.uint8 else -9]) if asymmetric else 0)
    weights |= {"z": zero} if has_zero else {}
    outputs = LOGITS
    at = ", z" if has_zero else ""
    channels = rng.choice([(), (1,), (4,)])
    weights["k"] = numbers.integers(-100, 100, (4, 3, 1, 1)).astype(np.int8)
    weights["ks"] = (0.005 + 0.01 * numbers.random(channels)).astype(np.float32)
    axis = rng.choice(["<axis = 0> ", "<axis = -4> "]) if channels == (4,) else ""
    lines = [f"q = QuantizeLinear (image, s{at})"]
    now = "q"
    if rng.random() < 0.3:
        lines += ["p = MaxPool <kernel_shape = [1, 1]> (q)"]
        now = "p"
    if rng.random() < 0.7:  # QDQ
        kz, bias = "", ""
        if rng.random() < 0.5:
            weights["kz"], kz = np.zeros(channels, np.int8), ", kz"
        if rng.random() < 0.5:
            weights |= {"b": np.int32([50, -50, 9, 0]), "bs": np.float32(0.001)}
            lines.append("bf = DequantizeLinear (b, bs)")
            bias = ", bf"
        lines += [f"x = DequantizeLinear ({now}, s{at})", f"w = DequantizeLinear {axis}(k, ks{kz})"]
        lines.append(f"c = Conv (x, w{bias})")
        if rng.random() < 0.3:  # a constant that is one number
            weights |= {"o": kind(7)}
            lines += [f"of = DequantizeLinear (o, t{at})", "a = Mul (c, of)"]
        else:
            lines.append("a = LeakyRelu (c)")
        lines.append(f"y = QuantizeLinear (a, t{at})")
    else:
        weights |= {"kz": np.zeros(channels, np.int8), "none": zero if has_zero else np.uint8(0)}
        lines.append(f"c = QLinearConv ({now}, s, none, k, ks, kz, t, none)")
        lines.append(f"y = {rng.choice(['ms.QLinearAdd (c, t, none, c, t, none, t, none)', 'Identity (c)'])}")
    if rng.random() < 0.3:  # a scale for each channel, on the axis that is the default
        weights |= {"ts": np.full(4, 0.05, np.float32)} | ({"zs": np.full(4, zero)} if has_zero else {})
        lines.append(f"logits = DequantizeLinear (y, ts{', zs' if has_zero else ''})")
    elif rng.random() < 0.3:
        lines += [f"f = DequantizeLinear (y, t{at})", "logits = ArgMax <axis = 1> (f)"]
        outputs = "int64[1,1,8,12] logits"
    else:
        lines.append(f"logits = DequantizeLinear (y, t{at})")
    return from_text("\n ".join(lines), outputs, **weights)
