"""Draws shapes with NumPy: outlines, coverage of pixels, textures, and outlines of masks.

Everything that decides an annotation is exact: corners are rounded to 1/16 pixel and crossings to 1/256, and the rest
are sums of such numbers. The last bits of a machine's sine or of NumPy's vectorised loops therefore do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from PIL import Image

SUB_ROWS = 4  # lines sampled in each row of pixels; coverage along a line is exact


def arc(start: float, stop: float, radius: float = 1.0, centre_x: float = 0.0) -> list[tuple[float, float]]:
    """Return points about 0.13 rad apart on an arc around (centre_x, 0), including both ends."""
    num = max(2, round(abs(stop - start) / 0.13))
    angles = [start + (stop - start) * step / num for step in range(num + 1)]
    return [(centre_x + radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


def regular(*radii: float, num_corners: int) -> list[tuple[float, float]]:
    """Return corners at equal angles with repeating radii: one radius gives a polygon, two give a star."""
    turn = 2 * math.pi / num_corners
    return [
        (radii[corner % len(radii)] * math.cos(corner * turn), radii[corner % len(radii)] * math.sin(corner * turn))
        for corner in range(num_corners)
    ]


# Simple polygons without holes, of any position and size, in alphabetical order, as labels of image folders are.
SHAPES: dict[str, list[tuple[float, float]]] = {
    "arrow": [(-1, 0.3), (0, 0.3), (0, 0.8), (1, 0), (0, -0.8), (0, -0.3), (-1, -0.3)],
    # The unit circle minus the circle of radius 0.8 around (0.5, 0); they meet at x = 0.61.
    "crescent": arc(0.915, 2 * math.pi - 0.915) + arc(2 * math.pi - 1.433, 1.433, 0.8, 0.5)[1:-1],
    "cross": [
        *((1, 0.33), (0.33, 0.33), (0.33, 1), (-0.33, 1), (-0.33, 0.33), (-1, 0.33)),
        *((-1, -0.33), (-0.33, -0.33), (-0.33, -1), (0.33, -1), (0.33, -0.33), (1, -0.33)),
    ],
    "disc": arc(0, 2 * math.pi)[:-1],
    "ell": [(-1, -1), (-0.3, -1), (-0.3, 0.3), (1, 0.3), (1, 1), (-1, 1)],
    "pentagon": regular(1, num_corners=5),
    "square": regular(1, num_corners=4),
    "star": regular(1, 0.42, num_corners=10),
    "triangle": regular(1, num_corners=3),
    "wedge": [*arc(0.6, 2 * math.pi - 0.6), (0.0, 0.0)],
}
CLASS_NAMES = tuple(SHAPES)


def pose(
    rng: np.random.RandomState, points: list[tuple[float, float]], extent: float, centre: tuple[float, float]
) -> np.ndarray:
    """Return the outline, randomly mirrored, flattened by up to a quarter along a random axis, and rotated.

    `extent` is the longer side of its upright box, and `centre` the box's centre, x and y, in pixels. Returns float64
    [corners, 2], multiples of 1/16.
    """
    turn, axis, flatness = rng.uniform(0, 2 * math.pi), rng.uniform(0, math.pi), rng.uniform(0.75, 1)
    x, y = np.array(points, np.float64).T
    x, y = _turned(x * rng.choice([-1, 1]), y, axis)
    x, y = _turned(x, y * flatness, turn)
    scale = extent / max(np.ptp(x), np.ptp(y))
    corners = np.stack(
        [(x - (x.max() + x.min()) / 2) * scale + centre[0], (y - (y.max() + y.min()) / 2) * scale + centre[1]], axis=1
    )
    return np.round(corners * 16) / 16


def _turned(x: np.ndarray, y: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    return _across(x, y, angle), _along(x, y, angle)


def _across(x: np.ndarray, y: np.ndarray, angle: float) -> np.ndarray:
    turned: np.ndarray = x * math.cos(angle) - y * math.sin(angle)
    return turned


def _along(x: np.ndarray, y: np.ndarray, angle: float) -> np.ndarray:
    turned: np.ndarray = x * math.sin(angle) + y * math.cos(angle)
    return turned


def coverage(corners: np.ndarray, height: int, width: int) -> tuple[tuple[slice, slice], np.ndarray]:
    """Return the share of each pixel of a [height, width] image that a simple polygon covers.

    Returns rows and columns of the polygon's box within the image, and float64 in [0, 1] for its pixels.
    """
    low = np.clip(np.floor(corners.min(0)), 0, (width, height)).astype(int)
    high = np.clip(np.ceil(corners.max(0)), 0, (width, height)).astype(int)
    num_columns, num_rows = high - low
    (x0, y0), (x1, y1) = corners.T, np.roll(corners, -1, 0).T
    lines = (np.arange(low[1] * SUB_ROWS, high[1] * SUB_ROWS) + 0.5) / SUB_ROWS
    below = lines >= y0[:, None]
    edge, line = np.nonzero(below != np.roll(below, -1, 0))  # crossings of edges and lines
    x = x0[edge] + (lines[line] - y0[edge]) / (y1[edge] - y0[edge]) * (x1[edge] - x0[edge])
    side = np.where(below[edge, line], 1.0, -1.0)  # right of each crossing, inside and outside swap
    per_row = 1 if _alternate(side[np.lexsort((x, line))]) else SUB_ROWS
    x = np.round(np.clip(x - low[0], 0, num_columns) * 256) / 256
    column = x.astype(int)
    cell = line // (SUB_ROWS // per_row) * (num_columns + 2) + column
    part = side * (x - column)
    size = num_rows * per_row * (num_columns + 2)
    change = np.bincount(np.concatenate([cell, cell + 1]), np.concatenate([side - part, part]), size)
    inside = np.abs(np.cumsum(change.reshape(-1, num_columns + 2), axis=1))[:, :num_columns]
    box = (slice(low[1], high[1]), slice(low[0], high[0]))
    return box, inside.reshape(num_rows, per_row, num_columns).sum(1) / SUB_ROWS


def _alternate(sides: np.ndarray) -> bool:
    """Return whether each line, from left to right, enters and leaves the outline in turns.

    All lines of a row then have one sign, and can be added before the magnitude is taken. An outline that crosses
    itself has both signs. Rounded corners may make a thin one cross itself.
    """
    return bool((sides[::2] == sides[:1]).all() and (sides[1::2] == -sides[:1]).all())


def texture(rng: np.random.RandomState, height: int, width: int, colours: np.ndarray) -> np.ndarray:
    """Return a plain, shaded, striped, checked or cloudy texture of two colours [2, 3]; float32 [3, height, width]."""
    angle, period = rng.uniform(0, math.pi), rng.uniform(8, 30)
    y, x = np.ogrid[:height, :width]
    x, y = x.astype(np.float32), y.astype(np.float32)
    patterns: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
        np.zeros_like,
        lambda u: (u - u.min()) / max(np.ptp(u), 1),
        lambda u: np.clip(_wave(u / period) * 4 - 1.5, 0, 1),
        lambda u: np.clip((_wave(u / period) - 0.5) * (_wave(_along(x, y, angle) / period) - 0.5) * 24 + 0.5, 0, 1),
        lambda u: _clouds(rng, height, width, period),
    )
    shade = patterns[rng.randint(len(patterns))](_across(x, y, angle)).astype(np.float32, copy=False)
    first, second = colours.astype(np.float32)[..., None, None]
    mixed: np.ndarray = shade * (second - first)
    mixed += first
    return mixed


def _wave(phase: np.ndarray) -> np.ndarray:
    """Return a triangle wave of period 1 between 0 and 1."""
    wave: np.ndarray = np.abs((phase - np.floor(phase)) * 2 - 1)
    return wave


def _clouds(rng: np.random.RandomState, height: int, width: int, period: float) -> np.ndarray:
    grid = rng.randint(0, 256, (2 + int(height / period), 2 + int(width / period))).astype(np.uint8)
    smooth = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(smooth, np.float32) / 255


def trace(mask: np.ndarray) -> list[np.ndarray]:
    """Return closed outlines of the mask's 4-connected parts, clockwise as seen, and of its holes, counter-clockwise.

    Takes bool [height, width]; returns float64 [points, 2], x and y in pixels: the midpoints of the pixels' sides.
    """
    padded = np.pad(mask, 1)
    stride = padded.shape[1]
    inner = np.flatnonzero(padded)
    # A side has the number 4 * its first corner + direction (right, down, left, up), with the mask on its right. Corner
    # k is the upper left one of padded pixel k.
    step = np.array([1, stride, -1, -stride])
    borders = [inner[~padded.ravel()[inner - step[(direction + 1) % 4]]] for direction in range(4)]
    corners = np.concatenate(
        [border + first for border, first in zip(borders, (0, 1, stride + 1, stride), strict=True)]
    )
    directions = np.repeat(np.arange(4), [len(border) for border in borders])
    number = np.full(4 * padded.size, -1)
    number[corners * 4 + directions] = np.arange(len(corners))
    # Prefer right to straight and straight to left, so that pixels that touch only at a corner are different parts.
    turns = [number[(corners + step[directions]) * 4 + (directions + turn) % 4] for turn in (1, 0, 3)]
    following = np.where(turns[0] >= 0, turns[0], np.where(turns[1] >= 0, turns[1], turns[2])).tolist()
    y, x = np.divmod(corners, stride)
    middles = np.stack([x - 1, y - 1], 1) + np.array([(0.5, 0), (0, 0.5), (-0.5, 0), (0, -0.5)])[directions]
    return [middles[loop] for loop in _loops(following)]


def _loops(following: list[int]) -> list[list[int]]:
    """Return the cycles of a permutation, in the order of their smallest members."""
    loops, visited = [], [False] * len(following)
    for start in range(len(following)):
        loop, index = [], start
        while not visited[index]:
            visited[index] = True
            loop.append(index)
            index = following[index]
        if loop:
            loops.append(loop)
    return loops


def signed_area(points: np.ndarray) -> float:
    """Return the area within a closed outline [points, 2]: positive if clockwise as seen, negative for a hole."""
    x, y = points.T
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2


def simplify(outline: np.ndarray, tolerance: float) -> np.ndarray:
    """Return fewer points of a closed outline, such that every omitted point is within `tolerance` of it.

    D. Douglas and T. Peucker 1973, doi:10.3138/FM57-6770-U75U-7727, starting from two points far apart.
    """
    first = int(np.argmax(((outline - outline.mean(0)) ** 2).sum(1)))
    outline = np.roll(outline, -first, 0)
    second = int(np.argmax(((outline - outline[0]) ** 2).sum(1)))
    x, y = np.concatenate([outline, outline[:1]]).T
    kept, spans = [0, second], [(0, second), (second, len(outline))]
    while spans:
        start, stop = spans.pop()
        if stop - start < 2:
            continue
        dx, dy = float(x[stop] - x[start]), float(y[stop] - y[start])
        # twice the triangle's area: base times height
        area = np.abs((x[start + 1 : stop] - x[start]) * dy - (y[start + 1 : stop] - y[start]) * dx)
        furthest = int(area.argmax())
        if area[furthest] ** 2 > tolerance**2 * (dx * dx + dy * dy):
            middle = start + 1 + furthest
            kept.append(middle)
            spans += [(start, middle), (middle, stop)]
    return outline[sorted(kept)]
