"""The state of many games at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

RECENT = 8  # positions in the network's input


class Boards(NamedTuple):
    """B games on boards of N x N points. Point (row, column) has the index row * N + column.

    A chain is a maximal connected group of stones of one colour. Its name is the point of the last move that joined it.
    """

    stones: torch.Tensor  # int8 [B, N*N]: 1 black, -1 white, 0 empty
    chains: torch.Tensor  # int16 [B, N*N]: the name of the stone's chain, N*N for an empty point
    to_play: torch.Tensor  # int8 [B]: 1 black, -1 white
    passes: torch.Tensor  # int8 [B]: passes in succession
    moves: torch.Tensor  # int16 [B]: moves played so far, passes too
    history: torch.Tensor  # int64 [B, max_moves + 1]: hash of the position after each number of moves; 0 later
    recent: torch.Tensor  # int8 [B, 8, N*N]: the last positions, the newest first
    over: torch.Tensor  # bool [B]: two passes in succession, or max_moves played

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Boards:
        """Return the boards with `change` applied to each tensor."""
        return Boards(*(change(tensor) for tensor in self))

    def take(self, games: torch.Tensor) -> Boards:
        """Return the games with these indices, int64 [K], or of this mask, as new tensors."""
        return self.map(lambda tensor: tensor[games])

    def where(self, other: torch.Tensor, others: Boards) -> Boards:
        """Return each game from `others` where `other`, bool [B], is True, else from these boards."""

        def chosen(tensor: torch.Tensor, replacement: torch.Tensor) -> torch.Tensor:
            return torch.where(other.view(-1, *[1] * (tensor.ndim - 1)), replacement, tensor)

        return Boards(*map(chosen, self, others))
