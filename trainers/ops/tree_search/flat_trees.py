"""The trees of many games as tensors. Node 0 of a game is the root; a parent has a lower number than its children."""

from __future__ import annotations

from typing import NamedTuple

import torch

from trainers.ops.go import Boards, Rules

PENDING, EXPANDED, ENDED = 0, 1, 2  # states of a node: not evaluated, evaluated, end of a game
ABSENT = -1  # number of a missing child
ILLEGAL = -1.0  # prior of an illegal move


class Trees(NamedTuple):
    """Trees of G games with N nodes each and A moves; the last node of a game is never part of its tree.

    Values and totals are for the player to move in the node. `visits` and `totals` include visits under way: each
    visit whose leaf is not yet evaluated counts as a loss.
    """

    boards: Boards  # of G * N nodes
    visits: torch.Tensor  # int32 [G, N, A]
    totals: torch.Tensor  # float32 [G, N, A]: sums of the values of visits
    priors: torch.Tensor  # float32 [G, N, A]; ILLEGAL for moves that are not allowed
    children: torch.Tensor  # int32 [G, N, A]: node numbers, or ABSENT
    parents: torch.Tensor  # int32 [G, N]
    moves: torch.Tensor  # int32 [G, N]: the parent's move that leads to the node
    values: torch.Tensor  # float32 [G, N]
    states: torch.Tensor  # int8 [G, N]
    counts: torch.Tensor  # int32 [G]: nodes in use

    @classmethod
    def empty(cls, rules: Rules, games: int, nodes: int, device: torch.device) -> Trees:
        """Return trees that consist of a root with an empty board, not yet evaluated."""
        per_move = (games, nodes, rules.num_moves)

        def full(value: float, dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.full(shape, value, dtype=dtype, device=device)

        return cls(
            boards=rules.start(games * nodes, device),
            visits=full(0, torch.int32, *per_move),
            totals=full(0, torch.float32, *per_move),
            priors=full(0, torch.float32, *per_move),
            children=full(ABSENT, torch.int32, *per_move),
            parents=full(0, torch.int32, games, nodes),
            moves=full(rules.pass_move, torch.int32, games, nodes),
            values=full(0, torch.float32, games, nodes),
            states=full(PENDING, torch.int8, games, nodes),
            counts=full(1, torch.int32, games),
        )

    @property
    def num_games(self) -> int:
        return self.visits.shape[0]

    @property
    def num_nodes(self) -> int:
        return self.visits.shape[1]

    def first(self, games: int) -> Trees:
        """Return the trees of the first games, which share the memory of these."""
        boards = self.boards.map(lambda tensor: tensor[: games * self.num_nodes])
        return Trees(boards, *(tensor[:games] for tensor in self[1:]))

    def move_up(self, games: torch.Tensor) -> None:
        """Move these games, int64 [H], to the first places; what was there is lost."""
        for tensor in self.boards:
            of_games = tensor.view(self.num_games, self.num_nodes, *tensor.shape[1:])
            of_games[: len(games)] = of_games[games]
        for tensor in self[1:]:
            tensor[: len(games)] = tensor[games]

    def roots(self) -> Boards:
        """Return the boards of the roots, as views."""
        return self.boards.map(lambda tensor: tensor.view(self.num_games, self.num_nodes, *tensor.shape[1:])[:, 0])

    def root_values(self) -> torch.Tensor:
        """Return the search's values of the roots for the player to move: float32 [G]."""
        return (self.values[:, 0] + self.totals[:, 0].sum(dim=1)) / (1 + self.visits[:, 0].sum(dim=1))

    def set_roots(self, games: torch.Tensor, boards: Boards) -> None:
        """Reset the trees of the games in the mask, bool [G], to roots with these boards, one for each game."""
        for root, board in zip(self.roots(), boards, strict=True):
            root.copy_(torch.where(games.view(-1, *[1] * (root.ndim - 1)), board, root))
        per_node, per_move = games[:, None], games[:, None, None]
        self.visits.masked_fill_(per_move, 0)
        self.totals.masked_fill_(per_move, 0)
        self.children.masked_fill_(per_move, ABSENT)
        self.states.masked_fill_(per_node, PENDING)
        self.counts.masked_fill_(games, 1)

    def descend_to(self, nodes: torch.Tensor, games: torch.Tensor, most: int) -> None:
        """Make a node, int64 [G], the root in the games of the mask, and keep up to `most` nodes of its subtree.

        The oldest nodes are kept, and only those whose parent is kept.
        """
        where = torch.arange(self.num_nodes, device=nodes.device).expand(self.num_games, -1)
        kept = where == nodes[:, None]
        ancestor = self.parents.long()
        for _ in range((self.num_nodes - 1).bit_length()):  # So many doublings cover a path of any length.
            kept = kept | kept.gather(1, ancestor)
            ancestor = ancestor.gather(1, ancestor)
        kept &= (where < self.counts[:, None]) & (where >= nodes[:, None])
        number = kept.cumsum(dim=1) - 1
        kept &= number < most
        number = torch.where(kept, number, ABSENT).to(torch.int32)
        # source[g, k]: the old number of the new node k. After the last kept node it is arbitrary: no node leads there.
        source = (~kept).to(torch.int8).argsort(dim=1, stable=True)
        source = torch.where(games[:, None], source, where)
        self._take(source, number, games)
        self.counts.copy_(torch.where(games, kept.sum(dim=1).to(torch.int32), self.counts))

    def _take(self, source: torch.Tensor, number: torch.Tensor, games: torch.Tensor) -> None:
        """Move nodes: node k was `source[g, k]`, and the old node n becomes `number[g, n]`."""
        renamed = torch.cat([number, number.new_full((len(number), 1), ABSENT)], dim=1)  # ABSENT maps to the last.
        children = self.children.long()
        children = renamed.gather(1, torch.where(children < 0, self.num_nodes, children).flatten(1))
        children = torch.where(games[:, None, None], children.view_as(self.children), self.children)
        parents = torch.where(games[:, None], number.gather(1, self.parents.long()).clamp(min=0), self.parents)
        used = torch.where(games[:, None], number.amax(dim=1, keepdim=True) + 1, self.num_nodes)
        unused = torch.arange(self.num_nodes, device=number.device) >= used

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            index = source.view(*source.shape, *[1] * (tensor.ndim - 2)).expand(-1, -1, *tensor.shape[2:])
            return tensor.gather(1, index)

        for tensor, clear in ((self.visits, 0), (self.totals, 0), (self.states, PENDING)):
            fresh = unused.view(*unused.shape, *[1] * (tensor.ndim - 2))
            tensor.copy_(moved(tensor).masked_fill_(fresh, clear))
        self.children.copy_(moved(children).masked_fill_(unused[..., None], ABSENT))
        self.parents.copy_(moved(parents))
        for tensor in (self.priors, self.moves, self.values):
            tensor.copy_(moved(tensor))
        for tensor in self.boards:
            of_games = tensor.view(self.num_games, self.num_nodes, *tensor.shape[1:])
            of_games.copy_(moved(of_games))


def node_bytes(rules: Rules) -> int:
    """Return the size of a node in bytes."""
    node = Trees.empty(rules, 1, 1, torch.device("cpu"))
    tensors = [*node.boards, *(tensor for tensor in node[1:] if tensor is not node.counts)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
