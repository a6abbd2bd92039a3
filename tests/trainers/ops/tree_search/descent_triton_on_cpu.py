"""The kernels of the search without a GPU: Triton's interpreter runs them on the CPU (tests.trainers.triton_on_cpu)."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from tests.trainers.ops.tree_search.tables import CPU, GAMES, RULES, opened, table
from trainers.ops.chance.dice import Dice
from trainers.ops.tree_search import Search, Settings


def searched(descent: ModuleType) -> dict[str, torch.Tensor]:
    """The trees after three moves with these functions, and what was selected last; one game takes no part."""
    search = Search(RULES, table(RULES), Settings(12, 4), GAMES, CPU)
    search._select, search._back_up = descent.select, descent.back_up
    search.restart(torch.ones(GAMES, dtype=torch.bool), opened(RULES, GAMES))
    for _ in range(3):
        active = ~search.trees.roots().over & (torch.arange(GAMES) != 1)
        search.run(active, Dice(torch.arange(GAMES), 1))
        search.advance(search.counts().argmax(dim=1), active)
    active = ~search.trees.roots().over & (torch.arange(GAMES) != 1)
    search.run(active, Dice(torch.arange(GAMES), 1))
    trees = search.trees
    real = torch.arange(trees.num_nodes) < trees.counts[:, None]
    kept = {"visits": trees.visits, "totals": trees.totals, "children": trees.children}
    return {name: tensor * real[..., None] for name, tensor in kept.items()} | {"counts": trees.counts}


def compute() -> dict[str, torch.Tensor]:
    from trainers.ops.tree_search import descent_triton

    return searched(descent_triton)


if __name__ == "__main__":
    torch.save(compute(), sys.argv[1])
