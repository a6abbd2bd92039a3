"""Puts a detector's batch together: objects of an index, cut as the view says, in fixed shapes, on the device.

images       uint8 [n, 3, H, W], channels_last; zero outside of each image's own part
sizes        float32 [n, 2], height and width of that part
boxes        float32 [n, G, 4], x0 y0 x1 y1 in pixels of the canvas; padding is zero
labels       int64 [n, G], 1 to C; 0 = padding
edges        float32 [E, 4], outlines in pixels of the canvas, where they are asked for
owner        int64 [E], i * G + g of the object that an edge belongs to; n * G for padding
weights      float32 [n], 0 for an image that only fills up the batch
image_index  int64 [n], place in the index, -1 for filler
crops        float32 [n, 4], the rectangle of the image that is shown, in its own pixels
"""

from __future__ import annotations

import numpy as np

from trainers.data.coco import CocoIndex
from trainers.data.detection.view import Cut

EDGES_STEP = 4096  # numbers of edges are rounded up to multiples of this, so that allocations repeat


def gather_objects(index: CocoIndex, images: np.ndarray, num_objects: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the usable objects of each image: int64 [n, G], and which of them are there: bool [n, G].

    Crowd regions are left out: a detector is not trained on them. Objects beyond G are, too.
    """
    objects = np.zeros((len(images), num_objects), np.int64)
    there = np.zeros((len(images), num_objects), bool)
    for row, image in enumerate(images):
        own = np.arange(index.object_start[image], index.object_start[image + 1])
        own = own[~index.crowd[own]][:num_objects]
        objects[row, : len(own)] = own
        there[row, : len(own)] = True
    return objects, there


def gather_edges(index: CocoIndex, objects: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The edges of objects int64 [n, G] in one array, float32 [E, 4], and whose they are, int64 [E]."""
    slots = np.flatnonzero(there)
    chosen = objects.ravel()[slots]
    start, stop = index.edge_start[chosen], index.edge_start[chosen + 1]
    count = stop - start
    owner = np.repeat(slots, count)
    # Consecutive numbers within each object: a running number less the object's first, plus where its edges lie.
    position = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)
    return np.asarray(index.edges[position], np.float32), owner


def move(points: np.ndarray, cut: Cut, images: np.ndarray | slice) -> np.ndarray:
    """Pairs x0 y0 x1 y1 [..., 4] of `images` from pixels of the image to pixels of the canvas; not clipped."""
    crops, out, flips = cut.crops[images], cut.out_sizes[images], cut.flips[images]
    scale = out[:, ::-1] / (crops[:, 2:] - crops[:, :2])  # x, y
    wide = (slice(None),) + (None,) * (points.ndim - 2)
    moved = (points - np.tile(crops[:, :2], 2)[wide]) * np.tile(scale, 2)[wide]
    width = out[:, 1][wide]
    flipped = flips[wide]
    x0, x1 = moved[..., 0].copy(), moved[..., 2].copy()
    # The two ends are swapped as well: a box keeps x0 <= x1.
    moved[..., 0] = np.where(flipped, width - x1, x0)
    moved[..., 2] = np.where(flipped, width - x0, x1)
    boxes: np.ndarray = moved.astype(np.float32)
    return boxes


def move_edges(edges: np.ndarray, cut: Cut, images: np.ndarray) -> np.ndarray:
    """As `move`, but an edge keeps its ends: y goes with its x. The mirror turns all outlines round alike."""
    moved = move(edges, cut, images)
    flipped = cut.flips[images]
    moved[flipped] = moved[flipped][:, [2, 1, 0, 3]]
    return moved


def shown(boxes: np.ndarray, there: np.ndarray, cut: Cut, drop_outside: bool) -> tuple[np.ndarray, np.ndarray]:
    """Boxes [n, G, 4] in pixels of the canvas clipped to what is shown, and which objects are left, [n, G]."""
    height, width = cut.out_sizes[:, None, 0], cut.out_sizes[:, None, 1]
    clipped = boxes.copy()
    clipped[..., 0::2] = np.clip(clipped[..., 0::2], 0, width[..., None])
    clipped[..., 1::2] = np.clip(clipped[..., 1::2], 0, height[..., None])
    left = there & ((clipped[..., 2:] - clipped[..., :2]) > 0).all(axis=2)
    if drop_outside:
        centre = (boxes[..., :2] + boxes[..., 2:]) / 2
        left &= (centre > 0).all(axis=2) & (centre[..., 0] < width) & (centre[..., 1] < height)
    return np.where(left[..., None], clipped, 0).astype(np.float32), left


def pad_edges(edges: np.ndarray, owner: np.ndarray, nobody: int) -> dict[str, np.ndarray]:
    total = max(1, -(-len(edges) // EDGES_STEP)) * EDGES_STEP
    padded = np.zeros((total, 4), np.float32)
    owners = np.full(total, nobody, np.int64)
    padded[: len(edges)], owners[: len(edges)] = edges, owner
    return {"edges": padded, "owner": owners}
