"""The GPU kernels of trainers.ops.tree_search.descent: one program for each game selects its leaves one by one.

The operations are those of `descent`, in the same order, so that both visit the same nodes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainers.ops.tree_search.flat_trees import EXPANDED, Trees


@triton.jit
def _select(  # type: ignore[no-untyped-def]
    active, visits, totals, priors, children, parents, moves, values, states, passes, counts, leaves, c_puct,
    nodes, num_moves, num_leaves, EXPANDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Select all leaves of one game."""
    game = tl.program_id(0).to(tl.int64)
    first_node = game * nodes
    move_at = tl.arange(0, WIDTH)
    inside = move_at < num_moves
    playing = tl.load(active + game) != 0
    count = tl.load(counts + game)
    for leaf in range(num_leaves):
        node = tl.zeros([], tl.int32)
        going = playing
        while going:
            row = (first_node + node) * num_moves
            visited = tl.load(visits + row + move_at, inside, 0)
            total = tl.load(totals + row + move_at, inside, 0.0)
            prior = tl.load(priors + row + move_at, inside, -1.0)
            explored = c_puct * tl.sqrt_rn((1 + tl.sum(visited, axis=0)).to(tl.float32))
            summed = tl.load(values + first_node + node) + total
            score = tl.div_rn(summed + explored * prior, (1 + visited).to(tl.float32))
            score = tl.where(prior < 0, float("-inf"), score)
            move = tl.argmax(score, axis=0).to(tl.int32)  # the first of equal ones
            last = tl.sum(tl.where(move_at == num_moves - 1, visited, 0), axis=0)
            passed = (tl.load(passes + first_node + node) == 1) & (last == 0)
            move = tl.where(passed, num_moves - 1, move)
            tl.debug_barrier()
            tl.store(visits + row + move, tl.sum(tl.where(move_at == move, visited, 0), axis=0) + 1)
            tl.store(totals + row + move, tl.sum(tl.where(move_at == move, total, 0.0), axis=0) - 1)
            child = tl.load(children + row + move)
            new = child < 0
            child = tl.where(new, count, child)
            tl.store(children + row + move, child, new)
            tl.store(parents + first_node + child, node, new)
            tl.store(moves + first_node + child, move, new)
            count += new.to(tl.int32)
            going = tl.load(states + first_node + child) == EXPANDED  # False for a new node
            node = child
            tl.debug_barrier()  # Make the stores visible to all threads before the next loads.
        tl.store(leaves + game * num_leaves + leaf, node.to(tl.int64))
    tl.store(counts + game, count)


@triton.jit
def _back_up(totals, parents, moves, leaves, values, nodes, num_moves, num_leaves):  # type: ignore[no-untyped-def]
    """Back up the values of one game's leaves to its root."""
    game = tl.program_id(0).to(tl.int64)
    first_node = game * nodes
    for leaf in range(num_leaves):
        node = tl.load(leaves + game * num_leaves + leaf)
        value = tl.load(values + game * num_leaves + leaf)
        while node > 0:
            parent = tl.load(parents + first_node + node).to(tl.int64)
            edge = (first_node + parent) * num_moves + tl.load(moves + first_node + node)
            value = -value
            total = tl.load(totals + edge)
            tl.debug_barrier()
            tl.store(totals + edge, total + (1 + value))
            tl.debug_barrier()
            node = parent


def select(trees: Trees, active: torch.Tensor, num_leaves: int, c_puct: float) -> torch.Tensor:
    """Compute descent.select."""
    games, nodes, num_moves = trees.visits.shape
    leaves = torch.empty(games, num_leaves, dtype=torch.int64, device=active.device)
    _select[(games,)](
        active, trees.visits, trees.totals, trees.priors, trees.children, trees.parents, trees.moves, trees.values,
        trees.states, trees.boards.passes, trees.counts, leaves, c_puct, nodes, num_moves, num_leaves,
        EXPANDED=EXPANDED, WIDTH=triton.next_power_of_2(num_moves), num_warps=1,
    )  # fmt: skip
    return leaves


def back_up(trees: Trees, leaves: torch.Tensor, values: torch.Tensor) -> None:
    """Compute descent.back_up."""
    games, nodes, num_moves = trees.visits.shape
    num_leaves = leaves.shape[1]
    _back_up[(games,)](
        trees.totals, trees.parents, trees.moves, leaves.contiguous(), values.contiguous(), nodes, num_moves,
        num_leaves, num_warps=1,
    )  # fmt: skip
