"""Train the demo network on drawn streets: `python models/train.py [--output FILE] [--steps N | --minutes N]`.

Owns the whole recipe, from the seeds of the scenes to the score. With `--steps` (the default) two runs on one machine
see the same batches in the same order; `--minutes` stops by the clock.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from network import HEIGHT, WIDTH, build_network
from numpy.typing import NDArray
from scenes import CLASSES, draw, random_scene

Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Photos uint8 [N, HEIGHT, WIDTH, 3] and their labels uint8 [N, HEIGHT, WIDTH]."""

HELD_OUT = range(200)
TRAINING = range(10_000, 11_800)
"""Seeds of the scenes. No seed below 10 000 is ever trained on: a demo may draw any of them."""

BATCH = 12
PEAK_RATE = 3e-3
SEED = 7


def main(argv: Sequence[str] | None = None) -> int:
    """Train, save, score; returns the exit status."""
    parser = argparse.ArgumentParser(description="Train the demo network on drawn streets.")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("scenes.keras"))
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=int, default=1000, help="batches to train on (default: 1000)")
    budget.add_argument("--minutes", type=float, help="train for so long instead, not counting the drawing")
    options = parser.parse_args(argv)
    # TensorFlow reads both when it is imported, which the functions below do
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    started = time.monotonic()
    training = draw_images(TRAINING)
    held_out = draw_images(HELD_OUT, antialias=True)
    print(f"drew {len(TRAINING) + len(HELD_OUT)} scenes in {time.monotonic() - started:.0f} s", flush=True)
    network = train(training, by_clock(options.minutes) if options.minutes else by_steps(options.steps))
    print(f"{network.count_params()} parameters, {time.monotonic() - started:.0f} s with the drawing")

    options.output.parent.mkdir(parents=True, exist_ok=True)
    network.save(options.output)
    options.output.with_suffix(".labels.txt").write_text("\n".join(CLASSES) + "\n")
    print(f"saved {options.output}, {options.output.stat().st_size / 1000:.0f} kB")

    scores = iou(network, held_out)
    print(f"IoU on {len(HELD_OUT)} held-out scenes at {HEIGHT}x{WIDTH}:")
    for name, score in zip(CLASSES, scores, strict=True):
        print(f"  {name:8} {score:.3f}")
    print(f"  {'mean':8} {scores.mean():.3f}")
    return 0


def draw_images(seeds: Sequence[int], *, antialias: bool | None = None) -> Images:
    """Draw the scenes of `seeds` on all processors.

    Args:
        seeds: one scene each.
        antialias: as in `scenes.draw`. None takes turns: a large photo comes to the network shrunk by an interpolation
            that skips most pixels, a small one does not, and the network should know both looks.
    """
    with ProcessPoolExecutor() as pool:
        pairs = list(pool.map(partial(_draw_one, antialias=antialias), seeds, chunksize=20))
    photos, labels = zip(*pairs, strict=True)
    return np.stack(photos), np.stack(labels)


def _draw_one(seed: int, antialias: bool | None) -> Images:
    return draw(random_scene(seed), HEIGHT, WIDTH, antialias=seed % 2 == 0 if antialias is None else antialias)


def by_steps(steps: int) -> Callable[[int], float]:
    """Progress of a training of so many steps: from the number of steps done to 0..1."""
    return lambda step: step / steps


def by_clock(minutes: float) -> Callable[[int], float]:
    """Progress of a training of so many minutes, counted from now."""
    started = time.monotonic()
    return lambda _step: (time.monotonic() - started) / (60 * minutes)


def batches(images: Images, rng: np.random.Generator) -> Iterator[tuple[NDArray[np.float32], NDArray[np.uint8]]]:
    """Endless augmented batches: photos float32 [BATCH, HEIGHT, WIDTH, 3], 0..255, and labels uint8."""
    photos, labels = images
    while True:
        order = rng.permutation(len(photos))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            mirrored = rng.random((BATCH, 1, 1)) < 0.5
            y = np.where(mirrored, labels[chosen, :, ::-1], labels[chosen])
            x = np.where(mirrored[..., None], photos[chosen, :, ::-1], photos[chosen]).astype(np.float32)
            contrast = rng.uniform(0.8, 1.2, (BATCH, 1, 1, 1))
            light = rng.uniform(0.85, 1.15, (BATCH, 1, 1, 3))  # a factor a channel: a white balance that is off
            noise = rng.uniform(0, 6, (BATCH, 1, 1, 1)) * rng.standard_normal(x.shape, np.float32)
            seen = (x - 128) * contrast * light + 128 * light + noise
            yield np.clip(seen, 0, 255).astype(np.float32), y


def train(images: Images, progress: Callable[[int], float]) -> Any:
    """Train a new network on `images` until `progress` of the steps done reaches 1; returns a `keras.Model`."""
    import keras

    keras.utils.set_random_seed(SEED)
    network = build_network(len(CLASSES))
    network.compile(
        optimizer=keras.optimizers.AdamW(PEAK_RATE, weight_decay=1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,  # XLA compiles this network for minutes and runs it slower on a CPU
    )
    # Rare classes weigh more, but far less than their rarity: weighed fully, every post would grow a margin.
    frequency = np.bincount(images[1].ravel(), minlength=len(CLASSES)) / images[1].size
    weight = (np.maximum(frequency, 1e-6) ** -0.25).astype(np.float32)
    weight /= (weight * frequency).sum()

    started, recent = time.monotonic(), []
    for step, (x, y) in enumerate(batches(images, np.random.default_rng(SEED))):
        done = progress(step)
        if done >= 1:
            break
        warm = min(1.0, (step + 1) / 100)
        network.optimizer.learning_rate = PEAK_RATE * warm * max(0.01, 0.5 + 0.5 * np.cos(np.pi * done))
        recent.append(float(network.train_on_batch(x, y, sample_weight=weight[y])))
        if step % 50 == 49:
            spent = time.monotonic() - started
            print(f"step {step + 1} ({done:.0%}), loss {np.mean(recent):.4f}, {spent:.0f} s", flush=True)
            recent.clear()
    # A compiled model saves its optimizer's state, twice the size of the weights, and brings back its loss on loading.
    bare = build_network(len(CLASSES))
    bare.set_weights(network.get_weights())
    return bare


def iou(network: Any, images: Images) -> NDArray[np.float64]:
    """Intersection over union of each class, over all pixels of all `images` together: float64 [classes]."""
    count = len(CLASSES)
    confusion = np.zeros((count, count), np.int64)
    for start in range(0, len(images[0]), BATCH):
        photos, labels = (part[start : start + BATCH] for part in images)
        predicted = np.argmax(network.predict_on_batch(photos.astype(np.float32)), axis=-1)
        pairs = labels.astype(np.int64) * count + predicted
        confusion += np.bincount(pairs.ravel(), minlength=count * count).reshape(count, count)
    hits = np.diagonal(confusion)
    scores: NDArray[np.float64] = hits / np.maximum(confusion.sum(0) + confusion.sum(1) - hits, 1)
    return scores


if __name__ == "__main__":
    sys.exit(main())
