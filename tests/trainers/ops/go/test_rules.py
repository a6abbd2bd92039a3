"""Go's rules are open-spiel's until a position repeats, a set of positions' from there on, and known cases by hand."""

from __future__ import annotations

import pytest

from tests.trainers.ops.go.random_games import agree_with_open_spiel, random_games
from trainers.ops.go import Rules


@pytest.mark.parametrize(("size", "batch"), [(2, 50), (3, 100), (5, 100), (7, 40), (9, 60), (19, 1)])
def test_random_games_are_open_spiels_move_by_move(size: int, batch: int) -> None:
    compared, _ = agree_with_open_spiel(Rules(size), batch, seed=size)
    assert compared > batch * size**2 / 2


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_100_000_random_games_are_open_spiels(seed: int) -> None:
    assert agree_with_open_spiel(Rules(), 1000, seed=1000 + seed)[0] > 100_000


def beside(point: int, size: int) -> list[int]:
    row, column = divmod(point, size)
    steps = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    return [size * y + x for y, x in steps if 0 <= y < size and 0 <= x < size]


def breathing(board: list[int], point: int, size: int) -> tuple[set[int], bool]:
    """The chain of a stone, and whether it has a liberty."""
    chain, todo, breathes = {point}, [point], False
    while todo:
        for side in beside(todo.pop(), size):
            breathes |= board[side] == 0
            if board[side] == board[point] and side not in chain:
                chain.add(side)
                todo.append(side)
    return chain, breathes


def played(board: tuple[int, ...], point: int, colour: int, size: int) -> tuple[int, ...] | None:
    """The board after a stone there, by the definition; None for a suicide."""
    after = list(board)
    after[point] = colour
    for side in beside(point, size):
        if after[side] == -colour:
            chain, breathes = breathing(after, side, size)
            for stone in chain if not breathes else ():
                after[stone] = 0
    return tuple(after) if breathing(after, point, size)[1] else None


@pytest.mark.parametrize(("size", "batch"), [(2, 40), (3, 60), (4, 60)])
def test_superko_forbids_every_position_that_has_been_before(size: int, batch: int) -> None:
    """Small boards and long games, in which positions repeat often."""
    rules = Rules(size, max_moves=80)
    positions: list[set[tuple[int, ...]]] = [{(0,) * size**2} for _ in range(batch)]
    forbidden = 0
    for boards, legal, _, after in random_games(rules, batch, seed=1):
        for game in (~boards.over).nonzero()[:, 0].tolist():
            board, colour = tuple(boards.stones[game].tolist()), int(boards.to_play[game])
            for point in range(size**2):
                result = None if board[point] else played(board, point, colour, size)
                assert bool(legal[game, point]) == (result is not None and result not in positions[game])
                forbidden += result in positions[game]
            positions[game].add(tuple(after.stones[game].tolist()))
    assert forbidden > 20
