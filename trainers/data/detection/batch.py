"""Assembles a detector's batch: objects of an index, cropped as the view says, in fixed shapes, on the device.

images       uint8 [n, 3, H, W], channels_last; zero outside of each image's part of the canvas
sizes        float32 [n, 2], height and width of that part
boxes        float32 [n, G, 4], x0 y0 x1 y1 in pixels of the canvas; padding is zero
labels       int64 [n, G], 1 to C; 0 for padding
edges        float32 [E, 4], outlines in pixels of the canvas, if the view wants them
owner        int64 [E], i * G + g of the object that an edge belongs to; n * G for padding
weights      float32 [n], 0 for an image that only pads the batch
image_index  int64 [n], position in the index; -1 for padding
crops        float32 [n, 4], the crop in pixels of the image
"""

from __future__ import annotations

import numpy as np

from trainers.data.coco import CocoIndex
from trainers.data.detection.view import Cut

# The number of edges is rounded up to a multiple of the first, or of the second times the images if that is larger.
# Then almost all batches have one shape, for which a step is captured.
EDGES_STEP, EDGES_AN_IMAGE = 4096, 1024


def gather_objects(index: CocoIndex, images: np.ndarray, num_objects: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of each image's usable objects, int64 [n, G], and which slots are filled, bool [n, G].

    Crowds are left out, because a detector is not trained on them, and so are objects beyond G.
    """
    objects = np.zeros((len(images), num_objects), np.int64)
    filled = np.zeros((len(images), num_objects), bool)
    for row, image in enumerate(images):
        positions = np.arange(index.object_start[image], index.object_start[image + 1])
        positions = positions[~index.crowd[positions]][:num_objects]
        objects[row, : len(positions)] = positions
        filled[row, : len(positions)] = True
    return objects, filled


def gather_edges(index: CocoIndex, objects: np.ndarray, filled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of objects int64 [n, G] in one array, float32 [E, 4], and each edge's slot, int64 [E]."""
    slots = np.flatnonzero(filled)
    chosen = objects.ravel()[slots]
    start, stop = index.edge_start[chosen], index.edge_start[chosen + 1]
    count = stop - start
    owner = np.repeat(slots, count)
    # The position of an edge is its number within its object plus the start of the object's edges.
    position = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)
    return np.asarray(index.edges[position], np.float32), owner


def move(points: np.ndarray, cut: Cut, images: np.ndarray | slice) -> np.ndarray:
    """Convert pairs x0 y0 x1 y1 [..., 4] of `images` from pixels of the image to pixels of the canvas, unclipped."""
    crops, out, flips = cut.crops[images], cut.out_sizes[images], cut.flips[images]
    scale = out[:, ::-1] / (crops[:, 2:] - crops[:, :2])  # x, y
    wide = (slice(None),) + (None,) * (points.ndim - 2)
    moved = (points - np.tile(crops[:, :2], 2)[wide]) * np.tile(scale, 2)[wide]
    width = out[:, 1][wide]
    flipped = flips[wide]
    x0, x1 = moved[..., 0].copy(), moved[..., 2].copy()
    # Also swap the two ends, so that a box keeps x0 <= x1.
    moved[..., 0] = np.where(flipped, width - x1, x0)
    moved[..., 2] = np.where(flipped, width - x0, x1)
    boxes: np.ndarray = moved.astype(np.float32)
    return boxes


def move_edges(edges: np.ndarray, cut: Cut, images: np.ndarray) -> np.ndarray:
    """Convert edges as `move` does, but keep each y with its x. A flip reverses the direction of all outlines alike."""
    moved = move(edges, cut, images)
    flipped = cut.flips[images]
    moved[flipped] = moved[flipped][:, [2, 1, 0, 3]]
    return moved


def shown(boxes: np.ndarray, filled: np.ndarray, cut: Cut, drop_outside: bool) -> tuple[np.ndarray, np.ndarray]:
    """Clip boxes [n, G, 4] in pixels of the canvas to the crop; return them and which objects remain, [n, G]."""
    height, width = cut.out_sizes[:, None, 0], cut.out_sizes[:, None, 1]
    clipped = boxes.copy()
    clipped[..., 0::2] = np.clip(clipped[..., 0::2], 0, width[..., None])
    clipped[..., 1::2] = np.clip(clipped[..., 1::2], 0, height[..., None])
    left = filled & ((clipped[..., 2:] - clipped[..., :2]) > 0).all(axis=2)
    if drop_outside:
        centre = (boxes[..., :2] + boxes[..., 2:]) / 2
        left &= (centre > 0).all(axis=2) & (centre[..., 0] < width) & (centre[..., 1] < height)
    return np.where(left[..., None], clipped, 0).astype(np.float32), left


def pad_edges(edges: np.ndarray, owner: np.ndarray, num_images: int, nobody: int) -> dict[str, np.ndarray]:
    step = max(EDGES_STEP, num_images * EDGES_AN_IMAGE)
    total = max(1, -(-len(edges) // step)) * step
    padded = np.zeros((total, 4), np.float32)
    owners = np.full(total, nobody, np.int64)
    padded[: len(edges)], owners[: len(edges)] = edges, owner
    return {"edges": padded, "owner": owners}
