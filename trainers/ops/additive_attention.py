"""The scores of additive attention (D. Bahdanau et al., arXiv:1409.0473), without storing the hidden layer.

The hidden layer has a vector for each pair of a query and a key. On a GPU, Triton kernels recompute it in each pass;
the compiler sees them as PyTorch operators.
"""

from __future__ import annotations

from typing import Any

import torch


def additive_scores(query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return vector . tanh(query + key + bias) for each query and key, float32 [n, T, S].

    Args:
        query: [T, n, width] of any float dtype; in the two 16-bit dtypes tanh is the GPU's, exact to 2 ** -11
        key: [S, n, width], of the same dtype
        vector, bias: [width] of any float dtype
    """
    if query.is_cuda:
        scores: torch.Tensor = _scores(query, key, vector, bias)
        return scores
    hidden = torch.tanh(query.transpose(0, 1)[:, :, None] + key.transpose(0, 1)[:, None] + bias)
    return (hidden * vector).sum(dim=3).float()


@torch.library.custom_op("timetrial::additive_scores", mutates_args=(), device_types="cuda")
def _scores(query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    from trainers.ops import additive_attention_triton

    return additive_attention_triton.scores(*(part.contiguous() for part in (query, key, vector, bias)))


@torch.library.custom_op("timetrial::additive_scores_backward", mutates_args=(), device_types="cuda")
def _gradients(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    from trainers.ops import additive_attention_triton

    parts = (part.contiguous() for part in (gradient, query, key, vector, bias))
    return additive_attention_triton.gradients(*parts)


@_scores.register_fake
def _(query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return query.new_empty(query.shape[1], query.shape[0], key.shape[0], dtype=torch.float32)


@_gradients.register_fake
def _(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, vector: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty_like(part, memory_format=torch.contiguous_format) for part in (query, key, vector, bias))


def _keep(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
    gradients: tuple[torch.Tensor, ...] = _gradients(gradient, *ctx.saved_tensors)
    return gradients


_scores.register_autograd(_backward, setup_context=_keep)
