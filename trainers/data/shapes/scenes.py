"""Composes pictures of textured shapes that hide each other, with the true mask of each.

The seed (VERSION, kind, split, index) determines a picture. Only shape distinguishes classes: size, colour, texture,
position and direction have the same distributions for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainers.data.shapes.rasterizing import (
    CLASS_NAMES,
    SHAPES,
    coverage,
    pose,
    regular,
    signed_area,
    simplify,
    texture,
    trace,
)

VERSION = 1  # Raise it when the drawings change.
SPLITS = ("train", "val")
DETECTION_SIZES = ((360, 480), (480, 360), (360, 480), (480, 320), (320, 480), (400, 400))  # height, width
MIN_VISIBLE = 0.6  # least share of an object's area within the picture and not hidden by others
MIN_PART = 16  # least pixels of each connected visible part
# Largest red, green or blue of a background's colours, and smallest of all other colours: a network trained from
# scratch on few pictures learns bright objects sooner than objects that may be brighter or darker than the background.
DARK, LIGHT = 100, 110
CONTRAST = 120.0  # between an object's colours and those behind it; the largest possible is 442
TOLERANCE = 0.49  # pixels between a mask's border and its polygon; at a half, rows of pixels would be lost
MAX_TRIES = 12


Box = tuple[slice, slice]  # rows, columns


@dataclass(frozen=True)
class Thing:
    """An object, or a crowd of one class: its shape's number in SHAPES, its box, and the pixels that must show."""

    shape: int
    is_crowd: bool
    box: Box
    min_pixels: float


class Scene:
    """A picture being drawn.

    `pixels` is uint8 [height, width, 3] once the picture has been taken. `owner` is uint8 [height, width], the number
    (1, 2, ... in the order of `things`) of the visible thing, or 0.
    """

    pixels: np.ndarray

    def __init__(self, rng: np.random.RandomState, height: int, width: int) -> None:
        self.rng, self.height, self.width = rng, height, width
        base = rng.randint(0, DARK, 3)
        self.background = np.stack([base, np.clip(base + rng.randint(-40, 41, 3), 0, DARK)])
        self.canvas = texture(rng, height, width, self.background)
        self.owner = np.zeros((height, width), np.uint8)
        self.things: list[Thing] = []
        self.colours: list[np.ndarray] = []  # [2, 3] for each thing, [0, 3] for a crowd

    def clutter(self, num_items: int) -> None:
        """Draw strokes and blobs without corners, which belong to no class."""
        for _ in range(num_items):
            centre = self._anywhere()
            if self.rng.randint(2):
                points, extent = self._blob(), self.rng.uniform(10, 70)
            else:
                points, extent = [(-1, -0.03), (1, -0.03), (1, 0.03), (-1, 0.03)], self.rng.uniform(30, 200)
            self._paint(*coverage(pose(self.rng, points, extent, centre), self.height, self.width), self._colours())

    def crowd(self, shape: int) -> None:
        """Draw a heap of many small things of one class, which is one annotation."""
        x, y = self.rng.uniform(50, self.width - 50), self.rng.uniform(50, self.height - 50)
        number = len(self.things) + 1
        for _ in range(self.rng.randint(12, 25)):
            angle, radius = self.rng.uniform(0, 2 * math.pi), self.rng.uniform(0, 50)
            centre = x + radius * math.cos(angle), y + radius * math.sin(angle)
            box, cover = self._outline(shape, self.rng.uniform(16, 28), centre)[1]
            self.owner[box][cover >= 0.5] = number
            self._paint(box, cover, self._colours())
        self.colours.append(np.empty((0, 3), int))
        whole = slice(0, self.height), slice(0, self.width)
        self.things.append(Thing(shape, True, whole, MIN_VISIBLE * float(self.visible(number).sum())))

    def add(self, shape: int, low: float, high: float, min_visible: float = MIN_VISIBLE) -> bool:
        """Place an object of `low` to `high` pixels such that all stay visible; return False if there was no place."""
        number = len(self.things) + 1
        for _ in range(MAX_TRIES):
            extent = low * (high / low) ** self.rng.uniform()
            area, (box, cover) = self._outline(shape, extent, self._anywhere())
            before = self.owner[box].copy()
            self.owner[box][cover >= 0.5] = number
            self.things.append(Thing(shape, False, box, min_visible * area))
            touched = np.flatnonzero(np.bincount(before.ravel())[1:]) + 1
            if all(self._is_clear(other) for other in (number, *touched)):
                self.colours.append(self._colours(*(self.colours[other - 1] for other in touched)))
                self._paint(box, cover, self.colours[-1])
                return True
            self.owner[box] = before
            self.things.pop()
        return False

    def visible(self, number: int) -> np.ndarray:
        """Return the pixels that show thing 1, 2, ...: bool [height, width]."""
        mask: np.ndarray = self.owner == number
        return mask

    def polygons(self, number: int) -> list[np.ndarray]:
        """Return outlines of the thing's visible parts, float64 [points, 2] with x and y in pixels."""
        rows, columns = self.things[number - 1].box
        corner = (columns.start, rows.start)
        return [simplify(outline, TOLERANCE) + corner for outline in trace(self.owner[rows, columns] == number)]

    def photograph(self) -> Scene:
        """Take the picture, unevenly lit and with a camera's noise; afterwards nothing can be added."""
        lower, upper = np.sort(self.rng.uniform(0.75, 1.1, 2))
        light = np.linspace(lower, upper, self.width, dtype=np.float32)[:: self.rng.choice([-1, 1])]
        noise = self.rng.randint(0, 16, (self.height, self.width), np.uint8).astype(np.float32) - 7.5
        self.canvas *= light
        self.canvas += noise
        planes = np.clip(self.canvas, 0, 255, out=self.canvas).astype(np.uint8)
        self.pixels = np.stack([*planes], axis=2)  # Copying the transposed array would take 7 times as long.
        return self

    def _anywhere(self) -> tuple[float, float]:
        return self.rng.uniform(0, self.width), self.rng.uniform(0, self.height)

    def _blob(self) -> list[tuple[float, float]]:
        """Return a bumpy outline that is more elongated than any disc."""
        radii = 1 + np.cumsum(self.rng.uniform(-0.12, 0.12, 24))
        radii -= np.linspace(0, radii[-1] - radii[0], 24, endpoint=False)  # Makes the ends meet.
        return [
            (x * radius, 0.45 * y * radius) for (x, y), radius in zip(regular(1, num_corners=24), radii, strict=True)
        ]

    def _outline(self, shape: int, extent: float, centre: tuple[float, float]) -> tuple[float, tuple[Box, np.ndarray]]:
        """Return the whole shape's area, and its coverage of the picture."""
        corners = pose(self.rng, SHAPES[CLASS_NAMES[shape]], extent, centre)
        return abs(signed_area(corners)), coverage(corners, self.height, self.width)

    def _is_clear(self, number: int) -> bool:
        """Return whether enough of the thing is visible, in parts that are large enough and have no holes."""
        thing = self.things[number - 1]
        mask = self.owner[thing.box] == number
        if mask.sum() < thing.min_pixels:
            return False
        return thing.is_crowd or all(signed_area(outline) >= MIN_PART for outline in trace(mask))

    def _paint(self, box: Box, cover: np.ndarray, colours: np.ndarray) -> None:
        if cover.size:
            under = self.canvas[(slice(None), *box)]
            height, width = cover.shape
            change = texture(self.rng, height, width, colours)
            change -= under
            change *= cover.astype(np.float32)
            under += change

    def _colours(self, *others: np.ndarray) -> np.ndarray:
        """Return two similar colours [2, 3] that contrast with the background's and with the others."""
        avoided, contrast = np.concatenate([self.background, *others]), CONTRAST
        while True:
            contrast *= 0.99  # A colour with the full contrast to all may not exist.
            base = self.rng.randint(LIGHT, 256, 3)
            colours = np.stack([base, np.clip(base + self.rng.randint(-60, 61, 3), LIGHT, 255)])
            if ((avoided[:, None] - colours) ** 2).sum(2).min() >= contrast**2:
                return colours


def detection_scene(split: str, index: int) -> Scene:
    """Return a picture of up to eight objects; one in 50 has no objects, one in 25 has a crowd behind them."""
    rng = np.random.RandomState([VERSION, 0, SPLITS.index(split), index])
    scene = Scene(rng, *DETECTION_SIZES[rng.randint(len(DETECTION_SIZES))])
    scene.clutter(rng.randint(0, 5))
    if rng.randint(50) == 0:
        return scene.photograph()
    if rng.randint(25) == 0:
        scene.crowd(rng.randint(len(SHAPES)))
    for _ in range(1 + rng.binomial(7, 0.5)):
        scene.add(rng.randint(len(SHAPES)), 24, 0.7 * min(scene.height, scene.width))
    return scene.photograph()


def classification_scene(split: str, index: int) -> Scene:
    """Return a picture of one object among clutter; its class is the index modulo the number of classes."""
    rng = np.random.RandomState([VERSION, 1, SPLITS.index(split), index])
    scene = Scene(rng, rng.randint(250, 501), rng.randint(250, 501))
    scene.clutter(rng.randint(1, 6))
    side = min(scene.height, scene.width)
    while not scene.add(index % len(SHAPES), 0.4 * side, 0.85 * side, min_visible=0.9):
        pass
    return scene.photograph()
