"""What the network sees of games, the symmetries of the square, and games taken out of a batch."""

from __future__ import annotations

import pytest
import torch

from tests.trainers.ops.go.random_games import random_games
from trainers.ops.go import Rules, Symmetries
from trainers.ops.go.symmetries import NUM_SYMMETRIES


def test_planes_are_each_players_last_eight_positions_and_who_is_to_move() -> None:
    rules = Rules(3)
    boards = rules.start(1)
    assert rules.planes(boards).sum() == 9, "black is to move on an empty board"
    for move in (0, 8, 9, 4):  # black, white, black passes, white
        boards = rules.play(boards, torch.tensor([move]))
    planes = rules.planes(boards)[0].flatten(1)
    assert planes[16].tolist() == [1] * 9
    points = [plane.nonzero()[:, 0].tolist() for plane in planes[:16]]
    assert points[0::2] == [[0], [0], [0], [0], [], [], [], []]
    assert points[1::2] == [[4, 8], [8], [8], [], [], [], [], []]
    boards = rules.play(boards, torch.tensor([1]))
    planes = rules.planes(boards, torch.bfloat16)[0].flatten(1)
    assert planes.dtype == torch.bfloat16
    assert planes[16].tolist() == [0] * 9
    assert [planes[side].nonzero()[:, 0].tolist() for side in (0, 1)] == [[4, 8], [0, 1]], "white's stones first"


def test_planes_keep_eight_positions_and_forget_the_ninth() -> None:
    rules = Rules(5)
    boards = rules.start(1)
    for move in range(9):
        boards = rules.play(boards, torch.tensor([2 * move]))
    assert rules.planes(boards)[0, :16].sum(dim=(1, 2)).tolist() == [4, 5, 4, 4, 3, 4, 3, 3, 2, 3, 2, 2, 1, 2, 1, 1]


@pytest.mark.parametrize("size", [3, 5])
def test_a_turned_game_is_the_same_game(size: int) -> None:
    rules, symmetries = Rules(size), Symmetries(size)
    which = torch.arange(3 * NUM_SYMMETRIES) % NUM_SYMMETRIES
    turned = rules.start(len(which))
    for _, legal, moves, after in random_games(rules, len(which), seed=4):
        assert torch.equal(symmetries.policies(legal, which), rules.legal(turned))
        turned = rules.play(turned, symmetries.moves(moves, which))
        assert torch.equal(symmetries.planes(rules.planes(after), which), rules.planes(turned))
        assert torch.equal(rules.area_score(after), rules.area_score(turned))
    assert not torch.equal(after.stones, turned.stones)


def test_symmetries_are_eight_and_each_is_undone() -> None:
    symmetries = Symmetries(3)
    which = torch.arange(NUM_SYMMETRIES)
    moves = torch.arange(10).expand(NUM_SYMMETRIES, -1)
    turned = symmetries.policies(moves, which)
    assert len({tuple(row) for row in turned.tolist()}) == NUM_SYMMETRIES
    assert torch.equal(symmetries.policies(turned, symmetries.inverse(which)), moves)
    assert turned[0].tolist() == moves[0].tolist()
    planes = torch.arange(18.0).view(1, 2, 3, 3).expand(NUM_SYMMETRIES, -1, -1, -1)
    back = symmetries.planes(symmetries.planes(planes, which), symmetries.inverse(which))
    assert torch.equal(back, planes)


def test_games_are_taken_out_of_a_batch_and_mixed() -> None:
    rules = Rules(3)
    before = rules.start(3)
    after = rules.play(before, torch.tensor([0, 1, 2]))
    taken = after.take(torch.tensor([2, 0]))
    assert taken.stones.argmax(dim=1).tolist() == [2, 0]
    assert taken.history.shape == (2, rules.max_moves + 1)
    mixed = before.where(torch.tensor([False, True, False]), after)
    assert mixed.moves.tolist() == [0, 1, 0]
    assert mixed.recent[:, 0, 1].tolist() == [0, 1, 0]
    nothing = after.take(torch.tensor([], dtype=torch.int64))
    assert rules.legal(rules.play(nothing, torch.tensor([], dtype=torch.int64))).shape == (0, 10)
