"""Ranks a held-out item among its candidates, as MLPerf Training v0.5 does."""

from __future__ import annotations

import math

import torch

TOP = 10


def ranks(scores: torch.Tensor, valid: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return how many candidates rank before the held-out one, int64 [E].

    A candidate ranks before it with a higher score, or with the same score at an earlier place. A score of NaN ranks
    before all, but a held-out item with such a score ranks last.

    Args:
        scores: float [E, K]
        valid: bool [E, K], False for candidates that do not count
        positions: int64 [E], the places of the held-out items
    """
    held_out = scores.gather(1, positions[:, None])
    place = torch.arange(scores.shape[1], device=scores.device)
    behind = (scores < held_out) | ((scores == held_out) & (place >= positions[:, None]))
    return (valid & ~behind).sum(dim=1)


def hits_and_gains(ranks: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return weighted sums over E users, float32 [3]: users, hits, normalised discounted cumulative gains at TOP."""
    hits = (ranks < TOP).float()
    gains = hits * math.log(2) / torch.log(ranks + 2.0)
    return (torch.stack([torch.ones_like(hits), hits, gains]) * weights).sum(dim=1)
