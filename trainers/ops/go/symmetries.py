"""The eight symmetries of the square, for planes, policies and moves."""

from __future__ import annotations

import torch

NUM_SYMMETRIES = 8


class Symmetries:
    """Rotates and mirrors boards of N x N points, each board of a batch by its own symmetry.

    Symmetry 0 is the identity; 0 to 3 are rotations by quarter turns, 4 to 7 the same after mirroring. Legality and
    score are the same under all of them.
    """

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.size = size
        board = torch.arange(size**2).view(size, size)
        turned = [torch.rot90(side, turns) for side in (board, board.flip(1)) for turns in range(4)]
        source = torch.stack([points.flatten() for points in turned])
        goal = source.argsort(dim=1)
        source, goal = (torch.nn.functional.pad(points, (0, 1), value=size**2) for points in (source, goal))
        # The inverse of symmetry i is the j with source[j] == goal[i].
        undoing = (source[None] == goal[:, None]).all(dim=2).int().argmax(dim=1)
        self.source, self.goal, self.undoing = source.to(device), goal.to(device), undoing.to(device)

    def inverse(self, symmetries: torch.Tensor) -> torch.Tensor:
        """Return the inverses of these symmetries: int64 [B]."""
        return self.undoing[symmetries]

    def planes(self, planes: torch.Tensor, symmetries: torch.Tensor) -> torch.Tensor:
        """Transform planes [B, C, N, N] by the symmetries `symmetries`, int64 [B] from 0 to 7."""
        source = self.source[symmetries, None, :-1].expand(-1, planes.shape[1], -1)
        return planes.flatten(2).gather(2, source).view_as(planes)

    def policies(self, policies: torch.Tensor, symmetries: torch.Tensor) -> torch.Tensor:
        """Transform values of moves [B, N*N + 1], such as a policy; the pass stays."""
        return policies.gather(1, self.source[symmetries])

    def moves(self, moves: torch.Tensor, symmetries: torch.Tensor) -> torch.Tensor:
        """Transform moves, int64 [B]; the pass stays."""
        return self.goal[symmetries, moves]
