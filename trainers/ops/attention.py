"""Attention within each of several sentences packed into a row, without a mask of all pairs.

A token's keys are one span of the row, and the kernels process only that span. The work therefore grows with the
sentences' lengths, not with the row's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

HEAD_WIDTHS = (16, 32, 64, 128)  # supported by the kernels


def has_kernels(device: torch.device, head_width: int) -> bool:
    return device.type == "cuda" and head_width in HEAD_WIDTHS


@dataclass(frozen=True)
class Spans:
    """The span of keys that each query attends to, and the span of queries that attend to each key.

    `key_first` and `key_last` are int32 [queries], `query_first` and `query_last` int32 [keys], counted over all rows.
    A span excludes its last index; it is empty if both are equal.
    """

    key_first: torch.Tensor
    key_last: torch.Tensor
    query_first: torch.Tensor
    query_last: torch.Tensor


def spans(queries: torch.Tensor, keys: torch.Tensor, causal: bool = False) -> Spans:
    """Return the spans of queries and keys from each token's sentence number in its row, [n, T] and [n, S].

    Numbers start at 1 and rise along a row; 0 is padding, at the end. Padding neither attends nor is attended to. With
    `causal`, queries and keys are the same tokens, and a token does not attend to later ones.
    """
    key_first, key_last = _span(queries, keys)
    query_first, query_last = _span(keys, queries)
    if causal:
        places = torch.arange(queries.numel(), device=queries.device, dtype=torch.int32)
        key_last, query_first = torch.minimum(key_last, places + 1), torch.maximum(query_first, places)
    return Spans(key_first, key_last, query_first.minimum(query_last), query_last)


def _span(numbers: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each token's span: the `others`, [n, M], with its sentence number. `numbers` are [n, L].

    Padding has an empty span, because its number 0 is replaced among the others.
    """
    rising = torch.where(others == 0, torch.iinfo(others.dtype).max, others)
    row = (torch.arange(len(others), device=numbers.device, dtype=torch.int32) * others.shape[1])[:, None]
    first = torch.searchsorted(rising, numbers, out_int32=True)
    last = torch.searchsorted(rising, numbers, right=True, out_int32=True)
    return (row + first).flatten(), (row + last).flatten()


def attend(parts: torch.Tensor, source: torch.Tensor | None, where: Spans, dropout: float) -> torch.Tensor:
    """Return scaled dot-product attention of all heads, [queries, heads, width]; zeros for queries with empty spans.

    Args:
        parts: queries, [queries, 1, heads, width]; or queries, keys and values, [queries, 3, heads, width]
        source: keys and values, [keys, 2, heads, width], if `parts` has none
        dropout: share of the attention weights to drop, at random from the default generator
    """
    seed = torch.randint(2**31 - 1, (1,), device=parts.device, dtype=torch.int64)
    tensors = (where.key_first, where.key_last, where.query_first, where.query_last)
    attended: torch.Tensor = _attend(parts, source, *tensors, seed, dropout)[0]
    return attended


# Custom operators hide the kernels from the compiler, which would add views and buffers around them.
@torch.library.custom_op("timetrial::span_attention", mutates_args=())
def _attend(
    parts: torch.Tensor, source: torch.Tensor | None, key_first: torch.Tensor, key_last: torch.Tensor,
    query_first: torch.Tensor, query_last: torch.Tensor, seed: torch.Tensor, dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    from trainers.ops import attention_triton

    spans = (key_first, key_last, query_first, query_last)
    source_values = None if source is None else source.contiguous()
    return attention_triton.forward(parts.contiguous(), source_values, spans, seed, dropout)


@torch.library.custom_op("timetrial::span_attention_backward", mutates_args=())
def _gradients(
    gradient: torch.Tensor, parts: torch.Tensor, source: torch.Tensor | None, out: torch.Tensor, logs: torch.Tensor,
    key_first: torch.Tensor, key_last: torch.Tensor, query_first: torch.Tensor, query_last: torch.Tensor,
    seed: torch.Tensor, dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    from trainers.ops import attention_triton

    spans = (key_first, key_last, query_first, query_last)
    source_values = None if source is None else source.contiguous()
    return attention_triton.backward(
        gradient.contiguous(),
        parts.contiguous(),
        source_values,
        out.contiguous(),
        logs.contiguous(),
        spans,
        seed,
        dropout,
    )


@_attend.register_fake
def _(parts: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    num, _number, heads, width = parts.shape
    return parts.new_empty(num, heads, width), parts.new_empty(heads, num, dtype=torch.float32)


@_gradients.register_fake
def _(_: Any, parts: torch.Tensor, source: torch.Tensor | None, *__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return parts.new_empty(parts.shape), parts.new_empty(0 if source is None else source.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *tensors, dropout = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.dropout = dropout


def _backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    parts, source, *spans, seed, out, logs = ctx.saved_tensors
    of_parts, of_source = _gradients(gradient, parts, source, out, logs, *spans, seed, ctx.dropout)
    return of_parts, None if source is None else of_source, None, None, None, None, None, None


_attend.register_autograd(_backward, setup_context=_keep)
