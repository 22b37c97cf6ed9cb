"""The fused operator as a plugin of the full TensorRT, whose plan then carries our CUDA kernel as PTX.

It is a "quickly deployable" plugin: `tensorrt.plugin` calls the functions below while it builds, for the shape of the
mask, and for the kernel with its launch dimensions and arguments, as expressions of the inputs' shapes. Nothing is
left to do in Python when the plan runs.

The plugin's inputs are logits, `rows` and `cols`: the source position of each row and column of the mask, float32 [H]
and [W]. So the mask's shape follows from the inputs' shapes, as TensorRT demands, and pixel conventions stay outside.
"""

from __future__ import annotations

from functools import cache
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from trtpost.backends.tensorrt.flavour import load, load_plugins
from trtpost.errors import BackendError
from trtpost.kernels import cuda as kernels
from trtpost.spec import Post

if TYPE_CHECKING:
    import tensorrt as trt

    from trtpost.backends.tensorrt.layers import Layers

NAMESPACE, NAME = "trtpost", "ArgMaxResize"

INT8_CLASSES = 128
"""Number of class ids that are the same numbers in int8 and uint8."""

SHAPES = 5
"""Number of `kernels.Numbers` that follow from shapes; those after them follow from `Post`."""


def add_plugin(
    layers: Layers, logits: trt.ITensor, positions: tuple[trt.ITensor, trt.ITensor], post: Post
) -> trt.ITensor:
    """Append the fused operator to a network.

    Args:
        layers: those of the network.
        logits: float32, float16 or bfloat16 [N, C, h, w] or [N, h, w, C] after `post.layout`.
        positions: float32 [H] and [W], ascending: where each row and each column of the mask lies in the logits, as
            `kernels.positions` gives them.
        post: decides head, layout, resize and threshold.

    Returns:
        Class ids [N, H, W]: int8 up to 128 classes, int32 beyond.

    Raises:
        SpecError: there is no kernel for this.
        BackendError: this TensorRT takes no such plugin.
    """
    operator = registered(layers.flavour)(
        logits, *positions, kernel=kernel_name(layers, logits, post), constants=constants(logits, post)
    )
    layer = layers.network.add_plugin(operator, True)  # True: ahead of time
    if layer is None:
        raise BackendError("tensorrt does not take the plugin: your logger has the reason")
    layer.name = f"post/{NAME}"
    return layer.get_output(0)


def kernel_name(layers: Layers, logits: trt.ITensor, post: Post) -> str:
    """The kernel for these logits; a uint8 kernel writes a plugin's int8 mask, because no plugin may have uint8."""
    elements = {layers.types.FLOAT: "float32", layers.types.HALF: "float16", layers.types.BF16: "bfloat16"}
    name = kernels.kernel_name(post, elements.get(logits.dtype, logits.dtype.name))
    return name if post.classes <= INT8_CLASSES else name.replace("_u8", "_i32")


def constants(logits: trt.ITensor, post: Post) -> str:
    """A text of those `kernels.Numbers` that do not depend on shapes."""
    known = tuple(max(dim, 1) for dim in logits.shape)  # enough to refuse logits that are too large
    return " ".join(map(str, kernels.numbers(post, known, (1, 1))[SHAPES:]))


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
    of_post = [int(text) for text in constants.split()]
    channels_last = of_post[0]
    channels, height, width = kernels.spatial("NHWC" if channels_last else "NCHW", tuple(logits.shape_expr))
    target_height, target_width = rows.shape_expr[0], cols.shape_expr[0]
    launch = trtp.KernelLaunchParams(
        grid_x=trtp.cdiv(target_width + kernels.LEAD, kernels.TILE[1]),
        grid_y=trtp.cdiv(target_height, kernels.TILE[0]),
        grid_z=logits.shape_expr[0],
        block_x=kernels.BLOCK[0],
        block_y=kernels.BLOCK[1],
        block_z=kernels.BLOCK[2],
    )
    arguments = kernels.Numbers(channels, height, width, target_height, target_width, *of_post)
    extra = trtp.SymIntExprs(len(arguments))
    for index, argument in enumerate(arguments):
        extra[index] = trtp.SymInt32(argument)
    return kernel, kernels.ptx(), launch, extra
