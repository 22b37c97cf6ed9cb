"""TensorRT's layers as functions from tensors to a tensor, each with a name: what `append` writes a network with.

Shapes and sizes are one-dimensional int64 tensors throughout, scalars have one element, so that every operand of an
elementwise layer has the same rank. Only layers and arguments that TensorRT 10, 11 and TensorRT for RTX share are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trtpost.backends.tensorrt.flavour import flavour_of, load
from trtpost.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tensorrt as trt

Convention: TypeAlias = Literal["half_pixel", "asymmetric", "align_corners"]
"""Where pixels lie in interpolation."""

PREFIX = "post/"
"""Prefix of every layer's name, so that a profile tells post-processing from the network."""


class Layers:
    """Adds layers to a network.

    Attributes:
        network: the network.
        flavour: the TensorRT that it belongs to.
        types, operations: its `DataType` and `ElementWiseOperation`.
    """

    def __init__(self, network: trt.INetworkDefinition) -> None:
        self.flavour = flavour_of(network)
        if TYPE_CHECKING:
            import tensorrt as api
        else:
            api = load(self.flavour)
        self.network = network
        self.types = api.DataType
        self.operations = api.ElementWiseOperation
        self._api = api

    def input(self, name: str, length: int) -> trt.ITensor:
        """A new input of the network, int64 [length]; -1: of any length."""
        return self.network.add_input(name, self.types.INT64, self._api.Dims([length]))

    def constant(self, name: str, values: NDArray[Any]) -> trt.ITensor:
        """A constant of the array's shape and type."""
        # TensorRT reads C order, whatever the array's own
        weights = self._api.Weights(np.ascontiguousarray(values))
        return self._output(name, self.network.add_constant(self._api.Dims(list(values.shape)), weights))

    def sizes(self, name: str, *values: int) -> trt.ITensor:
        """A constant int64 [n]."""
        return self.constant(name, np.array(values, np.int64))

    def cast(self, name: str, tensor: trt.ITensor, to: trt.DataType) -> trt.ITensor:
        """The tensor with another type; itself where it has it already."""
        return tensor if tensor.dtype == to else self._output(name, self.network.add_cast(tensor, to))

    def elementwise(
        self, name: str, first: trt.ITensor, second: trt.ITensor, operation: trt.ElementWiseOperation
    ) -> trt.ITensor:
        """An operation on two tensors of the same rank and type; dimensions of 1 are repeated."""
        return self._output(name, self.network.add_elementwise(first, second, operation))

    def floor(self, name: str, tensor: trt.ITensor) -> trt.ITensor:
        """A floating-point tensor rounded down."""
        return self._output(name, self.network.add_unary(tensor, self._api.UnaryOperation.FLOOR))

    def shape(self, name: str, tensor: trt.ITensor) -> trt.ITensor:
        """The shape of a tensor, int64 [rank]."""
        return self._output(name, self.network.add_shape(tensor))

    def part(self, name: str, vector: trt.ITensor, first: int, count: int) -> trt.ITensor:
        """The elements of a vector from `first` on, [n] to [count]."""
        layer = self.network.add_slice(vector, self._api.Dims([first]), self._api.Dims([count]), self._api.Dims([1]))
        return self._output(name, layer)

    def joined(self, name: str, vectors: Sequence[trt.ITensor]) -> trt.ITensor:
        """The concatenation of one-dimensional tensors."""
        return self._output(name, self.network.add_concatenation(list(vectors)))

    def window(self, name: str, tensor: trt.ITensor, start: trt.ITensor, size: trt.ITensor) -> trt.ITensor:
        """The part of a tensor from `start` on, of `size`; both int64 [rank]."""
        rank = len(tensor.shape)
        unused = self._api.Dims([0] * rank)
        layer = self.network.add_slice(tensor, unused, unused, self._api.Dims([1] * rank))
        if layer is not None:
            layer.set_input(1, start)
            layer.set_input(2, size)
        return self._output(name, layer)

    def steps(self, name: str, count: trt.ITensor) -> trt.ITensor:
        """The numbers 0, 1, 2, ..., int64 [1] to float32 [count]."""
        # alpha (a scalar) and beta as tensors, because a layer with a dynamic size wants all of them dynamic
        zero = self.constant(f"{name}/from", np.array(0, np.float32))
        one = self.constant(f"{name}/by", np.array([1], np.float32))
        layer = self.network.add_fill(self._api.Dims([1]), self._api.FillOperation.LINSPACE, self.types.FLOAT)
        if layer is not None:
            for index, tensor in enumerate((count, zero, one)):
                layer.set_input(index, tensor)
        return self._output(name, layer)

    def gather(self, name: str, tensor: trt.ITensor, indices: trt.ITensor, axis: int) -> trt.ITensor:
        """The slices of a tensor along `axis` that int32 [n] names."""
        return self._output(name, self.network.add_gather(tensor, indices, axis))

    def resize_linear(self, name: str, tensor: trt.ITensor, sizes: trt.ITensor, convention: Convention) -> trt.ITensor:
        """Linear interpolation to `sizes`, int64 [rank]; axes whose size stays are left alone."""
        layer = self.network.add_resize(tensor)
        if layer is not None:
            if convention == "align_corners":  # a single pixel is the first one, not 0 / 0
                layer.selector_for_single_pixel = self._api.ResizeSelector.UPPER
            layer.resize_mode = self._api.InterpolationMode.LINEAR
            layer.coordinate_transformation = self._api.ResizeCoordinateTransformation.__members__[convention.upper()]
            layer.set_input(1, sizes)
        return self._output(name, layer)

    def best(self, name: str, tensor: trt.ITensor, axis: int) -> trt.ITensor:
        """int64 index of the largest value along `axis`, which stays, with length 1.

        int64 at once, as the ONNX parser has it: TensorRT for RTX counts tensors of 2^31 numbers and more in int64, and
        then builds nothing from indices that go on as int32.
        """
        index = self._output(
            f"{name}/int32", self.network.add_topk(tensor, self._api.TopKOperation.MAX, 1, 1 << axis), 1
        )
        return self.cast(name, index, self.types.INT64)

    def without_axis(self, name: str, tensor: trt.ITensor, axis: int) -> trt.ITensor:
        """The tensor without an axis of length 1."""
        # a shuffle, because the first versions of TensorRT 10 have no squeeze layer
        rank = len(tensor.shape)
        layer = self.network.add_shuffle(tensor)
        if layer is not None:
            layer.first_transpose = self._api.Permutation([*(other for other in range(rank) if other != axis), axis])
            layer.reshape_dims = self._api.Dims([0] * (rank - 1))  # 0: as before
        return self._output(name, layer)

    def _output(self, name: str, layer: trt.ILayer | None, index: int = 0) -> trt.ITensor:
        if layer is None:
            raise BackendError(
                f"{self.flavour} does not take the layer {PREFIX}{name}: your logger has the reason; "
                "the network must be strongly typed"
            )
        layer.name = PREFIX + name
        return layer.get_output(index)
