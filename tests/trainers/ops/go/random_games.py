"""Random games to the end, beside open-spiel's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyspiel
import torch

from trainers.ops.go import Boards, Rules

PASSES = 0.01  # a pass's share of the moves while there are others


def random_moves(legal: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    chances = legal.float()
    others = chances[:, :-1].sum(dim=1)
    chances[:, -1] = torch.where(others > 0, others * PASSES, 1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


class Turn(NamedTuple):
    boards: Boards
    legal: torch.Tensor
    moves: torch.Tensor
    after: Boards


def random_games(rules: Rules, batch: int, seed: int) -> Iterator[Turn]:
    """The turns of random games, until all are over."""
    generator = torch.Generator().manual_seed(seed)
    boards = rules.start(batch)
    while not bool(boards.over.all()):
        legal = rules.legal(boards)
        moves = random_moves(legal, generator)
        after = rules.play(boards, moves)
        yield Turn(boards, legal, moves, after)
        boards = after


def agree_with_open_spiel(rules: Rules, batch: int, seed: int) -> tuple[int, int]:
    """Play random games beside open-spiel: the moves compared, and the moves that only superko forbids.

    open-spiel allows a move that repeats a position, and ends the game there. Each such move is tried. It is the only
    difference between what is legal here and there.
    """
    words = {"board_size": rules.size, "komi": rules.komi, "max_game_length": rules.max_moves}
    oracle = pyspiel.load_game("go", words)
    states = [oracle.new_initial_state() for _ in range(batch)]
    compared = repetitions = 0
    for turn in random_games(rules, batch, seed):
        legal, over, chosen = turn.legal.numpy(), turn.after.over.tolist(), turn.moves.tolist()
        scores = rules.area_score(turn.after).tolist() if any(over) else []
        stones = torch.cat([turn.after.stones == colour for colour in (1, -1)], dim=1).tolist()
        for game, state in enumerate(states):
            if state.is_terminal():
                continue
            ours, theirs = legal[game].nonzero()[0].tolist(), state.legal_actions()
            if ours != theirs:
                assert {*ours} <= {*theirs}, f"game {game}, {theirs} but not {ours} on\n{state}"
                for move in {*theirs} - {*ours}:
                    assert state.child(move).is_terminal(), f"game {game}, move {move} is legal on\n{state}"
                    repetitions += 1
            state.apply_action(chosen[game])
            compared += 1
            black_and_white = state.observation_tensor(0)[: 2 * rules.num_points]
            assert black_and_white == stones[game], f"game {game}: {stones[game]} and\n{state}"
            assert over[game] == state.is_terminal()
            if over[game]:
                assert (scores[game] > 0) == (state.returns()[0] > 0), f"{scores[game]} on\n{state}"
    return compared, repetitions
