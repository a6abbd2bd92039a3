"""Where a held-out item ranks among its candidates, as MLPerf Training v0.5 counts it."""

from __future__ import annotations

import math

import torch

TOP = 10


def ranks(scores: torch.Tensor, valid: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """How many candidates come before the held-out one, int64 [E]: those with a higher score, or with the same and an
    earlier place. A score that is NaN comes before, and a held-out item with such a score behind all.

    Args:
        scores: float [E, K]
        valid: bool [E, K], false for what does not count
        positions: int64 [E], the places of the held-out items
    """
    own = scores.gather(1, positions[:, None])
    place = torch.arange(scores.shape[1], device=scores.device)
    behind = (scores < own) | ((scores == own) & (place >= positions[:, None]))
    return (valid & ~behind).sum(dim=1)


def hits_and_gains(ranks: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums over E users, float32 [3]: users, hits, and normalised discounted cumulative gains at TOP."""
    hits = (ranks < TOP).float()
    gains = hits * math.log(2) / torch.log(ranks + 2.0)
    return (torch.stack([torch.ones_like(hits), hits, gains]) * weights).sum(dim=1)
