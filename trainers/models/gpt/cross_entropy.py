"""The cross entropy of a linear layer's logits, computed in chunks, so that a step never holds all logits.

A cap bounds each logit l to cap * l / sqrt(l^2 + cap^2); PyTorch's `linear_cross_entropy` has no caps. The gradients of
a chunk are computed right after its logits, in the same memory, so only tensors of the inputs' size are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

CHUNK_ELEMENTS = 2**30  # logits of a chunk: 2 GiB in a 16-bit type
LARGEST_CAP = 60.0  # Up to here sums of exponentials stay within float32 without subtracting the largest logit.
Parts = tuple[torch.Tensor, torch.Tensor]


def losses(logits: torch.Tensor, targets: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Return the cross entropy of each row in nats, float32 [n]; 0 for targets below 0."""
    capped, logs, _ = _capped(logits, cap)
    of_target = capped.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    return torch.where(targets >= 0, logs - of_target, 0.0)


def losses_and_slopes(logits: torch.Tensor, targets: torch.Tensor, cap: float | None) -> Parts:
    """Return the losses, and the gradient of their sum by the logits, in the logits' dtype."""
    capped, logs, inverse = _capped(logits, cap)
    valid = targets >= 0
    of_target = capped.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
    slopes = (capped - logs[:, None]).exp() - is_target.float()
    if cap is not None:
        slopes = slopes * (cap * inverse) ** 3
    return torch.where(valid, logs - of_target, 0.0), torch.where(valid[:, None], slopes, 0.0).to(logits.dtype)


def _capped(logits: torch.Tensor, cap: float | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the capped logits in float32, their logsumexp, and 1 / sqrt(l^2 + cap^2) for the cap's derivative."""
    wide = logits.float()
    if cap is None:
        return wide, wide.logsumexp(dim=1), wide
    inverse = (wide.square() + cap * cap).rsqrt()
    capped = cap * wide * inverse
    return capped, capped.exp().sum(dim=1).log(), inverse


class CrossEntropy:
    """Computes the summed loss of inputs [n, width] with a head of weight [tokens, width] and bias [tokens] or None.

    The head computes in the inputs' dtype. Raises AssertionError for a cap above LARGEST_CAP.
    """

    def __init__(self, cap: float | None) -> None:
        assert cap is None or 0 < cap <= LARGEST_CAP
        self.cap = cap
        self._losses: Callable[..., torch.Tensor] = losses
        self._slopes: Callable[..., Parts] = losses_and_slopes

    def compile(self) -> None:
        """Compile what follows a chunk's logits; chunks have few sizes, so each is compiled for itself."""
        self._losses = torch.compile(losses, dynamic=False)
        self._slopes = torch.compile(losses_and_slopes, dynamic=False)

    def drop_compiled(self) -> None:
        self._losses, self._slopes = losses, losses_and_slopes

    def __call__(
        self, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor
    ) -> torch.Tensor:
        """Return a float32 scalar. Targets are int64 [n]; those below 0 are ignored."""
        if torch.is_grad_enabled():
            total: torch.Tensor = _Summed.apply(inputs, weight, bias, targets, self._slopes, self.cap)
            return total
        half, half_bias = weight.to(inputs.dtype), None if bias is None else bias.to(inputs.dtype)
        pieces = _chunks(inputs, targets, len(weight))
        return torch.stack([self._losses(F.linear(x, half, half_bias), t, self.cap).sum() for x, t in pieces]).sum()


def _chunks(inputs: torch.Tensor, targets: torch.Tensor, num_tokens: int) -> list[Parts]:
    """Split the rows into equal chunks of at most CHUNK_ELEMENTS logits; the last one may be smaller."""
    most = max(1, CHUNK_ELEMENTS // num_tokens)
    number = -(-len(inputs) // most)
    rows = -(-len(inputs) // number)
    return list(zip(inputs.split(rows), targets.split(rows), strict=True))


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor,
        slopes_of: Callable[..., Parts], cap: float | None,
    ) -> torch.Tensor:  # fmt: skip
        half, half_bias = weight.to(inputs.dtype), None if bias is None else bias.to(inputs.dtype)
        of_inputs = torch.empty_like(inputs)
        of_weight, total = None, inputs.new_zeros((), dtype=torch.float32)
        of_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        pieces = _chunks(inputs, targets, len(weight))
        for (x, target), out in zip(pieces, of_inputs.split(len(pieces[0][0])), strict=True):
            chunk_losses, slopes = slopes_of(F.linear(x, half, half_bias), target, cap)
            total += chunk_losses.sum()
            torch.mm(slopes, half, out=out)
            product = slopes.t() @ x
            of_weight = product.float() if of_weight is None else of_weight.add_(product)
            if of_bias is not None:
                of_bias += slopes.sum(dim=0, dtype=torch.float32)
        ctx.save_for_backward(of_inputs, of_weight, of_bias)
        ctx.dtype = weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_inputs, of_weight, of_bias = ctx.saved_tensors
        (gradient,) = gradients
        of_head = (None if part is None else (part * gradient).to(ctx.dtype) for part in (of_weight, of_bias))
        return of_inputs * gradient.to(of_inputs.dtype), *of_head, None, None, None
