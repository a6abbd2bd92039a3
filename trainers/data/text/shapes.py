"""Chooses few shapes for batches of sentences, so that each is compiled once and batches have little padding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

ROWS = 8  # A batch of more rows has a multiple of this, which tensor cores need.


@dataclass(frozen=True)
class Cell:
    """A rectangle of lengths, bounds included, that holds `pairs` pairs. `source` and `target` are upper bounds."""

    least_source: int
    source: int
    least_target: int
    target: int
    pairs: int

    def num_rows(self, batch_size: int, world_size: int) -> int:
        """Return a process's sentences in a batch with room for `batch_size` tokens of each language; 0 if none fits.

        The cell's pairs are spread evenly over the fewest batches that hold them, so that no batch is half empty.
        """
        most = batch_size // max(self.source, self.target)
        most = most if most <= ROWS else most // ROWS * ROWS
        if most == 0:
            return 0
        num_batches = -(-self.pairs // (most * world_size))
        rows = -(-self.pairs // (num_batches * world_size))
        return rows if rows <= ROWS else -(-rows // ROWS) * ROWS

    def padded(self, batch_size: int, world_size: int) -> int:
        """Return the tokens of both languages in all batches of all processes, including padding."""
        rows = max(1, self.num_rows(batch_size, world_size)) * world_size
        return -(-self.pairs // rows) * rows * (self.source + self.target)


def cells(source: np.ndarray, target: np.ndarray, most: int, batch_size: int, world_size: int = 1) -> list[Cell]:
    """Return up to `most` rectangles that contain all pairs, of lengths int64 [N] each, longest first.

    The search is greedy. From one rectangle on, it makes the cut, by either language's length, that saves most tokens,
    until no cut saves any. Tokens are those of all batches with room for `batch_size` on each process. A cut reduces
    padding of sentences, but may add padding in last batches, more with more processes.
    """
    counts = np.zeros((int(source.max()) + 1, int(target.max()) + 1), np.int64)
    np.add.at(counts, (source, target), 1)
    done = [_shrunk(counts, Cell(0, counts.shape[0] - 1, 0, counts.shape[1] - 1, len(source)))]
    cuts = [_best_cut(counts, done[0], batch_size, world_size)]
    while len(done) < most:
        place = max(range(len(done)), key=lambda number: cuts[number][0])
        saved, parts = cuts[place]
        if saved <= 0:
            break
        done[place : place + 1] = parts
        cuts[place : place + 1] = [_best_cut(counts, part, batch_size, world_size) for part in parts]
    return sorted(done, key=lambda cell: -(cell.source + cell.target))


def cell_of(source: np.ndarray, target: np.ndarray, among: list[Cell]) -> np.ndarray:
    """Return the cell of each pair, int64 [N]. Cells do not overlap."""
    table = np.full((int(source.max()) + 1, int(target.max()) + 1), -1, np.int64)
    for number, cell in enumerate(among):
        table[cell.least_source : cell.source + 1, cell.least_target : cell.target + 1] = number
    places: np.ndarray = table[source, target]
    assert (places >= 0).all()
    return places


def _within(counts: np.ndarray, cell: Cell) -> np.ndarray:
    within: np.ndarray = counts[cell.least_source : cell.source + 1, cell.least_target : cell.target + 1]
    return within


def _shrunk(counts: np.ndarray, cell: Cell) -> Cell:
    """Return the smallest rectangle with the same pairs, and their number."""
    within = _within(counts, cell)
    rows, columns = np.nonzero(within)
    return Cell(
        cell.least_source + int(rows.min()), cell.least_source + int(rows.max()),
        cell.least_target + int(columns.min()), cell.least_target + int(columns.max()), int(within.sum()),
    )  # fmt: skip


def _best_cut(counts: np.ndarray, cell: Cell, batch_size: int, world_size: int) -> tuple[int, list[Cell]]:
    """Return the tokens that the best cut of a cell saves, and its two parts, each as the smallest rectangle."""
    whole = cell.padded(batch_size, world_size)
    best: tuple[int, list[Cell]] = (0, [])
    halves = [
        (replace(cell, source=cut), replace(cell, least_source=cut + 1))
        for cut in range(cell.least_source, cell.source)
    ] + [
        (replace(cell, target=cut), replace(cell, least_target=cut + 1))
        for cut in range(cell.least_target, cell.target)
    ]
    for pair in halves:
        if all(_within(counts, half).any() for half in pair):
            parts = [_shrunk(counts, half) for half in pair]
            saved = whole - sum(part.padded(batch_size, world_size) for part in parts)
            best = max(best, (saved, parts), key=lambda cut: cut[0])
    return best
