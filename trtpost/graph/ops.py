"""What ONNX operators mean, in the terms that the searching modules ask: a trait, and the operators that have it.

What operators do comes first. What one question is about, such as which of them labels pass unharmed, is made of that;
where it leaves out an operator that would do as well, no network was seen that needs it.
"""

from __future__ import annotations


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


RESHAPING = _ops("Reshape Flatten Squeeze Unsqueeze")
"""Give the same values in the same order, with other axes."""

PERMUTING = _ops("Transpose DepthToSpace SpaceToDepth")
"""Give the same values in another order."""

SELECTING = _ops("Slice Split Gather GatherND GatherElements")
"""Give some of the values of their first input."""

REPEATING = _ops("Expand Tile")
"""Give the same values several times."""

MOVING = RESHAPING | PERMUTING | SELECTING | REPEATING | {"Identity"}
"""Give values of their first input, and change none."""

JOINING = _ops("Concat Where ScatterND ScatterElements")
"""Give each value out of one of several inputs."""

QUANTIZING = _ops("QuantizeLinear DequantizeLinear")
"""Give what stands for the same numbers."""

RESIZING = _ops("Resize Upsample")
"""Enlarge or shrink planes, and may interpolate."""

ROUNDING = _ops("Round Floor Ceil")
"""Leave whole numbers as they are."""

COMPARING = _ops("Greater GreaterOrEqual Less LessOrEqual Equal Not And Or Xor IsNaN IsInf")
"""Give true or false, 1 or 0."""

ARITHMETIC = _ops("Add Sub Mul Div")
"""Compute each value from one of either input."""

SUMMING = _ops("Add Sub Sum Mean")
"""Give sums and differences of their inputs, a value from one of each."""

SIGMOIDS = _ops("Sigmoid HardSigmoid")
"""Give a probability for each value by itself."""

SOFTMAXES = _ops("Softmax LogSoftmax")
"""Give probabilities that add up to 1, or their logarithms."""

INDEXING = _ops("ArgMax ArgMin")
"""Give class ids; so does `TopK` by its second output."""

RANDOM = _ops("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial")
"""Draw random numbers."""

CONVOLUTIONS = _ops("Conv ConvTranspose QLinearConv ConvInteger")
"""Compute each value from a neighbourhood, in all channels or a group of them."""

WEIGHTED = _ops("Conv ConvTranspose Gemm MatMul")
"""Multiply by weights, which int8 quantises."""

MIXING = CONVOLUTIONS | WEIGHTED | {"QLinearMatMul"}
"""Compute each value from many: what comes out has no limits, and logits turn at 0."""

NCHW = CONVOLUTIONS | _ops(
    "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool LRN DepthToSpace SpaceToDepth "
    "BatchNormalization InstanceNormalization GroupNormalization"
)
"""Take and give channels as the second axis, by the ONNX standard."""

LOSING_AXES = (
    RESHAPING | REPEATING | _ops("MatMul Gemm Einsum ArgMax ArgMin ReduceMax ReduceMean Gather GatherND")
) | _ops("Shape Constant ConstantOfShape")
"""Give axes that tell nothing of those of what they take."""

# where on the image results lie

WINDOWS = _ops("Conv ConvInteger QLinearConv MaxPool AveragePool LpPool")
"""Give a value for each place of a window, which moves by a stride over a padded plane."""

GLOBAL_POOLS = _ops("GlobalAveragePool GlobalMaxPool GlobalLpPool")
"""Give one value for a whole plane."""

REDUCING = INDEXING | _ops(
    "ReduceMean ReduceMax ReduceMin ReduceSum ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
)
"""Give one value for all along some axes."""

ELEMENTWISE = ARITHMETIC | SUMMING | COMPARING | _ops("Pow Max Min Where PRelu Mod")
"""Compute each value from those at the same place of their inputs."""

SCRAMBLING = (JOINING - {"Concat", "Where"}) | _ops(
    "GatherND GatherElements Compress TopK NonZero ReverseSequence CumSum Einsum GridSample RoiAlign Tile MaxUnpool "
    "Col2Im DeformConv Loop If Scan"
)
"""May give values at other places, though in the shape of what they take."""

# between which values results lie

WITHIN_INPUT = (
    MOVING
    | QUANTIZING
    | RESIZING
    | _ops(
        "CastLike Dropout Compress ReverseSequence Trilu MaxPool GlobalMaxPool GlobalAveragePool TopK "
        "ReduceMax ReduceMin ReduceMean"
    )
)
"""Give nothing below the least and above the greatest value; a cubic `Resize` keeps at least the middle."""

WITHIN_INPUT_OR_ZERO = _ops("AveragePool GridSample RoiAlign MaxUnpool CenterCropPad")
"""Move values about, or average them, and may put zeros around them."""

WITHIN_ONE_INPUT = JOINING | _ops("Scatter OneHot Pad")
"""Give each value out of one of several tensors, not all of which are inputs of their own."""

# what becomes of class ids

KEEPING_IDS = MOVING | ROUNDING | _ops("Cast CastLike Resize Pad MaxPool ReduceMax ReduceMin Clip")
"""Give ids where their first input holds ids."""

CHOOSING_IDS = JOINING | _ops("Min Max")
"""Give ids where several inputs hold ids."""

COUNTING_WITH_IDS = _ops("Add Sub Mul Sum Neg Abs Sign Mod")
"""Make whole numbers of whole numbers."""

SPOILING_IDS = _ops("Div Mean Pow AveragePool ReduceMean ReduceSum")
"""Compute with ids, which are none after it."""

RETYPING = _ops("Cast Squeeze Unsqueeze Identity")
"""Leave every label where it is."""

MOVING_LABELS = RETYPING | ROUNDING | _ops("Reshape Transpose Resize Gather Slice")
"""Move labels about, but make no new ones, unless a `Resize` interpolates."""

MOVING_INTEGERS = RESHAPING | _ops("Identity Transpose Slice Gather Resize")
"""Take integers of any type, and give values that they are given, unless a `Resize` interpolates."""

# what becomes of scores and pixels

KEEPING_LOGITS = (
    (MOVING - {"GatherND", "GatherElements", "SpaceToDepth"})
    | (QUANTIZING | RESIZING | SUMMING)
    | _ops("Cast Dropout Pad Concat AveragePool MaxPool BatchNormalization GridSample")
)
"""Leave logits what they are; so do a product and a quotient with constants."""

CHANNELWISE = (
    (MOVING_LABELS | RESHAPING | QUANTIZING | ARITHMETIC | SUMMING)
    | (COMPARING - {"Equal"})  # with the largest, that is an ArgMax
    | _ops("Split Clip Pow Sqrt Max Min Where Pad")
)
"""Compute scores of a class from those of the same class."""

PIXELWISE = (
    (RESHAPING | QUANTIZING | ARITHMETIC | SIGMOIDS | SOFTMAXES)
    | _ops("Identity Cast Transpose Gather Slice Split Tanh Clip ArgMax")
    | _ops("Greater GreaterOrEqual Less LessOrEqual Not")
)
"""May follow a flattened head: the pixels stay what they are."""

KEEPING_PIXEL_RANGE = _ops("Cast Transpose Identity Gather Resize Slice")
"""Leave the range of an image's pixels as it is."""

AVERAGING_BATCH = _ops("ReduceMean ReduceSum ReduceSumSquare")
"""End a variance over the photos of a batch, where batch normalisation is written in plain arithmetic."""

IN_DEVIATION = _ops("Mul Pow Sub Identity Cast Reshape Squeeze Unsqueeze Transpose")
"""Lie between a mean and the variance about it."""

# what needs which precision

EXACT = MOVING | _ops("Concat Where Pad Relu Clip Max Min MaxPool GlobalMaxPool Abs Neg Constant")
"""Give values that they were given, or their negatives: there is nothing to round."""

FLOAT32 = (
    _ops("Softmax LogSoftmax Exp Log Softplus Pow Reciprocal")
    | _ops("ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp")
    | _ops("CumSum Einsum")
    # a variance is a sum of squares, and its epsilon may be below the smallest float16
    | _ops("BatchNormalization InstanceNormalization LayerNormalization GroupNormalization LpNormalization")
    # coordinates
    | _ops("GridSample AffineGrid RoiAlign Range Upsample")
    # of the converter's own list, those that can be in a segmentation network. It also has Min and Max, for runtimes
    # of long ago; a Sigmoid is not here because its own overflow ends in the right 0 or 1
    | _ops("NonMaxSuppression TopK RandomUniformLike QuantizeLinear DequantizeLinear")
)
"""Stay float32 in every precision."""

NO_BFLOAT16 = _ops("ConvTranspose HardSwish Mish")
"""Are refused by TensorRT in bfloat16 and taken in float32 (measured with TensorRT for RTX 1.7)."""

BOUNDING = _ops("Clip Min Max Where Pad Less Greater LessOrEqual GreaterOrEqual")
"""Take a constant beyond float16 for `no bound` or `never`, as the largest float16 is."""

MOVING_PROBABILITIES = _ops("Identity Transpose Reshape Squeeze Unsqueeze Pad")
"""May stand between the last Sigmoid and the end of a network, its constant background included."""
