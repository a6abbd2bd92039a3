"""Views: how a detector wants its images cropped and resized, computed on the host for whole batches."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

STRIDE = 32  # stride of the coarsest map of a pyramid; canvases are multiples of it


class Cut(NamedTuple):
    """The crops of n images."""

    crops: np.ndarray  # float32 [n, 4], x0 y0 x1 y1 in pixels of the image
    out_sizes: np.ndarray  # int64 [n, 2], height and width of the resized crop
    flips: np.ndarray  # bool [n], True for crops mirrored left to right


class View(Protocol):
    canvases: tuple[tuple[int, int], ...]  # height, width; every batch has one canvas
    drop_outside: bool  # whether to drop objects whose centre is outside of the crop; all are clipped to it
    outlines: bool  # whether batches include the objects' outlines

    def canvas_of(self, sizes: np.ndarray) -> np.ndarray:
        """Return the canvas of each image, int [N] indices into `canvases`, by height and width, int [N, 2]."""
        ...

    def train(
        self,
        rng: np.random.RandomState,
        sizes: np.ndarray,
        boxes: np.ndarray,
        labels: np.ndarray,
        canvas: tuple[int, int],
    ) -> Cut:
        """Return random crops of images of `sizes` [n, 2], `boxes` [n, G, 4] and `labels` [n, G] (0 for padding)."""
        ...

    def evaluate(self, sizes: np.ndarray, canvas: tuple[int, int]) -> Cut: ...


class ShortEdge:
    """Whole images, with the shorter side resized to `min_size` unless the longer one would exceed `max_size`.

    Half of the training images are flipped. This is what torchvision's detectors do, but with only four canvases, so
    that there are few shapes: for aspect ratios of up to 4 to 3 and for longer ones, each in landscape and portrait.
    """

    drop_outside = False

    def __init__(self, min_size: int = 800, max_size: int = 1333, outlines: bool = False) -> None:
        self.min_size, self.max_size, self.outlines = min_size, max_size, outlines
        short, usual, longest = (-(-side // STRIDE) * STRIDE for side in (min_size, min_size * 4 // 3, max_size))
        usual = min(usual, longest)
        self.canvases = tuple(dict.fromkeys([(short, usual), (short, longest), (usual, short), (longest, short)]))

    def canvas_of(self, sizes: np.ndarray) -> np.ndarray:
        out = self._resized(sizes)
        fits = np.array([(out <= canvas).all(axis=1) for canvas in self.canvases])
        first: np.ndarray = fits.argmax(axis=0)
        return first

    def train(
        self,
        rng: np.random.RandomState,
        sizes: np.ndarray,
        boxes: np.ndarray,
        labels: np.ndarray,
        canvas: tuple[int, int],
    ) -> Cut:
        return self.evaluate(sizes, canvas)._replace(flips=rng.random_sample(len(sizes)) < 0.5)

    def evaluate(self, sizes: np.ndarray, canvas: tuple[int, int]) -> Cut:
        crops = np.zeros((len(sizes), 4), np.float32)
        crops[:, 2:] = sizes[:, ::-1]
        return Cut(crops, self._resized(sizes), np.zeros(len(sizes), bool))

    def _resized(self, sizes: np.ndarray) -> np.ndarray:
        scale = np.minimum(self.min_size / sizes.min(axis=1), self.max_size / sizes.max(axis=1))
        resized: np.ndarray = np.maximum(1, np.floor(sizes * scale[:, None] + 1e-6)).astype(np.int64)
        return resized
