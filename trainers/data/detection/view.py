"""How a detector wants its images cut and resized; the arithmetic is on the host, vectorised over a batch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

STRIDE = 32  # The coarsest map that a pyramid is made from has it: canvases are multiples of it.


class Cut(NamedTuple):
    """For each of n images: which rectangle of it is shown, and how."""

    crops: np.ndarray  # float32 [n, 4], x0 y0 x1 y1 in pixels of the image
    out_sizes: np.ndarray  # int64 [n, 2], height and width that the rectangle is resized to
    flips: np.ndarray  # bool [n], mirrored left to right


class View(Protocol):
    canvases: tuple[tuple[int, int], ...]  # height, width; every batch is of one of them
    drop_outside: bool  # whether an object is dropped whose centre is not shown; all are clipped to what is
    outlines: bool  # whether batches hold the objects' outlines, too

    def canvas_of(self, sizes: np.ndarray) -> np.ndarray:
        """The canvas of each image by its height and width, int [N, 2]: int [N], an index into `canvases`."""
        ...

    def train(
        self,
        rng: np.random.RandomState,
        sizes: np.ndarray,
        boxes: np.ndarray,
        labels: np.ndarray,
        canvas: tuple[int, int],
    ) -> Cut:
        """Cut images of `sizes` [n, 2] with objects `boxes` [n, G, 4] and `labels` [n, G] (0 = padding) at random."""
        ...

    def evaluate(self, sizes: np.ndarray, canvas: tuple[int, int]) -> Cut: ...


class ShortEdge:
    """Whole images, the shorter side resized to `min_size` unless the longer one would exceed `max_size`; half of them
    flipped. As torchvision's detectors do it, but on few canvases, so that shapes are few: for sides of up to 4 to 3
    and for longer ones, lying and standing.
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
