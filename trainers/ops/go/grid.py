"""Tables of a board: each point's neighbours, and its key in a position's hash."""

from __future__ import annotations

from typing import NamedTuple

import torch

SEED = 20181212  # fixed, so that hashes are equal in all runs


class Grid(NamedTuple):
    """Tables for N x N points on one device. The index N*N is no point: a pass, or beyond the edge."""

    neighbours: torch.Tensor  # int64 [N*N + 1, 4]: up, down, left, right
    keys: torch.Tensor  # int64 [N*N]: a position's hash is the sum of black's keys minus white's, modulo 2**64

    @classmethod
    def of(cls, size: int, device: torch.device) -> Grid:
        points = size**2
        framed = torch.full((size + 2, size + 2), points)
        framed[1:-1, 1:-1] = torch.arange(points).view(size, size)
        sides = (framed[:-2, 1:-1], framed[2:, 1:-1], framed[1:-1, :-2], framed[1:-1, 2:])
        neighbours = torch.stack([side.flatten() for side in sides], dim=1)
        neighbours = torch.cat([neighbours, torch.full((1, 4), points)])
        generator = torch.Generator().manual_seed(SEED)
        keys = torch.randint(-(2**63), 2**63 - 1, (points,), generator=generator, dtype=torch.int64)
        return cls(neighbours.to(device), keys.to(device))
