"""SSD300's default boxes, their matching with objects, and the cropping of images.

W. Liu et al. 2016 (arXiv:1512.02325), with the sizes and rules of MLPerf Training v0.5's reference.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from trainers.data.detection.view import Cut
from trainers.ops.boxes import pairwise_iou

IMAGE_SIZE = 300  # pixels, height and width
MAP_SIZES = (38, 19, 10, 5, 3, 1)  # cells, height and width of the feature maps
STEPS = (8, 16, 32, 64, 100, 300)  # pixels from one cell to the next
SCALES = (21, 45, 99, 153, 207, 261, 315)  # pixels, side of the smallest default box of each map, and of one more
ASPECT_RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))  # of each map, besides 1; each also inverted
BOXES_PER_CELL = tuple(2 + 2 * len(ratios) for ratios in ASPECT_RATIOS)
CODING = (10.0, 5.0)  # weights of trainers.ops.boxes.encode: the inverse of the variances 0.1 and 0.2
MIN_OVERLAP = 0.5  # intersection over union above which a default box matches an object

NUM_TRIALS = 24  # crops drawn for an image; for one image in 300 no crop is valid
CROP_SIDES = (0.3, 1.0)  # shortest and longest side, as a share of the image's side
MAX_CROP_RATIO = 2.0  # between these shares
# Minimum overlap of a crop with every object, drawn for each trial; 0 sets no minimum, infinity is the whole image.
CROP_OVERLAPS = np.array([np.inf, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9], np.float32)


def default_boxes() -> torch.Tensor:
    """Return all 8,732 default boxes: float32 [8732, 4], x0 y0 x1 y1 in pixels, by map, row, column and shape.

    Centre and size are clamped to the image, the corners are not.
    """
    maps = []
    for index, (size, step) in enumerate(zip(MAP_SIZES, STEPS, strict=True)):
        small, next_small = SCALES[index : index + 2]
        shapes = [(small, small), (math.sqrt(small * next_small),) * 2]  # width, height
        for ratio in ASPECT_RATIOS[index]:
            wide, narrow = small * math.sqrt(ratio), small / math.sqrt(ratio)
            shapes += [(wide, narrow), (narrow, wide)]
        centres = (torch.arange(size, dtype=torch.float64) + 0.5) * step
        y, x = torch.meshgrid(centres, centres, indexing="ij")
        centre = torch.stack((x, y), dim=2)[:, :, None].clamp(max=IMAGE_SIZE)
        half = torch.tensor(shapes, dtype=torch.float64).clamp(max=IMAGE_SIZE) / 2
        maps.append(torch.cat((centre - half, centre + half), dim=3).flatten(0, 2))
    return torch.cat(maps).float()


@torch.no_grad()
def match(defaults: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Match default boxes with objects; return the object's box, float32 [n, D, 4], and label, int64 [n, D].

    A default box matches the object that it overlaps most, if by more than MIN_OVERLAP; else its label is 0. Each
    object also gets the default box that overlaps it most, whatever else that box overlaps. If two objects get the
    same default box, the later object keeps it.

    Args:
        defaults: float32 [D, 4]
        boxes: float32 [n, G, 4], in the same pixels
        labels: int64 [n, G], 0 for padding
    """
    overlap = torch.where(labels[..., None] > 0, pairwise_iou(boxes, defaults), -1.0)  # [n, G, D]
    best_overlap, best_object = overlap.max(dim=1)
    own_overlap, own_default = overlap.max(dim=2)
    # A comparison, not a scatter: the compiler fuses it, and it is defined which of two objects wins.
    every_default = torch.arange(len(defaults), device=boxes.device)
    every_object = torch.arange(boxes.shape[1], device=boxes.device)[:, None]
    owns = (own_default[..., None] == every_default) & (own_overlap[..., None] > 0)
    owner = torch.where(owns, every_object, -1).amax(dim=1)  # [n, D]
    matched = (owner >= 0) | (best_overlap > MIN_OVERLAP)
    chosen = torch.where(owner >= 0, owner, best_object)
    return boxes.gather(1, chosen[..., None].expand(-1, -1, 4)), labels.gather(1, chosen) * matched


class SsdView:
    """Crops images: for training the whole image or a random part, flipped half of the time; else the whole image.

    The crop is stretched to 300x300 pixels. Implements trainers.data.detection.view.View.
    """

    canvases: tuple[tuple[int, int], ...] = ((IMAGE_SIZE, IMAGE_SIZE),)
    drop_outside = True  # drop objects whose centre is not in the crop
    outlines = False

    def canvas_of(self, sizes: np.ndarray) -> np.ndarray:
        """Return the canvas of each image of `sizes` [N, 2]: int64 [N] of zeros, since there is only one."""
        return np.zeros(len(sizes), np.int64)

    def train(
        self,
        rng: np.random.RandomState,
        sizes: np.ndarray,
        boxes: np.ndarray,
        labels: np.ndarray,
        canvas: tuple[int, int],
    ) -> Cut:
        """Return random crops of images of `sizes` [n, 2], with objects `boxes` [n, G, 4] in pixels.

        `labels` [n, G] are 0 for padding.
        """
        crops = random_crops(rng, sizes, boxes, labels)
        return self.evaluate(sizes, canvas)._replace(crops=crops, flips=rng.random_sample(len(sizes)) < 0.5)

    def evaluate(self, sizes: np.ndarray, canvas: tuple[int, int]) -> Cut:
        """Return crops of the whole images of `sizes` [n, 2], not flipped."""
        crops = np.zeros((len(sizes), 4), np.float32)
        crops[:, 2:] = sizes[:, ::-1]
        return Cut(crops, np.full((len(sizes), 2), canvas, np.int64), np.zeros(len(sizes), bool))


def random_crops(rng: np.random.RandomState, sizes: np.ndarray, boxes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return crops float32 [n, 4], x0 y0 x1 y1 in pixels, of images of `sizes` int [n, 2], height and width.

    The whole image is always a valid trial. Another crop is valid if its sides are in proportion, if it overlaps every
    object enough, and if it contains the centre of one. The reference draws until a trial is valid; here all trials of
    all images are drawn at once, and the first valid one is taken, or else the whole image.
    """
    scale = np.asarray(sizes, np.float32)[:, [1, 0, 1, 0]]
    minimum = CROP_OVERLAPS[rng.randint(len(CROP_OVERLAPS), size=(len(sizes), NUM_TRIALS))]
    drawn = rng.random_sample((4, len(sizes), NUM_TRIALS)).astype(np.float32)
    sides = CROP_SIDES[0] + (CROP_SIDES[1] - CROP_SIDES[0]) * drawn[:2]  # width, height
    corner = (1 - sides) * drawn[2:]
    trials = np.concatenate((corner, corner + sides))  # [4, n, trials]
    owner, slot = np.nonzero(labels > 0)
    failing, held = _count_objects(trials, minimum, owner, boxes[owner, slot] / scale[owner])
    in_proportion = np.maximum(sides[0], sides[1]) <= MAX_CROP_RATIO * np.minimum(sides[0], sides[1])
    whole = np.isinf(minimum)
    valid = whole | (in_proportion & (failing == 0) & (held > 0))
    image, first = np.arange(len(sizes)), valid.argmax(axis=1)
    cut = valid[image, first] & ~whole[image, first]
    crops = np.where(cut, trials[:, image, first], np.array([[0], [0], [1], [1]], np.float32))
    result: np.ndarray = crops.T * scale
    return result


def _count_objects(
    trials: np.ndarray, minimum: np.ndarray, owner: np.ndarray, objects: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each trial, how many objects it overlaps too little and how many centres it holds: int [n, T] each.

    Args:
        trials: [4, n, T], x0 y0 x1 y1 as shares of the image
        minimum: [n, T], minimum overlap; 0 for no minimum
        owner: int [M], ascending: the image of each object
        objects: [M, 4], as shares of the image
    """
    left, top, right, bottom = trials[:, owner]  # [M, T] each
    x0, y0, x1, y1 = objects.T[:, :, None]
    width = np.minimum(right, x1) - np.maximum(left, x0)
    height = np.minimum(bottom, y1) - np.maximum(top, y0)
    shared = np.maximum(width, 0) * np.maximum(height, 0)
    union = (right - left) * (bottom - top) + (x1 - x0) * (y1 - y0) - shared
    least = minimum[owner]
    failing = (least > 0) & (shared <= least * union)
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    held = (x > left) & (x < right) & (y > top) & (y < bottom)
    # Sum over the objects of each image by differences of running sums, which is right for images without objects, too.
    running = np.zeros((2, len(owner) + 1, trials.shape[2]), np.int32)
    np.cumsum(np.stack((failing, held)), axis=1, out=running[:, 1:])
    bounds = np.searchsorted(owner, np.arange(trials.shape[1] + 1))
    failing_sum, held_sum = running[:, bounds[1:]] - running[:, bounds[:-1]]
    return failing_sum, held_sum
