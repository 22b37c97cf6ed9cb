"""The segmentation network: a small encoder and decoder of separable convolutions, for raw pixels.

It is meant to be an ordinary network of its kind, so that what is done to it holds for others too: normalisation
inside, bilinear upsampling, skip connections, logits without softmax at the end.
"""

from __future__ import annotations

from typing import Any

HEIGHT, WIDTH = 192, 256
"""Size of the network's input and of its logits, in pixels."""


def build_network(classes: int) -> Any:
    """The untrained network, a `keras.Model`.

    Its input "photo" is float32 [N, 192, 256, 3], RGB in units of the 8-bit pixel (0..255); the output of its last
    layer, "logits", is float32 [N, 192, 256, classes].
    """
    from keras import Input, Model, layers

    def block(x: Any, filters: int, *, stride: int = 1, dilation: int = 1) -> Any:
        x = layers.SeparableConv2D(filters, 3, strides=stride, dilation_rate=dilation, padding="same", use_bias=False)(
            x
        )
        return layers.ReLU()(layers.BatchNormalization(momentum=0.95)(x))

    def up(x: Any, skip: Any, filters: int) -> Any:
        # fewer channels first: the interpolation and the block after it work on four times as many pixels
        x = layers.Conv2D(filters, 1, use_bias=False)(x)
        x = layers.UpSampling2D(2, interpolation="bilinear")(x)
        return block(layers.Concatenate()([x, skip]), filters)

    photo = Input((HEIGHT, WIDTH, 3), name="photo")
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(photo)
    x = layers.Conv2D(24, 4, strides=2, padding="same", use_bias=False)(x)  # 96 x 128
    skips = [layers.ReLU()(layers.BatchNormalization(momentum=0.95)(x))]
    for filters in (48, 96):  # 48 x 64 and 24 x 32
        x = block(skips[-1], filters, stride=2)
        skips.append(layers.Add()([x, block(x, filters)]))
    x = block(skips[-1], 144, stride=2)  # 12 x 16
    for dilation in (1, 2, 3):  # sees the whole picture: sky is above the houses, grass below
        x = layers.Add()([x, block(x, 144, dilation=dilation)])
    for filters, skip in zip((96, 64, 32), reversed(skips), strict=True):
        x = up(x, skip, filters)
    # Each of the four pixels under a coarse one gets weights of its own, so a post of two pixels keeps its edges; a
    # decoder at full size would double the work.
    x = layers.Conv2DTranspose(classes, 2, strides=2, name="logits")(x)
    return Model(photo, x, name="scenes")
