"""The fused operator as a plugin of the full TensorRT, whose plan then carries our CUDA kernel as PTX.

It is a "quickly deployable" plugin: `tensorrt.plugin` calls the functions below while it builds, for the shape of the
mask, and for the kernel with its launch dimensions and arguments, as expressions of the inputs' shapes. Nothing is
left to do in Python when the plan runs.

The plugin's inputs are logits, `rows` and `cols`: the source position of each row and column of the mask, float32 [H]
and [W]. So the mask's shape follows from the inputs' shapes, as TensorRT demands, and pixel conventions stay outside.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import numpy as np

from trtpost.backends.tensorrt.flavour import load, load_plugins
from trtpost.errors import BackendError, SpecError
from trtpost.spec import Post

if TYPE_CHECKING:
    import tensorrt as trt

    from trtpost.backends.tensorrt.layers import Layers

NAMESPACE, NAME = "trtpost", "ArgMaxResize"

# of the kernel, see plugins/cuda/kernel.h
BLOCK = (16, 16)
TILE_WIDTH, TILE_HEIGHT = 256, 32
LEAD = 15
"""Pixels that the first tile of a row may begin left of the mask, so that stores are aligned."""

INT8_CLASSES = 128
"""So many class ids are the same numbers in int8 and uint8."""


def add_plugin(
    layers: Layers, logits: trt.ITensor, positions: tuple[trt.ITensor, trt.ITensor], post: Post
) -> trt.ITensor:
    """Append the fused operator to a network.

    Args:
        layers: of the network.
        logits: float32, float16 or bfloat16 [N, C, h, w] or [N, h, w, C] after `post.layout`.
        positions: float32 [H] and [W], ascending: the source row of each row of the mask, and the source column of
            each column; whole numbers for nearest.
        post: decides head, layout, resize and threshold.

    Returns:
        Class ids [N, H, W]: int8 up to 128 classes, int32 beyond.

    Raises:
        SpecError: `post` leaves nothing to fuse.
        BackendError: this TensorRT takes no such plugin.
    """
    if post.head == "labels":
        raise SpecError("the plugin fuses ArgMax and resize, but the network already ends in labels: use 'native'")
    operator = registered(layers.flavour)(
        logits, *positions, kernel=kernel_name(layers, logits, post), constants=" ".join(map(str, constants(post)))
    )
    layer = layers.network.add_plugin(operator, True)  # True: ahead of time
    if layer is None:
        raise BackendError("tensorrt does not take the plugin: your logger has the reason")
    layer.name = f"post/{NAME}"
    return layer.get_output(0)


def kernel_name(layers: Layers, logits: trt.ITensor, post: Post) -> str:
    """The kernel for these logits; a uint8 kernel writes a plugin's int8 mask, because no plugin may have uint8."""
    element = {layers.types.FLOAT: "f32", layers.types.HALF: "f16", layers.types.BF16: "bf16"}[logits.dtype]
    return f"trtpost_{post.resize}_{element}_{'u8' if post.classes <= INT8_CLASSES else 'i32'}"


def constants(post: Post) -> tuple[int, int, int, int]:
    """The kernel's last arguments: channels_last, head, and the halves of the threshold's float32 bits.

    All that a plugin passes are int32 dimensions, which are not negative.
    """
    bits = int(np.float32(post.threshold).view(np.uint32))
    return int(post.layout == "NHWC"), int(post.head == "threshold"), bits >> 16, bits & 0xFFFF


@cache
def registered(flavour: str) -> Any:
    """The operator `trtpost::ArgMaxResize`, registered with TensorRT when it is first asked for.

    Raises:
        BackendError: this TensorRT takes no such plugin.
    """
    trtp, types = load_plugins(flavour), load(flavour).DataType

    def describe(logits: Any, rows: Any, cols: Any, kernel: str, constants: str) -> Any:  # noqa: ARG001
        return mask_of(trtp, types, logits, rows, cols, kernel)

    def implement(
        logits: Any,
        rows: Any,
        cols: Any,
        kernel: str,
        constants: str,
        outputs: Any,  # noqa: ARG001
        tactic: int,  # noqa: ARG001
    ) -> Any:
        return launch_of(trtp, logits, rows, cols, kernel, constants)

    # TensorRT reads annotations as objects, not as the strings that they are in this file. Attributes are text, because
    # TensorRT 10 cannot turn other ones back with NumPy 2.4.
    inputs = dict.fromkeys(("logits", "rows", "cols"), trtp.TensorDesc) | {"kernel": str, "constants": str}
    describe.__annotations__ = inputs | {"return": trtp.TensorDesc}
    implement.__annotations__ = inputs | {
        "outputs": GenericAlias(tuple, (trtp.TensorDesc,)),
        "tactic": int,
        "return": GenericAlias(tuple, (str, str, trtp.KernelLaunchParams, trtp.SymIntExprs)),
    }
    identifier = f"{NAMESPACE}::{NAME}"
    trtp.register(identifier)(describe)
    trtp.aot_impl(identifier)(implement)
    return getattr(getattr(trtp.op, NAMESPACE), NAME)


def mask_of(trtp: Any, types: Any, logits: Any, rows: Any, cols: Any, kernel: str) -> Any:
    """The `TensorDesc` of the mask from those of the inputs."""
    shape = (logits.shape_expr[0], rows.shape_expr[0], cols.shape_expr[0])
    return trtp.from_shape_expr(shape, types.INT8 if kernel.endswith("u8") else types.INT32)


def launch_of(trtp: Any, logits: Any, rows: Any, cols: Any, kernel: str, constants: str) -> tuple[str, str, Any, Any]:
    """What TensorRT needs to launch the kernel: its name, PTX, dimensions, and the arguments between inputs and mask.

    The numbers are expressions of the inputs' shapes, which TensorRT evaluates whenever a shape changes.
    """
    channels_last, *others = map(int, constants.split())
    batch, *dims = logits.shape_expr
    channels, height, width = (dims[2], dims[0], dims[1]) if channels_last else dims
    target_height, target_width = rows.shape_expr[0], cols.shape_expr[0]
    launch = trtp.KernelLaunchParams(
        grid_x=trtp.cdiv(target_width + LEAD, TILE_WIDTH),
        grid_y=trtp.cdiv(target_height, TILE_HEIGHT),
        grid_z=batch,
        block_x=BLOCK[0],
        block_y=BLOCK[1],
    )
    arguments = (channels, height, width, target_height, target_width, channels_last, *others)
    extra = trtp.SymIntExprs(len(arguments))
    for index, argument in enumerate(arguments):
        extra[index] = trtp.SymInt32(argument)
    return kernel, ptx(), launch, extra


@cache
def ptx() -> str:
    """The PTX of all kernels, which a driver compiles for its GPU."""
    return (files("trtpost") / "kernels" / "argmax_resize.ptx").read_text(encoding="ascii")
