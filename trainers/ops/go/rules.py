"""Go's rules for many games at once: area scoring, no suicide, positional superko.

A move is legal on an empty point if its chain has a liberty after captures, and if the resulting position has not
occurred in the game before, whoever was to play (Tromp-Taylor's superko). Positions are compared by 64-bit hashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property

import torch

from conf.schema import ConfigError
from trainers.ops.go import in_torch
from trainers.ops.go.boards import RECENT, Boards
from trainers.ops.go.grid import Grid

PLANES = 2 * RECENT + 1
MOVES_PER_POINT = 1.4  # MLPerf v0.5's longest game: 113 moves on 9x9


@cache
def has_kernels() -> bool:
    """Return whether Triton has `gather`, which the kernels need: from 3.3 on, which comes with PyTorch 2.7."""
    try:
        import triton.language
    except ImportError:
        return False
    return hasattr(triton.language, "gather")


@dataclass(frozen=True)
class Rules:
    """The rules of one size of board. A move is a point's index, or N*N for a pass.

    Args:
        size: N, rows and columns, 2 to 19
        komi: points for white, who moves second; it ends in .5, so that no game is drawn
        max_moves: a game ends after so many moves; 0 for 1.4 N*N, as in MLPerf v0.5
    """

    size: int = 9
    komi: float = 7.5
    max_moves: int = 0
    _grids: dict[torch.device, Grid] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 19:
            raise ConfigError(f"size={self.size}: must be 2 to 19 rows")
        if self.komi * 2 % 2 != 1:
            raise ConfigError(f"komi={self.komi:g}: must end in .5, such as 7.5, so that no game is drawn")
        if self.max_moves < 0:
            raise ConfigError(f"max_moves={self.max_moves}: must be 1 or more, or 0 for 1.4 moves per point")
        if not self.max_moves:
            object.__setattr__(self, "max_moves", int(MOVES_PER_POINT * self.size**2))

    @cached_property
    def num_points(self) -> int:
        return self.size**2

    @property
    def pass_move(self) -> int:
        return self.num_points

    @property
    def num_moves(self) -> int:
        """Return the length of a policy: points and the pass."""
        return self.num_points + 1

    def grid(self, device: torch.device) -> Grid:
        """Return the board's tables on a device; the first call makes them."""
        if device not in self._grids:
            self._grids[device] = Grid.of(self.size, device)
        return self._grids[device]

    def start(self, batch: int, device: torch.device | str = "cpu") -> Boards:
        """Return empty boards with black to play."""
        device = torch.empty(0, device=device).device  # with an index, as in the boards' tensors
        self.grid(device)

        def full(value: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.full((batch, *shape), value, dtype=dtype, device=device)

        return Boards(
            stones=full(0, torch.int8, self.num_points),
            chains=full(self.num_points, torch.int16, self.num_points),
            to_play=full(1, torch.int8),
            passes=full(0, torch.int8),
            moves=full(0, torch.int16),
            history=full(0, torch.int64, self.max_moves + 1),  # An empty board's hash is 0.
            recent=full(0, torch.int8, RECENT, self.num_points),
            over=torch.zeros(batch, dtype=torch.bool, device=device),
        )

    def legal(self, boards: Boards) -> torch.Tensor:
        """Return which moves are legal: bool [B, N*N + 1], the pass last.

        A pass is always legal. In a game that is over it is the only legal move.
        """
        grid = self.grid(boards.stones.device)
        if boards.stones.is_cuda and has_kernels():
            from trainers.ops.go import rules_triton

            return rules_triton.legal(boards, grid, self.size)
        return in_torch.legal(boards, grid)

    def play(self, boards: Boards, moves: torch.Tensor) -> Boards:
        """Return the boards after a move in each game, as new tensors. A game that is over does not change.

        Args:
            boards: B games
            moves: int64 [B]. They must be legal: they are not checked, and an illegal one gives a meaningless board.
        """
        grid = self.grid(boards.stones.device)
        if boards.stones.is_cuda and has_kernels():
            from trainers.ops.go import rules_triton

            return rules_triton.play(boards, moves, grid, self.size)
        return in_torch.play(boards, moves, grid, self.max_moves)

    def planes(self, boards: Boards, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the network's input, [B, 17, N, N], as in MLPerf v0.5's MiniGo.

        Planes 2i and 2i + 1 are the stones of the player to move and of the other player i moves ago, for i up to 7.
        The last plane is 1 if black is to move.
        """
        if boards.stones.is_cuda and has_kernels():
            from trainers.ops.go import rules_triton

            planes = rules_triton.planes(boards, dtype)
        else:
            planes = in_torch.planes(boards, dtype)
        return planes.view(-1, PLANES, self.size, self.size)

    def area_score(self, boards: Boards) -> torch.Tensor:
        """Return black's area minus white's minus komi: float32 [B], above 0 if black wins.

        A player's area is the player's stones, and the empty regions that touch only these.
        """
        if boards.stones.is_cuda and has_kernels():
            from trainers.ops.go import rules_triton

            return rules_triton.area(boards.stones, self.size).float() - self.komi
        return in_torch.area(boards.stones, self.size).float() - self.komi
