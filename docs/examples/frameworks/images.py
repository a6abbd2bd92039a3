"""Generated images in ten classes, and all that both programs share: sizes, the order of samples, options.

A class is a coarse pattern of colours. A sample is its pattern, moved and under noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

CLASSES = 10
MEAN, STD = 127.5, 64.0
MOMENTUM, WEIGHT_DECAY, SMOOTHING = 0.9, 5e-5, 0.1
LOG_EVERY = 10  # steps


@dataclass(frozen=True)
class Size:
    pixels: int
    depths: tuple[int, ...]  # blocks of a stage; (3, 4, 6, 3) is ResNet-50
    width: int  # channels of the first stage
    train: int
    validation: int


SIZES = {"small": Size(32, (1, 1, 1, 1), 8, 1024, 256), "full": Size(224, (3, 4, 6, 3), 64, 12800, 1280)}


def options(description: str, compiled: str) -> argparse.Namespace:
    """The options of both programs; `compiled` is the framework's default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", choices=("true", "false"), default=compiled, help="false: an operator at a time")
    parser.add_argument("--trace", help="folder for a trace of ten steps, by the framework's own profiler")
    return parser.parse_args()


def dataset(size: Size) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, H, W, 3) as bytes and labels, of training and of validation; the same for every seed of a run."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(60, 196, (CLASSES, 4, 4, 3), dtype=np.uint8)
    patterns = coarse.repeat(size.pixels // 4, axis=1).repeat(size.pixels // 4, axis=2)
    parts: list[np.ndarray] = []
    for count in (size.train, size.validation):
        labels = rng.integers(0, CLASSES, count).astype(np.int32)
        images = np.empty((count, size.pixels, size.pixels, 3), np.uint8)
        for place, label in enumerate(labels):
            moved = np.roll(patterns[label], rng.integers(0, size.pixels // 4, 2), axis=(0, 1))
            images[place] = moved + rng.integers(0, 60, moved.shape, dtype=np.uint8)
        parts += [images, labels]
    return parts[0], parts[1], parts[2], parts[3]


def batches(count: int, batch_size: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """The indices of each step of an epoch; whole batches alone."""
    order = np.random.default_rng((seed, epoch)).permutation(count)
    for start in range(0, count - batch_size + 1, batch_size):
        yield order[start : start + batch_size]


def say(epoch: int, step: int, steps: int, batch_size: int, loss: float) -> None:
    """Print the number of steps and of samples since the training began, and the loss of the last step."""
    done = (epoch - 1) * steps + step
    print(f"epoch {epoch} step {done} seen {done * batch_size} loss {loss:.4f}", flush=True)
