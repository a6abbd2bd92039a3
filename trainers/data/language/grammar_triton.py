"""The GPU kernel of trainers.data.language.grammar, in which each lane makes a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from trainers.ops.chance.counters import FIRST, GAMMA, SECOND, WORD, signed

if TYPE_CHECKING:
    from trainers.data.language.grammar import Grammar

ROWS = 32  # sequences of a program, one for each lane


@triton.jit
def _mixed(counters, key, GAMMA: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):  # type: ignore[no-untyped-def]
    bits = counters * GAMMA + key
    bits = (bits ^ (bits >> 30 & ((1 << 34) - 1))) * FIRST
    bits = (bits ^ (bits >> 27 & ((1 << 37) - 1))) * SECOND
    return bits ^ (bits >> 31 & ((1 << 33) - 1))


@triton.jit(do_not_specialize=["num_rows", "num_tokens", "stream", "language"])
def _sequences(  # type: ignore[no-untyped-def]
    places, bounds, powers, tokens, num_rows, num_tokens, stream, language, BRANCHES: tl.constexpr,
    ORDER: tl.constexpr, SLOTS: tl.constexpr, GAMMA: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = row < num_rows
    counter = tl.load(places + row, valid, 0) * num_tokens
    slot = tl.arange(0, SLOTS)[None, :]
    latest = tl.zeros((ROWS, SLOTS), tl.int64)  # hashes of the latest tokens, each in slot place % SLOTS
    for place in range(num_tokens):
        draw = _mixed(counter + place, stream, GAMMA, FIRST, SECOND)
        chosen = (draw & ((1 << 62) - 1)) % BRANCHES
        age = (place + SLOTS - 1 - slot) % SLOTS
        in_context = (age <= (chosen % ORDER)[:, None]) & (age < place)
        context = tl.sum(tl.where(in_context, latest * tl.load(powers + age), 0), axis=1)
        context = tl.where(place == 0, _mixed(draw, language, GAMMA, FIRST, SECOND), context)
        first, last = tl.load(bounds + chosen), tl.load(bounds + chosen + 1)
        within = _mixed(context + chosen, language + 1, GAMMA, FIRST, SECOND) & ((1 << 62) - 1)
        token = first + within % (last - first)
        tl.store(tokens + row.to(tl.int64) * num_tokens + place, token.to(tl.int32), valid)
        token_hash = _mixed(token, language, GAMMA, FIRST, SECOND)
        latest = tl.where(slot == place % SLOTS, token_hash[:, None], latest)


def sequences(grammar: Grammar, tables: Tables, places: torch.Tensor, num_tokens: int, key: int) -> torch.Tensor:
    """Compute `Grammar.sequences` for places int64 on the device."""
    tokens = places.new_empty(len(places), num_tokens, dtype=torch.int32)
    _sequences[(triton.cdiv(len(places), ROWS),)](
        places, *tables, tokens, len(places), num_tokens, signed(key), signed(grammar.key),
        BRANCHES=grammar.branches, ORDER=grammar.order, SLOTS=len(tables.powers), GAMMA=signed(GAMMA),
        FIRST=signed(FIRST), SECOND=signed(SECOND), ROWS=ROWS, num_warps=1,
    )  # fmt: skip
    return tokens


class Tables(NamedTuple):
    """The kernel's lookup tables, int64 on the device."""

    bounds: torch.Tensor  # of the grammar's ranges
    powers: torch.Tensor  # of GAMMA, by age, at least as many as the grammar's order


def tables(grammar: Grammar, device: torch.device) -> Tables:
    powers = [signed(pow(GAMMA, age, WORD)) for age in range(triton.next_power_of_2(grammar.order))]
    return Tables(torch.tensor(grammar.bounds.tolist(), device=device), torch.tensor(powers, device=device))
