"""The GPU kernels of trainers.ops.attention: a block of queries processes all keys that any of them attends to.

The softmax is computed online: T. Dao et al. 2022, arXiv:2205.14135. Dropout follows from a seed and the numbers of
query and key, so its mask is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
QUERIES, KEYS = 64, 32  # per block; the fastest on an H100 among 16 to 128 of each


@triton.jit
def _mixed(bits):  # type: ignore[no-untyped-def]
    """MurmurHash3's finalizer: each bit of the result depends on all bits of the uint32 `bits`."""
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    return bits ^ (bits >> 16)


@triton.jit
def _kept(seed, head, queries, keys, limit):  # type: ignore[no-untyped-def]
    """Return which pairs of `queries` and `keys` (they broadcast) dropout keeps; it drops a share `limit` / 2**32."""
    query_hash = _mixed(_mixed(queries.to(tl.uint32) * 64 + head.to(tl.uint32)) ^ seed.to(tl.uint32))
    return _mixed(query_hash ^ (keys.to(tl.uint32) * 0x9E3779B1)) >= limit


@triton.jit
def _places(base, row_stride, head, rows, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return pointers to the rows of a head, [rows, WIDTH]; in a large batch their offset exceeds 2**31 elements."""
    return base + rows.to(tl.int64)[:, None] * row_stride + head * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _rows(base, row_stride, head, rows, valid, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load rows of a head, [rows, WIDTH]; zeros outside."""
    return tl.load(_places(base, row_stride, head, rows, WIDTH), valid[:, None], 0.0)


@triton.jit
def _write(base, row_stride, head, rows, valid, values, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(_places(base, row_stride, head, rows, WIDTH), values.to(base.dtype.element_ty), valid[:, None])


@triton.jit
def _span(first, last, rows, valid):  # type: ignore[no-untyped-def]
    """Return the spans of the rows, and the smallest span that contains all of them."""
    low = tl.load(first + rows, valid, 0)
    high = tl.load(last + rows, valid, 0)
    begin = tl.min(tl.where(low < high, low, 1 << 30), axis=0)
    end = tl.max(tl.where(low < high, high, 0), axis=0)
    return low, high, begin, end


@triton.jit
def _attention_forward(  # type: ignore[no-untyped-def]
    query, key, value, out, logs, key_first, key_last, seed, num_queries, query_stride, key_stride,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, DROPS: tl.constexpr,
    PRECISION: tl.constexpr, SCALE: tl.constexpr, LIMIT: tl.constexpr, KEEPS: tl.constexpr, NATURAL_SCALE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    valid = rows < num_queries
    low, high, begin, end = _span(key_first, key_last, rows, valid)
    asks = _rows(query, query_stride, head, rows, valid, WIDTH)
    most = tl.full([QUERIES], -1.0e30, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    attended = tl.zeros([QUERIES, WIDTH], tl.float32)
    for start in range(begin, end, KEYS):
        columns = start + tl.arange(0, KEYS)
        keys = _rows(key, key_stride, head, columns, columns < end, WIDTH)
        values = _rows(value, key_stride, head, columns, columns < end, WIDTH)
        looks = (columns[None, :] >= low[:, None]) & (columns[None, :] < high[:, None])
        scores = tl.dot(asks, tl.trans(keys), input_precision=PRECISION) * SCALE
        scores = tl.where(looks, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        shrunk = tl.exp2(most - higher)
        shares = tl.exp2(scores - higher[:, None])
        total = total * shrunk + tl.sum(shares, axis=1)
        if DROPS:
            shares = tl.where(_kept(tl.load(seed), head, rows[:, None], columns[None, :], LIMIT), shares, 0.0)
        attended = attended * shrunk[:, None] + tl.dot(shares.to(values.dtype), values, input_precision=PRECISION)
        most = higher
    looks_at_any = low < high
    attended = attended / (tl.where(looks_at_any, total, 1.0) * KEEPS)[:, None]
    _write(out, HEADS * WIDTH, head, rows, valid, tl.where(looks_at_any[:, None], attended, 0.0), WIDTH)
    tl.store(logs + head * num_queries + rows, tl.where(looks_at_any, most + tl.log2(total), 1.0e30), valid)


@triton.jit
def _attention_backward_queries(  # type: ignore[no-untyped-def]
    query, key, value, out, logs, gradient, deltas, query_gradient, key_first, key_last, seed, num_queries,
    query_stride, key_stride, query_gradient_stride,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, DROPS: tl.constexpr,
    PRECISION: tl.constexpr, SCALE: tl.constexpr, LIMIT: tl.constexpr, KEEPS: tl.constexpr, NATURAL_SCALE: tl.constexpr,
):  # fmt: skip
    """Compute the queries' gradient, and `deltas`, float32 [heads, queries]: sums of output times gradient."""
    head = tl.program_id(1)
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    valid = rows < num_queries
    low, high, begin, end = _span(key_first, key_last, rows, valid)
    asks = _rows(query, query_stride, head, rows, valid, WIDTH)
    upper = _rows(gradient, HEADS * WIDTH, head, rows, valid, WIDTH)
    output = _rows(out, HEADS * WIDTH, head, rows, valid, WIDTH)
    delta = tl.sum(upper.to(tl.float32) * output.to(tl.float32), axis=1)
    tl.store(deltas + head * num_queries + rows, delta, valid)
    log = tl.load(logs + head * num_queries + rows, valid, 1.0e30)
    total = tl.zeros([QUERIES, WIDTH], tl.float32)
    for start in range(begin, end, KEYS):
        columns = start + tl.arange(0, KEYS)
        keys = _rows(key, key_stride, head, columns, columns < end, WIDTH)
        values = _rows(value, key_stride, head, columns, columns < end, WIDTH)
        looks = (columns[None, :] >= low[:, None]) & (columns[None, :] < high[:, None])
        scores = tl.dot(asks, tl.trans(keys), input_precision=PRECISION) * SCALE
        shares = tl.where(looks, tl.exp2(scores - log[:, None]), 0.0)
        of_shares = tl.dot(upper, tl.trans(values), input_precision=PRECISION)
        if DROPS:
            kept = _kept(tl.load(seed), head, rows[:, None], columns[None, :], LIMIT)
            of_shares = tl.where(kept, of_shares / KEEPS, 0.0)
        of_scores = shares * (of_shares - delta[:, None])
        total += tl.dot(of_scores.to(keys.dtype), keys, input_precision=PRECISION)
    _write(query_gradient, query_gradient_stride, head, rows, valid, total * NATURAL_SCALE, WIDTH)


@triton.jit
def _attention_backward_keys(  # type: ignore[no-untyped-def]
    query, key, value, logs, gradient, deltas, key_gradient, value_gradient, key_first, key_last, query_first,
    query_last, seed, num_queries, num_keys, query_stride, key_stride, key_gradient_stride,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, DROPS: tl.constexpr,
    PRECISION: tl.constexpr, SCALE: tl.constexpr, LIMIT: tl.constexpr, KEEPS: tl.constexpr, NATURAL_SCALE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    columns = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    here = columns < num_keys
    _, _, begin, end = _span(query_first, query_last, columns, here)
    keys = _rows(key, key_stride, head, columns, here, WIDTH)
    values = _rows(value, key_stride, head, columns, here, WIDTH)
    of_keys = tl.zeros([KEYS, WIDTH], tl.float32)
    of_values = tl.zeros([KEYS, WIDTH], tl.float32)
    for start in range(begin, end, QUERIES):
        rows = start + tl.arange(0, QUERIES)
        valid = rows < end
        low = tl.load(key_first + rows, valid, 0)
        high = tl.load(key_last + rows, valid, 0)
        asks = _rows(query, query_stride, head, rows, valid, WIDTH)
        upper = _rows(gradient, HEADS * WIDTH, head, rows, valid, WIDTH)
        log = tl.load(logs + head * num_queries + rows, valid, 1.0e30)
        delta = tl.load(deltas + head * num_queries + rows, valid, 0.0)
        looks = (columns[:, None] >= low[None, :]) & (columns[:, None] < high[None, :])
        scores = tl.dot(keys, tl.trans(asks), input_precision=PRECISION) * SCALE
        shares = tl.where(looks, tl.exp2(scores - log[None, :]), 0.0)
        of_shares = tl.dot(values, tl.trans(upper), input_precision=PRECISION)
        dropped = shares
        if DROPS:
            kept = _kept(tl.load(seed), head, rows[None, :], columns[:, None], LIMIT)
            dropped = tl.where(kept, shares / KEEPS, 0.0)
            of_shares = tl.where(kept, of_shares / KEEPS, 0.0)
        of_values += tl.dot(dropped.to(upper.dtype), upper, input_precision=PRECISION)
        of_scores = shares * (of_shares - delta[None, :])
        of_keys += tl.dot(of_scores.to(asks.dtype), asks, input_precision=PRECISION)
    _write(key_gradient, key_gradient_stride, head, columns, here, of_keys * NATURAL_SCALE, WIDTH)
    _write(value_gradient, key_gradient_stride, head, columns, here, of_values, WIDTH)


def forward(
    parts: torch.Tensor, source: torch.Tensor | None, spans: Sequence[torch.Tensor], seed: torch.Tensor, dropout: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output of trainers.ops.attention.attend, and the logsumexps for `backward`, [heads, queries].

    `spans` are the tensors of trainers.ops.attention.Spans; `seed` is int64 [1]. `parts` and `source` are contiguous.
    """
    num, _, heads, width = parts.shape
    out = torch.empty((num, heads, width), dtype=parts.dtype, device=parts.device)
    logs = torch.empty((heads, num), dtype=torch.float32, device=parts.device)
    asks, keys, values = _split(parts, source)
    _attention_forward[(triton.cdiv(num, QUERIES), heads)](
        asks, keys, values, out, logs, *spans[:2], seed, num, asks.stride(0), keys.stride(0),
        **_options(parts, dropout), num_warps=4,
    )  # fmt: skip
    return out, logs


def backward(
    gradient: torch.Tensor, parts: torch.Tensor, source: torch.Tensor | None, out: torch.Tensor, logs: torch.Tensor,
    spans: Sequence[torch.Tensor], seed: torch.Tensor, dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the gradients of `parts` and `source`; without a source, the second is an empty tensor."""
    num, _, heads, _ = parts.shape
    of_parts, deltas = torch.empty_like(parts), torch.empty_like(logs)
    of_source = None if source is None else torch.empty_like(source)
    asks, keys, values = _split(parts, source)
    of_asks, of_keys, of_values = _split(of_parts, of_source)
    options = _options(parts, dropout)
    _attention_backward_queries[(triton.cdiv(num, QUERIES), heads)](
        asks, keys, values, out, logs, gradient, deltas, of_asks, *spans[:2], seed, num, asks.stride(0),
        keys.stride(0), of_asks.stride(0), **options, num_warps=4,
    )  # fmt: skip
    _attention_backward_keys[(triton.cdiv(len(keys), KEYS), heads)](
        asks, keys, values, logs, gradient, deltas, of_keys, of_values, *spans, seed, num, len(keys),
        asks.stride(0), keys.stride(0), of_keys.stride(0), **options, num_warps=2,
    )  # fmt: skip
    return of_parts, parts.new_empty(0) if of_source is None else of_source


def _split(parts: torch.Tensor, source: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return views of queries, keys and values, each [tokens, heads, width]."""
    keys = parts[:, 1:] if source is None else source
    return parts[:, 0], keys[:, 0], keys[:, 1]


def _options(parts: torch.Tensor, dropout: float) -> dict[str, Any]:
    tf32 = torch.backends.cuda.matmul.allow_tf32
    precision = "ieee" if parts.dtype == torch.float32 and not tf32 else "tf32"
    heads, width = parts.shape[2:]
    return {
        "HEADS": heads, "WIDTH": width, "QUERIES": QUERIES, "KEYS": KEYS, "DROPS": dropout > 0, "PRECISION": precision,
        "SCALE": width**-0.5 * LOG2_E, "NATURAL_SCALE": width**-0.5, "LIMIT": int(dropout * 2**32),
        "KEEPS": 1 - dropout,
    }  # fmt: skip
