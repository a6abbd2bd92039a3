"""The GPU kernels of trainers.ops.additive_attention: sums of tanh stay in registers until they are complete.

No two programs share a sum, so the same inputs always give the same gradients. A kernel is compiled for each width, but
not for each length or number of rows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

TANH_SINCE = (7, 5)  # first compute capability with a tanh instruction


@triton.jit
def _tanh(x, QUICK: tl.constexpr):  # type: ignore[no-untyped-def]
    if QUICK:
        y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)
    return y


@triton.jit(do_not_specialize=["num_rows", "num_queries", "num_keys"])
def _additive_attention_forward(  # type: ignore[no-untyped-def]
    query, key, vector, bias, out, num_rows, num_queries, num_keys,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, PART: tl.constexpr, QUICK: tl.constexpr,
):  # fmt: skip
    """Compute scores of a block of queries and keys of one sentence; sum over parts of the width, then over lanes."""
    row = tl.program_id(0).to(tl.int64)
    t = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES)
    s = tl.program_id(2) * KEYS + tl.arange(0, KEYS)
    t_in, s_in = t < num_queries, s < num_keys
    query_rows = query + (t[:, None, None] * num_rows + row) * WIDTH
    key_rows = key + (s[None, :, None] * num_rows + row) * WIDTH
    total = tl.zeros([QUERIES, KEYS, PART], tl.float32)
    for first in range(0, WIDTH, PART):
        d = first + tl.arange(0, PART)[None, None, :]
        d_in = d < WIDTH
        query_values = tl.load(query_rows + d, t_in[:, None, None] & d_in, 0.0).to(tl.float32)
        query_values += tl.load(bias + d, d_in, 0.0).to(tl.float32)
        key_values = tl.load(key_rows + d, s_in[None, :, None] & d_in, 0.0).to(tl.float32)
        weight = tl.load(vector + d, d_in, 0.0).to(tl.float32)
        total += weight * _tanh(query_values + key_values, QUICK)
    target = out + (row * num_queries + t[:, None]) * num_keys + s[None, :]
    tl.store(target, tl.sum(total, axis=2), t_in[:, None] & s_in[None, :])


@triton.jit(do_not_specialize=["num_rows", "num_own", "num_others"])
def _additive_attention_backward(  # type: ignore[no-untyped-def]
    own, others, vector, bias, gradient, out, sums, num_rows, num_own, num_others,
    OF_KEYS: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr, PART: tl.constexpr, QUICK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a block of queries over all keys, or of a block of keys over all queries.

    A block of queries also stores its part of the gradients of vector and bias in `sums`, [2, programs, WIDTH].
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * OWN + tl.arange(0, OWN)
    d = tl.program_id(2) * PART + tl.arange(0, PART)
    valid, d_in = place < num_own, d < WIDTH
    inside = valid[:, None] & d_in[None, :]
    target = (place[:, None] * num_rows + row) * WIDTH + d[None, :]
    x = tl.load(own + target, inside, 0.0).to(tl.float32) + tl.load(bias + d, d_in, 0.0).to(tl.float32)[None, :]
    slopes, tanhs = tl.zeros([OWN, PART], tl.float32), tl.zeros([OWN, PART], tl.float32)
    for other in range(num_others):
        y = tl.load(others + (other * num_rows + row) * WIDTH + d, d_in, 0.0).to(tl.float32)
        if OF_KEYS:
            scores = (row * num_others + other) * num_own + place
        else:
            scores = (row * num_own + place) * num_others + other
        upstream = tl.load(gradient + scores, valid, 0.0)[:, None]
        tanh = _tanh(x + y[None, :], QUICK)
        slopes += upstream * (1.0 - tanh * tanh)
        if not OF_KEYS:
            tanhs += upstream * tanh
    slopes *= tl.load(vector + d, d_in, 0.0).to(tl.float32)[None, :]
    tl.store(out + target, slopes.to(out.dtype.element_ty), inside)
    if not OF_KEYS:
        program = row * tl.num_programs(1) + tl.program_id(1)
        last = tl.num_programs(0).to(tl.int64) * tl.num_programs(1)
        tl.store(sums + program * WIDTH + d, tl.sum(tanhs, axis=0), d_in)
        tl.store(sums + (last + program) * WIDTH + d, tl.sum(slopes, axis=0), d_in)


def scores(query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute trainers.ops.additive_attention.additive_scores for contiguous tensors."""
    (num_queries, num_rows, width), num_keys = query.shape, len(key)
    out = torch.empty(num_rows, num_queries, num_keys, dtype=torch.float32, device=query.device)
    if out.numel():
        blocks = {"QUERIES": 4, "KEYS": 16, "PART": 64}
        grid = (num_rows, triton.cdiv(num_queries, blocks["QUERIES"]), triton.cdiv(num_keys, blocks["KEYS"]))
        _additive_attention_forward[grid](
            query, key, vector, bias, out, num_rows, num_queries, num_keys,
            WIDTH=width, QUICK=_is_quick(query), num_warps=4, **blocks,
        )  # fmt: skip
    return out


def gradients(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key, vector and bias from the scores' gradient, float32 [n, T, S].

    All tensors are contiguous.
    """
    num_blocks = query.shape[1] * triton.cdiv(len(query), OWN)
    sums = torch.zeros(2, num_blocks, query.shape[2], dtype=torch.float32, device=query.device)
    of_query = _of_one_side(False, query, key, vector, bias, gradient, sums)
    of_key = _of_one_side(True, key, query, vector, bias, gradient, sums)
    of_vector, of_bias = sums[0].sum(dim=0), sums[1].sum(dim=0)  # An operator's results must not share memory.
    return of_query, of_key, of_vector.to(vector.dtype), of_bias.to(bias.dtype)


OWN, PART = 16, 64  # per program of the backward pass: queries or keys, and columns of the width


def _of_one_side(
    of_keys: bool, own: torch.Tensor, others: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor,
    gradient: torch.Tensor, sums: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    num_own, num_rows, width = own.shape
    out = torch.empty_like(own)
    if out.numel():
        grid: Any = (num_rows, triton.cdiv(num_own, OWN), triton.cdiv(width, PART))
        _additive_attention_backward[grid](
            own, others, vector, bias, gradient, out, sums, num_rows, num_own, len(others),
            OF_KEYS=of_keys, WIDTH=width, OWN=OWN, PART=PART, QUICK=_is_quick(own), num_warps=2,
        )  # fmt: skip
    return out


def _is_quick(x: torch.Tensor) -> bool:
    """Return whether the GPU has a tanh instruction and the dtype allows its error."""
    if not x.is_cuda or x.dtype == torch.float32 or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(x.device) >= TANH_SINCE
