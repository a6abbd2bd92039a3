"""A board and an evaluation for tests of the search."""

from __future__ import annotations

import torch

from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search import Evaluate

CPU = torch.device("cpu")
RULES = Rules(size=3, komi=0.5)
GAMES = 5


def table(rules: Rules, seed: int = 0, device: torch.device = CPU) -> Evaluate:
    """An evaluation that follows from the planes alone: sums of random quarters, which have no rounding errors."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(-8, 9, (17 * rules.num_points, rules.num_moves + 1), generator=generator) / 8

    weights = weights.to(device)

    def evaluate(planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sums = planes.float().flatten(1) @ weights
        return sums[:, :-1], (sums[:, -1] / 8).round().clamp(-6, 6) / 8

    return evaluate


def opened(rules: Rules, games: int) -> Boards:
    """Games with 0, 1, 2, ... random legal moves."""
    boards, generator = rules.start(games, CPU), torch.Generator().manual_seed(3)
    for number in range(games - 1):
        moves = torch.multinomial(rules.legal(boards).float(), 1, generator=generator)[:, 0]
        boards = boards.where(torch.arange(games) > number, rules.play(boards, moves))
    return boards
