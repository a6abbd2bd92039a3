"""Go's rules as Triton kernels for GPUs, one program for each game. Results equal those of in_torch.py bit by bit."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainers.ops.go.boards import RECENT, Boards
from trainers.ops.go.grid import Grid

CHUNK = tl.constexpr(16)  # points, or earlier positions, that are compared with all points at once
MANY = tl.constexpr(1 << 14)  # above every point's index
ELEMENTS = 1024  # per program of the kernel for planes


@triton.jit
def _beside(point, side: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return each point's neighbour up, down, left or right, and whether it exists."""
    row, column = point // SIZE, point % SIZE
    if side == 0:
        return point - SIZE, row > 0
    if side == 1:
        return point + SIZE, row < SIZE - 1
    if side == 2:
        return point - 1, column > 0
    return point + 1, column < SIZE - 1


@triton.jit
def _liberties(stones, point, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the lowest and highest index of the empty neighbours of each point; MANY and -1 without one."""
    inside = point < SIZE * SIZE
    lowest, highest = tl.full(point.shape, MANY, tl.int32), tl.full(point.shape, -1, tl.int32)
    for side in tl.static_range(4):
        other, real = _beside(point, side, SIZE)
        empty = tl.load(stones + other, inside & real, 2) == 0
        lowest = tl.where(empty, tl.minimum(lowest, other), lowest)
        highest = tl.where(empty, tl.maximum(highest, other), highest)
    return lowest, highest


@triton.jit
def _chains(stones, chains, keys, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return, for each point's chain, whether it has a single liberty, and the sum of its keys."""
    POINTS: tl.constexpr = SIZE * SIZE
    point = tl.arange(0, BLOCK)
    chain = tl.load(chains + point, point < POINTS, POINTS).to(tl.int32)
    first, last = tl.full([BLOCK], MANY, tl.int32), tl.full([BLOCK], -1, tl.int32)
    total = tl.zeros([BLOCK], tl.int64)
    for start in tl.range(0, POINTS, CHUNK):
        other = start + tl.arange(0, CHUNK)
        other_chain = tl.load(chains + other, other < POINTS, POINTS + 1).to(tl.int32)
        lowest, highest = _liberties(stones, other, SIZE)
        key = tl.load(keys + other, other < POINTS, 0)
        same = chain[:, None] == other_chain[None, :]
        first = tl.minimum(first, tl.min(tl.where(same, lowest[None, :], MANY), axis=1))
        last = tl.maximum(last, tl.max(tl.where(same, highest[None, :], -1), axis=1))
        total += tl.sum(tl.where(same, key[None, :], 0), axis=1)
    return (first == last).to(tl.int32), total


@triton.jit
def _repeats(history, position, num_moves):  # type: ignore[no-untyped-def]
    """Return which of these hashes have occurred in a game of so many moves."""
    repeated = tl.zeros(position.shape, tl.int32)
    for start in tl.range(0, num_moves + 1, CHUNK):
        number = start + tl.arange(0, CHUNK)
        earlier = tl.load(history + number, number <= num_moves, 0)
        repeated = tl.maximum(repeated, tl.max((position[:, None] == earlier[None, :]).to(tl.int32), axis=1))
    return repeated != 0


@triton.jit
def _legal(  # type: ignore[no-untyped-def]
    stones, chains, to_play, moves, history, over, keys, out, POSITIONS: tl.constexpr, SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    game = tl.program_id(0).to(tl.int64)
    POINTS: tl.constexpr = SIZE * SIZE
    stones, chains, history = stones + game * POINTS, chains + game * POINTS, history + game * POSITIONS
    own_colour = tl.load(to_play + game).to(tl.int32)
    point = tl.arange(0, BLOCK)
    inside = point < POINTS
    in_atari, chain_keys = _chains(stones, chains, keys, SIZE, BLOCK)
    breathes = tl.zeros([BLOCK], tl.int1)
    captured = tl.load(keys + point, inside, 0)
    for side in tl.static_range(4):
        other, real = _beside(point, side, SIZE)
        real = real & inside
        colour = tl.load(stones + other, real, 2).to(tl.int32)
        place = tl.where(real, other, 0)
        atari = tl.gather(in_atari, place, 0) != 0
        captures = atari & (colour == -own_colour)
        breathes = breathes | (colour == 0) | captures | ((colour == own_colour) & ~atari)
        name = tl.load(chains + other, real, -1)
        for before in tl.static_range(side):  # A chain may touch a point several times, but counts once.
            touched, valid = _beside(point, before, SIZE)
            captures = captures & (name != tl.load(chains + touched, inside & valid, -2))
        captured += tl.where(captures, tl.gather(chain_keys, place, 0), 0)
    num_moves = tl.load(moves + game).to(tl.int32)
    after = tl.load(history + num_moves) + captured * own_colour
    empty = tl.load(stones + point, inside, 2) == 0
    allowed = empty & breathes & ~_repeats(history, after, num_moves) & (tl.load(over + game) == 0)
    tl.store(out + game * (POINTS + 1) + point, allowed | (point == POINTS), point <= POINTS)


@triton.jit
def _placed(stones, chains, place, own_colour, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return one game's stones and chains after a stone at `place`; N*N places no stone."""
    POINTS: tl.constexpr = SIZE * SIZE
    point = tl.arange(0, BLOCK)
    inside = point < POINTS
    here = point == place
    before = tl.load(stones + point, inside, 2).to(tl.int32)
    chain = tl.load(chains + point, inside, -1).to(tl.int32)
    liberty = tl.zeros([BLOCK], tl.int1)
    for side in tl.static_range(4):
        other, real = _beside(point, side, SIZE)
        liberty = liberty | ((tl.load(stones + other, inside & real, 2) == 0) & (other != place))
    captured, joined = tl.zeros([BLOCK], tl.int1), here
    for side in tl.static_range(4):
        other, real = _beside(place, side, SIZE)
        real = real & (place < POINTS)
        colour = tl.load(stones + other, real, 2).to(tl.int32)
        belongs = chain == tl.load(chains + other, real, -2).to(tl.int32)
        breathes = tl.max((belongs & liberty).to(tl.int32), axis=0) != 0
        captured = captured | (belongs & (colour == -own_colour) & ~breathes)
        joined = joined | (belongs & (colour == own_colour))
    after = tl.where(here, own_colour, tl.where(captured, 0, before))
    return after, tl.where(joined, place, tl.where(captured, POINTS, chain))


@triton.jit
def _play(  # type: ignore[no-untyped-def]
    stones, chains, to_play, passes, moves, history, recent, over, chosen, keys,
    new_stones, new_chains, new_to_play, new_passes, new_moves, new_history, new_recent, new_over,
    POSITIONS: tl.constexpr, RECENT: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    game = tl.program_id(0).to(tl.int64)
    POINTS: tl.constexpr = SIZE * SIZE
    begin = game * POINTS
    own_colour = tl.load(to_play + game).to(tl.int32)
    going = tl.load(over + game) == 0
    move = tl.load(chosen + game).to(tl.int32)
    after, names = _placed(stones + begin, chains + begin, tl.where(going, move, POINTS), own_colour, SIZE, BLOCK)
    point = tl.arange(0, BLOCK)
    inside = point < POINTS
    tl.store(new_stones + begin + point, after, inside)
    tl.store(new_chains + begin + point, names, inside)

    number = tl.load(moves + game).to(tl.int32) + going.to(tl.int32)
    passed = tl.load(passes + game).to(tl.int32)
    passed = tl.where(going, tl.where(move == POINTS, passed + 1, 0), passed)
    tl.store(new_to_play + game, tl.where(going, -own_colour, own_colour))
    tl.store(new_passes + game, passed)
    tl.store(new_moves + game, number)
    tl.store(new_over + game, (passed >= 2) | (number >= POSITIONS - 1))
    newest = tl.sum(tl.where(inside, after * tl.load(keys + point, inside, 0), 0), axis=0)
    position = tl.arange(0, LONG)
    kept = tl.load(history + game * POSITIONS + position, position < POSITIONS, 0)
    kept = tl.where(position == number, newest, kept)
    tl.store(new_history + game * POSITIONS + position, kept, position < POSITIONS)
    shift = going.to(tl.int32)
    for age in tl.static_range(RECENT - 1, 0, -1):
        earlier = tl.load(recent + (game * RECENT + age - shift) * POINTS + point, inside, 0)
        tl.store(new_recent + (game * RECENT + age) * POINTS + point, earlier, inside)
    tl.store(new_recent + game * RECENT * POINTS + point, after, inside)


@triton.jit
def _planes(recent, to_play, out, num_elements, RECENT: tl.constexpr, POINTS: tl.constexpr, ELEMENTS: tl.constexpr):  # type: ignore[no-untyped-def]
    element = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    real = element < num_elements
    PLANES: tl.constexpr = 2 * RECENT + 1
    game, plane, point = element // (PLANES * POINTS), element // POINTS % PLANES, element % POINTS
    own_colour = tl.load(to_play + game, real, 0).to(tl.int32)
    stones = real & (plane < 2 * RECENT)
    stone = tl.load(recent + (game * RECENT + plane // 2) * POINTS + point, stones, 0).to(tl.int32)
    shown = tl.where(stones, stone == tl.where(plane % 2 == 0, own_colour, -own_colour), own_colour > 0)
    tl.store(out + element, tl.where(shown, 1.0, 0.0).to(out.dtype.element_ty), real)


@triton.jit
def _area(stones, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute areas. Bit 0: black's stones reach the point over empty points; bit 1: white's stones do."""
    game = tl.program_id(0).to(tl.int64)
    point = tl.arange(0, BLOCK)
    stone = tl.load(stones + game * SIZE * SIZE + point, point < SIZE * SIZE, 2).to(tl.int32)
    reached = tl.where(stone == 1, 1, tl.where(stone == -1, 2, 0))
    growing = 1
    while growing != 0:
        grown = reached
        for side in tl.static_range(4):
            other, real = _beside(point, side, SIZE)
            real = real & (stone == 0)
            grown = grown | tl.where(real, tl.gather(reached, tl.where(real, other, 0), 0), 0)
        growing = tl.max((grown != reached).to(tl.int32), axis=0)
        reached = grown
    tl.store(out + game, tl.sum((reached == 1).to(tl.int32) - (reached == 2).to(tl.int32), axis=0))


def _blocks(size: int, warps: int = 0) -> dict[str, int]:
    block = triton.next_power_of_2(size**2 + 1)  # points and the pass
    return {"SIZE": size, "BLOCK": block, "num_warps": warps or max(1, block // 32)}


def legal(boards: Boards, grid: Grid, size: int) -> torch.Tensor:
    """Compute Rules.legal."""
    games, positions = boards.history.shape
    out = torch.empty(games, size**2 + 1, dtype=torch.bool, device=boards.stones.device)
    inputs = (boards.stones, boards.chains, boards.to_play, boards.moves, boards.history, boards.over)
    if games:
        _legal[(games,)](
            *(tensor.contiguous() for tensor in inputs), grid.keys, out, POSITIONS=positions, **_blocks(size)
        )
    return out


def play(boards: Boards, moves: torch.Tensor, grid: Grid, size: int, warps: int = 0) -> Boards:
    """Compute Rules.play."""
    games, positions = boards.history.shape
    boards = boards.map(torch.Tensor.contiguous)
    after = boards.map(torch.empty_like)
    long = triton.next_power_of_2(positions)
    if games:
        _play[(games,)](
            *boards,
            moves.contiguous(),
            grid.keys,
            *after,
            POSITIONS=positions,
            RECENT=RECENT,
            LONG=long,
            **_blocks(size, warps),
        )
    return after


def planes(boards: Boards, dtype: torch.dtype) -> torch.Tensor:
    """Compute Rules.planes, [B, 17, N*N]."""
    games, recent, points = boards.recent.shape
    out = torch.empty(games, 2 * recent + 1, points, dtype=dtype, device=boards.recent.device)
    if games:
        grid = (triton.cdiv(out.numel(), ELEMENTS),)
        inputs = (boards.recent.contiguous(), boards.to_play.contiguous(), out, out.numel())
        _planes[grid](*inputs, RECENT=recent, POINTS=points, ELEMENTS=ELEMENTS)
    return out


def area(stones: torch.Tensor, size: int) -> torch.Tensor:
    """Return black's area minus white's: int32 [B]."""
    out = torch.empty(len(stones), dtype=torch.int32, device=stones.device)
    if len(stones):
        _area[(len(stones),)](stones.contiguous(), out, **_blocks(size))
    return out
