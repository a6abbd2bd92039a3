"""Converts outlines of objects, COCO's polygons and run-length encodings, into directed edges.

Formats: https://cocodataset.org/#format-data. A polygon is [x0, y0, x1, y1, ...] in pixels; an object has one or more
polygons. A run-length encoding counts pixels column by column, alternately outside and inside, as a list of numbers or
as a compressed string.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

MIN_POINTS = 3
MAX_DIGITS = 7  # 5-bit digits in a compressed run: images have less than 2**32 pixels
FARTHEST = 1_000_000  # pixels; drawing takes memory proportional to an edge's length, even outside of the image


class OutlineError(ValueError):
    """An invalid outline; `position` is the object's in the list."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def outline_edges(
    outlines: list[Any], sizes: np.ndarray, crowd: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of n outlines, float32 [E, 4] x0 y0 x1 y1 in pixels, and the start of each, int64 [n + 1].

    All parts of an outline have the same direction, so that the non-zero winding rule fills their union. Parts of fewer
    than three points enclose nothing and are left out. None, and an outline without parts, has no edges. A run-length
    encoding has vertical edges only: horizontal ones cross no row. Crowds have no edges, but are checked like all
    others, because an evaluation draws them.

    sizes: int [n, 2], height and width of each outline's image. crowd: bool [n]; None for no crowds. Raises
    OutlineError.
    """
    crowd = np.zeros(len(outlines), bool) if crowd is None else crowd
    polygons = [outline if isinstance(outline, list) else [] for outline in outlines]
    edges, owners = _polygon_edges(polygons)
    kept = ~crowd[owners]
    pieces, piece_owners = [edges[kept]], [owners[kept]]
    for position, outline in enumerate(outlines):
        if outline is None or isinstance(outline, list):
            continue
        runs = _run_lengths(outline, sizes[position], position)
        if crowd[position]:
            continue  # Crowds have thousands of runs, which take long to draw.
        pieces.append(_run_edges(runs, sizes[position]))
        piece_owners.append(np.full(len(pieces[-1]), position))
    edges, owners = np.concatenate(pieces), np.concatenate(piece_owners)
    order = np.argsort(owners, kind="stable")
    starts = np.zeros(len(outlines) + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=len(outlines)), out=starts[1:])
    return edges[order], starts


def _polygon_edges(polygons: list[list[Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return edges float32 [E, 4] and the position of each edge's object, int64 [E]."""
    parts, owners = _parts(polygons)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    if set(map(type, chain.from_iterable(parts))) - {int, float}:
        raise OutlineError(_first_without_numbers(parts, owners), "a polygon with something else than numbers")
    try:
        numbers = np.fromiter(chain.from_iterable(parts), np.float64, lengths.sum())
    except OverflowError:  # a whole number larger than any float
        numbers = np.array([max(-2 * FARTHEST, min(x, 2 * FARTHEST)) for x in chain.from_iterable(parts)], np.float64)
    bad = ~(np.abs(numbers) <= FARTHEST)  # also True for NaN
    if bad.any():
        part = int(np.searchsorted(np.cumsum(lengths), np.argmax(bad), side="right"))
        reason = f"a polygon with a coordinate that is not finite or not within {FARTHEST:,} pixels"
        raise OutlineError(int(owners[part]), reason)
    starts = np.zeros(len(parts), np.int64)  # index of each part's first point
    np.cumsum(lengths[:-1] // 2, out=starts[1:])
    points = numbers.reshape(-1, 2)
    following = np.arange(1, len(points) + 1)
    following[starts + lengths // 2 - 1] = starts  # The last point's edge leads back to the first.
    ends = points[following]
    if not parts:
        return np.zeros((0, 4), np.float32), owners
    doubled_areas = np.add.reduceat(points[:, 0] * ends[:, 1] - ends[:, 0] * points[:, 1], starts)  # shoelace formula
    backwards = np.repeat(doubled_areas < 0, lengths // 2)[:, None]
    edges = np.empty((len(points), 4), np.float32)
    edges[:, :2] = np.where(backwards, ends, points)
    edges[:, 2:] = np.where(backwards, points, ends)
    return edges, np.repeat(owners, lengths // 2)


def _parts(polygons: list[list[Any]]) -> tuple[list[list[float]], np.ndarray]:
    """Return the polygons that enclose something, and the position of each one's object, int64."""
    parts: list[list[float]] = []
    owners: list[int] = []
    for position, polygon in enumerate(polygons):
        for part in polygon:
            if not isinstance(part, list):
                raise OutlineError(position, f"a polygon is a {type(part).__name__}, not a list of numbers")
            if len(part) % 2:
                raise OutlineError(position, f"a polygon of {len(part)} numbers, expected x and y of each point")
            if len(part) >= 2 * MIN_POINTS:
                parts.append(part)
                owners.append(position)
    return parts, np.array(owners, np.int64)


def _first_without_numbers(parts: list[list[float]], owners: np.ndarray) -> int:
    wrong = (owner for part, owner in zip(parts, owners, strict=True) if {type(x) for x in part} - {int, float})
    return int(next(wrong))


def _run_lengths(rle: Any, size: np.ndarray, position: int) -> np.ndarray:
    """Return the runs of a run-length encoded mask, int64, which add up to the image."""
    height, width = int(size[0]), int(size[1])
    if not isinstance(rle, dict) or "counts" not in rle:
        raise OutlineError(position, "neither a list of polygons nor a run-length encoding with `counts`")
    if rle.get("size") != [height, width]:
        raise OutlineError(
            position, f"a run-length encoding of size {rle.get('size')} in an image of {[height, width]}"
        )
    counts = rle["counts"]
    try:
        runs = decompress(counts) if isinstance(counts, str | bytes) else _integers(counts)
    except (TypeError, ValueError, OverflowError):  # Text that is not ASCII raises a ValueError, too.
        raise OutlineError(position, "a run-length encoding that holds no runs") from None
    if runs.min(initial=0) < 0:
        raise OutlineError(position, f"a run-length encoding with a run of {runs.min()} pixels")
    # Check for runs longer than the image before adding them up, because the sum can overflow.
    longest = int(runs.max(initial=0))
    if longest > height * width or runs.sum() != height * width:
        pixels = longest if longest > height * width else runs.sum()
        raise OutlineError(position, f"a run-length encoding of {pixels} pixels in an image of {height * width}")
    return runs


def _integers(counts: Any) -> np.ndarray:
    if not isinstance(counts, list) or {type(count) for count in counts} - {int}:
        raise TypeError("not a list of whole numbers")
    return np.array(counts, np.int64)


def _run_edges(runs: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the vertical edges of a mask with these runs, float32 [E, 4]."""
    height, width = int(size[0]), int(size[1])
    inside = np.repeat(np.arange(len(runs)) % 2, runs).astype(np.int8).reshape(width, height)
    return _vertical_edges(inside)


def _vertical_edges(inside: np.ndarray) -> np.ndarray:
    """Return the edges, float32 [E, 4], between the columns of a mask, int8 [width, height] of zeros and ones."""
    # A step is 1 where a row enters the mask left of column x, -1 where it leaves. A run of equal steps is one edge.
    steps = np.diff(inside, axis=0, prepend=np.int8(0), append=np.int8(0))
    changes = np.diff(steps, axis=1, prepend=np.int8(0), append=np.int8(0)) != 0
    padded = np.pad(steps, ((0, 0), (1, 1)))
    x, top = np.nonzero(changes & (padded[:, 1:] != 0))
    _, bottom = np.nonzero(changes & (padded[:, :-1] != 0))
    down = steps[x, top] > 0
    return np.stack([x, np.where(down, top, bottom), x, np.where(down, bottom, top)], axis=1).astype(np.float32)


def decompress(counts: str | bytes) -> np.ndarray:
    """Return the run lengths, int64, of COCO's compressed string. Raises ValueError for another string.

    A character holds five bits, lowest first, and a bit for whether more follow. From the fourth on, a run is stored as
    its difference to the run two before it (cocodataset/cocoapi, common/maskApi.c, rleToString).
    """
    codes = np.frombuffer(counts.encode("ascii") if isinstance(counts, str) else counts, np.uint8).astype(np.int64) - 48
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or codes[-1] & 32:
        raise ValueError("not compressed run lengths")
    last = (codes & 32) == 0
    starts = np.concatenate([[0], np.flatnonzero(last)[:-1] + 1])
    digit = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    if digit.max() >= MAX_DIGITS:
        raise ValueError("a run length of more bits than the largest image needs")
    runs = np.add.reduceat((codes & 31) << (5 * digit), starts)
    runs -= np.where(codes[last] & 16, np.int64(1) << (5 * (digit[last] + 1)), 0)  # the sign
    for parity in (1, 2):  # A run is the sum of every second stored number up to it.
        runs[parity::2] = np.cumsum(runs[parity::2])
    return runs
