"""Go's kernels by Triton's interpreter: positions of random games, beside PyTorch's rules.

`tests.trainers.triton_on_cpu.results` runs it in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from trainers.ops.go import Boards, Rules, in_torch, rules_triton

# Games on boards of each size, and moves from a compared position to the next; the interpreter is slow. 19x19 alone has
# columns of 64 bits.
SIZES = {2: (1, 1), 3: (2, 5), 5: (2, 6), 9: (1, 20), 19: (1, 165)}
PASSES = 0.02


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


def differences(rules: Rules, batch: int, device: str, every: int = 1) -> torch.Tensor:
    """In how many values the kernels differ from PyTorch's operators: legal, planes, area, and boards after a move."""
    grid = rules.grid(torch.empty(0, device=device).device)
    wrong = torch.zeros(4, dtype=torch.int64, device=device)
    for number, (boards, moves) in enumerate(games(rules, batch, device)):
        if (number + 1) % every and number < rules.max_moves:  # The last is a game that is over.
            continue
        after = in_torch.play(boards, moves, grid, rules.max_moves)
        played = rules_triton.play(boards, moves, grid, rules.size)
        wrong[0] += (rules_triton.legal(boards, grid, rules.size) != in_torch.legal(boards, grid)).sum()
        seen = in_torch.planes(boards, torch.bfloat16)
        wrong[1] += (rules_triton.planes(boards, torch.bfloat16) != seen).sum()
        area = in_torch.area(boards.stones, rules.size)
        wrong[2] += (rules_triton.area(boards.stones, rules.size) != area).sum()
        for ours, theirs in zip(played, after, strict=True):
            assert ours.dtype == theirs.dtype
            wrong[3] += (ours != theirs).sum()
    return wrong


if __name__ == "__main__":
    compared = {}
    for size, (batch, every) in SIZES.items():  # Boards fill in so many moves, and stones are captured.
        compared[str(size)] = differences(Rules(size, max_moves=size**2 + 24), batch, "cpu", every)
    torch.save(compared, sys.argv[1])
