"""Random games to the end, beside open-spiel's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyspiel
import torch

from trainers.ops.go import Boards, Rules

PASSES = 0.01  # a pass's share of the moves while there are others


def random_moves(rules: Rules, boards: Boards, generator: torch.Generator) -> torch.Tensor:
    chances = rules.legal(boards).float()
    others = chances[:, :-1].sum(dim=1)
    chances[:, -1] = torch.where(others > 0, others * PASSES, 1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def random_games(rules: Rules, batch: int, seed: int) -> Iterator[tuple[Boards, torch.Tensor, Boards]]:
    """Boards, the moves played on them, and the boards afterwards, until all games are over."""
    generator = torch.Generator().manual_seed(seed)
    boards = rules.start(batch)
    while not bool(boards.over.all()):
        moves = random_moves(rules, boards, generator)
        after = rules.play(boards, moves)
        yield boards, moves, after
        boards = after


def agree_with_open_spiel(rules: Rules, batch: int, seed: int) -> tuple[int, int]:
    """Play random games beside open-spiel: the moves compared, and the moves that only superko forbids.

    open-spiel allows a move that repeats a position, and ends the game there. Each such move is tried. It is the only
    difference between what is legal here and there.
    """
    words = {"board_size": rules.size, "komi": rules.komi, "max_game_length": rules.max_moves}
    states = [pyspiel.load_game("go", words).new_initial_state() for _ in range(batch)]
    compared = repetitions = 0
    for boards, moves, after in random_games(rules, batch, seed):
        legal, scores = rules.legal(boards).int().tolist(), rules.area_score(after).tolist()
        stones, over, chosen = after.stones.numpy(), after.over.tolist(), moves.tolist()
        for game, state in enumerate(states):
            if state.is_terminal():
                continue
            ours = {move for move, allowed in enumerate(legal[game]) if allowed}
            theirs = set(state.legal_actions())
            assert ours <= theirs, f"game {game}, {theirs} but not {ours} on\n{state}"
            for move in theirs - ours:
                assert state.child(move).is_terminal(), f"game {game}, move {move} is legal on\n{state}"
                repetitions += 1
            state.apply_action(chosen[game])
            compared += 1
            black, white = np.array(state.observation_tensor(0), dtype=np.int8).reshape(4, -1)[:2]
            assert (black - white == stones[game]).all(), f"game {game}: {stones[game]} and\n{state}"
            assert over[game] == state.is_terminal()
            if over[game]:
                assert (scores[game] > 0) == (state.returns()[0] > 0), f"{scores[game]} on\n{state}"
    return compared, repetitions
