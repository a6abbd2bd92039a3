"""Go's kernels by Triton's interpreter: games played in lockstep with PyTorch's rules.

`tests.trainers.triton_on_cpu.results` runs it in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from trainers.ops.go import Boards, Rules, in_torch, rules_by_warp, rules_triton

SIZES = {2: 2, 3: 1}  # games on boards of each size; the interpreter is slow
PASSES = 0.05


def games(rules: Rules, batch: int, device: str) -> Iterator[tuple[Boards, torch.Tensor]]:
    """Boards of random games and the moves played on them, by PyTorch's operators alone, to the end."""
    grid, generator = rules.grid(torch.empty(0, device=device).device), torch.Generator(device).manual_seed(rules.size)
    boards = rules.start(batch, device)
    for _ in range(rules.max_moves + 1):
        chances = in_torch.legal(boards, grid).float()
        others = chances[:, :-1].sum(dim=1)
        chances[:, -1] = torch.where(others > 0, others * PASSES, 1)
        moves = torch.multinomial(chances, 1, generator=generator)[:, 0]
        yield boards, moves
        boards = in_torch.play(boards, moves, grid, rules.max_moves)


def differences(rules: Rules, batch: int, device: str) -> torch.Tensor:
    """In how many values the kernels differ from PyTorch's operators: legal, planes, area, and boards after a move."""
    grid = rules.grid(torch.empty(0, device=device).device)
    wrong = torch.zeros(4, dtype=torch.int64, device=device)
    for boards, moves in games(rules, batch, device):
        after = in_torch.play(boards, moves, grid, rules.max_moves)
        played = rules_triton.play(boards, moves, grid, rules.size)
        legal, seen = in_torch.legal(boards, grid), in_torch.planes(boards, torch.bfloat16)
        area = in_torch.area(boards.stones, rules.size)
        for kernels in (rules_triton, rules_by_warp):
            wrong[0] += (kernels.legal(boards, grid, rules.size) != legal).sum()
            wrong[1] += (kernels.planes(boards, torch.bfloat16) != seen).sum()
            wrong[2] += (kernels.area(boards.stones, rules.size) != area).sum()
        for ours, theirs in zip(played, after, strict=True):
            assert ours.dtype == theirs.dtype
            wrong[3] += (ours != theirs).sum()
    return wrong


if __name__ == "__main__":
    torch.save(
        {str(size): differences(Rules(size, max_moves=24), batch, "cpu") for size, batch in SIZES.items()}, sys.argv[1]
    )
