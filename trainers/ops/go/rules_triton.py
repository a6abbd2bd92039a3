"""Go's rules as Triton kernels for GPUs, one warp for each game. Results equal those of in_torch.py bit by bit.

A game's points are registers of one warp, so its reductions need neither shared memory nor barriers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from trainers.ops.go.boards import RECENT, Boards
from trainers.ops.go.grid import Grid

AT_ONCE = tl.constexpr(8)  # earlier positions that are loaded before the first is compared
NONE = tl.constexpr(1 << 14)  # above every point's index


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
def _either(first, second):  # type: ignore[no-untyped-def]
    return first | second


@triton.jit
def _as_set(point):  # type: ignore[no-untyped-def]
    """Return the set of one point: its index in the low 16 bits, the complement in the high 16. OR unites sets.

    A union has the OR of all indices in its low half, the complement of their AND in its high half. It is a single
    point if OR and AND are equal.
    """
    return point | ((point ^ 0xFFFF) << 16)


@triton.jit
def _is_single(points):  # type: ignore[no-untyped-def]
    return (points & 0xFFFF) ^ (points >> 16 & 0xFFFF) == 0xFFFF


@triton.jit
def _surroundings(stones, point, own_colour, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return each point's liberties as a set, and how many own stones are beside it."""
    inside = point < SIZE * SIZE
    liberties, friends = tl.zeros(point.shape, tl.int32), tl.zeros(point.shape, tl.int32)
    for side in tl.static_range(4):
        other, real = _beside(point, side, SIZE)
        colour = tl.load(stones + other, inside & real, 2).to(tl.int32)
        liberties |= tl.where(colour == 0, _as_set(other), 0)
        friends += (colour == own_colour).to(tl.int32)
    return liberties, friends


@triton.jit
def _repeats(history, position, num_moves):  # type: ignore[no-untyped-def]
    """Return which of these hashes have occurred in a game of so many moves."""
    repeated = tl.zeros(position.shape, tl.int1)
    for start in tl.range(0, num_moves + 1, AT_ONCE):
        for ahead in tl.static_range(AT_ONCE):
            repeated = repeated | (position == tl.load(history + tl.minimum(start + ahead, num_moves)))
    return repeated


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
    empty = tl.load(stones + point, point < POINTS, 2) == 0
    key = tl.load(keys + point, point < POINTS, 0)
    liberties, friends = _surroundings(stones, point, own_colour, SIZE)
    breathes, captured = liberties != 0, key
    chain = tl.load(chains + point, point < POINTS, POINTS).to(tl.int32)
    chain = tl.where(chain < POINTS, chain, NONE)
    name = tl.min(chain, axis=0)
    while name < NONE:  # a chain at a time
        belongs = chain == name
        of_chain = tl.reduce(tl.where(belongs, liberties, 0), 0, _either)
        if _is_single(of_chain):
            here = point == (of_chain & 0xFFFF)
            if tl.load(stones + name).to(tl.int32) == own_colour:
                stones_beside = tl.sum((belongs & (liberties != 0)).to(tl.int32), axis=0)
                friends = tl.where(here, friends - stones_beside, friends)
            else:
                breathes = breathes | here
                captured = tl.where(here, captured + tl.sum(tl.where(belongs, key, 0), axis=0), captured)
        chain = tl.where(belongs, NONE, chain)
        name = tl.min(chain, axis=0)
    num_moves = tl.load(moves + game).to(tl.int32)
    after = tl.load(history + num_moves) + captured * own_colour
    allowed = empty & (breathes | (friends > 0)) & (tl.load(over + game) == 0)
    allowed = allowed & ~_repeats(history, after, num_moves)
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
def _planes(recent, to_play, out, RECENT: tl.constexpr, POINTS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    game = tl.program_id(0).to(tl.int64)
    point = tl.arange(0, BLOCK)
    inside = point < POINTS
    recent, out = recent + game * RECENT * POINTS + point, out + game * (2 * RECENT + 1) * POINTS + point
    own_colour = tl.load(to_play + game).to(tl.int32)
    for age in tl.static_range(RECENT):
        stone = tl.load(recent + age * POINTS, inside, 0).to(tl.int32)
        own, others = tl.where(stone == own_colour, 1.0, 0.0), tl.where(stone == -own_colour, 1.0, 0.0)
        tl.store(out + 2 * age * POINTS, own.to(out.dtype.element_ty), inside)
        tl.store(out + (2 * age + 1) * POINTS, others.to(out.dtype.element_ty), inside)
    black = tl.zeros([BLOCK], tl.float32) + tl.where(own_colour > 0, 1.0, 0.0)
    tl.store(out + 2 * RECENT * POINTS, black.to(out.dtype.element_ty), inside)


@triton.jit
def _area(stones, out, SIZE: tl.constexpr, LINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute areas. An integer holds a column: bit `row` if black reaches a point, bit `row + LINE` if white does."""
    game = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, LINE)
    row, across = tl.arange(0, LINE)[:, None], column[None, :]
    stone = tl.load(stones + game * SIZE * SIZE + row * SIZE + across, (row < SIZE) & (across < SIZE), 2)
    bit = tl.full([LINE, LINE], 1, tl.int32 if LINE == 16 else tl.int64)
    black, white = bit << row, bit << (row + LINE)
    reached = tl.sum(tl.where(stone == 1, black, tl.where(stone == -1, white, 0)), axis=0)
    free = tl.sum(tl.where(stone == 0, black | white, 0), axis=0)
    left, right = tl.maximum(column - 1, 0), tl.minimum(column + 1, LINE - 1)
    growing = 1
    while growing != 0:
        beside = reached << 1 | reached >> 1 | tl.gather(reached, left, 0) | tl.gather(reached, right, 0)
        grown = reached | beside & free
        growing = tl.max((grown != reached).to(tl.int32), axis=0)
        reached = grown
    points = reached[None, :]
    lead = (points >> row & 1).to(tl.int32) - (points >> (row + LINE) & 1).to(tl.int32)  # reached by both: 0
    tl.store(out + game, tl.sum(tl.sum(lead, axis=0), axis=0))


def _block(size: int) -> int:
    return 1 << (size**2).bit_length()  # above all points, with a place for the pass


def legal(boards: Boards, grid: Grid, size: int) -> torch.Tensor:
    """Compute Rules.legal."""
    games, positions = boards.history.shape
    out = torch.empty(games, size**2 + 1, dtype=torch.bool, device=boards.stones.device)
    tensors = (boards.stones, boards.chains, boards.to_play, boards.moves, boards.history, boards.over)
    if games:
        inputs = (*(tensor.contiguous() for tensor in tensors), grid.keys, out)
        _legal[(games,)](*inputs, POSITIONS=positions, SIZE=size, BLOCK=_block(size), num_warps=1)
    return out


def play(boards: Boards, moves: torch.Tensor, grid: Grid, size: int) -> Boards:
    """Compute Rules.play."""
    games, positions = boards.history.shape
    boards = boards.map(torch.Tensor.contiguous)
    after = boards.map(torch.empty_like)
    sizes = {"SIZE": size, "BLOCK": _block(size), "POSITIONS": positions, "LONG": triton.next_power_of_2(positions)}
    if games:
        _play[(games,)](*boards, moves.contiguous(), grid.keys, *after, RECENT=RECENT, **sizes, num_warps=1)
    return after


def planes(boards: Boards, dtype: torch.dtype) -> torch.Tensor:
    """Compute Rules.planes, [B, 17, N*N]."""
    games, recent, points = boards.recent.shape
    out = torch.empty(games, 2 * recent + 1, points, dtype=dtype, device=boards.recent.device)
    block = triton.next_power_of_2(points)
    if games:
        inputs = (boards.recent.contiguous(), boards.to_play.contiguous(), out)
        _planes[(games,)](*inputs, RECENT=recent, POINTS=points, BLOCK=block, num_warps=1)
    return out


def area(stones: torch.Tensor, size: int) -> torch.Tensor:
    """Return black's area minus white's: int32 [B]."""
    out = torch.empty(len(stones), dtype=torch.int32, device=stones.device)
    if len(stones):
        _area[(len(stones),)](stones.contiguous(), out, SIZE=size, LINE=16 if size < 16 else 32, num_warps=1)
    return out
