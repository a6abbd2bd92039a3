"""Moves as players, and the Go Text Protocol, write them: a column's letter without I, and a row from below; a pass."""

from __future__ import annotations

COLUMNS = "ABCDEFGHJKLMNOPQRST"
PASS = "pass"


def vertex(move: int, size: int) -> str:
    """A move's name, such as `C5`; `pass` for size * size."""
    if move == size * size:
        return PASS
    row, column = divmod(move, size)
    return f"{COLUMNS[column]}{size - row}"


def move_at(name: str, size: int) -> int:
    """The move of a name, in letters of either case. Raises ValueError where the board has no such point."""
    if name.lower() == PASS:
        return size * size
    column, row = COLUMNS[:size].index(name[0].upper()), size - int(name[1:])
    if not 0 <= row < size:
        raise ValueError(f"{name}: rows go from 1 to {size}")
    return row * size + column
