"""Selection of leaves by PUCT with virtual losses, and the backup of their values, in PyTorch's operators.

This is for CPUs, and the reference for the GPU kernels (descent_triton).
"""

from __future__ import annotations

import torch

from trainers.ops.tree_search.flat_trees import ABSENT, EXPANDED, Trees


def select(trees: Trees, active: torch.Tensor, num_leaves: int, c_puct: float) -> torch.Tensor:
    """Return the leaves to evaluate in the active games: node numbers, int64 [G, L], 0 in other games.

    From the root on, the move chosen in a node maximises

        (v + W(a)) / (1 + N(a)) + c_puct sqrt(1 + sum N) P(a) / (1 + N(a))

    where v is the node's value; the first of equal moves wins. After a pass, a second pass is tried first, as in
    MLPerf's reference. The path ends at a node that is new, not yet evaluated, or at the end of a game. The visits on
    the path count at once, as losses of the player who moved, so that the step's next leaf is another one.
    """
    leaves = [_descend(trees, active, c_puct) for _ in range(num_leaves)]
    return torch.stack(leaves, dim=1)


def _descend(trees: Trees, active: torch.Tensor, c_puct: float) -> torch.Tensor:
    games, num_nodes = torch.arange(len(active), device=active.device), trees.num_nodes
    node, going = torch.zeros_like(games), active
    while bool(going.any()):
        visits, totals, priors = trees.visits[games, node], trees.totals[games, node], trees.priors[games, node]
        explored = c_puct * (1 + visits.sum(dim=1, keepdim=True)).float().sqrt()
        scores = (trees.values[games, node][:, None] + totals + explored * priors) / (1 + visits)
        move = scores.masked_fill(priors < 0, -torch.inf).argmax(dim=1)
        passed = (trees.boards.passes[games * num_nodes + node] == 1) & (visits[:, -1] == 0)
        move = torch.where(passed, visits.shape[1] - 1, move)
        trees.visits[games, node, move] += going.to(torch.int32)
        trees.totals[games, node, move] -= going.float()
        child = trees.children[games, node, move]
        new = going & (child == ABSENT)
        child = torch.where(new, trees.counts, child)
        trees.children[games, node, move] = torch.where(going, child, trees.children[games, node, move])
        # Other games write to their last node, which is never part of a tree.
        made = torch.where(new, child.long(), num_nodes - 1)
        trees.parents[games, made] = node.to(torch.int32)
        trees.moves[games, made] = move.to(torch.int32)
        trees.counts.add_(new.to(torch.int32))
        node = torch.where(going, child.long(), node)
        going = going & ~new & (trees.states[games, node] == EXPANDED)
    return node


def back_up(trees: Trees, leaves: torch.Tensor, values: torch.Tensor) -> None:
    """Replace the losses on the path to each leaf by its value, float32 [G, L], for the player to move there."""
    games = torch.arange(len(leaves), device=leaves.device)
    for node, value in zip(leaves.unbind(1), values.unbind(1), strict=True):
        while bool((node > 0).any()):
            parent, move = trees.parents[games, node].long(), trees.moves[games, node].long()
            value = -value
            trees.totals[games, parent, move] += torch.where(node > 0, 1 + value, 0)
            node = torch.where(node > 0, parent, 0)
