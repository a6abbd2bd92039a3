"""The GPU kernel for the groups of trainers.data.ratings.loader: one kernel instead of some twenty of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from trainers.ops.chance.counters import FIRST, GAMMA, SECOND, signed

if TYPE_CHECKING:
    from trainers.data.ratings.draws import RatedItems

SAMPLES = 256  # per program


@triton.jit(do_not_specialize=["num_samples", "num_items", "key"])
def _groups(  # type: ignore[no-untyped-def]
    rated_start, rated_users, rated_items, gaps, positives, users, items, num_samples, num_items, key,
    NEGATIVES: tl.constexpr, GAMMA: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, SAMPLES: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    valid = sample < num_samples
    group, place = sample // (1 + NEGATIVES), sample % (1 + NEGATIVES)
    positive = tl.load(positives + group, valid, 0)
    user = tl.load(rated_users + positive, valid, 0).to(tl.int64)
    first, last = tl.load(rated_start + user, valid, 0), tl.load(rated_start + user + 1, valid, 0)

    bits = (positive * NEGATIVES + place - 1) * GAMMA + key
    bits = (bits ^ (bits >> 30 & ((1 << 34) - 1))) * FIRST
    bits = (bits ^ (bits >> 27 & ((1 << 37) - 1))) * SECOND
    bits = bits ^ (bits >> 31 & ((1 << 33) - 1))
    gap = user * num_items + (bits & ((1 << 62) - 1)) % tl.maximum(num_items - (last - first), 1)

    low, high = first, last  # bisection for the user's first gap above `gap`
    while tl.max(high - low, axis=0) > 0:
        middle = (low + high) // 2
        open = low < high
        below = open & (tl.load(gaps + middle, valid & open, 0) <= gap)
        low, high = tl.where(below, middle + 1, low), tl.where(open & ~below, middle, high)
    negative = gap - user * num_items + low - first
    item = tl.where(place == 0, tl.load(rated_items + positive, valid, 0).to(tl.int64), negative)
    tl.store(items + sample, item, valid)
    tl.store(users + group, user, valid & (place == 0))


def groups(rated: RatedItems, positives: torch.Tensor, key: int, negatives: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return users int64 [G] and items int64 [G, 1 + negatives] for positives int64 [G], places in `rated`."""
    users = torch.empty_like(positives)
    items = positives.new_empty(len(positives), 1 + negatives)
    _groups[(triton.cdiv(items.numel(), SAMPLES),)](
        rated.start, rated.users, rated.items, rated.gaps, positives, users, items, items.numel(), rated.num_items,
        signed(key), NEGATIVES=negatives, GAMMA=signed(GAMMA), FIRST=signed(FIRST), SECOND=signed(SECOND),
        SAMPLES=SAMPLES, num_warps=4,
    )  # fmt: skip
    return users, items
