"""Go's rules in PyTorch's operators: for CPUs, and as the reference for the GPU kernels."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from trainers.ops.go.boards import Boards
from trainers.ops.go.grid import Grid

MANY = 1 << 14  # above every point's index


def legal(boards: Boards, grid: Grid) -> torch.Tensor:
    """Compute Rules.legal."""
    stones, to_play = boards.stones, boards.to_play[:, None]
    points = stones.shape[1]
    beside = grid.neighbours[:-1]
    colours = pad(stones, (0, 1), value=2)[:, beside]  # [B, N*N, 4]; 2 beyond the edge
    names = pad(boards.chains, (0, 1), value=points).long()[:, beside]
    in_atari, keys = _chains(boards, grid, colours)
    atari_beside = _of_points(in_atari, names)
    first = torch.ones_like(atari_beside)  # A chain may touch a point several times, but counts once.
    for side in range(1, 4):
        first[..., side] = (names[..., :side] != names[..., side, None]).all(dim=2)

    captures = atari_beside & (colours == -to_play[..., None])
    breathes = (colours == 0) | captures | (~atari_beside & (colours == to_play[..., None]))
    captured = (_of_points(keys, names) * (captures & first)).sum(dim=2)
    now = boards.history.gather(1, boards.moves.long()[:, None])
    after = now + (grid.keys + captured) * to_play
    repeated = torch.zeros_like(stones, dtype=torch.bool)
    played = boards.history.shape[1]
    if not stones.is_cuda and len(stones):  # On a GPU this would wait for the device.
        played = int(boards.moves.max()) + 1
    for earlier in boards.history[:, :played].unbind(dim=1):
        repeated |= after == earlier[:, None]
    allowed = (stones == 0) & breathes.any(dim=2) & ~repeated & ~boards.over[:, None]
    return pad(allowed, (0, 1), value=True)


def _chains(boards: Boards, grid: Grid, colours: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each chain, by name, whether it has a single liberty, bool [B, N*N + 1], and its keys' sum, int64."""
    points = boards.stones.shape[1]
    beside, names = grid.neighbours[:-1], boards.chains.long()
    empty = colours == 0
    lowest = torch.where(empty, beside, MANY).amin(dim=2)
    highest = torch.where(empty, beside, -1).amax(dim=2)
    shape = (len(names), points + 1)
    first = torch.full(shape, MANY, device=names.device).scatter_reduce(1, names, lowest, "amin")
    last = torch.full(shape, -1, device=names.device).scatter_reduce(1, names, highest, "amax")
    keys = torch.zeros(shape, dtype=torch.int64, device=names.device)
    return first == last, keys.scatter_add(1, names, grid.keys.expand_as(names))


def _of_points(of_chains: torch.Tensor, names: torch.Tensor) -> torch.Tensor:
    """Look up values of chains, [B, N*N + 1], by name: [B, N*N, 4]."""
    return of_chains.gather(1, names.flatten(1)).view_as(names)


def play(boards: Boards, moves: torch.Tensor, grid: Grid, max_moves: int) -> Boards:
    """Compute Rules.play."""
    points = boards.stones.shape[1]
    to_play = boards.to_play[:, None]
    point = torch.where(boards.over, points, moves)[:, None]
    here = torch.arange(points, device=moves.device) == point  # all False for a pass
    beside = grid.neighbours[point[:, 0]]
    colours = pad(boards.stones, (0, 1), value=2).gather(1, beside)
    names = pad(boards.chains, (0, 1), value=points).gather(1, beside)
    stones = torch.where(here, to_play, boards.stones)
    liberty = (pad(stones, (0, 1), value=2)[:, grid.neighbours[:-1]] == 0).any(dim=2)

    belongs = boards.chains[:, None] == names[..., None]  # [B, 4, N*N]: to the chain on this side
    dead = (colours == -to_play) & ~(belongs & liberty[:, None]).any(dim=2)
    captured = (belongs & dead[..., None]).any(dim=1)
    joined = here | (belongs & (colours == to_play)[..., None]).any(dim=1)
    stones = torch.where(captured, 0, stones)
    chains = torch.where(joined, point, torch.where(captured, points, boards.chains)).to(torch.int16)
    return _after(boards, moves, stones, chains, grid, max_moves)


def _after(
    boards: Boards, moves: torch.Tensor, stones: torch.Tensor, chains: torch.Tensor, grid: Grid, max_moves: int
) -> Boards:
    """Return the boards after a move that results in these stones and chains."""
    going = ~boards.over
    number = boards.moves + going
    passed = moves == stones.shape[1]
    passes = torch.where(going, torch.where(passed, boards.passes + 1, 0), boards.passes).to(torch.int8)
    newest = (stones * grid.keys).sum(dim=1, keepdim=True)
    recent = torch.cat([stones[:, None], boards.recent[:, :-1]], dim=1)
    return Boards(
        stones=stones,
        chains=chains,
        to_play=torch.where(going, -boards.to_play, boards.to_play),
        passes=passes,
        moves=number,
        history=boards.history.scatter(1, number.long()[:, None], newest),
        recent=torch.where(going[:, None, None], recent, boards.recent),
        over=(passes >= 2) | (number >= max_moves),
    )


def planes(boards: Boards, dtype: torch.dtype) -> torch.Tensor:
    """Compute Rules.planes, [B, 17, N*N]."""
    to_play = boards.to_play[:, None, None]
    stone_planes = torch.stack([boards.recent == to_play, boards.recent == -to_play], dim=2).flatten(1, 2)
    black = (to_play > 0).expand(-1, 1, stone_planes.shape[2])
    return torch.cat([stone_planes, black], dim=1).to(dtype)


def area(stones: torch.Tensor, size: int) -> torch.Tensor:
    """Return black's area minus white's: int64 [B]."""
    board = stones.view(-1, size, size)
    black, white = _reached(board, 1), _reached(board, -1)
    return (black & ~white).sum(dim=(1, 2)) - (white & ~black).sum(dim=(1, 2))


def _reached(board: torch.Tensor, colour: int) -> torch.Tensor:
    """Return the points with stones of this colour, and those connected to them by empty points: bool [B, N, N]."""
    free = board == 0
    reached = board == colour
    for _ in range(board.shape[1] ** 2):  # no path is longer
        framed = pad(reached, (1, 1, 1, 1))
        beside = framed[:, :-2, 1:-1] | framed[:, 2:, 1:-1] | framed[:, 1:-1, :-2] | framed[:, 1:-1, 2:]
        grown = reached | (beside & free)
        if not board.is_cuda and torch.equal(grown, reached):  # On a GPU this would wait for the device.
            break
        reached = grown
    return reached
