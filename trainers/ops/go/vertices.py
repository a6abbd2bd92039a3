"""Names of moves, as in the Go Text Protocol: a column's letter (without I) and a row counted from below, or pass."""

from __future__ import annotations

COLUMNS = "ABCDEFGHJKLMNOPQRST"
PASS = "pass"


def vertex(move: int, size: int) -> str:
    """Return a move's name, such as `C5`; `pass` for size * size."""
    if move == size * size:
        return PASS
    row, column = divmod(move, size)
    return f"{COLUMNS[column]}{size - row}"


def move_at(name: str, size: int) -> int:
    """Return the move with this name, in upper or lower case. Raises ValueError if the board has no such point."""
    if name.lower() == PASS:
        return size * size
    column, row = COLUMNS[:size].index(name[0].upper()), size - int(name[1:])
    if not 0 <= row < size:
        raise ValueError(f"{name}: must be a row from 1 to {size}")
    return row * size + column
