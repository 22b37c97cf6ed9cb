"""Evaluate a TensorRT network definition with numpy, without TensorRT's builder, runtime or a GPU.

Only what is asked of the layers is done, by their documentation, and each result is held against the type and shape
that TensorRT itself gives the tensor. Knows the layers that post-processing is made of, and no others.
"""

from __future__ import annotations

import numpy as np


def evaluate(trt, network, feeds):
    """Every tensor of the network by its name.

    Args:
        trt: module of the network's flavour.
        network: the network.
        feeds: arrays for the network's inputs, by name.
    """
    values = {}
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        values[tensor.name] = checked(trt, tensor, np.asarray(feeds[tensor.name]))
    waiting = [network.get_layer(index) for index in range(network.num_layers)]
    while waiting:  # a parser's layers are in no order
        layer = waiting.pop(0)
        inputs = [layer.get_input(number) for number in range(layer.num_inputs)]
        if any(tensor is not None and tensor.name not in values for tensor in inputs):
            waiting.append(layer)
            continue
        arrays = [None if tensor is None else values[tensor.name] for tensor in inputs]
        outputs = [layer.get_output(number) for number in range(layer.num_outputs)]
        kind = layer.type.name
        layer.__class__ = getattr(trt, CLASSES[kind])  # TensorRT's Python API hands out the base class
        results = LAYERS[kind](trt, layer, outputs, *arrays)
        for tensor, result in zip(outputs, results, strict=True):
            assert tensor.name not in values
            values[tensor.name] = checked(trt, tensor, result)
    return values


def checked(trt, tensor, array):
    if tensor.dtype != trt.DataType.UINT8:
        assert array.dtype == trt.nptype(tensor.dtype), tensor.name
    shape = tuple(tensor.shape)
    assert len(shape) == array.ndim, tensor.name
    for said, really in zip(shape, array.shape, strict=True):
        assert said in (-1, really), (tensor.name, shape, array.shape)
    return array


def constant(_trt, layer, outputs):
    return [np.asarray(layer.weights).reshape(tuple(outputs[0].shape))]


def cast(trt, _layer, outputs, array):
    with np.errstate(invalid="raise"):
        return [array.astype(trt.nptype(outputs[0].dtype))]


def elementwise(_trt, layer, _outputs, first, second):
    assert first.ndim == second.ndim
    assert first.dtype == second.dtype
    return [OPERATIONS[layer.op.name](first, second)]


OPERATIONS = {
    "SUM": np.add,
    "SUB": np.subtract,
    "PROD": np.multiply,
    "DIV": np.divide,
    "FLOOR_DIV": np.floor_divide,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "GREATER": np.greater,
}


def unary(_trt, layer, _outputs, array):
    assert layer.op.name == "FLOOR"
    return [np.floor(array)]


def shape(_trt, _layer, _outputs, array):
    return [np.array(array.shape, np.int64)]


def window(_trt, layer, _outputs, array, start=None, size=None):
    start = tuple(layer.start) if start is None else tuple(start)
    size = tuple(layer.shape) if size is None else tuple(size)
    assert set(layer.stride) == {1}
    result = array[tuple(slice(first, first + count) for first, count in zip(start, size, strict=True))]
    assert result.shape == size
    return [result]


def concatenation(_trt, layer, _outputs, *arrays):
    return [np.concatenate(arrays, layer.axis)]


def fill(trt, layer, outputs, size, start, step):
    assert layer.operation.name == "LINSPACE"
    assert size.shape == step.shape == (1,)
    assert start.shape == ()
    kind = trt.nptype(outputs[0].dtype)
    return [(start + np.arange(size[0], dtype=kind) * step).astype(kind)]


def gather(_trt, layer, _outputs, array, indices):
    assert layer.num_elementwise_dims == 0
    assert (indices >= 0).all()
    return [np.take(array, indices, layer.axis)]


def topk(_trt, layer, _outputs, array):
    assert (layer.op.name, layer.k) == ("MAX", 1)
    axis = layer.axes.bit_length() - 1
    assert layer.axes == 1 << axis
    best = np.argmax(array, axis, keepdims=True)
    return [np.take_along_axis(array, best, axis), best.astype(np.int32)]


def shuffle(_trt, layer, _outputs, array):
    moved = array.transpose(tuple(layer.first_transpose)[: array.ndim])
    dims = tuple(moved.shape[axis] if dim == 0 else dim for axis, dim in enumerate(layer.reshape_dims))
    assert list(layer.second_transpose)[: len(dims)] == list(range(len(dims)))
    return [moved.reshape(dims)]


def squeeze(_trt, _layer, _outputs, array, axes):
    return [np.squeeze(array, tuple(axes))]


def resize(_trt, layer, _outputs, array, sizes):
    assert layer.resize_mode.name == "LINEAR"
    assert len(sizes) == array.ndim
    assert all(said in (array.shape[axis], *sizes) for axis, said in enumerate(array.shape))
    for axis in reversed(range(array.ndim)):
        array = linear(array, axis, int(sizes[axis]), layer)
    return [array]


def linear(array, axis, target, layer):
    """One axis, by the formulas in TensorRT's documentation, in float32."""
    source = array.shape[axis]
    convention = layer.coordinate_transformation.name
    j, given, wanted = np.arange(target, dtype=np.float32), np.float32(source), np.float32(target)
    if target == 1 and layer.selector_for_single_pixel.name == "UPPER":
        position = j
    elif convention == "HALF_PIXEL":
        position = (j + np.float32(0.5)) * (given / wanted) - np.float32(0.5)
    elif convention == "ASYMMETRIC":
        position = j * (given / wanted)
    else:
        position = j * ((given - 1) / (wanted - 1))
    position = np.clip(position, 0, given - 1)
    lower = np.floor(position).astype(int)
    weight = (position - lower.astype(np.float32)).reshape([-1 if axis == each else 1 for each in range(array.ndim)])
    below, above = np.take(array, lower, axis), np.take(array, np.minimum(lower + 1, source - 1), axis)
    return below + (above - below) * weight.astype(array.dtype)


LAYERS = {
    "CONSTANT": constant,
    "CAST": cast,
    "ELEMENTWISE": elementwise,
    "UNARY": unary,
    "SHAPE": shape,
    "SLICE": window,
    "CONCATENATION": concatenation,
    "FILL": fill,
    "GATHER": gather,
    "TOPK": topk,
    "SHUFFLE": shuffle,
    "SQUEEZE": squeeze,
    "RESIZE": resize,
}

CLASSES = {
    "CONSTANT": "IConstantLayer",
    "CAST": "ICastLayer",
    "ELEMENTWISE": "IElementWiseLayer",
    "UNARY": "IUnaryLayer",
    "SHAPE": "IShapeLayer",
    "SLICE": "ISliceLayer",
    "CONCATENATION": "IConcatenationLayer",
    "FILL": "IFillLayer",
    "GATHER": "IGatherLayer",
    "TOPK": "ITopKLayer",
    "SHUFFLE": "IShuffleLayer",
    "SQUEEZE": "ISqueezeLayer",
    "RESIZE": "IResizeLayer",
}
